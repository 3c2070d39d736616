"""A request manifest is read strictly: what is not exactly right is refused with a code, and nothing else happens."""

from __future__ import annotations

import base64
import json
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.errors import ManifestError
from bridge.manifest import Request, format_time, parse_manifest, parse_time
from tests.properties import examples

V1 = {
    "schema_version": 1,
    "preset": "noop",
    "params": {"n": "5"},
    "ref": "HEAD",
    "requested_by": "an agent",
    "nonce": "1700000000-abc123",
}
V2 = {
    **V1,
    "schema_version": 2,
    "workload": "0" * 40,
    "created_at": "2026-01-01T00:00:00Z",
    "expires_at": "2026-01-02T00:00:00Z",
    "code": "installed",
}
FIRST = ("preset", "params", "ref", "requested_by")
LATER = ("workload", "created_at", "expires_at", "code")
GONE = object()
ARABIC_DIGITS = "".join(map(chr, range(0x661, 0x66A)))


def changed(base: dict[str, object], **changes: object) -> bytes:
    made = {key: value for key, value in {**base, **changes}.items() if value is not GONE}
    return json.dumps(made).encode()


def v1(**changes: object) -> bytes:
    return changed(V1, **changes)


def v2(**changes: object) -> bytes:
    return changed(V2, **changes)


