"""`kakeya demo`."""

from __future__ import annotations

import json
import time
from pathlib import Path

import click
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from bridge import demo
from bridge.cli.common import COLORS, console
from bridge.client import Client, Run
from bridge.command import json_option, put_json
from bridge.errors import ExitCode
from bridge.export import Fetched
from bridge.wire import State

_TIMEOUT_S = 300

# Which rows of the report are shown, by codec, group and rotation; the file has more.
_CODES = {
    ("affine", 128, False): "affine",
    ("affine", 128, True): "affine, rotated",
    ("voronoi", 0, True): "E8 Voronoi",
}


@click.command()
@click.option(
    "--keep",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Leave the bus, the clone, the runner's state and the results in DIR to look at.",
)
@json_option
def command(keep: Path | None, *, as_json: bool) -> int:
    """Show the whole path on this machine: bus, runner, jobs, answer.

    Makes a throw-away bare repository as the bus and a clone of it, starts a runner process, asks for two real
    jobs, follows them, and fetches and verifies what comes back. Needs no network.
    """
    out = console(err=as_json)
    began = time.monotonic()
    with demo.stage(keep) as place:
        out.print(f"[bold]bus[/]      {escape(str(place.bus))}")
        out.print(f"[bold]clone[/]    {escape(str(place.clone))}")
        with demo.serving(place):
            out.print(f"[bold]runner[/]   serving; its log is {escape(str(place.log))}\n")
            client = Client(place.clone)
            answers = [_play(out, client, place, preset) for preset in demo.JOBS]
        seconds = time.monotonic() - began
        if as_json:
            put_json(
                {"seconds": round(seconds, 2), "runs": [_as_dict(run, answer) for run, answer in answers]}
            )
        _show_report(out, answers[-1][1].folder / demo.REPORT)
        good = all(answer.result.state is State.SUCCEEDED and answer.report.holds for _, answer in answers)
        out.print(f"\n[bold]{'everything held' if good else 'something failed'}[/] in {seconds:.1f} s")
        if keep:
            _say_where(out, place, answers)
        else:
            out.print("everything was removed again; `kakeya demo --keep DIR` leaves it to look at")
    return ExitCode.SUCCEEDED if good else ExitCode.FAILED


def _play(out: Console, client: Client, place: demo.Stage, preset: str) -> tuple[Run, Fetched]:
    """Ask for one preset, show what happens, and fetch the answer."""
    began = time.monotonic()
    params = "".join(f" -p {name}={value}" for name, value in demo.JOBS[preset].items())
    out.print(f"[bold]$ kakeya run {preset}{params} --wait[/]")
    run = demo.ask(client, preset)
    out.print(f"  pushed {escape(run.branch)}")
    last = None
    for event in run.follow(_TIMEOUT_S):
        for line in event.log.splitlines():
            out.print(f"  [dim]|[/] {escape(line)}")
        state = event.status.state
        if state != last:
            took = f"{time.monotonic() - began:.1f} s"
            why = f": {escape(event.status.detail)}" if event.status.detail else ""
            out.print(f"  [{COLORS[state]}]{state}[/]{why} [dim]{took}[/]")
        last = state
    answer = demo.answer_of(run, place)
    kept = sum(check.ok is True for check in answer.report.checks)
    gate = f"; gate: {answer.result.gate.verdict}" if answer.result.gate else ""
    signed = ", signed with the pinned key" if answer.report.signed else ""
    out.print(f"  [green]verified[/]: {kept} checks hold{signed}, {len(answer.files)} files{gate}\n")
    return run, answer


def _show_report(out: Console, path: Path) -> None:
    """Print the table that came back, from the file that came back."""
    if not path.exists():
        return
    report = json.loads(path.read_text(encoding="utf-8"))
    rows: dict[tuple[float, str, float], dict[str, float]] = {}
    for row in report["rows"]:
        name = _CODES.get((row["codec"], row["group"], row["rotated"]))
        if name:
            key = (row["stored_bits_per_value"], name, row["limit"])
            rows.setdefault(key, {})[row["distribution"]] = row["rel_mse"]
    title = "from the report that came back: relative error at equal stored bits"
    table = Table(title=title, title_justify="left")
    for name in ("stored bits", "code", *next(iter(rows.values()), {}), "limit 2^-2R"):
        table.add_column(name, justify="left" if name == "code" else "right")
    for (stored, name, limit), errors in sorted(rows.items()):
        cells = (f"{error:.2e}" for error in errors.values())
        table.add_row(f"{stored:.2f}", name, *cells, f"{limit:.2e}")
    out.print(table)


def _say_where(out: Console, place: demo.Stage, answers: list[tuple[Run, Fetched]]) -> None:
    out.print(f"everything is in {escape(str(place.folder))}:")
    for _, answer in answers:
        for path in answer.files:
            out.print(f"  {escape(str(path))}")
    out.print(f"look around: kakeya -C {escape(str(place.clone))} list")


def _as_dict(run: Run, answer: Fetched) -> dict[str, object]:
    return {
        "branch": run.branch,
        "state": answer.result.state,
        "holds": answer.report.holds,
        "signed": answer.report.signed,
        "files": [str(path) for path in answer.files],
    }
