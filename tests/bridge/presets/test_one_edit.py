"""Each key of a manifest, a call, a preset and a policy is misspelt by one edit of each kind: generated."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

pytest.importorskip("mcp", reason="needs the extra [mcp]")

from bridge.errors import ManifestError, UsageError
from bridge.manifest import Request, parse_manifest
from bridge.mcp.server import read_arguments
from bridge.mcp.tools import TOOLS
from bridge.reports.own import OwnClaim
from tests.bridge.presets.test_misspelt import (
    COMPARED,
    LIBRARY,
    OWN,
    POLICY,
    PRESET,
    Path,
    keys,
    policy_error,
    preset_error,
)

MANIFESTS = [
    {
        "schema_version": 1, "preset": "noop", "params": {}, "ref": "main", "requested_by": "ada@example.org",
        "nonce": "1700000000-abc123",
    },
    {
        "schema_version": 2, "preset": "noop", "params": {}, "ref": "main", "requested_by": "ada@example.org",
        "nonce": "1700000000-abc123", "workload": "a" * 40, "against": "b" * 40, "code": "request",
        "created_at": "2026-01-31T12:00:00Z", "expires_at": "2026-01-31T13:00:00Z", "labels": ["fast"],
    },
]  # fmt: skip
ARGUMENTS = {
    "kakeya_doctor": {"offset": 0}, "kakeya_presets": {"offset": 0, "name": "noop"},
    "kakeya_run": {
        "preset": "noop", "params": ["n=1"], "ref": "HEAD", "snapshot": False, "labels": ["a"], "expires_s": 9,
        "idempotency_key": "k", "against": "HEAD", "reuse": False,
    },
    "kakeya_wait": {"request": "x", "seconds": 1}, "kakeya_status": {"request": "x"},
    "kakeya_logs": {"request": "x", "offset": 0, "limit": 5},
    "kakeya_fetch": {"request": "x", "out": "y", "offset": 0},
    "kakeya_cancel": {"request": "x", "reason": "y"}, "kakeya_list": {"offset": 0, "limit": 3, "group": "0123456789ab"},
}  # fmt: skip


def manifest_error(_folder, document) -> str:
    with pytest.raises(ManifestError) as caught:
        parse_manifest(json.dumps(document))
    return f"{caught.value.message} {caught.value.fix}"


def call_error(tool):
    def error(_folder, document) -> str:
        with pytest.raises(UsageError) as caught:
            read_arguments(TOOLS[tool], tool, document)
        return caught.value.message

    return error


DOCUMENTS = [
    *(("manifest", document, manifest_error) for document in MANIFESTS),
    *((tool, document, call_error(tool)) for tool, document in ARGUMENTS.items()),
    *(("preset", document, preset_error) for document in (OWN, PRESET, COMPARED)),
    ("policy", POLICY, policy_error),
]  # fmt: skip


def edits(key: str) -> dict[str, str]:
    """Return the key with one edit of each kind, in its middle."""
    i = len(key) // 2
    edited = {
        "a letter is left out": key[:i] + key[i + 1 :], "a letter is doubled": key[:i] + key[i] + key[i:],
        "a letter is another": key[:i] + ("q" if key[i] != "q" else "z") + key[i + 1 :],
        "two letters are swapped": key[: i - 1] + key[i] + key[i - 1] + key[i + 1 :],
        "a capital": key[:1].upper() + key[1:],
        "a dash": key.replace("_", "-"),
        "an s more": f"{key}s",
    }  # fmt: skip
    return {kind: text for kind, text in edited.items() if text != key}


def renamed(document: dict[str, Any], path: Path, name: str) -> dict[str, Any]:
    """Return the document with a key renamed, in its place."""
    changed = copy.deepcopy(document)
    inside: Any = changed
    for part in path[:-1]:
        inside = inside[part]
    pairs = [(name if key == path[-1] else key, value) for key, value in inside.items()]
    inside.clear()
    inside.update(pairs)
    return changed


CASES = [
    (document, error_of, path, wrong)
    for _, document, error_of in DOCUMENTS
    for path in keys(document)
    # Every word of two letters looks like every other one.
    if len(str(path[-1])) > 2
    for wrong in edits(str(path[-1])).values()
]


def test_the_documents_have_every_key():
    assert {*MANIFESTS[1]} == {*Request.model_fields}
    assert {*OwnClaim.model_fields, "schema", "claims"} <= {str(path[-1]) for path in keys(OWN)}
    assert {tool: {*TOOLS[tool].takes.model_fields} for tool in TOOLS} == {
        tool: {*arguments} for tool, arguments in ARGUMENTS.items()
    }


@pytest.mark.parametrize(
    "chosen",
    [slice(None, None, 31), pytest.param(slice(None), marks=pytest.mark.long)],
    ids=["some", "all"],
)
def test_the_key_that_was_meant_is_named(tmp_path, chosen):
    wrong = []
    for document, error_of, path, name in CASES[chosen]:
        said = error_of(tmp_path, renamed(document, path, name))
        if (
            f"did you mean {path[-1]}?" not in said
            or name not in said
            or LIBRARY.search(said.replace(name, ""))
        ):
            wrong.append((path, name, said))
    assert not wrong, (len(wrong), "\n".join(map(str, wrong)))
