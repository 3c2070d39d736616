"""Says in one sentence what is wrong with a value: for pydantic's validation errors, and for secrets."""

import difflib
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from pydantic import ValidationError

from bridge.common.validation.locations import Location
from bridge.common.validation.words import KINDS, is_own, near, predicate

# Sixteen characters of hexadecimal digits are 64 bits.
_CHARACTERS = 16
_DIFFERENT = 5
# At most this many faults are described.
_MOST = 20
_UNKNOWN = ("extra_forbidden", "unexpected_keyword_argument")

__all__ = ["describe", "describe_all", "near", "place_of", "predicate", "weakness"]


class _Sentence(NamedTuple):
    location: str
    words: str
    # The kind that the value should have, if it is of the wrong kind and other kinds are allowed too.
    kind: str | None
    own: bool
    # The known name that the user probably meant.
    meant: str


def describe_all(
    error: ValidationError, model: Any, document: object, also: Mapping[Any, Iterable[str]] | None = None
) -> str:
    """Return a sentence about each fault that pydantic reports, up to a limit.

    Args:
        error: the error.
        model: what the document was validated as.
        document: what was validated.
        also: further names that are known in a model's location, by model.
    """
    return "; ".join(dict.fromkeys(_written(each) for each in _sentences(error, model, document, also or {})))


def describe(error: ValidationError, model: Any, document: object) -> tuple[str, str]:
    """Return a sentence about one fault, and the field that it concerns: a misspelt name, or else the first fault."""
    sentences = _sentences(error, model, document, {})
    chosen = next((each for each in sentences if each.meant), sentences[0])
    return _written(chosen), chosen.meant or chosen.location


def _sentences(
    error: ValidationError, model: Any, document: object, also: Mapping[Any, Iterable[str]]
) -> list[_Sentence]:
    """Return a sentence about each fault. A field is not missing if its name was misspelt."""
    sentences = [_sentence(fault, model, document, also) for fault in _faults(error)]
    meant = {sentence.meant for sentence in sentences}
    return _merged(
        [each for each in sentences if not (each.words == "is missing" and each.location in meant)]
    )


def place_of(fault: Mapping[str, Any], model: Any, document: object) -> list[str]:
    """Return the names and positions that lead to the value that a fault is about."""
    return Location(fault, model, document).parts


def _faults(error: ValidationError) -> list[Any]:
    return error.errors(include_url=False)[:_MOST]


def _sentence(
    fault: Mapping[str, Any], model: Any, document: object, also: Mapping[Any, Iterable[str]]
) -> _Sentence:
    location, words, meant = Location(fault, model, document), predicate(fault), ""
    if fault["type"] == "union_tag_not_found" and (key := _misspelt(location.parts[-1], fault.get("input"))):
        words = f"is not a known field (did you mean {location.parts[-1]}?)"
        return _Sentence(".".join([*location.parts[:-1], key]), words, None, own=False, meant="")
    if fault["type"] in _UNKNOWN and location.parts:
        remark = near(location.parts[-1], location.known(also))
        words += remark
        meant = (
            ".".join([*location.parts[:-1], remark[len(" (did you mean ") : -len("?)")]]) if remark else ""
        )
    if location.of_key:
        words = f"the name {location.parts[-1]!r} {words}" if location.parts else words
        return _Sentence(".".join(location.parts[:-1]), words, None, own=True, meant=meant)
    kind = KINDS.get(fault["type"]) if location.tagged else None
    return _Sentence(location.name, words, kind, own=is_own(fault), meant=meant)


def _misspelt(name: str, mapping: object) -> str | None:
    """Return the key of a mapping that is probably a misspelling of this name."""
    keys = [str(key) for key in mapping] if isinstance(mapping, dict) else []
    return next(iter(difflib.get_close_matches(name, keys, n=1)), None)


def _merged(sentences: list[_Sentence]) -> list[_Sentence]:
    """Join the faults that the members of a union find in one value.

    A member whose kind the value has knows better what is wrong with it. If no member's kind fits, all are named.
    """
    merged: list[_Sentence] = []
    for sentence in sentences:
        if sentence.kind is None:
            merged.append(sentence)
            continue
        inside = (f"{sentence.location}.", sentence.location)
        if any(
            other.kind is None and (other.location == inside[1] or other.location.startswith(inside[0]))
            for other in sentences
        ):
            continue
        kinds = [other.kind for other in sentences if other.kind and other.location == sentence.location]
        if kinds[0] == sentence.kind:
            _, comma, actual = sentence.words.rpartition(", not ")
            words = f"must be {' or '.join(dict.fromkeys(kinds))}{comma}{actual if comma else ''}"
            merged.append(sentence._replace(words=words))
    return merged or sentences[:1]


def _written(sentence: _Sentence) -> str:
    if not sentence.location:
        return sentence.words if sentence.own else f"it {sentence.words}"
    colon = "" if sentence.words.startswith("is ") else ":"
    return f"{sentence.location}{colon} {sentence.words}"


def weakness(secret: str) -> str | None:
    """Return why a chosen secret could be guessed, or could not be sent by programs; None if it is good enough."""
    if len(secret) < _CHARACTERS or not secret.isascii() or not secret.isprintable():
        return f"has to be one line of at least {_CHARACTERS} ASCII characters"
    if len(set(secret)) < _DIFFERENT:
        return f"has to have at least {_DIFFERENT} different characters"
    return None
