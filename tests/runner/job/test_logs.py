"""A job's output: bounded, harmless, without secrets, and the same however it arrives in pieces."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import tracemalloc
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.job.logs import REDACTED, LogSink

SECRET = "ghp_abcABC123-secret"
PLENTY = 1 << 20

# Bytes in which the interesting sequences are frequent.
PIECES = st.sampled_from(
    [
        b"::", b":", b"#", b"##[", b"[", b"\r", b"\n", b" ", b"\t", b"\x1b[31m", b"\xc3", b"\xa9", b"\xe2\x80\xae",
        b"\xff", b"a", b"::set-env name=x::y", SECRET.encode(), SECRET.encode()[:7], SECRET.encode()[7:], b"g",
        "é\u2066\u0085".encode(), b"\xf0\x9f\x98\x80", b"\0",
    ]
)  # fmt: skip
OUTPUT = st.lists(PIECES | st.binary(max_size=4), max_size=40).map(b"".join)
CUTS = st.lists(st.integers(0, 200), max_size=8)


def pour(data, cuts=(), *, limit=PLENTY, secrets=(SECRET,)):
    """Write data in pieces and close."""
    sink = LogSink(limit, secrets)
    at = 0
    for cut in sorted({*cuts}):
        sink.write(data[at:cut])
        at = max(at, cut)
    sink.write(data[at:])
    sink.close()
    return sink


def take(sink):
    """Send what waits, and return it."""
    piece = sink.stream.next_piece()
    sink.stream.mark_sent(piece)
    return piece.data


def text_of(data, **how):
    return pour(data, **how).kept.decode()


@given(OUTPUT, CUTS, st.sampled_from([9, 30, PLENTY]))
def test_output_in_pieces_is_the_same_as_in_one(data, cuts, limit):
    whole, pieces = pour(data, limit=limit), pour(data, cuts, limit=limit)

    assert pieces.kept == whole.kept
    assert pieces.sha256 == whole.sha256
    assert pieces.total == whole.total
    assert pieces.truncated == whole.truncated


@given(OUTPUT, CUTS)
def test_the_digest_of_a_whole_log_is_the_digest_of_what_is_kept(data, cuts):
    sink = pour(data, cuts)

    assert not sink.truncated
    assert sink.sha256 == hashlib.sha256(sink.kept).hexdigest()
    assert sink.total == len(sink.kept)


@given(OUTPUT, CUTS)
def test_what_is_streamed_adds_up_to_what_is_kept(data, cuts):
    sink = LogSink(PLENTY, [SECRET])
    streamed, at = b"", 0
    for cut in [*sorted({*cuts}), len(data)]:
        sink.write(data[at:cut])
        at = max(at, cut)
        streamed += take(sink)
    sink.close()

    assert streamed + take(sink) == sink.kept


@given(OUTPUT, CUTS, st.sampled_from([30, PLENTY]))
def test_nothing_that_steers_a_terminal_or_a_ci_system_is_left(data, cuts, limit):
    sink = pour(data, cuts, limit=limit)

    for text in (sink.kept.decode("utf-8", "replace"), take(sink).decode()):
        assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\u2028\u2029]", text)
        assert not re.search(r"(?m)^\s*::", text)
        assert "##[" not in text


@given(OUTPUT, CUTS, st.sampled_from([9, 30, PLENTY]))
def test_a_secret_never_appears_however_it_is_cut(data, cuts, limit):
    sink = pour(data, cuts, limit=limit)

    assert SECRET.encode() not in sink.kept
    assert SECRET.encode() not in take(sink)


FORMS = {
    "plain": SECRET,
    "base64": base64.b64encode(SECRET.encode()).decode(),
    "base64 after one byte": base64.b64encode(b"x" + SECRET.encode()).decode(),
    "base64 after two bytes": base64.b64encode(b"xy" + SECRET.encode()).decode(),
    "in a header": base64.b64encode(f"x-access-token:{SECRET}".encode()).decode(),
    "URL": quote("p@ss/word+" + SECRET, safe=""),
    "JSON": json.dumps('quo"te\\' + SECRET),
}


@pytest.mark.parametrize("form", FORMS)
def test_a_secret_is_found_in_its_common_forms(form):
    secret = {"URL": "p@ss/word+" + SECRET, "JSON": 'quo"te\\' + SECRET}.get(form, SECRET)
    core = FORMS[form].strip('"=')[-16:-4]

    assert core not in text_of(FORMS[form].encode(), secrets=[secret])


def test_one_secret_within_another_leaves_nothing_of_the_longer():
    kept = text_of(b"x abcdefgh-ijkl y", secrets=["abcdef", "abcdefgh-ijkl"])

    assert kept == f"x {REDACTED} y"


def test_a_secret_split_by_a_colour_code_is_still_two_halves_of_nothing():
    kept = text_of(SECRET[:6].encode() + b"\x1b[0m" + SECRET[6:].encode())

    assert SECRET not in kept


@given(st.text("ab", max_size=12), CUTS, st.sampled_from([["abab"], ["aba", "bb"], ["ab", "abb"], ["aaa"]]))
def test_secrets_that_overlap_themselves_or_each_other_are_found_however_they_are_cut(text, cuts, secrets):
    data = text.encode()
    kept = pour(data, cuts, secrets=secrets).kept

    assert kept == pour(data, secrets=secrets).kept
    assert not any(secret.encode() in kept.replace(REDACTED.encode(), b"|") for secret in secrets)


def test_an_empty_secret_hides_nothing():
    assert text_of(b"all of it", secrets=[""]) == "all of it"


HARMLESS = {
    "workflow command": (b"::set-env name=x::y\n", ": :set-env name=x::y\n"),
    "indented": (b"  ::warning::no\n", "  : :warning::no\n"),
    "after a tab": (b"\t::error::no\n", "\t: :error::no\n"),
    "after a lone return": (b"a\r::error::no\n", "a\n: :error::no\n"),
    "older mark": (b"x ##[error]no", "x ## [error]no"),
    "three marks": (b"###[error]no", "### [error]no"),
    "C++ stays": (b"use std::vector<int>\n", "use std::vector<int>\n"),
    "a test's name stays": (b"tests/x.py::test PASSED\n", "tests/x.py::test PASSED\n"),
    "one colon stays": (b": note\n", ": note\n"),
    "a heading stays": (b"## [a](b)\n# [c]\n", "## [a](b)\n# [c]\n"),
    "colour": (b"\x1b[31mred\x1b[0m", "\u241b[31mred\u241b[0m"),
    "C1 control": ("a\u009b31mb".encode(), "a\ufffd31mb"),
    "raw C1 byte": (b"a\x9b31mb", "a\ufffd31mb"),
    "delete and bell": (b"a\x7fb\x07", "a\ufffdb\u2407"),
    "text turned around": ("a\u202eb\u2066c".encode(), "a\ufffdb\ufffdc"),
    "CRLF": (b"a\r\nb\r\n", "a\nb\n"),
    "lone returns": (b"10%\r20%\rdone\n", "10%\n20%\ndone\n"),
    "return at the end": (b"a\r", "a\n"),
    "not UTF-8": (b"a\xff\xfeb\xc3", "a\ufffd\ufffdb\ufffd"),
    "tabs and text stay": ("é\t😀\n".encode(), "é\t😀\n"),
    "nothing": (b"", ""),
}


@pytest.mark.parametrize(("data", "shown"), HARMLESS.values(), ids=HARMLESS)
@pytest.mark.parametrize("size", [1, 2, 3, 1000])
def test_output_is_shown_so_that_it_steers_nothing(data, shown, size):
    assert text_of(data, cuts=range(0, len(data), size)) == shown


def test_a_long_log_keeps_its_head_and_its_tail_and_says_what_is_missing():
    lines = b"".join(b"line %06d\n" % i for i in range(10_000))
    sink = pour(lines, limit=3000)
    kept = sink.kept.decode()

    assert sink.truncated
    assert kept.startswith("line 000000\nline 000001\n")
    assert kept.endswith("line 009999\n")
    assert sink.sha256 == hashlib.sha256(lines).hexdigest()
    assert sink.total == len(lines)
    said = int(re.search(r"\[\.\.\. (\d+) bytes left out \.\.\.\]", kept)[1])
    assert said == len(lines) - 3000
    assert len(sink.kept) <= 3000 + 60


@pytest.mark.parametrize("size", [2999, 3000, 3001, 3002])
def test_a_log_is_cut_only_past_its_limit(size):
    sink = pour(b"x" * size, limit=3000)

    assert sink.truncated is (size > 3000)
    assert (b"left out" in sink.kept) is (size > 3000)


def test_a_cut_through_a_letter_leaves_text():
    sink = pour("é".encode() * 5000, cuts=range(0, 10_000, 77), limit=1000)

    assert "\ufffd" not in sink.kept.decode()


def test_a_flood_needs_little_memory():
    block = b"y" * 65_536
    tracemalloc.start()
    try:
        sink = LogSink(1 << 20, [SECRET])
        for _ in range(1600):
            sink.write(block)
        sink.close()
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()

    assert sink.total == 1600 * 65_536
    assert len(sink.kept) < (1 << 20) + 100
    assert peak < 8 << 20


@pytest.mark.long
def test_a_flood_of_single_bytes_needs_little_memory():
    tracemalloc.start()
    try:
        sink = LogSink(60_000)
        for _ in range(200_000):
            sink.write(b"z")
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()

    assert peak < 2 << 20
