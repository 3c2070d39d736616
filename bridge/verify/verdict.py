"""The conclusion about an answer: the only table from state, verdict and trust to words and exit codes.

Commands, pages, tools and the runner take their words, grades and exit codes from here, so that none of them shows as
good what another refuses.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from bridge.bus import wire
from bridge.bus.wire import Gate, Result, State
from bridge.checklist import SIGNATURE, Check
from bridge.errors import ExitCode

# The meaning of each verdict.
MEANINGS = {
    "ACCEPTED": "the run vouches for this report, and no check objects",
    "ACCEPTED_BY_REQUESTER": "no check objects; the request's own code measured, so the requester vouches for it",
    "REJECTED": "the experiment is wrong, or the report is not the run's, so its figures cannot be relied on",
    "INCOMPLETE": "no error was found, but something is missing or too uneven, so the figures cannot be relied on yet",
}


class Trust(StrEnum):
    """A reader's knowledge of who wrote an answer."""

    SIGNED = "signed"  # a pinned key signed exactly this answer
    UNPINNED = "unpinned"  # it is signed, and no key is pinned here
    UNSIGNED = "unsigned"  # it is not signed, and no key is pinned here
    REFUSED = "refused"  # a check failed, so nothing in it counts
    UNCHECKED = "unchecked"  # nobody has verified it here yet


# A runner's name that can be shown as a part of a sentence.
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_VOUCHED = {
    Trust.SIGNED: "signed by {}",
    Trust.UNPINNED: "signed by a key that is not pinned here",
    Trust.UNSIGNED: "unsigned",
    Trust.REFUSED: "does not hold",
    Trust.UNCHECKED: "not verified",
}
_GRADES = {
    State.REQUESTED: "open", State.CLAIMED: "busy", State.RUNNING: "busy", State.SUCCEEDED: "good",
    State.CANCELLED: "warn", State.GATE_INCOMPLETE: "warn",
    "ACCEPTED": "good", "ACCEPTED_BY_REQUESTER": "warn", "INCOMPLETE": "warn",
}  # fmt: skip
# The state of a job whose reports get this verdict.
_STATES = {"REJECTED": State.GATE_REJECTED, "INCOMPLETE": State.GATE_INCOMPLETE}
# The levels of trust, the strongest first.
_BELIEVED = (Trust.SIGNED, Trust.UNPINNED, Trust.UNSIGNED)


@dataclass(frozen=True)
class SignatureCheck(Check):
    """The check of an answer's signature."""

    trust: Trust = Trust.REFUSED
    # The runner whose pinned key signed the answer.
    signer: str = ""


@dataclass(frozen=True)
class Conclusion:
    """An answer's state and verdict, as far as they can be trusted. ``signer``: the runner whose pinned key signed."""

    state: State
    verdict: str | None = None
    trust: Trust = Trust.UNCHECKED
    signer: str = ""

    @property
    def is_refused(self) -> bool:
        """Whether a check of the answer failed."""
        return self.trust is Trust.REFUSED

    @property
    def voucher(self) -> str:
        """Who vouches for the answer, in words."""
        return _VOUCHED[self.trust].format(
            f"{self.signer}'s key" if _NAME.fullmatch(self.signer) else "a pinned key"
        )

    @property
    def word(self) -> str:
        """The outcome in one or two words: the state, or that the answer does not hold."""
        return self.voucher if self.is_refused else str(self.state)

    @property
    def judged(self) -> str:
        """The verdict with its voucher; empty without a verdict that can be trusted."""
        return f"{self.verdict}, {self.voucher}" if self.verdict and self.trust in _BELIEVED else ""

    @property
    def text(self) -> str:
        """The outcome with its voucher, in one line."""
        return self.word if self.is_refused else f"{self.state}, {self.judged or self.voucher}"

    @property
    def grade(self) -> str:
        """The grade of the outcome: good, warn, bad, open or busy; empty for a success that nobody has verified."""
        if self.is_refused:
            return "bad"
        grade = _GRADES.get(self.state, "bad")
        return "" if self.trust is Trust.UNCHECKED and grade == "good" else grade

    @property
    def verdict_grade(self) -> str:
        """The grade of the verdict: good only if a pinned key signed it."""
        grade = _GRADES.get(self.verdict, "bad") if self.verdict else ""
        if grade != "good" or self.trust is Trust.SIGNED:
            return grade
        return "warn" if self.judged else ""

    @property
    def exit_code(self) -> int | None:
        """The exit code of commands that wait for the answer; None without an answer."""
        if self.is_refused:
            return int(ExitCode.FAILED)
        return int(wire.EXIT_CODES[self.state]) if self.state.is_final else None

    def as_dict(self) -> dict[str, object]:
        """Return the object that ``--json`` prints."""
        return {
            "word": self.word, "verdict": self.verdict if self.judged else None, "trust": str(self.trust),
            "text": self.text, "exit_code": self.exit_code, "voucher": None if self.is_refused else self.voucher,
        }  # fmt: skip


