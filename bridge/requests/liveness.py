"""Finds out whether a request is still served: its expiry, its runner's last heartbeat, or the state of the queue.

No decision compares the clocks of two machines. A lease counts as expired if this clone itself has seen the branch
unchanged for that long, which it remembers between commands. The wall clock can be set, and the monotonic clock
restarts with each boot, so the smaller of the two differences counts.
"""

import re
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime

from bridge.bus import objects, wire
from bridge.bus.branch_names import age_sort_key
from bridge.bus.history import RequestBranch
from bridge.bus.wire import State
from bridge.common import strict_json
from bridge.errors import InfrastructureError, ManifestError
from bridge.manifest import parse_manifest, parse_time
from bridge.reports.readable import Readable
from bridge.requests.sighting import span
from bridge.system import git_output
from bridge.system.git import Git
from bridge.system.local_files import NoteFile

_LAST_COMMITS = 20
_LINE = 200
# The last line is searched for in this many characters of output.
_ENOUGH = 64 * 1024
_SEEN_FILE = "kakeya-seen"
_SEEN_MOST = 200
# The commit, the time by the wall clock and by the monotonic clock, and the branch.
_SEEN_LINE = re.compile(r"([0-9a-f]{40}) ([0-9]{1,12}\.[0-9]{6}) ([0-9]{1,12}\.[0-9]{6}) (\S+)")


@dataclass(frozen=True)
class Liveness:
    """The last heartbeat of the runner that holds a request."""

    runner: str
    at: str
    lease_s: float
    # How long this clone has seen the branch unchanged.
    unchanged_s: float

    @property
    def lapsed(self) -> bool:
        """Return whether the lease has expired, as observed by this clone."""
        return self.unchanged_s >= self.lease_s

    def as_dict(self) -> dict[str, object]:
        """Return the object that ``--json`` prints."""
        seconds = {"unchanged_s": round(self.unchanged_s, 1), "age_s": self.age_s}
        return asdict(self) | seconds | {"lapsed": self.lapsed}

    @property
    def age_s(self) -> float | None:
        """Seconds since the runner wrote, if its clock and this one agree."""
        try:
            return round((datetime.now(UTC) - parse_time(self.at)).total_seconds(), 1)
        except ValueError:
            return None

    def text(self) -> str:
        """Return a sentence for people."""
        if self.lapsed:
            return (
                f"last sign of life of {self.runner} at least {span(self.unchanged_s)} ago; its lease of "
                f"{span(self.lease_s)} has run out, so another runner may take the request"
            )
        age = self.age_s
        ago = (
            f"{span(age)} ago by its clock" if age is not None and age >= 0 else f"at {self.at} by its clock"
        )
        late = ", which has run out if the clocks agree" if age is not None and age >= self.lease_s else ""
        return f"last sign of life of {self.runner} {ago}; its lease is {span(self.lease_s)}{late}"


@dataclass(frozen=True)
class Queue:
    """What is known about an unclaimed request."""

    # Number of waiting requests, including this one; and how many of them are older.
    waiting: int
    before: int
    # The runner that wrote to this bus last, the time by its own clock, and the request that it holds, if any.
    runner: str | None = None
    at: str | None = None
    busy_with: str | None = None

    def as_dict(self) -> dict[str, object]:
        """Return the object that ``--json`` prints."""
        return asdict(self)

    def text(self) -> str:
        """Return a sentence for people."""
        older = f"{self.before} of {self.waiting} waiting requests came before it (requesters take turns)"
        before = older if self.before else "no older request is waiting"
        if self.runner is None:
            return f"{before}; no runner has written to this bus yet"
        if self.busy_with:
            return f"{before}; {self.runner} runs {self.busy_with}"
        return f"{before}; nobody has served this bus since {self.at} (by the clock of {self.runner})"


def liveness_of(branch: RequestBranch, unchanged_s: float) -> Liveness | None:
    """Return the last heartbeat on a branch, or None if no runner holds it."""
    state = branch.state
    if state is None or not state.state.is_taken:
        return None
    return Liveness(state.runner.id, state.at, state.lease_s, unchanged_s)