HOSTILE = {
    # what is no manifest at all
    "empty": (b"", "bad_json"),
    "not JSON": (b"preset: noop", "bad_json"),
    "null": (b"null", "bad_manifest"),
    "an array": (b"[]", "bad_manifest"),
    "a string": (b'"noop"', "bad_manifest"),
    "a number": (b"1", "bad_manifest"),
    "NaN as a parameter": (v1(params={"n": float("nan")}), "bad_json"),
    "Infinity as a parameter": (v1(params={"n": float("inf")}), "bad_json"),
    "a key twice": (b'{"schema_version": 1, ' + v1()[1:], "bad_json"),
    "a parameter twice": (v1().replace(b'{"n": "5"}', b'{"n": "5", "n": "6"}'), "bad_json"),
    "10 MB": (v1(ref="x" * 10_000_000), "too_large"),
    "a byte order mark": (b"\xef\xbb\xbf" + v1(), "bad_json"),
    "deep parameters": (v1(params={"n": json.loads("[" * 20 + "]" * 20)}), "bad_json"),
    "a key twice, once escaped": (v1().replace(b'{"n": "5"}', b'{"n": "5", "\\u006e": "6"}'), "bad_json"),
    "UTF-16": (v1().decode().encode("utf-16"), "bad_json"),
    "UTF-16 without a mark": (v1().decode().encode("utf-16-le"), "bad_json"),
    "NUL at the end": (v1() + b"\0", "bad_json"),
    "two documents": (v1() + b"\n" + v1(), "bad_json"),
    "a number that overflows": (v1().replace(b'"5"', b"1e400"), "bad_json"),
    "YAML with a tag": (b"!!python/object/apply:os.system ['true']", "bad_json"),
    "YAML with an anchor": (b"a: &a [1]\nb: *a\n", "bad_json"),
    "a comment": (v1() + b"// x", "bad_json"),
    # the version
    "no version": (v1(schema_version=GONE), "unknown_schema_version"),
    "an empty object": (b"{}", "unknown_schema_version"),
    "version true": (v1(schema_version=True), "unknown_schema_version"),
    "version 1.0": (v1(schema_version=1.0), "unknown_schema_version"),
    "version '1'": (v1(schema_version="1"), "unknown_schema_version"),
    "version null": (v1(schema_version=None), "unknown_schema_version"),
    "version [1]": (v1(schema_version=[1]), "unknown_schema_version"),
    "version 0": (v1(schema_version=0), "unknown_schema_version"),
    "version 3": (v2(schema_version=3), "unknown_schema_version"),
    "version -1": (v1(schema_version=-1), "unknown_schema_version"),
    # fields
    "an unknown field": (v1(command="rm -rf /"), "bad_manifest"),
    "an unknown field in version 2": (v2(argv=["sh"]), "bad_manifest"),
    **{f"version 1 without {name}": (v1(**{name: GONE}), "bad_manifest") for name in FIRST},
    **{f"version 2 without {name}": (v2(**{name: GONE}), "bad_manifest") for name in (*FIRST, *LATER)},
    **{f"version 2 with {name} null": (v2(**{name: None}), "bad_manifest") for name in LATER},
    **{f"version 1 with {name}": (v1(**{name: V2[name]}), "bad_manifest") for name in LATER},
    "version 1 with labels": (v1(labels=["gpu"]), "bad_manifest"),
    "version 1 with no labels": (v1(labels=[]), "bad_manifest"),
    # the nonce
    "no nonce": (v1(nonce=GONE), "bad_nonce"),
    "nonce with a newline at the end": (v1(nonce="1700000000-abc123\n"), "bad_nonce"),
    "nonce in capitals": (v1(nonce="1700000000-ABC123"), "bad_nonce"),
    "nonce too short": (v1(nonce="1700000000-abc12"), "bad_nonce"),
    "nonce too long": (v1(nonce="1700000000-" + "a" * 33), "bad_nonce"),
    "nonce without seconds": (v1(nonce="abc123"), "bad_nonce"),
    "nonce with few seconds": (v1(nonce="12345678-abc123"), "bad_nonce"),
    "nonce of other scripts' digits": (v1(nonce=ARABIC_DIGITS + "-abc123"), "bad_nonce"),
    "nonce with a path": (v1(nonce="1700000000-abc123/../x"), "bad_nonce"),
    "nonce a number": (v1(nonce=1700000000), "bad_nonce"),
    "nonce empty": (v1(nonce=""), "bad_nonce"),
    # the preset
    "preset with a slash": (v1(preset="a/b"), "bad_manifest"),
    "preset with dots": (v1(preset="../noop"), "bad_manifest"),
    "preset with a newline at the end": (v1(preset="noop\n"), "bad_manifest"),
    "preset with a leading dash": (v1(preset="-noop"), "bad_manifest"),
    "preset with a trailing dash": (v1(preset="noop-"), "bad_manifest"),
    "preset in capitals": (v1(preset="NOOP"), "bad_manifest"),
    "preset empty": (v1(preset=""), "bad_manifest"),
    "preset too long": (v1(preset="a" * 65), "bad_manifest"),
    "preset of another script": (v1(preset="nοοp"), "bad_manifest"),  # noqa: RUF001
    "preset a list": (v1(preset=["noop"]), "bad_manifest"),
    # the parameters
    "params a list": (v1(params=["n=5"]), "bad_manifest"),
    "params a string": (v1(params="n=5"), "bad_manifest"),
    "params null": (v1(params=None), "bad_manifest"),
    "a parameter that is null": (v1(params={"n": None}), "bad_manifest"),
    "a parameter that is a list": (v1(params={"n": [1]}), "bad_manifest"),
    "a parameter that is an object": (v1(params={"n": {"a": 1}}), "bad_manifest"),
    "33 parameters": (v1(params={f"p{i}": 1 for i in range(33)}), "bad_manifest"),
    "a parameter without a name": (v1(params={"": 1}), "bad_manifest"),
    "a parameter called --n": (v1(params={"--n": 1}), "bad_manifest"),
    "a parameter called N": (v1(params={"N": 1}), "bad_manifest"),
    "a parameter called n and a newline": (v1(params={"n\n": 1}), "bad_manifest"),
    "a parameter with a name of 65": (v1(params={"n" * 65: 1}), "bad_manifest"),
    # who and what
    "ref empty": (v1(ref=""), "bad_manifest"),
    "ref of blanks": (v1(ref="  "), "bad_manifest"),
    "ref with an escape sequence": (v1(ref="\x1b[2J"), "bad_manifest"),
    "ref with a newline": (v1(ref="HEAD\nmain"), "bad_manifest"),
    "ref with NUL": (v1(ref="HEAD\x00"), "bad_manifest"),
    "ref too long": (v1(ref="r" * 256), "bad_manifest"),
    "ref a number": (v1(ref=7), "bad_manifest"),
    "requested_by empty": (v1(requested_by=""), "bad_manifest"),
    "requested_by with a carriage return": (v1(requested_by="me\rroot"), "bad_manifest"),
    "requested_by that turns text around": (v1(requested_by="\u202eresu"), "bad_manifest"),
    "requested_by too long": (v1(requested_by="u" * 201), "bad_manifest"),
    "requested_by true": (v1(requested_by=True), "bad_manifest"),
    # the later fields
    "workload short": (v2(workload="0" * 39), "bad_manifest"),
    "workload in capitals": (v2(workload="A" * 40), "bad_manifest"),
    "workload a name": (v2(workload="main"), "bad_manifest"),
    "workload with a newline": (v2(workload="0" * 40 + "\n"), "bad_manifest"),
    "workload a number": (v2(workload=0), "bad_manifest"),
    "created_at with an offset": (v2(created_at="2026-01-01T00:00:00+01:00"), "bad_manifest"),
    "created_at without a zone": (v2(created_at="2026-01-01T00:00:00"), "bad_manifest"),
    "created_at on no day": (v2(created_at="2026-02-30T00:00:00Z"), "bad_manifest"),
    "created_at a number": (v2(created_at=1767225600), "bad_manifest"),
    "created_at of other scripts' digits": (v2(created_at=f"{ARABIC_DIGITS[:4]}-01-01T00:00:00Z"), "bad_manifest"),
    "expires as it is created": (v2(expires_at=V2["created_at"]), "bad_manifest"),
    "expires before it is created": (v2(expires_at="2025-12-31T23:59:59Z"), "bad_manifest"),
    "expires after more than 30 days": (v2(expires_at="2026-01-31T00:00:01Z"), "bad_manifest"),
    "code of a third kind": (v2(code="anything"), "bad_manifest"),
    "code true": (v2(code=True), "bad_manifest"),
    "labels a string": (v2(labels="gpu"), "bad_manifest"),
    "a label with a blank": (v2(labels=["a b"]), "bad_manifest"),
    "a label with a leading dash": (v2(labels=["-gpu"]), "bad_manifest"),
    "a label that is a number": (v2(labels=[1]), "bad_manifest"),
    "17 labels": (v2(labels=["gpu"] * 17), "bad_manifest"),
}  # fmt: skip


