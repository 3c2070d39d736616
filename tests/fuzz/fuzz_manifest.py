"""Feed the manifest parser whatever atheris finds: it returns a request or raises ManifestError, and nothing else."""

from __future__ import annotations

import sys
from contextlib import suppress

import atheris

with atheris.instrument_imports(include=["bridge"]):
    from bridge.bus import wire
    from bridge.errors import ManifestError, VerificationError
    from bridge.manifest import Request, parse_manifest

SEED = (
    b'{"schema_version": 2, "preset": "noop", "params": {"n": 1}, "ref": "HEAD", "requested_by": "a", "nonce":'
    b' "1790000000-abcdef", "workload": "'
    + b"a"
    * 40
    + b'", "created_at": "2026-01-01T00:00:00Z", "expires_at":'
    b' "2026-01-02T00:00:00Z", "code": "installed", "labels": ["x"]}'
)


CODES = {"too_large", "bad_json", "unknown_schema_version", "bad_nonce", "bad_manifest"}


def one_input(data: bytes) -> None:
    """Parse one manifest, and the other files that come from a branch."""
    read = parse(data)
    if isinstance(read, Request):
        assert parse_manifest(read.to_json()) == read
    else:
        assert read.code in CODES, read.code
        assert read.message.isprintable(), read.message
    wire.parse_state(data)
    wire.parse_cancel(data)
    with suppress(VerificationError):
        wire.parse_result(data)


def parse(data: bytes) -> Request | ManifestError:
    """Return the request, or why it is none."""
    try:
        return parse_manifest(data)
    except ManifestError as error:
        return error


if __name__ == "__main__":
    parse_manifest(SEED)
    atheris.Setup(sys.argv, one_input)
    atheris.Fuzz()
