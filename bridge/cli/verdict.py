"""How a followed request ends on the screen: was its answer verified, and what does the gate say of its reports."""

from __future__ import annotations

from collections.abc import Iterator

from bridge.bus.wire import Gate
from bridge.client import Run
from bridge.console import put_json, say
from bridge.errors import ExitCode
from bridge.requests.status import Status
from bridge.verify.check import Report
from bridge.verify.signature import NAME as SIGNATURE

# What each verdict of the gate means.
MEANINGS = {
    "ACCEPTED": "no rule finds fault with the report, and each figure that it claims is what its rows give",
    "REJECTED": "the figures were measured, and something in the report speaks against believing them",
    "INCOMPLETE": "nothing is known to be wrong; something is missing or unclear: the figures cannot be believed yet",
}


def verified(report: Report) -> str:
    """Return in one line whether an answer holds, and whether a pinned key signed it."""
    failed = [check for check in report.checks if check.ok is False]
    if failed:
        return f"NOT verified: {failed[0].name}: {failed[0].message}"
    kept = sum(check.ok is True for check in report.checks)
    if report.signed:
        return f"verified: {kept} checks hold, signed with the pinned key"
    said = next(
        (check.message.partition(":")[0] for check in report.checks if check.name == SIGNATURE), "not signed"
    )
    return f"verified: {kept} checks hold; {said}"


def gate_lines(gate: Gate) -> Iterator[tuple[str, str]]:
    """Yield the verdict with what it means, then each broken rule with its first case and what would mend it."""
    yield gate.verdict, MEANINGS[gate.verdict]
    for code in dict.fromkeys(fault.code for fault in gate.violations):
        first, *others = [fault for fault in gate.violations if fault.code == code]
        more = f" (and {len(others)} more)" if others else ""
        yield code, f"{first.message}{more}"
        yield "", f"to mend it: {first.mend}"


def conclude(run: Run, status: Status, *, as_json: bool) -> int:
    """Verify the answer of a request that has ended, say what was found, and return the exit code.

    That is the one that the state stands for, and 1 for an answer that does not hold: it may say anything.
    """
    report = run.verify()
    gate = report.result.gate if report.result else None
    code = int(status.exit_code or 0) if report.holds else int(ExitCode.FAILED)
    if as_json:
        put_json({
            "event": "answer", "branch": run.branch, "state": status.state, "exit_code": code,
            "holds": report.holds, "signed": report.signed, "verified": verified(report),
            "gate": gate.model_dump(mode="json") if gate else None,
        })  # fmt: skip
        return code
    say(verified(report))
    if gate and report.holds:
        for i, (what, text) in enumerate(gate_lines(gate)):
            say(f"gate: {what}: {text}" if i == 0 else f"  {what} {text}" if what else f"    {text}")
    return code