@pytest.mark.parametrize(("data", "code"), HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_manifest_is_refused_with_its_code(data, code):
    with pytest.raises(ManifestError) as caught:
        parse_manifest(data)
    assert caught.value.code == code


@pytest.mark.parametrize("data", [value[0] for value in HOSTILE.values()], ids=HOSTILE)
def test_the_message_is_one_short_printable_line(data):
    with pytest.raises(ManifestError) as caught:
        parse_manifest(data)
    assert caught.value.message.isprintable()
    assert len(caught.value.message) <= 1000


@pytest.mark.parametrize("field", ["\x1b[2Jfield", "a\nb", "x" * 5000], ids=["escape", "newline", "long"])
def test_a_message_does_not_repeat_what_could_mislead_a_terminal(field):
    with pytest.raises(ManifestError) as caught:
        parse_manifest(v1(**{field: 1}))
    assert caught.value.message.isprintable()
    assert len(caught.value.message) <= 1000


@pytest.mark.parametrize("base", [V1, V2], ids=["version 1", "version 2"])
def test_a_valid_manifest_is_read(base):
    request = parse_manifest(json.dumps(base))
    assert request.model_dump(exclude_none=True) == base


TEXT = json.dumps(V1)
REWRITTEN = {
    "a line feed at the end": TEXT + "\n",
    "CRLF": json.dumps(V1, indent=2).replace("\n", "\r\n"),
    "tabs and blank lines": "\n\n" + json.dumps(V1, indent="\t") + "\n\n",
    "letters as escapes": TEXT.replace("-", "\\u002d").replace("noop", "n\\u006fop"),
    "slashes as escapes": TEXT.replace("HEAD", "a\\/b"),
}
BROKEN = {
    "base64": (base64.encodebytes(TEXT.encode()).decode(), "is base64 text"),
    "base64 of indented text": (
        base64.b64encode(json.dumps(V1, indent=2).encode()).decode(),
        "is base64 text",
    ),
    "escaped quotes": (TEXT.replace('"', '\\"'), "is escaped JSON"),
    "escaped line feeds": (json.dumps(json.dumps(V1, indent=2))[1:-1], "is escaped JSON"),
    "escaped twice": (TEXT.replace('"', '\\\\\\"'), "is escaped JSON"),
    "quoted": (json.dumps(TEXT), "JSON inside a quoted text"),
    "a byte order mark": ("\ufeff" + TEXT, "byte order mark"),
    "cut": (TEXT[:40], "was cut off"),
    "quotes as entities": (TEXT.replace('"', "&quot;"), "is not JSON"),
}


@pytest.mark.parametrize("text", REWRITTEN.values(), ids=REWRITTEN)
def test_what_a_host_may_rewrite_does_not_change_a_manifest(text):
    assert parse_manifest(text.encode()).preset == "noop"


@pytest.mark.parametrize(("text", "says"), BROKEN.values(), ids=BROKEN)
def test_what_a_host_s_api_breaks_is_named(text, says):
    with pytest.raises(ManifestError, match=says):
        parse_manifest(text.encode())


def test_a_request_cannot_be_changed():
    request = parse_manifest(v1())
    with pytest.raises(ValueError, match="frozen"):
        request.preset = "other"


@pytest.mark.parametrize("days", [1, 30])
def test_a_lifetime_up_to_thirty_days_is_taken(days):
    ends = format_time(parse_time(str(V2["created_at"])) + timedelta(days=days))
    assert parse_manifest(v2(expires_at=ends)).expires_at == ends


def test_times_are_written_as_they_are_read():
    moment = datetime(2026, 1, 31, 12, 0, 0, tzinfo=UTC)
    assert format_time(moment) == "2026-01-31T12:00:00Z"
    assert parse_time(format_time(moment)) == moment


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=10,
)
almost = st.fixed_dictionaries(
    {}, optional={name: json_values | st.just(value) for name, value in V2.items()}
)


