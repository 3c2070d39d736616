"""`kakeya gate`."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

import click

from bridge import evidence
from bridge.command import Colored, json_option, put, put_json
from bridge.errors import ExitCode
from bridge.wire import Gate


@click.command()
@click.argument("paths", nargs=-1, required=True, type=click.Path(exists=True, path_type=Path))
@click.option(
    "--kind",
    "kinds",
    multiple=True,
    type=click.Choice(evidence.KINDS),
    help="A kind that there must be; repeatable.",
)
@json_option
def command(paths: tuple[Path, ...], kinds: tuple[str, ...], *, as_json: bool) -> int:
    """Judge reports that lie here, by the rules that a runner uses.

    PATHS are files, and folders: of these all *.json below them.

    Ends with 0 where all of them are accepted, and with 5 where one is not.
    """
    reports = dict(_read(paths))
    gate = evidence.judge(reports, kinds)
    if as_json:
        put_json({"reports": list(reports), **gate.model_dump(mode="json")})
    else:
        show_gate(gate)
    return ExitCode.SUCCEEDED if gate.verdict == "ACCEPTED" else ExitCode.GATE_REJECTED


def show_gate(gate: Gate) -> None:
    """Print a verdict for people, with each reason and, once for equal reasons, what would mend it."""
    color = {"ACCEPTED": "green", "INCOMPLETE": "yellow", "REJECTED": "red"}[gate.verdict]
    reasons = len(gate.violations)
    against = "no reason" if not reasons else "1 reason" if reasons == 1 else f"{reasons} reasons"
    put(Colored(gate.verdict, color), f": {against} against the reports")
    ordered = sorted(gate.violations, key=lambda one: (one.path, one.code))
    for (path, code), group in groupby(ordered, key=lambda one: (one.path, one.code)):
        found = list(group)
        put(f"  {path + ': ' if path else ''}{code}")
        for one in found[:3]:
            put(f"      {one.message}")
        if len(found) > len(found[:3]):
            put(f"      and {len(found) - 3} more")
        if found[0].mend:
            put(f"      to mend it: {found[0].mend}")


def _read(paths: tuple[Path, ...]) -> Iterator[tuple[str, bytes]]:
    """Yield what is to be judged by its name; a file that cannot be read is one that cannot be believed."""
    for path in paths:
        for file in sorted(path.rglob("*.json")) if path.is_dir() else [path]:
            # The name decides what is judged, and a file that was named is to be judged whatever its name.
            name = str(file) if file.suffix == ".json" else f"{file}.json"
            yield name, _bytes(file)


def _bytes(file: Path) -> bytes:
    try:
        if file.stat().st_size > evidence.MAX_BYTES:
            return b""
        return file.read_bytes()
    except OSError:
        return b""
