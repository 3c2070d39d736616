"""Describes a verified answer and the gate's verdict in a few lines, for a terminal or an agent."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from bridge.bus.wire import Gate
from bridge.checks import SIGNATURE

if TYPE_CHECKING:
    from bridge.verify.check import Report

# The meaning of each verdict.
MEANINGS = {
    "ACCEPTED": "the run measured this report, its claims follow from its rows, and no check objects",
    "ACCEPTED_BY_REQUESTER": "no check objects; the request's own code measured, so the requester vouches for it",
    "REJECTED": "the experiment is wrong, or the report is not the run's, so its figures cannot be relied on",
    "INCOMPLETE": "no error was found, but something is missing or too uneven, so the figures cannot be relied on yet",
}


def verified(report: "Report") -> str:
    """Return one line for people: whether all checks of an answer hold, and whether a pinned key signed it."""
    return ": ".join(filter(None, (verdict(report), failed_check(report))))


def failed_check(report: "Report") -> str:
    """Return the message of the first check that failed, which may quote the answer; empty if all hold."""
    return next((check.message for check in report.checks if check.ok is False), "")


def verdict(report: "Report") -> str:
    """Return the same line in words of our own alone."""
    for check in report.checks:
        if check.ok is False:
            return f"NOT verified: {check.name}"
    passed = sum(check.ok is True for check in report.checks)
    if report.signed:
        return f"verified: {passed} checks hold, signed with the pinned key"
    messages = {check.name: check.message for check in report.checks}
    return f"verified: {passed} checks hold; {messages.get(SIGNATURE, 'not signed').partition(':')[0]}"


def gate_lines(gate: Gate) -> Iterator[tuple[str, str]]:
    """Yield the verdict with its meaning, each violation with its first case and its fix, and the notes."""
    yield gate.verdict, MEANINGS[gate.verdict]
    for code in dict.fromkeys(fault.code for fault in gate.violations):
        first, *others = [fault for fault in gate.violations if fault.code == code]
        more = f" (and {len(others)} more)" if others else ""
        yield code, f"{first.message}{more}"
        yield "", f"fix: {first.mend}"
    for note in gate.notes:
        yield "note", note
