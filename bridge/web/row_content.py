"""Reads what a list shows of each request besides its state: who asked, the parameters, and the gate's verdict."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bridge.bus import objects, wire
from bridge.bus.history import RequestBranch
from bridge.common import limits
from bridge.common.drawing.text import cut
from bridge.errors import ManifestError, VerificationError
from bridge.manifest import parse_manifest
from bridge.system.git import Git

# A larger manifest or result is shown on the request's own page only.
_MOST_BYTES = 64 * limits.KIB
# How many characters of the parameters are kept for each row.
_PARAMS = 500


@dataclass(frozen=True)
class RowContent:
    """Texts that the requester and the runner wrote, unchecked. Empty if they cannot be read."""

    requester: str = ""
    params: str = ""
    verdict: str = ""


def read_content(git: Git, views: Mapping[str, RequestBranch]) -> dict[str, RowContent]:
    """Return the content of each request by branch, read with two calls of git."""
    manifests = _read(git, [f"{view.request}:{wire.REQUEST}" for view in views.values()])
    ended = {branch: view.tip for branch, view in views.items() if view.current_state.is_final}
    results = dict(zip(ended, _read(git, [f"{tip}:{wire.RESULT}" for tip in ended.values()]), strict=True))
    return {
        branch: RowContent(*_asked(manifest), _verdict(results.get(branch)))
        for branch, manifest in zip(views, manifests, strict=True)
    }


def _read(git: Git, names: Sequence[str]) -> list[bytes | None]:
    return objects.read_many(git, names, max_bytes=_MOST_BYTES)


def _asked(manifest: bytes | None) -> tuple[str, str]:
    """Return the requester and the parameters."""
    try:
        request = parse_manifest(manifest or b"")
    except ManifestError:
        return "", ""
    params = " ".join(f"{name}={value}" for name, value in sorted(request.params.items()))
    return request.requested_by, cut(params, _PARAMS)


def _verdict(result: bytes | None) -> str:
    try:
        gate = wire.parse_result(result).gate
    except VerificationError:
        return ""
    return gate.verdict if gate else ""
