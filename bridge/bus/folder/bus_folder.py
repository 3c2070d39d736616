"""Reads ``.kakeya/`` on the bus's default branch, as the remote names it: the pinned keys and the shared presets.

Whoever may write the default branch decides about both. No other branch counts. The remote is asked each time, for a
few seconds at most; if it does not answer, what this clone saw last counts. A reading may come from a copy of the bus
that lags, so for a short time an older commit does not replace a newer one.
"""

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from bridge.bus import exact_refs, objects
from bridge.bus.folder import folder_copy, one_commit
from bridge.bus.folder.folder_copy import FolderCopy
from bridge.bus.hosts import address
from bridge.bus.known.sightings import GRACE_S
from bridge.bus.remote import Remote
from bridge.bus.times import commit_times
from bridge.common import environment, limits
from bridge.errors import InfrastructureError, KakeyaError, ProcessError, UsageError, one_line
from bridge.system import git_output
from bridge.system.deadline import within
from bridge.system.git import Git

FOLDER = ".kakeya"
PRESETS = "presets"
# After the remote did not answer, a process asks it again only after this many seconds.
_ASK_AGAIN_S = 10.0
# Presets, and schemas that they name.
_ENDINGS = (".yaml", ".yml", ".json")


@dataclass(frozen=True)
class BusFolder:
    """What ``.kakeya/`` holds on the bus's default branch."""

    # The default branch for people, such as ``origin/main``; empty if there is none, or none is known.
    branch: str = ""
    commit: str = ""
    # The content of each file, by its path below ``.kakeya/``.
    files: Mapping[str, bytes] = field(default_factory=dict)
    # Files that are there and were not read, each with the reason.
    unread: Mapping[str, str] = field(default_factory=dict)
    # Why the remote did not answer, so that the content may be old; empty if it answered.
    problem: str = ""

    def source(self, path: str) -> str:
        """Return where a file comes from, for people."""
        late = f", as last seen: {self.problem}" if self.problem else ""
        return f"{FOLDER}/{path} on {self.branch}{late}"


_read: dict[tuple[str, str], tuple[float, BusFolder]] = {}
_lock = threading.Lock()


def read_bus_folder(git: Git, remote: str, *, ask: bool = True) -> BusFolder:
    """Return ``.kakeya/`` of the default branch of a remote, given by its name or URL. No error is raised.

    Without ``ask``, the remote is not asked, and what this clone saw last is returned.
    """
    key = (str(git.directory.absolute()), remote)
    with _lock:
        at, folder = _read.get(key, (-_ASK_AGAIN_S, BusFolder()))
        if time.monotonic() - at < _ASK_AGAIN_S:
            return folder
    folder = _look(git, remote, ask=ask)
    if not ask:
        return folder
    with _lock:
        _read[key] = time.monotonic(), folder
    return folder


def forget() -> None:
    """Ask the remote again at the next call."""
    with _lock:
        _read.clear()


def _look(git: Git, name: str, *, ask: bool) -> BusFolder:
    try:
        quiet = replace(git, env=environment.without_prompts(git.env))
        remote = Remote.of(quiet, name)
        stored = folder_copy.load(git, remote.url)
    except UsageError:
        # There is no bus, so nothing is missing.
        return BusFolder()
    except KakeyaError as error:
        return BusFolder(problem=one_line(error.message))
    known = _newest(stored, _tracked(git, name))
    if not ask:
        return _shown(name, known, "the remote was not asked")
    try:
        with within(limits.BUS_FOLDER_S):
            head = exact_refs.find_head(remote.git, name)
            reading = _read_commit(remote, *head, known) if head else None
    except (ProcessError, InfrastructureError) as error:
        return _shown(name, known, f"{name} does not answer: {one_line(error.message)}")
    has_copies = not address.parse(remote.url).is_local
    if has_copies and known and _is_older(reading, known):
        return _shown(name, known)
    if reading:
        folder_copy.store(git, remote.url, reading)
    return _shown(name, reading)


