"""The bus as the runner sees it: its own bare store, isolated git, fetches by name, compare-and-swap pushes."""

import re
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import replace
from enum import Enum
from pathlib import Path
from typing import Protocol

from bridge.bus import branch_names, exact_refs, history, oversized
from bridge.bus.hosts.push_end import PushEnd, PushError
from bridge.common import limits
from bridge.errors import GitError, InfrastructureError
from bridge.system import git_output
from bridge.system.git import Git
from bridge.system.process import Completed
from runner import policy
from runner.bus.fetch import Fetcher
from runner.bus.store import open_store, token_of

KEPT = "refs/kept/"

# Git's message for a reference that is refused only because another one of the same transaction is.
_COLLATERAL = re.compile("atomic (push|transaction) fail|transaction failed", re.IGNORECASE)
# Pushes of a minute that are kept for claims and answers.
_RESERVE = 2
# The interval between heartbeats is at least this many times the lag of the bus's readers.
_LAGS = 2.0
_MINUTE_S = 60.0
_SHORTEST_S = 0.5
# With how many runners a budget is shared at most: anyone who may push can say that more of them are busy.
_MOST_SHARERS = 30


class PiggybackRef(Protocol):
    """A commit on its own reference that is added to other pushes: see ``runner/state/announcer.py``."""

    @property
    def ref(self) -> str: ...  # noqa: D102
    def take(self) -> str | None: ...  # noqa: D102
    def mark_pushed(self) -> None: ...  # noqa: D102
    def mark_failed(self, reason: str | None) -> None: ...  # noqa: D102


class Pushed(Enum):
    """How a push ended. A push that arrived counts as done even if git reported a failure."""

    DONE = "done"
    STALE = "stale"
    FAILED = "failed"