def is_request_or_manifest_error(data: str | bytes) -> None:
    try:
        assert isinstance(parse_manifest(data), Request)
    except ManifestError as error:
        assert error.code in ("too_large", "bad_json", "unknown_schema_version", "bad_nonce", "bad_manifest")  # noqa: PT017


@examples(150)
@given(st.binary(max_size=300))
def test_any_bytes_are_a_request_or_a_manifest_error(data):
    is_request_or_manifest_error(data)


@examples(100)
@given(st.text(max_size=100))
def test_any_text_is_a_request_or_a_manifest_error(text):
    is_request_or_manifest_error(text)


@examples(100)
@given(json_values | almost)
def test_any_json_is_a_request_or_a_manifest_error(value):
    is_request_or_manifest_error(json.dumps(value))


words = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,20}", fullmatch=True)
printable = st.text(st.characters(codec="utf-8"), min_size=1, max_size=40).filter(
    lambda text: text.isprintable() and text.strip()
)
scalars = (
    st.booleans()
    | st.integers(-(10**17), 10**17)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
)
first_fields = {
    "preset": st.from_regex(r"[a-z0-9]([a-z0-9-]{0,20}[a-z0-9])?", fullmatch=True),
    "params": st.dictionaries(st.from_regex(r"[a-z][a-z0-9_]{0,10}", fullmatch=True), scalars, max_size=4),
    "ref": printable,
    "requested_by": printable,
    "nonce": st.from_regex(r"[0-9]{9,11}-[0-9a-f]{6,32}", fullmatch=True),
}
moments = st.datetimes(datetime(2001, 1, 1), datetime(2100, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001
lives = st.timedeltas(timedelta(seconds=1), timedelta(days=30)).map(
    lambda life: timedelta(seconds=int(life.total_seconds()))
)


@st.composite
def valid_requests(draw: st.DrawFn) -> dict[str, object]:
    fields = {name: draw(values) for name, values in first_fields.items()}
    if draw(st.booleans()):
        return {"schema_version": 1, **fields}
    made = draw(moments).replace(microsecond=0)
    return {
        "schema_version": 2,
        **fields,
        "workload": draw(st.from_regex(r"[0-9a-f]{40}|[0-9a-f]{64}", fullmatch=True)),
        "created_at": format_time(made),
        "expires_at": format_time(made + draw(lives)),
        "code": draw(st.sampled_from(["installed", "request"])),
        "labels": draw(st.none() | st.lists(words, max_size=3)),
    }


@pytest.mark.long
@examples(100)
@given(valid_requests())
def test_a_valid_request_survives_being_written_and_read(fields):
    request = Request.model_validate(fields)
    assert parse_manifest(request.to_json()) == request
