"""JSON from strangers has one meaning, bounded in every direction."""

from __future__ import annotations

import json
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.common import limits, strict_json
from bridge.errors import ManifestError
from tests.properties import examples

HOSTILE = {
    "nothing at all": (b"", "bad_json"),
    "blanks": (b"  \n", "bad_json"),
    "a word": (b"hello", "bad_json"),
    "cut off": (b'{"a": 1', "bad_json"),
    "two values": (b"{} {}", "bad_json"),
    "trailing comma": (b'{"a": 1,}', "bad_json"),
    "single quotes": (b"{'a': 1}", "bad_json"),
    "comment": (b'{"a": 1} // x', "bad_json"),
    "NaN": (b'{"a": NaN}', "bad_json"),
    "Infinity": (b'{"a": Infinity}', "bad_json"),
    "-Infinity": (b'{"a": -Infinity}', "bad_json"),
    "a float past the range": (b'{"a": 1e999}', "bad_json"),
    "a negative float past the range": (b'{"a": -1e999}', "bad_json"),
    "a key twice": (b'{"a": 1, "a": 1}', "bad_json"),
    "a key twice, nested": (b'{"a": {"b": 1, "b": 2}}', "bad_json"),
    "a key twice, in a list": (b'[{"b": 1, "b": 2}]', "bad_json"),
    "a key twice, spelled with an escape": (b'{"a": 1, "\\u0061": 2}', "bad_json"),
    "a byte order mark": (b'\xef\xbb\xbf{"a": 1}', "bad_json"),
    "UTF-16": ('{"a": 1}'.encode("utf-16"), "bad_json"),
    "UTF-32": ('{"a": 1}'.encode("utf-32"), "bad_json"),
    "half a character": (b'{"a": "\xc3"}', "bad_json"),
    "an overlong form": (b'{"a": "\xc0\xaf"}', "bad_json"),
    "an encoded surrogate": (b'{"a": "\xed\xa0\x80"}', "bad_json"),
    "an escaped lone surrogate": (b'{"a": "\\ud800"}', "bad_json"),
    "an escaped lone surrogate in a key": (b'{"\\udfff": 1}', "bad_json"),
    "a raw newline in text": (b'{"a": "x\ny"}', "bad_json"),
    "a raw NUL in text": (b'{"a": "x\x00y"}', "bad_json"),
    "19 digits": (b'{"a": 1234567890123456789}', "bad_json"),
    "10,000 digits": (b'{"a": ' + b"9" * 10_000 + b"}", "bad_json"),
    "a negative of 19 digits": (b'{"a": -1234567890123456789}', "bad_json"),
    "objects nine deep": (b'{"a":' * 9 + b"1" + b"}" * 9, "bad_json"),
    "lists nine deep": (b"[" * 9 + b"1" + b"]" * 9, "bad_json"),
    "30,000 open brackets": (b"[" * 30_000, "bad_json"),
    "30,000 nested objects": (b'{"":' * 10_000 + b"1" + b"}" * 10_000, "bad_json"),
    "100,000 brackets": (b"[" * 100_000 + b"]" * 100_000, "too_large"),
    "10 MB": (b'{"a": "' + b"x" * 10_000_000 + b'"}', "too_large"),
}


@pytest.mark.parametrize(("data", "code"), HOSTILE.values(), ids=HOSTILE)
def test_hostile_json_is_refused_with_a_code(data, code):
    with pytest.raises(ManifestError) as caught:
        strict_json.loads(data)
    assert caught.value.code == code


@pytest.mark.parametrize(
    "data",
    [
        b"{}",
        b'{"a": [1, -2.5, true, null, "\\u00e4 \\ud83d\\ude00"]}',
        b'{"a": 123456789012345678}',
        b'{"a":' * 8 + b"1" + b"}" * 8,
        b"[" * 8 + b"1" + b"]" * 8,
    ],
    ids=["empty object", "every kind", "18 digits", "objects eight deep", "lists eight deep"],
)
def test_plain_json_is_read_as_the_standard_library_reads_it(data):
    assert strict_json.loads(data) == json.loads(data)


def test_text_and_bytes_mean_the_same():
    assert strict_json.loads('{"a": "ä"}') == strict_json.loads('{"a": "ä"}'.encode())


def test_a_lone_surrogate_in_text_is_refused_and_no_crash():
    with pytest.raises(ManifestError):
        strict_json.loads('{"a": "\ud800"}')


def test_the_limits_are_the_callers_to_set():
    with pytest.raises(ManifestError, match="a tale is larger than 4 bytes"):
        strict_json.loads(b"[1,2]", what="a tale", max_bytes=4)
    assert strict_json.loads(b"[1]", max_bytes=3) == [1]
    with pytest.raises(ManifestError, match="nested too deeply"):
        strict_json.loads(b"[[1]]", max_depth=1)