def _shown(name: str, copy: FolderCopy | None, problem: str = "") -> BusFolder:
    if copy is None:
        return BusFolder(problem=problem)
    return BusFolder(f"{name}/{copy.branch}", copy.commit, copy.contents, copy.unread, problem)


def _newest(*copies: FolderCopy | None) -> FolderCopy | None:
    """Return the copy whose commit is the latest."""
    return max((copy for copy in copies if copy), key=lambda copy: (copy.made_at, copy.seen_at), default=None)


def _is_older(reading: FolderCopy | None, known: FolderCopy) -> bool:
    """Return whether a reading is older than a reading of a moment ago."""
    if not 0 <= time.time() - known.seen_at < GRACE_S:
        return False
    if reading is None:
        return True
    # Times are in seconds, so two commits may have the same one.
    return (
        reading.branch == known.branch and reading.commit != known.commit and reading.made_at <= known.made_at
    )


def _tracked(git: Git, name: str) -> FolderCopy | None:
    """Return the folder as of git's last fetch or push of the default branch, if git knows that branch."""
    prefix = f"refs/remotes/{name}/"
    ref = git.maybe("symbolic-ref", "--quiet", f"{prefix}HEAD") or ""
    commit = objects.resolve(git, ref) if ref.startswith(prefix) else None
    if commit is None:
        return None
    entry = git.maybe("reflog", "show", "--date=unix", "-1", "--format=%gd", ref) or ""
    seen_at = git_output.reflog_time(entry) or 0.0
    try:
        return _content(git, ref.removeprefix(prefix), commit, seen_at)
    except (ProcessError, InfrastructureError):
        return None


def _read_commit(remote: Remote, branch: str, commit: str, known: FolderCopy | None) -> FolderCopy:
    if known and known.commit == commit and known.has_schemas:
        return known.model_copy(update={"branch": branch, "seen_at": time.time()})
    if objects.resolve(remote.git, commit):
        return _content(remote.git, branch, commit, time.time())
    with one_commit.fetched(remote.git, remote.name, commit) as store:
        wanted = [entry.oid for entry, _ in _entries(store, commit)]
        one_commit.fetch_blobs(store, remote.name, wanted)
        return _content(store, branch, commit, time.time())


def _content(git: Git, branch: str, commit: str, seen_at: float) -> FolderCopy:
    """Read the folder in a commit, within the limits."""
    files: dict[str, bytes] = {}
    unread: dict[str, str] = {}
    entries, total = _entries(git, commit), 0
    sizes = objects.object_sizes(git, [entry.oid for entry, _ in entries])
    for entry, path in entries:
        size = sizes.get(entry.oid)
        if size is None:
            unread[path] = "it is missing"
        elif size > limits.BUS_FILE_BYTES:
            unread[path] = f"it is larger than {limits.BUS_FILE_BYTES} bytes"
        elif total + size > limits.BUS_FOLDER_BYTES:
            unread[path] = f"all files together are larger than {limits.BUS_FOLDER_BYTES} bytes"
        else:
            total += size
            ((_, files[path]),) = objects.each_content(git, [entry.oid])
    (made_at,) = commit_times(git, [commit])
    return FolderCopy.of(branch, commit, made_at or 0.0, seen_at, files, unread)


def _entries(git: Git, commit: str) -> list[tuple[git_output.Entry, str]]:
    """Return the files to read, each with its path below the folder: the keys, then presets, then their schemas."""
    names = [f"{commit}:{FOLDER}", f"{commit}:{FOLDER}/{PRESETS}"]
    raws = objects.read_many(git, names, max_bytes=limits.TREE_BYTES, kind="tree")
    listed: list[tuple[git_output.Entry, str]] = []
    for raw, prefix in zip(raws, ("", f"{PRESETS}/"), strict=True):
        for entry in git_output.tree(raw or b""):
            is_wanted = entry.path.endswith(_ENDINGS) if prefix else entry.path == "runner.pub"
            if entry.is_file and is_wanted and entry.path.isprintable():
                listed.append((entry, f"{prefix}{entry.path}"))
    listed.sort(key=lambda file: file[1].endswith(".json"))
    return listed[: limits.BUS_FILES]
