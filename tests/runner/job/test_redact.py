"""Redaction, fuzzed: every form of a secret, cut anywhere, among anything."""

from __future__ import annotations

import base64
import json
import re
from urllib.parse import quote

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from runner.job.logs import LogSink
from runner.job.redact import REDACTED, Redactor, forms_of
from tests.properties import examples

SECRET = "ghp_abcABC123+/secret~XYZ"

FUZZED = settings(examples(60))

SECRETS = st.text(st.characters(min_codepoint=0x21, max_codepoint=0x7E), min_size=12, max_size=60)
CUTS = st.lists(st.integers(0, 400), max_size=12)
NOISE = st.text(st.sampled_from(" \n\tabcZ09%\\u+/=&\"'"), max_size=30)


def take(sink: LogSink) -> bytes:
    """Send what waits, and return it."""
    piece = sink.stream.next_piece()
    sink.stream.mark_sent(piece)
    return piece.data


def percent(text: str) -> str:
    return "".join(f"%{byte:02x}" for byte in text.encode())


def unicode_escapes(text: str) -> str:
    return "".join(f"\\u{ord(c):04X}" for c in text)


ENCODINGS = {
    "plain": lambda s: s,
    "base64": lambda s: base64.b64encode(s.encode()).decode(),
    "base64 after one byte": lambda s: base64.b64encode(b"x" + s.encode()).decode(),
    "base64 after two bytes": lambda s: base64.b64encode(b"xy" + s.encode() + b"z").decode(),
    "base64 for URLs": lambda s: base64.urlsafe_b64encode(b"x" + s.encode() + b"yz").decode(),
    "a header": lambda s: "Basic " + base64.b64encode(f"x-access-token:{s}".encode()).decode(),
    "URL": lambda s: quote(s, safe=""),
    "URL, lower case": lambda s: quote(s, safe="").replace("%2F", "%2f"),
    "URL, every character": percent,
    "base64 in a URL": lambda s: quote(base64.b64encode(s.encode()).decode(), safe=""),
    "JSON": json.dumps,
    "JSON, every character": unicode_escapes,
    "JSON, slashes": lambda s: json.dumps(s).replace("/", "\\/"),
    "hex": lambda s: s.encode().hex(),
    "HEX": lambda s: s.encode().hex().upper(),
}


def pour(text: str, cuts: list[int], secrets: list[str]) -> str:
    redactor = Redactor(secrets)
    out, at = [], 0
    for cut in sorted({*cuts}):
        out.append(redactor.feed(text[at:cut]))
        at = max(at, cut)
    return "".join([*out, redactor.feed(text[at:]), redactor.close()])


def core(encoded: str) -> str:
    """Return the part of an encoded secret that shares no character with its neighbours."""
    return encoded[4:-4]


@pytest.mark.rows(3)
@pytest.mark.parametrize("encoding", ENCODINGS)
@FUZZED
@given(secret=SECRETS, before=NOISE, after=NOISE, cuts=CUTS)
@example(secret=SECRET, before="", after="", cuts=list(range(400)))
@example(secret='00000000"%00', before="", after="", cuts=[])
@example(secret="0000/0000\\n00", before="", after="", cuts=[])
def test_no_form_of_a_secret_is_passed_on_however_it_is_cut(encoding, secret, before, after, cuts):
    encoded = ENCODINGS[encoding](secret)
    # Other text may happen to say the same.
    assume(core(encoded) not in f"{before} {after}")

    passed = pour(f"{before} {encoded} {after}", cuts, [secret])

    assert core(encoded) not in passed.replace(REDACTED, "")
    assert REDACTED in passed


@pytest.mark.rows(4)
@pytest.mark.parametrize("encoding", ENCODINGS)
@FUZZED
@given(cuts=CUTS)
@example(cuts=list(range(400)))
def test_nor_in_a_log_nor_in_what_is_streamed_of_it(encoding, cuts):
    data = f"begin {ENCODINGS[encoding](SECRET)} end\n".encode()
    sink, streamed, at = LogSink(10_000, [SECRET]), b"", 0
    for cut in [*sorted({*cuts}), len(data)]:
        sink.write(data[at:cut])
        at = max(at, cut)
        streamed += take(sink)
    sink.close()
    streamed += take(sink)

    assert streamed == sink.kept
    assert core(ENCODINGS[encoding](SECRET)).encode() not in streamed
    assert streamed.startswith(b"begin ")
    assert streamed.endswith(b" end\n")


@FUZZED
@given(text=NOISE | st.text(max_size=60), cuts=CUTS)
def test_what_holds_no_secret_is_passed_on_as_it_is(text, cuts):
    assert pour(text, cuts, [SECRET]) == text


@FUZZED
@given(
    text=st.lists(
        st.sampled_from(["abcdefgh", "bcdefghi", "abcd", "efghij", "%61", "\\u0062", "x"]), max_size=9
    ),
    cuts=CUTS,
)
def test_secrets_that_overlap_leave_nothing_whole(text, cuts):
    secrets = ["abcdefgh", "bcdefghi", "abcdefghij"]

    passed = pour("".join(text), cuts, secrets)

    assert not any(secret in passed for secret in secrets)


def test_text_flows_on_unless_a_secret_may_have_begun():
    redactor = Redactor([SECRET])

    assert redactor.feed("a line\n") == "a line\n"
    assert redactor.feed("50%") == "50"
    assert redactor.feed(" done\n") == "% done\n"
    assert redactor.feed(f"token {SECRET[:9]}") == "token "
    assert redactor.feed("and no more\n") == f"{SECRET[:9]}and no more\n"


@FUZZED
@given(st.binary(max_size=400))
def test_little_is_held_back(data):
    redactor = Redactor([SECRET])
    text = data.decode("latin-1") + SECRET[:-1]

    assert len(text) - len(redactor.feed(text)) <= 6 * max(map(len, forms_of(SECRET)))


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_a_file_that_holds_a_secret_is_known(encoding):
    data = b'\x00\xff{"a": "' + ENCODINGS[encoding](SECRET).strip('"').encode() + b'"}\xff'

    assert Redactor([SECRET]).contains_secret(data)
    assert not Redactor(["another-secret"]).contains_secret(data)
    assert not Redactor([]).contains_secret(data)


@pytest.mark.parametrize("secret", ['abcd"efgh\\', 'abcd"efgh%4', "abcd%efgh\\u00"])
def test_a_secret_that_looks_like_half_an_escape_is_found_at_the_end(secret):
    escaped = json.dumps(secret)[1:-1]

    assert pour(escaped, [], [secret]) == REDACTED
    assert Redactor([secret]).contains_secret(escaped.encode())


def test_short_secrets_are_found_as_they_are_and_not_encoded():
    assert forms_of("abc") == {"abc"}
    assert pour("YWJj abc", [3, 6], ["abc"]) == f"YWJj {REDACTED}"


def test_of_a_long_secret_every_form_is_text_without_padding():
    assert all(re.fullmatch(r"[!-~]+", form) and not form.endswith("=") for form in forms_of("a" * 41))