NESTS, VALUES, NAMES = limits.JSON_NESTS, limits.JSON_VALUES, limits.JSON_NAMES


@pytest.mark.rows(3)
@pytest.mark.parametrize("more", [0, 1])
@pytest.mark.parametrize(
    ("text", "most"),
    [
        (lambda n: b"[" + b"[]," * (n - 2) + b"[]]", NESTS),
        (lambda n: b"[" + b"{}," * (n - 2) + b"{}]", NESTS),
        (lambda n: b"[" + b"1," * (n - 2) + b"1]", VALUES),
        (lambda n: b'["' + b'[{,\\"' * n + b'"' + b',"x"' * (n - 2) + b"]", VALUES),
        (lambda n: b'[":",{' + b",".join(b'"%x":1' % i for i in range(n)) + b"}]", NAMES),
    ],
    ids=["lists", "objects", "values", "values, and marks in a string", "names"],
)
def test_the_number_of_values_is_bounded_before_any_is_made(text, most, more):
    data = text(most + more)
    if more:
        with pytest.raises(ManifestError, match="too many values") as caught:
            strict_json.loads(data, max_bytes=len(data))
        assert caught.value.code == "too_large"
    else:
        found = strict_json.loads(data, max_bytes=len(data))
        assert len(found[1] if most == NAMES else found) == (most if most == NAMES else most - 1)


def test_sixteen_megabytes_of_tiny_lists_cost_no_memory():
    data = b"[" + b"[]," * (5 << 20) + b"[]]"
    tracemalloc.start()
    try:
        with pytest.raises(ManifestError):
            strict_json.loads(data, max_bytes=len(data))
        assert tracemalloc.get_traced_memory()[1] < 2 * len(data)
    finally:
        tracemalloc.stop()


def many(count):
    return b",".join(b'"%06x":1' % i for i in range(count))


# Made when they are used: they have megabytes.
TEDIOUS = {
    "a name that stands twice, after 200,000 others": lambda: b"{" + many(200_000) + b',"030d3f":1}',
    "a million escaped marks in a string without an end": (
        lambda: b"[" * (NESTS + 1) + b'"' + b'\\"' * 1_000_000
    ),
    "a million escapes outside of strings": lambda: b"[" * (NESTS + 1) + b"\\" * 1_000_001,
    "three million strings": lambda: b"[" * (NESTS + 1) + b'"":11,' * 3_000_000,
}


@pytest.mark.rows(1)
@pytest.mark.parametrize("make", TEDIOUS.values(), ids=TEDIOUS)
def test_row_97_no_text_takes_more_time_or_memory_than_its_length_allows(make):
    """Each of them once took minutes to years, or forty times its size."""
    data = make()
    tracemalloc.start()
    try:
        with pytest.raises(ManifestError):
            strict_json.loads(data, max_bytes=len(data))
        assert tracemalloc.get_traced_memory()[1] < max(2 * len(data), 128 << 20)
    finally:
        tracemalloc.stop()


@examples(200)
@given(st.text('"\\,:[]{}a', max_size=60), st.integers(1, 9))
def test_marks_are_counted_outside_of_strings_wherever_the_text_is_cut(text, piece):
    """What cannot be JSON is counted up to there at least."""
    nests, values, names, _ = strict_json.count_outside_strings(text.encode(), piece)

    outside, inside, escaped = "", False, False
    for mark in text:
        if mark == "\\" and not inside:
            break
        if inside and not escaped and mark == "\\":
            escaped = True
            continue
        if mark == '"' and not escaped:
            inside = not inside
        elif not inside:
            outside += mark
        escaped = False
    opened = outside.count("[") + outside.count("{")
    least = (opened, opened + outside.count(",") + 1, outside.count(":"))
    assert nests >= least[0]
    assert values >= least[1]
    assert names >= least[2]
    if "\\" not in text:
        assert (nests, values, names) == least


def test_the_message_says_where():
    with pytest.raises(ManifestError, match="line 2, column 3"):
        strict_json.loads(b"{\n  oops}")


def test_the_message_names_the_key_that_stands_twice():
    with pytest.raises(ManifestError, match="'b' twice"):
        strict_json.loads(b'{"a": 1, "b": 1, "b": 2}')


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**17), 10**17)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)


@examples(100)
@given(json_values)
def test_what_is_written_is_read_back(value):
    text = strict_json.dumps(value)
    try:
        assert strict_json.loads(text) == value
    except ManifestError as error:
        assert "nested too deeply" in error.message  # noqa: PT017 - the one reason that generated data can have


def test_what_could_not_be_read_again_is_not_written():
    with pytest.raises(ValueError, match="JSON compliant"):
        strict_json.dumps({"a": float("nan")})


def test_writing_does_not_depend_on_the_order_of_keys():
    assert strict_json.dumps({"a": 1, "b": 2}) == strict_json.dumps({"b": 2, "a": 1})
