"""Reads the manifests of waiting requests: of many in one batch, or of one when it has its turn."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from bridge.bus import branch_names, history, objects, wire
from bridge.bus.history import RequestBranch
from bridge.common import strict_json
from bridge.errors import InfrastructureError, ManifestError
from bridge.manifest import Request, parse_manifest
from bridge.system.git import Git
from runner.refusal import Refusal

_CODES = ("too_large", "bad_json", "unknown_schema_version", "bad_nonce", "bad_manifest")
UNFINISHED = f"waits for its file {wire.REQUEST}"
# Bound on the parsed manifests kept in memory. Other manifests are read again when their request has its turn.
CACHE_BYTES = 64 << 20
# Rough size of a parsed manifest in memory, in addition to its text.
ENTRY_OVERHEAD = 4096


@dataclass(frozen=True)
class Candidate:
    """A request before admission: its branch, and the parsed manifest or the reason why it cannot be parsed."""

    branch: RequestBranch
    parsed: Request | Refusal
    # Whether the branch exists but its manifest is still missing, as between two calls of a host's API.
    is_unfinished: bool = False

    @property
    def request(self) -> Request | None:
        """The parsed manifest; None if it cannot be read."""
        return None if isinstance(self.parsed, Refusal) else self.parsed

    def require_request(self) -> Request:
        """Return the parsed manifest. Raises the Refusal that says why it cannot be parsed or is for another branch."""
        if isinstance(self.parsed, Refusal):
            raise self.parsed
        if not self.fits_branch:
            asked = f"{self.parsed.preset}-{self.parsed.nonce}"
            message = f"the manifest is for {asked}, but the branch has another name"
            raise Refusal("branch_mismatch", message, self.parsed)
        return self.parsed

    @property
    def fits_branch(self) -> bool:
        """Whether the manifest was made for this branch, and not copied from another one."""
        request, parsed = self.request, branch_names.parse_branch(self.branch.name)
        if request is None or parsed is None:
            return False
        return self.branch.name == f"{parsed.prefix}{request.preset}-{request.nonce}{parsed.suffix}"


def read_candidate(git: Git, branch: RequestBranch, known: Request | Refusal | None = None) -> Candidate:
    """Return a request with its manifest. A manifest that ``read_together`` has read is passed as ``known``."""
    # The batch read does not tell files from symbolic links.
    entry = objects.entry_at(git, branch.request, wire.REQUEST) if known else None
    candidate = Candidate(branch, known if known and entry and entry.is_file else _read(git, branch))
    if candidate.fits_branch or branch.state or branch.cancel:
        return candidate
    # The manifest is still missing if the tip leaves the bridge's folder as in the commit before.
    places = [f"{branch.tip}:{wire.FOLDER}", f"{branch.tip}^:{wire.FOLDER}"]
    folders = objects.locate(git, places)
    return replace(candidate, is_unfinished=folders.get(places[0]) == folders.get(places[1]))


def _read(git: Git, branch: RequestBranch) -> Request | Refusal:
    try:
        blob = objects.read_blob(git, branch.request, wire.REQUEST, max_bytes=strict_json.MAX_BYTES)
    except InfrastructureError as error:
        if error.code not in _CODES:
            raise
        return Refusal(error.code, error.message)
    if blob is None:
        return Refusal("no_manifest", f"the request commit has no file {wire.REQUEST}")
    return parse(blob)


def belongs(git: Git, branch: RequestBranch) -> bool:
    """Return whether the request commit that the branch's states name is still part of the branch."""
    return branch.request == branch.tip or history.is_ancestor(git, branch.request, branch.tip)


def read_together(git: Git, requests: Sequence[str]) -> dict[str, tuple[Request | Refusal, int]]:
    """Read the manifests of many request commits in one batch. Returns each parsed manifest and its size in memory.

    One that is missing, too large or not a file is left out: it is read on its own when its request has its turn.
    """
    commits = list(dict.fromkeys(requests))
    blobs = read_some(git, [f"{commit}:{wire.REQUEST}" for commit in commits])
    read = ((commit, blob) for commit, blob in zip(commits, blobs, strict=True) if blob is not None)
    return {commit: (parse(blob), len(blob) + ENTRY_OVERHEAD) for commit, blob in read}


def read_some(git: Git, names: Sequence[str], *, kind: str = "blob") -> list[bytes | None]:
    """Return the contents of many small objects, None for each that cannot be read. Reads them together if possible."""
    try:
        return objects.read_many(git, names, max_bytes=strict_json.MAX_BYTES, kind=kind)
    except InfrastructureError:
        if len(names) == 1:
            return [None]
        return [content for name in names for content in read_some(git, [name], kind=kind)]


def parse(blob: bytes) -> Request | Refusal:
    """Return a manifest, or the refusal that says why it cannot be read."""
    try:
        return parse_manifest(blob)
    except ManifestError as error:
        return Refusal(error.code, error.message)
