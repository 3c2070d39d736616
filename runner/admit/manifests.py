"""What request branches ask for: each manifest is read and parsed once, for as long as its request waits."""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass

from bridge.bus import history, objects, wire
from bridge.bus.history import View
from bridge.errors import InfrastructureError, ManifestError
from bridge.manifest import Request, parse_manifest
from bridge.system import strict_json
from bridge.system.git import Git
from runner.refusal import Refusal

_CODES = ("too_large", "bad_json", "unknown_schema_version", "bad_nonce", "bad_manifest")
# The most that is kept of the requests that wait. In a flood of large manifests the others are read at their turn.
_KEPT_BYTES = 64 << 20
# What a parsed manifest takes up beside its own text, roughly.
_OVERHEAD = 4096


@dataclass(frozen=True)
class Asked:
    """A request branch, and what its manifest asks for or why nobody can say."""

    view: View
    found: Request | Refusal

    @property
    def request(self) -> Request | None:
        """What is asked for; None where the manifest cannot be read."""
        return None if isinstance(self.found, Refusal) else self.found

    def demand(self) -> Request:
        """Return what is asked for. Raises the Refusal that says why nobody can."""
        if isinstance(self.found, Refusal):
            raise self.found
        return self.found


def read_asked(git: Git, view: View) -> Asked:
    """Read the manifest of one request commit."""
    try:
        blob = objects.read_blob(git, view.request, wire.REQUEST, max_bytes=strict_json.MAX_BYTES)
    except InfrastructureError as error:
        if error.code not in _CODES:
            raise
        return Asked(view, Refusal(error.code, error.message))
    if blob is None:
        return Asked(view, Refusal("no_manifest", f"the request commit has no file {wire.REQUEST}"))
    return Asked(view, _parse(blob))


def belongs(git: Git, view: View) -> bool:
    """Say whether a branch still holds the request commit that its states name."""
    return view.request == view.tip or history.is_ancestor(git, view.request, view.tip)


class Manifests:
    """The manifests of the requests that wait, by request commit."""

    def __init__(self, git: Git) -> None:
        self._git = git
        self._kept: dict[str, Request | Refusal] = {}
        self._sizes: dict[str, int] = {}
        self._total = 0

    def of(self, view: View) -> Asked:
        """Return what one request asks for."""
        kept = self._kept.get(view.request)
        if kept is None or not self._is_file(view.request):
            return read_asked(self._git, view)
        return Asked(view, kept)

    def _is_file(self, commit: str) -> bool:
        """Say whether a manifest is a regular file. One that was read with others may have been a link."""
        found = objects.list_tree(self._git, commit, wire.REQUEST, sizes=False)
        return bool(found) and found[0].is_file

    def each(self, views: Sequence[View]) -> Iterator[Request | None]:
        """Yield what each request asks for, all read together; None where that cannot be read so."""
        new = list(dict.fromkeys(view.request for view in views if view.request not in self._kept))
        read: dict[str, Request | Refusal] = {}
        for commit, blob in zip(
            new, read_some(self._git, [f"{name}:{wire.REQUEST}" for name in new]), strict=True
        ):
            # What is missing, too large or no file at all is looked at more closely at its turn.
            if blob is not None:
                read[commit] = _parse(blob)
                self._keep(commit, read[commit], len(blob))
        for view in views:
            found = self._kept.get(view.request) or read.get(view.request)
            yield found if isinstance(found, Request) else None

    def _keep(self, commit: str, found: Request | Refusal, size: int) -> None:
        if self._total + size + _OVERHEAD <= _KEPT_BYTES:
            self._kept[commit] = found
            self._sizes[commit] = size + _OVERHEAD
            self._total += size + _OVERHEAD

    def forget_all_but(self, requests: Container[str]) -> None:
        """Forget the requests that wait no longer."""
        self._kept = {commit: found for commit, found in self._kept.items() if commit in requests}
        self._sizes = {commit: size for commit, size in self._sizes.items() if commit in requests}
        self._total = sum(self._sizes.values())


def read_some(git: Git, names: Sequence[str], *, kind: str = "blob") -> list[bytes | None]:
    """Return the contents of many small objects, read together or else one by one; None for what cannot be read."""
    try:
        return objects.read_many(git, names, max_bytes=strict_json.MAX_BYTES, kind=kind)
    except InfrastructureError:
        if len(names) == 1:
            return [None]
        return [found for name in names for found in read_some(git, [name], kind=kind)]


def _parse(blob: bytes) -> Request | Refusal:
    try:
        return parse_manifest(blob)
    except ManifestError as error:
        return Refusal(error.code, error.message)
