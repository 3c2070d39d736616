"""``kakeya demo``."""

import json
import textwrap
import time
from datetime import timedelta
from pathlib import Path

import click
from rich.markup import escape

from bridge import local_runner
from bridge.bus import wire
from bridge.bus.wire import State
from bridge.cli.common import Progress
from bridge.client import Client, Run
from bridge.common.cli.commands import PATH, json_option, option
from bridge.common.cli.output import put_json
from bridge.common.cli.screen import Screen, console
from bridge.demo import tables, walkthrough
from bridge.errors import ExitCode
from bridge.local_runner import Stage, serving
from bridge.reports.readable import Readable
from bridge.show.forms.words import color
from bridge.verify.export import Fetched
from bridge.verify.verdict import gate_lines, verified

_TIMEOUT_S = 600
_WIDTH = 100

# At most this many lines of a job's log are shown; the answer has the whole log.
_LOG_LINES = 12


@click.command()
@option(
    "--keep", PATH, metavar="DIR", help="Keep the bus, the clone, the runner's state and the results in DIR."
)
@json_option
def command(keep: Path | None, *, as_json: bool) -> int:
    """Run a demonstration on this machine: bus, runner, jobs, answers.

    Creates a temporary bare repository as the bus and a clone of it, starts a runner process, requests three real
    jobs, follows them, and fetches and verifies the answers. Two of the jobs leave reports, which the evidence gate
    checks. If the gate rejects a report only because the machine is busy, the demonstration says so and still
    succeeds. Needs no network.
    """
    out = console(err=as_json, markup=True)
    began = time.monotonic()
    presets = [job.preset for job in walkthrough.JOBS]
    with local_runner.stage("demo-runner", presets, walkthrough.MODELS, keep=keep) as stage:
        out.print(
            f"[bold]bus[/]      {escape(str(stage.bus))}: a git repository, the only thing that both sides share"
        )
        out.print(f"[bold]clone[/]    {escape(str(stage.clone))}: the requester's working copy")
        with serving(stage):
            out.print(f"[bold]runner[/]   serving; its log is {escape(str(stage.log))}")
            client = stage.client()
            answers = [_play(out, client, stage, job) for job in walkthrough.JOBS]
        seconds = time.monotonic() - began
        if as_json:
            runs = [_as_dict(run, answer) for run, answer in answers]
            put_json({"seconds": round(seconds, 2), "runs": runs})
        good = all(walkthrough.is_good(answer) for _, answer in answers)
        outcome = _outcome(answers) if good else "something failed (see above)"
        out.print(f"\n[bold]{outcome}[/] in {seconds:.1f} s")
        if keep:
            _say_where(out, stage, answers)
        else:
            out.print("all temporary files were removed")
        _say_more(out)
    return ExitCode.SUCCEEDED if good else ExitCode.FAILED


def _play(out: Screen, client: Client, stage: Stage, job: walkthrough.Job) -> tuple[Run, Fetched]:
    """Print what a job demonstrates, request the job, follow it, and fetch the answer."""
    began = time.monotonic()
    params = "".join(f" -p {name}={value}" for name, value in job.params.items())
    out.print(f"\n{textwrap.fill(job.shows, _WIDTH)}\n[bold]$ kakeya run {job.preset}{params} --wait[/]")
    run = client.run(job.preset, job.params, lifetime=timedelta(hours=1))
    out.print(f"  pushed {escape(run.branch)}")
    last, lines, shown, progress, people = None, 0, 0, Progress(), Readable()
    for event in run.follow(_TIMEOUT_S):
        for line in people.add(event.log).splitlines():
            lines += 1
            if shown < _LOG_LINES:
                shown += 1
                out.print(f"  [dim]|[/] {escape(line)}")
        if shown >= _LOG_LINES and event.log:
            progress.show(event.log)
        state, shown_state = event.status.state, event.status.shown
        if state != last:
            took = f"{time.monotonic() - began:.1f} s"
            reason = f": {escape(event.status.detail)}" if event.status.detail else ""
            out.print(f"  [{color(shown_state.grade) or 'bold'}]{state}[/]{reason} [dim]{took}[/]")
        last = state
    answer = run.fetch(stage.folder / "results" / run.branch.rpartition("/")[2])
    _show(out, answer, hidden=lines - shown)
    return run, answer


def _show(out: Screen, answer: Fetched, hidden: int) -> None:
    """Print the result of verification, the table of the report if it is trustworthy, and the gate's verdict."""
    more = f", with {hidden} more lines of its log" if hidden > 0 else ""
    out.print(f"  [green]{escape(verified(answer.report))}[/], {len(answer.files)} files{more}")
    good, gate = walkthrough.is_good(answer), answer.result.gate
    for log in answer.result.logs if not good else ():
        text = (answer.folder / log.path).read_text(encoding="utf-8", errors="replace")
        out.print(escape(text[-2000:]))
    if gate is None:
        return
    if good:
        for path in answer.files:
            if path.suffix == ".json" and path.is_relative_to(answer.folder / wire.REPORTS):
                tables.show(json.loads(path.read_text(encoding="utf-8")), gate, out)
    conclusion = answer.report.conclusion
    (kind, text), *reasons = gate_lines(gate, conclusion)
    out.print(f"gate: [{color(conclusion.verdict_grade) or 'bold'}]{escape(kind)}[/]: {escape(text)}")
    for kind, text in reasons:
        out.print(f"  [bold]{kind}[/] {escape(text)}" if kind else f"    {escape(text)}")


def _outcome(answers: list[tuple[Run, Fetched]]) -> str:
    if all(answer.result.state is State.SUCCEEDED for _, answer in answers):
        return "all answers are verified and accepted"
    return "everything ran and was checked; this machine was too busy for reliable timings"


def _say_more(out: Screen) -> None:
    out.print("\nnext steps (README.md explains how to use a real machine, and how to serve jobs)")
    steps = walkthrough.more()
    width = max(len(command) for command, _ in steps)
    for command, shows in steps:
        out.print(f"  [bold]{escape(command):<{width}}[/]  {escape(shows)}")


def _say_where(out: Screen, stage: Stage, answers: list[tuple[Run, Fetched]]) -> None:
    out.print(f"all files are in {escape(str(stage.folder))}:")
    for _, answer in answers:
        for path in answer.files:
            out.print(f"  {escape(str(path))}")
    out.print(f"to look around: kakeya -C {escape(str(stage.clone))} list")


def _as_dict(run: Run, answer: Fetched) -> dict[str, object]:
    return {
        "branch": run.branch,
        "state": answer.report.conclusion.state,
        "holds": answer.report.holds,
        "signed": answer.report.signed,
        "gate": answer.result.gate.model_dump(mode="json") if answer.result.gate else None,
        "conclusion": answer.report.conclusion.as_dict(),
        "files": [str(path) for path in answer.files],
    }