class Bus(Fetcher):
    """A remote repository, and the store in which its request branches are mirrored."""

    def __init__(self, settings: policy.Bus, state_folder: Path) -> None:
        self._secret = token_of(settings)
        opened = open_store(settings, state_folder / "store.git", self._secret)
        self.request_patterns = tuple(settings.patterns)
        patterns = (*self.request_patterns, *settings.forward)
        super().__init__(replace(opened, on_failure=self._suspect), settings.url, patterns)
        # The tips of the sessions' branches from which requests are forwarded, as of the last fetch.
        self.sessions: Mapping[str, str] = {}
        self._all_tips: Mapping[str, str] = {}
        self._request_tips: dict[str, str] = {}
        self.budget = Budget(settings.budget, lambda: self.sightings.lag_s)
        self.piggyback: PiggybackRef | None = None
        # Whether git failed since the last check, so that the store may be damaged.
        self.is_suspect = False
        # The bus's message if the last push of a branch, or the last deletion, failed; otherwise empty.
        self.push_fault = self.deletion_fault = ""

    def _suspect(self, _error: GitError) -> None:
        self.is_suspect = True

    @property
    def durable_git(self) -> Git:
        """Git that syncs the objects that it writes, for objects that only this store has."""
        return replace(self.git, options=(*self.git.options, "-c", "core.fsync=committed"))

    @property
    def secrets(self) -> list[str]:
        """Texts that must never appear in a log."""
        return [self._secret] if self._secret else []

    def fetch(self) -> dict[str, str]:
        """Fetch new branches and return the tips of all request branches, as ``Fetcher.fetch`` does."""
        tips = super().fetch()
        if len(self.patterns) == len(self.request_patterns):
            return tips
        if tips is not self._all_tips:
            self._all_tips = tips
            self._request_tips = {
                name: tip for name, tip in tips.items() if branch_names.matches(name, self.request_patterns)
            }
            self.sessions = {name: tip for name, tip in tips.items() if name not in self._request_tips}
        return self._request_tips

    def create(self, commits: Mapping[str, str]) -> dict[str, Pushed]:
        """Create branches, given as ``{branch: commit id}``, with one push. STALE: the branch exists already."""
        if not commits:
            return {}
        refs = {f"refs/heads/{branch}": commit for branch, commit in commits.items()}
        error = self._push(refs, dict.fromkeys(refs), None)
        ends = {}
        for branch, commit in commits.items():
            ref = f"refs/heads/{branch}"
            if error is None or error.end(ref) is PushEnd.ACCEPTED:
                ends[branch] = Pushed.DONE
                self._see({branch: commit}, own=True)
            else:
                ends[branch] = Pushed.STALE if error.is_overtaken(ref) else Pushed.FAILED
        return ends

    def push(self, branch: str, commit: str, *, expect: str) -> Pushed:
        """Move a branch from ``expect`` to its descendant ``commit`` in one compare-and-swap.

        If git fails and does not tell how the push ended, the branch is fetched to find out.
        """
        along = self.piggyback.take() if self.piggyback else None
        if error := self._push({f"refs/heads/{branch}": commit}, {f"refs/heads/{branch}": expect}, along):
            pushed = self._after_failure(error, branch, commit, expect)
            self.push_fault = error.summary() if pushed is Pushed.FAILED else ""
            return pushed
        self.push_fault = ""
        self._see({branch: commit}, own=True)
        return Pushed.DONE

    def push_record(self, commit: str) -> bool:
        """Push a piggyback commit alone, and return whether it arrived."""
        return self._push({}, {}, commit) is None

    def fetch_reference(self, ref: str) -> str | None:
        """Fetch the commit of a reference outside of the branches to the same name here; None if the bus has none.

        Raises:
            InfrastructureError: it cannot be fetched in time, or a commit below it is too large.
        """
        tip = exact_refs.find_ref(self.git, self.url, ref, limits.TIP_S)
        if tip is None:
            self.git.delete_refs([ref])
            return None
        self.git("update-ref", "-d", ref)
        self._transfer.fetch([tip], limits.TIP_S, at=ref)
        if oversized.oversized_tips(self.git, [tip], but=ref, timeout=limits.TIP_S):
            self.git("update-ref", "-d", ref)
            raise InfrastructureError("a commit on the bus is too large")
        return tip

    def push_reference(self, ref: str, commit: str, *, expect: str | None) -> bool:
        """Set a reference to a commit if it is still at ``expect`` (None: missing). Returns whether it was set.

        Raises:
            InfrastructureError: the bus refuses it, or cannot be reached.
        """
        error = self._push({ref: commit}, {ref: expect}, None)
        if error is None or error.end(ref) is PushEnd.ACCEPTED:
            return True
        if error.is_overtaken(ref):
            return False
        raise InfrastructureError(error.summary())

    def _push(
        self, refs: dict[str, str], expect: Mapping[str, str | None], along: str | None
    ) -> PushError | None:
        """Push references and a piggyback commit. Returns the error, if any."""
        piggyback = self.piggyback if along else None
        if piggyback and along:
            refs = {**refs, piggyback.ref: along}
        self.budget.spend()
        try:
            exact_refs.push(self.git, self.url, refs, expect)
        except PushError as error:
            if piggyback:
                # If the whole push failed, it is not known whether the bus refuses this reference.
                refused = dict(git_output.rejected(error.stdout))
                is_refused = piggyback.ref in refused and not error.is_overtaken(piggyback.ref)
                piggyback.mark_failed(error.summary() if is_refused else None)
            return error
        if piggyback:
            piggyback.mark_pushed()
        return None

    def delete(self, tips: Mapping[str, str]) -> list[str]:
        """Delete branches that are still at the given commits, and return those that are gone afterwards.

        Branches that may not be deleted stay, without an error. The names are arguments of one command, so pass at most
        about a thousand at once.

        Raises:
            InfrastructureError: the bus cannot be reached.
        """
        self._delete_at_once(dict(tips))
        self.fetch()
        remaining = {*self.listed, *self.commits.reasons}
        return [branch for branch in tips if branch not in remaining]

    def _delete_at_once(self, tips: dict[str, str]) -> None:
        """Delete branches in one transaction, except branches that the bus keeps; without transactions, one by one.

        Git rewrites its file of packed references for each deletion that is a transaction of its own, on the bus
        and in the store: deleting n branches in n transactions costs n squared.
        """
        while tips:
            done = self._push_deletions(tips, "--atomic")
            if done.returncode == 0:
                self._deleted(tips)
                return
            rejected = git_output.rejected(done.stdout)
            refused = {branch for branch, reason in rejected if not _COLLATERAL.search(reason)}
            if refused.isdisjoint(tips):
                done = self._push_deletions(tips)
                stay = dict(git_output.rejected(done.stdout))
                if stay or done.returncode == 0:
                    self._deleted({branch: tip for branch, tip in tips.items() if branch not in stay})
                return
            tips = {branch: tip for branch, tip in tips.items() if branch not in refused}

    def _deleted(self, tips: Mapping[str, str]) -> None:
        self._tips.set(dict.fromkeys(tips))
        self.sightings.record_deletion(tips)
        self._judges_again = True

    def _push_deletions(self, tips: Mapping[str, str], *flags: str) -> Completed:
        self.budget.spend()
        refs = {f"refs/heads/{branch}": tip for branch, tip in tips.items()}
        done = exact_refs.delete(self.git, self.url, refs, *flags, ok=range(256))
        failed = GitError(("git", "push"), done.returncode, done.stdout, done.stderr)
        self.deletion_fault = failed.summary() if done.returncode else ""
        return done

    def _after_failure(self, error: PushError, branch: str, commit: str, expect: str) -> Pushed:
        ref = f"refs/heads/{branch}"
        end, is_overtaken = error.end(ref), error.is_overtaken(ref)
        if end is PushEnd.ACCEPTED:
            self._see({branch: commit}, own=True)
            return Pushed.DONE
        if end is not PushEnd.UNKNOWN and not is_overtaken:
            return Pushed.FAILED
        if self.sightings.grace_s and exact_refs.ask_primary(self.git, self.url, {branch: commit}) == {
            branch: commit
        }:
            # Only the reply was lost. Readers may not show the commit yet.
            self._see({branch: commit}, own=True)
            return Pushed.DONE
        if is_overtaken:
            self.sightings.record_refusal(branch, expect)
            self._judges_again = True
        try:
            tip = self.tip(branch)
        except InfrastructureError:
            return Pushed.FAILED
        if tip is not None and (tip == commit or history.is_ancestor(self.git, commit, tip)):
            return Pushed.DONE
        return Pushed.FAILED if tip == expect and not is_overtaken else Pushed.STALE

    def is_damaged(self, branch: str, commit: str) -> bool:
        """Return whether parts of a commit are missing here, although the branch below it was fetched."""
        tip = self._tips.at.get(branch)
        walk = ("rev-list", "--objects", "--quiet", commit, f"^{tip}")
        return tip is not None and self.git(*walk, ok=(0, 128)).returncode != 0

    def protect(self, commit: str) -> None:
        """Protect a commit that is on no branch yet from garbage collection."""
        self.git("update-ref", KEPT + commit, commit)

    def unprotect(self, commit: str) -> None:
        """Stop protecting a commit."""
        self.git("update-ref", "-d", KEPT + commit)


