"""Every type of error that pydantic knows becomes a sentence of this project, with the place in the document."""

from __future__ import annotations

from typing import Annotated, Literal, get_args

import pydantic
import pytest
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import _pydantic_core, core_schema

from bridge.common.validation import describe, describe_all, predicate
from bridge.common.validation.words import UNKNOWN

KNOWN = {each["type"]: each for each in _pydantic_core.list_all_errors()}
TYPES = get_args(core_schema.ErrorType)


@pytest.mark.parametrize("kind", TYPES)
def test_no_type_of_error_shows_the_words_of_the_library(kind):
    about = KNOWN[kind]
    fault = {
        "type": kind,
        "msg": about["example_message_python"],
        "ctx": about.get("example_context"),
        "input": object(),
    }

    words = predicate(fault)

    own = ("Value error, ", "Assertion failed, ")
    assert words
    assert not words.startswith(own)
    assert words != about["example_message_python"]
    assert not any(part in words for part in ("Input", "should", "Extra", "permitted", "tag ", "{", "}"))


def test_an_error_of_a_later_version_is_still_a_sentence():
    assert predicate({"type": "of_tomorrow", "msg": "Input should be new", "input": 1}) == UNKNOWN


class Cat(BaseModel):
    model_config = ConfigDict(extra="forbid")
    kind: Literal["cat"]
    lives: int


class Dog(BaseModel):
    model_config = ConfigDict(extra="forbid")
    kind: Literal["dog"]
    loud: bool = True


class House(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)
    name: Annotated[str, Field(max_length=3)] = "a"
    pets: dict[str, Annotated[Cat | Dog, Field(discriminator="kind")]] = {}
    rooms: list[str] | str = []
    size: float = 1.0
    color: Literal["red", "green"] = "red"
    either: Cat | Dog | None = None


MISTAKES = {
    "another kind than any of a union": ({"rooms": 5}, "rooms: must be a list or text, not a whole number"),
    "another kind in a list": ({"rooms": [5]}, "rooms.0: must be text, not a whole number"),
    "another kind": ({"size": "5"}, "size: must be a number, not text"),
    "no mapping": ({"pets": [1]}, "pets: must be a mapping of names to values, not a list"),
    "nothing": ({"name": None}, "name: must be text, not null"),
    "too long": ({"name": "abcd"}, "name: must have at most 3 characters"),
    "a word that is similar": ({"color": "gren"}, "color: must be one of red, green, not 'gren' (did you mean green?)"),
    "no word": ({"color": 1}, "color: must be one of red, green, not 1"),
    "a number without bounds": ({"color": 10**40}, "color: must be one of red, green, not a whole number"),
    "a misspelt key": ({"colour": "red"}, "colour is not a known field (did you mean color?)"),
    "a key like no other": ({"qqq": 1}, "qqq is not a known field"),
    "a misspelt key of a member": (
        {"pets": {"cat": {"kind": "cat", "livs": 9}}}, "pets.cat.livs is not a known field (did you mean lives?)",
    ),
    "a key of another member": ({"pets": {"a": {"kind": "dog", "live": 1}}}, "pets.a.live is not a known field"),
    "no tag": ({"pets": {"a": {}}}, "pets.a.kind is missing"),
    "a misspelt tag's name": ({"pets": {"a": {"kid": "cat"}}}, "pets.a.kid is not a known field (did you mean kind?)"),
    "a misspelt tag": (
        {"pets": {"a": {"kind": "kat"}}}, "pets.a.kind: must be one of cat, dog, not 'kat' (did you mean cat?)",
    ),
    "a name that is not text": ({"pets": {5: {"kind": "dog"}}}, "pets: the name '5' must be text, not a whole number"),
    "several": ({"name": 1, "size": "x"}, "name: must be text, not a whole number; size: must be a number, not text"),
    "something missing": ({"either": {"kind": "cat"}}, "either.lives is missing"),
}  # fmt: skip


@pytest.mark.parametrize(("document", "sentence"), MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_is_named_with_its_place(document, sentence):
    with pytest.raises(ValidationError) as caught:
        House.model_validate(document)

    said = describe_all(caught.value, House, document)

    assert said.startswith(sentence)
    assert "Cat" not in said


def test_the_first_fault_comes_with_its_field():
    with pytest.raises(ValidationError) as caught:
        House.model_validate({"name": 1, "size": "x"})

    assert describe(caught.value, House, {"name": 1}) == ("name: must be text, not a whole number", "name")


def test_a_document_of_another_kind_has_no_place():
    with pytest.raises(ValidationError) as caught:
        House.model_validate(5)

    assert (
        describe_all(caught.value, House, 5) == "it must be a mapping of names to values, not a whole number"
    )


def test_only_so_many_faults_are_described():
    document = dict.fromkeys(map(str, range(1000)))
    with pytest.raises(ValidationError) as caught:
        House.model_validate(document)

    assert describe_all(caught.value, House, document).count("is not a known field") == 20


def test_a_long_word_is_not_repeated():
    with pytest.raises(ValidationError) as caught:
        House.model_validate({"color": "x" * 100})

    assert describe_all(caught.value, House, {"color": "x" * 100}) == "color: must be one of red, green"


def test_a_rule_of_our_own_keeps_its_words():
    class Even(BaseModel):
        number: int

        @pydantic.field_validator("number")
        @classmethod
        def _is_even(cls, value: int) -> int:
            if value % 2:
                raise ValueError("must be even")
            return value

    with pytest.raises(ValidationError) as caught:
        Even.model_validate({"number": 3})

    assert describe_all(caught.value, Even, {"number": 3}) == "number: must be even"