def conclude(result: Result | None, checks: Sequence[Check]) -> Conclusion:
    """Return the conclusion about an answer, given the results of its checks here."""
    if result is None or any(check.ok is False for check in checks):
        state = result.shown_state if result else State.FAILED
        return Conclusion(state, None, Trust.REFUSED)
    verdict = result.gate.verdict if result.gate else None
    for check in checks:
        if isinstance(check, SignatureCheck) and check.name == SIGNATURE:
            return Conclusion(result.shown_state, verdict, check.trust, check.signer)
    return Conclusion(result.shown_state, verdict)


def conclude_gate(gate: Gate, runs: Iterable[tuple[str, str]] = ()) -> Conclusion:
    """Return the conclusion of a verdict on local reports, by trust and signer of the runs that vouch for them."""
    ranks = [(_BELIEVED.index(Trust(trust)), signer) for trust, signer in runs if trust in _BELIEVED]
    weakest, signer = max(ranks, default=(None, ""))
    trust = Trust.UNCHECKED if weakest is None else _BELIEVED[weakest]
    return Conclusion(_STATES.get(gate.verdict, State.SUCCEEDED), gate.verdict, trust, signer)


class Checked(Protocol):
    """An answer with its checks."""

    @property
    def checks(self) -> Sequence[Check]: ...  # noqa: D102
    @property
    def signed(self) -> bool: ...  # noqa: D102


def verified(report: Checked) -> str:
    """Return one line for people: whether all checks of an answer hold, and whether a pinned key signed it."""
    return ": ".join(filter(None, (verdict(report), failed_check(report))))


def failed_check(report: Checked) -> str:
    """Return the message of the first check that failed, which may quote the answer; empty if all hold."""
    return next((check.message for check in report.checks if check.ok is False), "")


def verdict(report: Checked) -> str:
    """Return the same line in words of our own alone."""
    for check in report.checks:
        if check.ok is False:
            return f"NOT verified: {check.name}"
    passed = sum(check.ok is True for check in report.checks)
    if report.signed:
        return f"verified: {passed} checks hold, signed with the pinned key"
    messages = {check.name: check.message for check in report.checks}
    return f"verified: {passed} checks hold; {messages.get(SIGNATURE, 'not signed').partition(':')[0]}"


def gate_lines(gate: Gate, conclusion: Conclusion | None = None) -> Iterator[tuple[str, str]]:
    """Yield the verdict with its meaning, each violation with its first case and its fix, and the notes.

    With a conclusion, the verdict is shown with who vouches for the answer.
    """
    if conclusion is None or (not conclusion.judged and not gate.accepted):
        vouched = f" ({conclusion.voucher})" if conclusion else ""
        yield gate.verdict, f"{MEANINGS[gate.verdict]}{vouched}"
    else:
        yield conclusion.judged, MEANINGS[gate.verdict]
    for code in dict.fromkeys(fault.code for fault in gate.violations):
        first, *others = [fault for fault in gate.violations if fault.code == code]
        more = f" (and {len(others)} more)" if others else ""
        yield code, f"{first.message}{more}"
        yield "", f"fix: {first.mend}"
    for note in gate.notes:
        yield "note", note
