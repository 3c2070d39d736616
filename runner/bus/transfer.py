"""Fetches commits into the runner's store, a few at a time. A slow fetch may go on while later ones run."""

import re
from collections.abc import Sequence

from bridge.bus import exact_refs, objects
from bridge.errors import InfrastructureError, ProcessError
from bridge.system import git_output
from bridge.system.git import Git
from bridge.system.process import Child
from runner.bus.commits import HOSTILE
from runner.bus.history_size import LOOKS
from runner.bus.packed_refs import HEADS, PackedRefs
from runner.bus.stale_files import temporary_packs
from runner.bus.store import fetch_flags, scratch_repository

# Where a commit that is fetched by its branch is stored, whatever the branch's name.
LOOK = f"{LOOKS}tip"
# A command line of this many references fits on every system.
_MOST_ENDS = 1000


class SlowError(InfrastructureError):
    """A commit did not come within the available time."""

    def __init__(self) -> None:
        super().__init__("cannot fetch from the bus: it takes too long", code="slow")


class Transfer:
    """The fetches of one store."""

    def __init__(self, git: Git, url: str, tips: PackedRefs) -> None:
        self._git = git
        self._url = url
        self._tips = tips
        # A slow commit, the git process that fetches it while other fetches run, and the repository that it uses.
        self._slow: tuple[str, Child, Git] | None = None

    def close(self) -> None:
        """End the running processes."""
        if self._slow:
            self._slow[1].close()
            self._slow = None

    def fetch(self, commits: Sequence[str], time_s: float, *, at: str = "", stays: bool = False) -> None:
        """Fetch commits by their ids. The reference ``at`` gets a single commit.

        With ``stays``, the fetch of a single commit goes on after ``time_s``, beside later fetches, unless another
        such fetch is running.

        Raises:
            InfrastructureError: the commits did not arrive; a SlowError if they take longer.
        """
        stays = stays and len(commits) == 1 and self._slow is None
        # A slow fetch gets a repository of its own, so that it does not lock other fetches out.
        git = scratch_repository(self._git) if stays else self._git
        child = start_fetch(git, self._url, *commits, at=at)
        try:
            if child.ended(time_s):
                self._check_whole(git)
                return
        except ProcessError as error:
            # Git leaves an unfinished file if the pack is cut short or damaged, and its lock if it is killed.
            child.close()
            self._sweep_up()
            raise explain_failure(error) from error
        finally:
            if stays and child.is_running:
                self._slow = (commits[0], child, git)
            else:
                child.close()
        self._sweep_up()
        raise SlowError

    @property
    def slow_commit(self) -> str | None:
        """The commit whose slow fetch goes on beside the others."""
        return self._slow[0] if self._slow else None

    def finish_slow(self) -> bool:
        """Return whether the slow commit has arrived; InfrastructureError if its fetch failed."""
        if self._slow is None:
            return False
        _, child, git = self._slow
        is_over = True
        try:
            is_over = child.ended(0.0)
            if is_over:
                self._check_whole(git)
        except ProcessError as error:
            raise explain_failure(error) from error
        finally:
            if is_over:
                child.close()
                self._slow = None
                self._sweep_up()
        return is_over

    def _sweep_up(self) -> None:
        """Remove the leftovers of interrupted fetches: a lock, and packs unless one is still being received."""
        (self._git.directory / "shallow.lock").unlink(missing_ok=True)
        if self._slow is None:
            for path in temporary_packs(self._git.directory):
                path.unlink(missing_ok=True)

    def _check_whole(self, git: Git) -> None:
        """Refuse a history that the bus truncated, as with ``--depth``, and drop it: git never asks for the rest."""
        marks = git.directory / "shallow"
        if not marks.exists():
            return
        try:
            # The bus chose these commits, so some may not exist.
            located = objects.locate(git, git_output.lines(marks.read_bytes()))
            ends = [f"--contains={oid}" for oid, entry in located.items() if entry.kind == "commit"]
            listed = git("for-each-ref", "--format=%(refname)", *ends[:_MOST_ENDS]).stdout if ends else b""
        finally:
            marks.unlink()
        refs = git_output.lines(listed)
        self._tips.set({name.removeprefix(HEADS): None for name in refs if name.startswith(HEADS)})
        self._git("update-ref", "-d", LOOK)
        raise InfrastructureError("the bus sent a history that is cut off", code="unreachable")


def start_fetch(git: Git, url: str, *commits: str, at: str = "") -> Child:
    """Start a fetch of commits, or raise an InfrastructureError. The reference ``at`` gets a single commit."""
    try:
        return exact_refs.start_fetch(git, url, commits, *fetch_flags(url), at=at)
    except ProcessError as error:
        raise explain_failure(error) from error


def explain_failure(error: ProcessError) -> InfrastructureError:
    """Turn git's message about a fetch into an error that says what happened."""
    if re.search(rb"^fatal: out of memory", error.stderr, re.MULTILINE | re.IGNORECASE):
        return InfrastructureError(f"git refuses what the bus sent: {error.summary()}", code=HOSTILE)
    if git_output.refuses_objects(error.stderr):
        # The received objects are refused, which no retry changes. Git's first error names the object.
        match = re.search(r"^error: (.*)", error.stderr.decode("utf-8", "replace"), re.MULTILINE)
        message = f"git refuses what the bus sent: {match[1] if match else error.summary()}"
        return InfrastructureError(message, code=HOSTILE)
    return InfrastructureError(f"cannot fetch from the bus: {error.summary()}", code="unreachable")
