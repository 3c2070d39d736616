"""The end of a followed request on the screen: whether its answer is verified, and the gate's verdict."""

from __future__ import annotations

from bridge.client import Run
from bridge.common.cli.output import put_json, say
from bridge.errors import ExitCode
from bridge.requests.status import Status
from bridge.verify.answer_checks import gaps
from bridge.verify.verdict import gate_lines, verified


def conclude(run: Run, status: Status, *, as_json: bool) -> int:
    """Verify the answer of a request that has ended, print the result, and return the exit code.

    That is the one that the state stands for, and 1 for an answer that does not hold: it may say anything.
    """
    if not status.answered:
        no_answer = "no runner had taken it, so there is no answer to verify"
        if as_json:
            put_json({
                "event": "answer", "branch": run.branch, "state": status.state, "exit_code": status.exit_code,
                "holds": None, "signed": None, "verified": no_answer, "reason": None, "gate": None,
            })  # fmt: skip
        else:
            say(no_answer)
        return int(status.exit_code or 0)
    report = run.verify()
    result = report.result
    gate = result.gate if result else None
    code = int(status.exit_code or 0) if report.holds else int(ExitCode.FAILED)
    if as_json:
        put_json({
            "event": "answer", "branch": run.branch, "state": status.state, "exit_code": code,
            "holds": report.holds, "signed": report.signed, "verified": verified(report),
            "reason": result.reason.model_dump(mode="json") if result else None,
            "gate": gate.model_dump(mode="json") if gate else None, "gaps": gaps(result) if result else [],
        })  # fmt: skip
        return code
    say(verified(report))
    for gap in gaps(result) if result else ():
        say(f"note: {gap}")
    if gate and report.holds:
        for i, (kind, text) in enumerate(gate_lines(gate)):
            say(f"gate: {kind}: {text}" if i == 0 else f"  {kind} {text}" if kind else f"    {text}")
    return code
