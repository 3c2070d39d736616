"""What a runner remembers about each request branch between polls. After a restart it is rebuilt from the bus."""

import time
from collections.abc import Collection, Container, Iterable, Mapping

from bridge.bus.history import RequestBranch
from bridge.bus.wire import State
from bridge.errors import InfrastructureError
from runner.bus.backoff import Backoff
from runner.context import RunnerContext
from runner.faults import explain, why_not_writable
from runner.serve.next_action import TipWatch
from runner.serve.steps.step_runner import NOT_BEGUN

APPROVAL_RECHECK_S = 2.0
_FAILURES = 3
_LONGEST_FAULT_S = 600.0
CLOCK = "waits until this machine's clock can be trusted"
CANNOT_BEGIN = "cannot be begun here"


class Memory:
    """Which branches need no work now, why each unanswered request waits, and what failed."""

    def __init__(self, context: RunnerContext) -> None:
        self._context = context
        self.watch = TipWatch()
        self._tips: Mapping[str, str] = {}
        # Branches that need no work while their tip is this commit; and the expiry of those that ask for labels that
        # this runner lacks: once a request has expired, any runner may refuse it.
        self._settled: dict[str, str] = {}
        self._ends: dict[str, float] = {}
        # Why each unanswered request waits, as text for the operator, in the order of their turns.
        self.why: dict[str, str] = {}
        # Requests that wait for approval or for another runner: the time of the last check, and the reason.
        self._checked: dict[str, tuple[float, str]] = {}
        # Requests, by ``request_key``, that were not admitted: they are answered after others had their turn.
        self.unadmitted: set[str] = set()
        # Back-off for failures, by branch and tip, or by answer.
        self.retries = Backoff()
        # Branches that this process has answered, and back-off for those that it answers again and again.
        self._answered: set[str] = set()
        self._again = Backoff()
        # Back-off for branches that this host could not handle.
        self._faults = Backoff(_LONGEST_FAULT_S)
        self._warned: set[str] = set()

    def see(self, tips: Mapping[str, str], unsent: Mapping[str, str]) -> None:
        """Record the current tips, forget other branches, and note the answers that cannot be pushed (``unsent``)."""
        if tips is not self._tips:
            self.watch.see(tips)
            self._settled = {branch: tip for branch, tip in self._settled.items() if tips.get(branch) == tip}
            self._ends = {branch: ends for branch, ends in self._ends.items() if branch in self._settled}
            self._tips = tips
        self.retries.keep({*(request_key(*each) for each in tips.items()), *unsent.values()})
        self._answered &= tips.keys()
        self._again.keep(tips)
        self._faults.keep(tips)
        unsent_reason = f"its answer is kept until the bus takes it: {self._context.bus.push_fault}"
        known = {branch: reason for branch, reason in self.why.items() if branch in tips}
        self.why = known | dict.fromkeys(unsent, unsent_reason)
        for branch in [branch for branch, ends in self._ends.items() if ends < time.time()]:
            del self._ends[branch]
            self._settled.pop(branch, None)

    def pause(self, reason: str) -> None:
        """Note why no request is taken now."""
        unsettled = (branch for branch in self._tips if branch not in self._settled)
        self.why = dict.fromkeys(unsettled, reason) | self.why

    @property
    def is_settled(self) -> bool:
        """Whether no branch needs work now."""
        return len(self._settled) == len(self._tips)

    def due(self, unsent: Container[str]) -> dict[str, str]:
        """Return the branches that may need work now, and their tips."""
        due = {
            branch: tip
            for branch, tip in self._tips.items()
            if branch not in self._settled
            and branch not in unsent
            and self.retries.allows(request_key(branch, tip))
            and self._again.allows(branch)
            and self._faults.allows(branch)
        }
        self._checked = {branch: check for branch, check in self._checked.items() if branch in due}
        self.unadmitted &= {request_key(*each) for each in due.items()}
        return due

    def settle(self, branch: RequestBranch, expires: float | None = None, reason: str = "") -> None:
        """Note that a branch needs no work until its tip changes or it expires, and why its request waits."""
        self._settled[branch.name] = branch.tip
        if expires is not None:
            self._ends[branch.name] = expires
            self.why[branch.name] = reason

    def skip(self, branch: str, tip: str, reason: str) -> None:
        """Skip a branch until its tip changes."""
        self._settled[branch] = tip
        self._context.tell(f"{branch} is left out: {reason}")

    def note_unread(self, branches: Iterable[str]) -> None:
        """Note that branches could not be read yet."""
        for branch in branches:
            if branch not in self._settled:
                self.why.setdefault(branch, "its history is being read")

    def note_order(self, waiting: Iterable[RequestBranch], ordered: Iterable[RequestBranch]) -> None:
        """Note which requests wait for their turn, in this order, and which have no turn."""
        # The dictionary keeps the order of turns.
        reasons = dict.fromkeys((branch.name for branch in ordered), "waits for its turn")
        for branch in waiting:
            reasons.setdefault(branch.name, "its requester has used up their share: limits.per_requester")
        self.why = reasons | {name: reason for name, reason in self.why.items() if name not in reasons}

    def is_held_back(self, branch: RequestBranch) -> bool:
        """Return whether a request was not admitted, or waits for an approval or for another runner."""
        return request_key(branch.name, branch.tip) in self.unadmitted or branch.name in self._checked

    def recall(self, branches: Iterable[RequestBranch], approved: Collection[tuple[str, str]]) -> None:
        """Let requests that were approved meanwhile be checked again at once."""
        for branch in branches if approved else ():
            if (branch.name, branch.request) in approved and branch.name in self._checked:
                self.unadmitted.discard(request_key(branch.name, branch.tip))
                del self._checked[branch.name]

    def checked_at(self, branch: RequestBranch) -> float:
        """Return when a request that waits for a decision was last checked; 0 if it never was."""
        return self._checked.get(branch.name, (0.0, ""))[0]

    def was_just_checked(self, branch: RequestBranch) -> bool:
        """Return whether a request waits for a decision and was checked a moment ago."""
        if branch.name not in self._checked:
            return False
        checked_at, self.why[branch.name] = self._checked[branch.name]
        return time.monotonic() - checked_at < APPROVAL_RECHECK_S

    def note_wait(self, branch: RequestBranch) -> None:
        """Record why a request waits, and tell the operator if it is left to another runner."""
        reason = self._context.waits.pop(branch.name, None)
        if reason and self._checked.get(branch.name, (0.0, ""))[1] != reason:
            self._context.tell(f"{branch.name}: {reason}")
        if reason is None and self._context.clock.is_doubtful():
            reason = CLOCK
        reason = reason or f"waits for approval: kakeya-runner approve {branch.request}"
        self._checked[branch.name] = time.monotonic(), reason
        self.why[branch.name] = reason

    def back_off(self, branch: RequestBranch) -> None:
        """Back off from a branch as long as it stays at this commit."""
        self.retries.failed(request_key(branch.name, branch.tip))

    def mark_handled(self, branch: str) -> None:
        """Note that a branch was handled without a fault."""
        self._faults.succeeded(branch)
        self.why.pop(branch, None)

    def mark_answered(self, branch: str, published: State | None) -> None:
        """Back off if a branch needs one answer after another: the bus may store pushes elsewhere."""
        if published is None or not published.is_final:
            return
        if branch not in self._answered:
            self._answered.add(branch)
        elif self._again.failed(branch) == _FAILURES:
            self._context.tell(
                f"{branch} needs one answer after another, so it is looked at less often: does somebody push to it "
                "again and again, or is it another name of a branch on the bus?"
            )

    def mark_failed(self, branch: str, error: Exception) -> None:
        """Record that a branch could not be handled: it is never given up. A full disk is an InfrastructureError."""
        state = self._context.policy.state
        if reason := why_not_writable(state):
            message = f"cannot write to {state}: {reason}. Requests wait until there is room on this disk"
            raise InfrastructureError(message, code="no_room") from error
        is_ours = isinstance(error, InfrastructureError) and error.code == NOT_BEGUN
        self.why[branch] = f"{CANNOT_BEGIN if is_ours else 'failed here'}: {error}"
        self._context.tell(f"{branch}: {type(error).__name__}: {error}")
        # The key is the branch alone, because a request that was handed back has another commit.
        if self._faults.failed(branch) == _FAILURES:
            self._context.tell(f"{branch}: tried less and less often from now on")

    def tell_bug(self, subject: str, error: Exception) -> None:
        """Tell the operator of a bug."""
        self.tell_once(message := f"{subject}: {explain(error)}", message)

    def tell_once(self, key: str, message: str) -> None:
        """Tell the operator something, but only the first time for this key."""
        if key not in self._warned:
            self._warned.add(key)
            self._context.tell(message)


def request_key(branch: str, tip: str) -> str:
    """Return the key of a branch at a commit. The commit alone is not enough: anyone can push a second branch to it."""
    return f"{branch} {tip}"
