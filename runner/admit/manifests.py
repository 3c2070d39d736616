"""Reads the manifests of waiting requests, and parses each one once for as long as its request waits."""

from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass

from bridge.bus import branch_names, history, lookup, objects, wire
from bridge.bus.history import RequestBranch
from bridge.common import strict_json
from bridge.errors import InfrastructureError, ManifestError
from bridge.manifest import Request, parse_manifest
from bridge.system.git import Git
from runner.refusal import Refusal

_CODES = ("too_large", "bad_json", "unknown_schema_version", "bad_nonce", "bad_manifest")
# Bound on the parsed manifests kept in memory. Other manifests are read again when their request has its turn.
CACHE_BYTES = 64 << 20
# Rough size of a parsed manifest in memory, in addition to its text.
ENTRY_OVERHEAD = 4096


@dataclass(frozen=True)
class Candidate:
    """A request before admission: its branch, and the parsed manifest or the reason why it cannot be parsed."""

    branch: RequestBranch
    parsed: Request | Refusal

    @property
    def request(self) -> Request | None:
        """The parsed manifest; None if it cannot be read."""
        return None if isinstance(self.parsed, Refusal) else self.parsed

    def require_request(self) -> Request:
        """Return the parsed manifest. Raises the Refusal that says why it cannot be parsed."""
        if isinstance(self.parsed, Refusal):
            raise self.parsed
        return self.parsed

    @property
    def fits_branch(self) -> bool:
        """Whether the manifest was made for this branch: a manifest that was copied to another branch was not."""
        request, parsed = self.request, branch_names.parse_branch(self.branch.name)
        if request is None or parsed is None:
            return False
        return self.branch.name == f"{parsed.prefix}{request.preset}-{request.nonce}{parsed.suffix}"


def read_candidate(git: Git, branch: RequestBranch) -> Candidate:
    """Read the manifest of one request commit."""
    try:
        blob = objects.read_blob(git, branch.request, wire.REQUEST, max_bytes=strict_json.MAX_BYTES)
    except InfrastructureError as error:
        if error.code not in _CODES:
            raise
        return Candidate(branch, Refusal(error.code, error.message))
    if blob is None:
        return Candidate(branch, Refusal("no_manifest", f"the request commit has no file {wire.REQUEST}"))
    return Candidate(branch, _parse(blob))


def is_unfinished(git: Git, candidate: Candidate) -> bool:
    """Return whether a branch was created, but its manifest is still to come, as with two calls of a host's API.

    That is so if its tip leaves the bridge's folder as in the commit before.
    """
    branch = candidate.branch
    if candidate.fits_branch or branch.state or branch.cancel:
        return False
    places = [f"{branch.tip}:{wire.FOLDER}", f"{branch.tip}^:{wire.FOLDER}"]
    folders = lookup.locate(git, places)
    return folders.get(places[0]) == folders.get(places[1])


def belongs(git: Git, branch: RequestBranch) -> bool:
    """Return whether the request commit that the branch's states name is still part of the branch."""
    return branch.request == branch.tip or history.is_ancestor(git, branch.request, branch.tip)


class Manifests:
    """The manifests of waiting requests, by request commit."""

    def __init__(self, git: Git) -> None:
        self._git = git
        # Parsed manifests, or refusals, by request commit; each with its size in memory.
        self._kept: dict[str, tuple[Request | Refusal, int]] = {}

    def of(self, branch: RequestBranch) -> Candidate:
        """Return one request with its manifest."""
        known = self._kept.get(branch.request)
        # The batch read does not tell files from symbolic links.
        entry = objects.entry_at(self._git, branch.request, wire.REQUEST) if known else None
        if known is None or entry is None or not entry.is_file:
            return read_candidate(self._git, branch)
        return Candidate(branch, known[0])

    def each(self, branches: Sequence[RequestBranch]) -> Iterator[Request | None]:
        """Yield the parsed manifest of each branch, read in one batch; None for those that ``of`` has to read alone."""
        new = list(dict.fromkeys(branch.request for branch in branches if branch.request not in self._kept))
        read: dict[str, Request | Refusal] = {}
        total = sum(size for _, size in self._kept.values())
        blobs = read_some(self._git, [f"{name}:{wire.REQUEST}" for name in new])
        for commit, blob in zip(new, blobs, strict=True):
            # A manifest that is missing, too large or not a file is read on its own when its request has its turn.
            if blob is not None:
                read[commit] = _parse(blob)
                size = len(blob) + ENTRY_OVERHEAD
                if total + size <= CACHE_BYTES:
                    self._kept[commit] = read[commit], size
                    total += size
        for branch in branches:
            known = (
                self._kept[branch.request][0] if branch.request in self._kept else read.get(branch.request)
            )
            yield known if isinstance(known, Request) else None

    def forget_all_but(self, requests: Container[str]) -> None:
        """Forget requests that no longer wait."""
        self._kept = {commit: known for commit, known in self._kept.items() if commit in requests}


def read_some(git: Git, names: Sequence[str], *, kind: str = "blob") -> list[bytes | None]:
    """Return the contents of many small objects, None for each that cannot be read. Reads them together if possible."""
    try:
        return objects.read_many(git, names, max_bytes=strict_json.MAX_BYTES, kind=kind)
    except InfrastructureError:
        if len(names) == 1:
            return [None]
        return [content for name in names for content in read_some(git, [name], kind=kind)]


def _parse(blob: bytes) -> Request | Refusal:
    try:
        return parse_manifest(blob)
    except ManifestError as error:
        return Refusal(error.code, error.message)