def queue_of(branches: Mapping[str, RequestBranch], branch: RequestBranch) -> Queue:
    """Return what the newest branches of a bus show about a waiting request."""
    requested = {name: each for name, each in branches.items() if each.current_state is State.REQUESTED}
    waiting = {name for name, each in requested.items() if not each.cancel}
    before = sum(age_sort_key(name) < age_sort_key(branch.name) for name in waiting)
    number = len({*waiting, branch.name})
    states = [each.state for each in branches.values() if each.state]
    if not states:
        return Queue(number, before)
    last = max(states, key=lambda state: state.at)
    return Queue(number, before, last.runner.id, last.at, last.branch if last.state.is_taken else None)


def last_line(git: Git, branch: RequestBranch) -> str:
    """Return the last line of a job's output so far, cut to one terminal line. It often shows the progress."""
    # A forged state may name a request that does not exist.
    walk = ("rev-list", "--first-parent", f"--max-count={_LAST_COMMITS}", branch.tip, f"^{branch.request}")
    commits = git_output.lines(git(*walk, ok=(0, 128)).stdout)
    names = [f"{commit}:{wire.STREAM}" for commit in commits]
    text, newer = "", None
    lines: list[str] = []
    for blob in objects.read_many(git, names, max_bytes=1024 * 1024):
        # A commit that no runner made still contains the piece of its parent.
        if not blob or blob == newer:
            continue
        text, newer = blob.decode("utf-8", "replace") + text, blob
        lines = [line for line in Readable().add(text).split("\n") if line.strip()]
        # The first line may have begun in an older piece.
        if len(lines) > 1 or len(text) > _ENOUGH:
            break
    return shown(lines[-1]) if lines else ""


def shown(line: str) -> str:
    """Return a line of a job's log, bounded and without terminal control characters."""
    return "".join(c if c.isprintable() else " " for c in line[:_LINE]).strip()


def expires_at(git: Git, branch: RequestBranch) -> float | None:
    """Return when a request expires, in Unix seconds; None if its manifest does not say or cannot be read."""
    try:
        blob = objects.read_blob(git, branch.request, wire.REQUEST, max_bytes=strict_json.MAX_BYTES)
        ends = parse_manifest(blob).expires_at if blob is not None else None
    except (InfrastructureError, ManifestError):
        return None
    return parse_time(ends).timestamp() if ends else None


def is_expired(git: Git, branch: RequestBranch, now: float) -> bool:
    """Return whether a request expired before a runner took it. ``now`` is in Unix seconds."""
    ends = expires_at(git, branch) if branch.current_state is State.REQUESTED else None
    return ends is not None and ends < now


class BranchAges:
    """For each branch that a runner held: the time since which this clone has seen the branch at the same commit."""

    def __init__(self, git: Git, place: str = "") -> None:
        self._file = NoteFile(git, _SEEN_FILE, _SEEN_LINE, _SEEN_MOST)
        # No branch has a colon in its name.
        self._bus = f"{place}:" if place else ""
        # The last entry that this object read, cached because a followed branch is read many times.
        self._last: tuple[str, str] | None = None

    def see(self, branch: str, tip: str) -> None:
        """Record that a branch is at a commit now."""
        if self._last != (branch, tip):
            self.unchanged_s(branch, tip)

    def unchanged_s(self, branch: str, tip: str) -> float:
        """Record that a branch is at a commit now, and return for how many seconds this clone has seen it there."""
        self._last = (branch, tip)
        branch = f"{self._bus}{branch}"
        known = {name: (oid, float(at), float(up)) for oid, at, up, name in self._file.read()}
        wall, running = time.time(), time.monotonic()
        before = known.pop(branch, None)
        if before and before[0] == tip and before[1] <= wall:
            since = wall - before[1]
            return min(since, running - before[2]) if before[2] <= running else since
        known[branch] = (tip, wall, running)
        self._file.write(f"{oid} {at:.6f} {up:.6f} {name}" for name, (oid, at, up) in known.items())
        return 0.0