class Budget:
    """Counts the pushes of the last minute. Claims and answers are always allowed; heartbeats ask first.

    The limit is the bus's. If ``sharers`` runners use it, each has its pushes of a minute in that many minutes.
    """

    def __init__(self, per_minute: int, lag_s: Callable[[], float] = lambda: 0.0) -> None:
        self.per_minute = per_minute
        self.sharers = 1
        self._lag_s = lag_s
        self._times: deque[float] = deque()

    @property
    def _window_s(self) -> float:
        return _MINUTE_S * min(max(1, self.sharers), _MOST_SHARERS)

    def spend(self) -> None:
        """Count one push."""
        self._times.append(time.monotonic())

    def has_spare(self) -> bool:
        """Return whether an optional push is allowed. Two pushes are kept for necessary ones."""
        return self._spent() + _RESERVE < self.per_minute

    def wait_after_push_s(self) -> float:
        """Return how long after the next push another one may keep a lease. A push for the answer stays reserved."""
        most = max(1, self.per_minute - 1)
        over = self._spent() + 1 - most
        if over < 0:
            return 0.0
        # Once these are older than the window, and counting the next push itself, there is room again.
        times = [*self._times, time.monotonic()]
        return times[over] + self._window_s - time.monotonic()

    def _spent(self) -> int:
        now = time.monotonic()
        while self._times and now - self._times[0] > self._window_s:
            self._times.popleft()
        return len(self._times)

    @property
    def first_s(self) -> float:
        """How soon after the claim the first heartbeat may follow, in seconds."""
        return max(_SHORTEST_S, _LAGS * self._lag_s())

    @property
    def interval_s(self) -> float:
        """The shortest interval between heartbeats, in seconds.

        If the bus's readers lag, a requester must be able to read a heartbeat, and to cancel upon it, before the next.
        """
        return max(self.first_s, self._window_s / max(1, self.per_minute - _RESERVE))
