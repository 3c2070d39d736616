"""The bus of one job: a repository in the state folder, so that the job takes the same way as any other request."""

from pathlib import Path

from bridge.bus import branch_names, objects, wire
from bridge.bus.branch_names import Namespace
from bridge.bus.writer import Identity, Writer
from bridge.system.git import Git
from bridge.without_bus import NO_FILES, NO_FILES_COMMIT
from runner.admit.manifests import parse
from runner.refusal import Refusal

# The author of the request's commit. A runner's own commits show no time of a requester.
_WHO = Identity("a requester without a bus", "requester@localhost")
# The preset in the name of a request whose manifest cannot be read.
_UNREADABLE = "unreadable"


def create_bus(bus: Path, manifest: bytes) -> str:
    """Create a repository with one request, and return the request's branch."""
    bus.mkdir(mode=0o700)
    git = Git.isolated(bus)
    git("init", "--bare", "--quiet", "--template=", "--object-format=sha1", str(bus))
    git("hash-object", "-w", "-t", "commit", "--stdin", stdin=NO_FILES_COMMIT)
    writer = Writer(git)
    tree = objects.overlay(git, None, {wire.REQUEST: manifest}, writer)
    commit = writer.commit(tree, [NO_FILES], "A request without a bus\n", _WHO)
    writer.store()
    name = _branch_of(manifest)
    git("update-ref", f"refs/heads/{name}", commit)
    return name


def _branch_of(manifest: bytes) -> str:
    request = parse(manifest)
    if isinstance(request, Refusal):
        return Namespace().branch(_UNREADABLE, branch_names.new_nonce())
    return Namespace().branch(request.preset, request.nonce)
