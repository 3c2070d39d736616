"""Each kind of parameter takes what lies within its bounds and nothing else, as text and as JSON."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from bridge.errors import PresetError
from bridge.presets.params import Param
from tests.properties import examples

PARAM = TypeAdapter(Param)
INT = PARAM.validate_python({"type": "int", "min": 1, "max": 64, "default": 8})
ENUM = PARAM.validate_python({"type": "enum", "values": ["tiny", "org/model-4bit", "64"]})
CACHE = PARAM.validate_python({"type": "cache", "words": ["all"], "default": "all"})
FLAG = PARAM.validate_python({"type": "flag", "option": "--verbose"})
PATH = PARAM.validate_python({"type": "path", "under": ["tests", "scripts/research"]})

REFUSED = {
    "int below": (INT, 0, "out_of_range"),
    "int above": (INT, 65, "out_of_range"),
    "int negative": (INT, -1, "out_of_range"),
    "int huge": (INT, 10**17, "out_of_range"),
    "int true": (INT, True, "bad_type"),
    "int float": (INT, 5.0, "bad_type"),
    "int text": (INT, "5", "bad_type"),
    "int null": (INT, None, "bad_type"),
    "int list": (INT, [5], "bad_type"),
    "enum another word": (ENUM, "large", "out_of_range"),
    "enum other case": (ENUM, "Tiny", "out_of_range"),
    "enum empty": (ENUM, "", "out_of_range"),
    "enum with a newline": (ENUM, "tiny\n", "out_of_range"),
    "enum leading dash": (ENUM, "--tiny", "out_of_range"),
    "enum number": (ENUM, 64, "bad_type"),
    "enum true": (ENUM, True, "bad_type"),
    "enum null": (ENUM, None, "bad_type"),
    "cache of another name": (CACHE, "e8v@4", "out_of_range"),
    "cache that holds what comes back": (CACHE, "e8@q38", "out_of_range"),
    "cache with an option behind it": (CACHE, "k=raw,v=e8v@4.25 --help", "out_of_range"),
    "cache with a newline": (CACHE, "raw\n", "out_of_range"),
    "cache number": (CACHE, 4, "bad_type"),
    "flag text": (FLAG, "true", "bad_type"),
    "flag one": (FLAG, 1, "bad_type"),
    "flag null": (FLAG, None, "bad_type"),
    "path number": (PATH, 1, "bad_type"),
    "path true": (PATH, True, "bad_type"),
    "path null": (PATH, None, "bad_type"),
    "path list": (PATH, ["tests"], "bad_type"),
    **{
        f"path {text[:30]!r}": (PATH, text, "path_escape")
        for text in (
            "", " ", ".", "..", "/", "~", "/etc/passwd", "/tests/x.py", "../tests/x.py", "tests/..",
            "tests/../x.py",
            "tests/../../etc", "tests/x/../../y", "./tests/x.py", "tests/./x.py", "tests/.",
            "tests/x/.", "tests/..hidden", "tests/.git/config", "tests/.GIT/config", "tests/.Git",
            ".git/config", ".git",
            "tests/.hidden", "~/tests/x.py", "~root/tests", "tests//x.py", "tests//", "//tests",
            "-tests/x.py", "--help", "-x", "tests/-x.py", "@file",
            "@tests/x.py", "tests_other/x", "testsuite", "Tests/x.py", "other/tests/x.py", "scripts",
            "scripts/x.py",
            "scripts/other/x.py", "scripts/research_other/x", "tests/x.py\n", "tests/x.py\x00", "tests\\x.py",
            "tests/x y.py", "tests/$(id)", "tests/`id`", "tests/x;id", "tests/x|id", "tests/x&", "tests/*",
            "tests/{a,b}",
            "tests/\u202ex.py", "tests/ä.py", "tests/x.py#", "tests/%2e%2e/x",
            "tests/" + "x" * 300, "file:///tests/x.py", "c:/tests/x.py", "::tests/x.py", "other.py::tests/x",
        )
    },
}  # fmt: skip


@pytest.mark.parametrize(("param", "value", "code"), REFUSED.values(), ids=REFUSED)
def test_a_value_out_of_bounds_is_refused_with_its_code(param, value, code):
    with pytest.raises(PresetError) as caught:
        param.check(value)
    assert caught.value.code == code
    assert param.allowed in caught.value.message


TAKEN = {
    "int least": (INT, "1", 1, ["1"]),
    "int most": (INT, "64", 64, ["64"]),
    "int with zeros before": (INT, "007", 7, ["7"]),
    "enum": (ENUM, "tiny", "tiny", ["tiny"]),
    "enum with a slash": (ENUM, "org/model-4bit", "org/model-4bit", ["org/model-4bit"]),
    "enum of digits": (ENUM, "64", "64", ["64"]),
    "cache": (CACHE, "k=e8v@4.25,v=raw", "k=e8v@4.25,v=raw", ["k=e8v@4.25,v=raw"]),
    "cache word": (CACHE, "all", "all", ["all"]),
    "flag true": (FLAG, "true", True, ["--verbose"]),
    "flag YES": (FLAG, "YES", True, ["--verbose"]),
    "flag 1": (FLAG, "1", True, ["--verbose"]),
    "flag off": (FLAG, "off", False, []),
    "flag 0": (FLAG, "0", False, []),
    "path the folder": (PATH, "tests", "tests", ["tests"]),
    "path the folder with a slash": (PATH, "tests/", "tests/", ["tests/"]),
    "path a file": (PATH, "tests/x.py", "tests/x.py", ["tests/x.py"]),
    "path a test": (PATH, "tests/x.py::test_y", "tests/x.py::test_y", ["tests/x.py::test_y"]),
    "path a case": (PATH, "tests/x.py::test_y[a-1]", "tests/x.py::test_y[a-1]", ["tests/x.py::test_y[a-1]"]),
    "path a folder below": (PATH, "tests/a/b_c-d.e", "tests/a/b_c-d.e", ["tests/a/b_c-d.e"]),
    "path in a deeper root": (PATH, "scripts/research/x.py", "scripts/research/x.py",
    ["scripts/research/x.py"]),
}  # fmt: skip


@pytest.mark.parametrize(("param", "text", "value", "argv"), TAKEN.values(), ids=TAKEN)
def test_text_within_the_bounds_becomes_a_value_and_then_argv(param, text, value, argv):
    read = param.read(text)
    assert read == value
    assert type(read) is type(value)
    assert param.check(read) == value
    assert param.argv(value) == argv


@pytest.mark.parametrize(
    ("param", "text"),
    [
        (INT, ""), (INT, "-1"), (INT, "+5"), (INT, " 5"), (INT, "5\n"), (INT, "5.0"), (INT, "1e1"), (INT, "0x5"),
        (INT, "1_0"), (INT, "\u0665"), (INT, "five"), (INT, "9" * 19), (FLAG, ""), (FLAG, "maybe"), (FLAG, "2"),
        (FLAG, "--verbose"),
    ],
)  # fmt: skip
def test_text_that_is_not_of_the_kind_is_refused(param, text):
    with pytest.raises(PresetError) as caught:
        param.read(text)
    assert caught.value.code == "bad_type"


MALFORMED = {
    "no type": {"min": 1, "max": 2},
    "an unknown type": {"type": "string"},
    "int without max": {"type": "int", "min": 1},
    "int with max below min": {"type": "int", "min": 2, "max": 1},
    "int with a negative min": {"type": "int", "min": -1, "max": 1},
    "int with a default out of range": {"type": "int", "min": 1, "max": 2, "default": 3},
    "int with true as min": {"type": "int", "min": True, "max": 2},
    "int with an unknown key": {"type": "int", "min": 1, "max": 2, "step": 1},
    "enum without values": {"type": "enum"},
    "enum of nothing": {"type": "enum", "values": []},
    "enum of a number": {"type": "enum", "values": [64]},
    "enum of an option": {"type": "enum", "values": ["--force"]},
    "enum of an empty word": {"type": "enum", "values": [""]},
    "enum with a newline at the end": {"type": "enum", "values": ["a\n"]},
    "enum with a default that is no choice": {"type": "enum", "values": ["a"], "default": "b"},
    "cache with a default that is none": {"type": "cache", "default": "e8v"},
    "cache with a word that is an option": {"type": "cache", "words": ["--force"]},
    "flag without an option": {"type": "flag"},
    "flag of one dash": {"type": "flag", "option": "-v"},
    "flag with a value in it": {"type": "flag", "option": "--out=/etc"},
    "flag with a newline at the end": {"type": "flag", "option": "--out\n"},
    "path under nothing": {"type": "path", "under": []},
    "path under the root": {"type": "path", "under": ["/"]},
    "path under what is above": {"type": "path", "under": [".."]},
    "path with a default elsewhere": {"type": "path", "under": ["tests"], "default": "src/x.py"},
}


@pytest.mark.parametrize("body", MALFORMED.values(), ids=MALFORMED)
def test_a_malformed_parameter_is_refused(body):
    with pytest.raises((ValidationError, PresetError)):
        PARAM.validate_python(body)


@pytest.mark.parametrize(
    ("param", "required"),
    [(INT, False), (ENUM, True), (CACHE, False), (FLAG, False), (PATH, True)],
    ids=["int", "enum", "cache", "flag", "path"],
)
def test_a_parameter_without_a_default_must_be_given(param, required):
    assert param.required is required


def test_defaults_within_the_bounds_are_taken():
    enum = PARAM.validate_python({"type": "enum", "values": ["a", "b"], "default": "b"})
    path = PARAM.validate_python({"type": "path", "under": ["tests"], "default": "tests/x.py"})
    assert (enum.default, path.default) == ("b", "tests/x.py")


@examples(200)
@given(
    st.sampled_from([INT, ENUM, FLAG, PATH]),
    st.text(max_size=40) | st.from_regex(r"(tests|-)?[-./:@a-zA-Z0-9]{0,12}", fullmatch=True),
)
def test_whatever_text_is_given_no_value_begins_with_a_dash(param, text):
    try:
        value = param.check(param.read(text))
    except PresetError:
        return
    assert not any(part.startswith("-") for part in param.argv(value) if param is not FLAG)
    assert all("\0" not in part and "\n" not in part and part for part in param.argv(value))


@pytest.mark.long
@examples(100)
@given(
    st.sampled_from([INT, ENUM, FLAG, PATH]),
    st.recursive(st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=10), st.lists),
)
def test_whatever_json_is_given_it_is_a_value_or_a_preset_error(param, value):
    try:
        assert param.check(value) == value
    except PresetError as error:
        assert error.code in ("bad_type", "out_of_range", "path_escape")  # noqa: PT017
