"""``kakeya gate``."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from itertools import groupby, islice
from pathlib import Path

import click

from bridge import evidence, limits
from bridge.bus import wire
from bridge.bus.wire import Gate
from bridge.console import Colored, json_option, put, put_json
from bridge.errors import ExitCode, UsageError
from bridge.system.local_files import read_regular


@click.command()
@click.argument("paths", nargs=-1, required=True, type=click.Path(exists=True, path_type=Path))
@click.option(
    "--kind",
    "kinds",
    multiple=True,
    type=click.Choice(evidence.KINDS),
    help="Require a report of this kind; repeatable.",
)
@json_option
def command(paths: tuple[Path, ...], kinds: tuple[str, ...], *, as_json: bool) -> int:
    """Check local reports against the rules that a runner uses.

    PATHS are report files, or folders: then all *.json files below them, except those in .mac-bridge/, which the
    bridge itself writes.

    Exits with 0 if all reports are accepted, with 5 if one is not, and with 2 if there are none.
    """
    names: dict[str, None] = {}

    def each() -> Iterator[tuple[str, bytes]]:
        for name, data in _read(paths):
            if name not in names:
                names[name] = None
                yield name, data

    gate = evidence.judge_each(each(), kinds)
    if as_json:
        put_json({"reports": list(names), **gate.model_dump(mode="json")})
    else:
        show_gate(gate)
    return ExitCode.SUCCEEDED if gate.verdict == "ACCEPTED" else ExitCode.GATE_REJECTED


def show_gate(gate: Gate) -> None:
    """Print a verdict for people, with each reason and, once for equal reasons, the fix."""
    color = {"ACCEPTED": "green", "INCOMPLETE": "yellow", "REJECTED": "red"}[gate.verdict]
    found_first = {one.code: i for i, one in reversed([*enumerate(gate.violations)])}
    reasons = len({(one.path, one.code) for one in gate.violations})
    against = "no reason" if not reasons else "1 reason" if reasons == 1 else f"{reasons} reasons"
    put(Colored(gate.verdict, color), f": {against} against the reports")
    ordered = sorted(
        gate.violations,
        key=lambda one: (one.path, evidence.verdict([one]) != gate.verdict, found_first[one.code]),
    )
    for (path, code), group in groupby(ordered, key=lambda one: (one.path, one.code)):
        found = list(group)
        put(f"  {path + ': ' if path else ''}{code}{f' ({len(found)} times)' if len(found) > 1 else ''}")
        for one in found[:3]:
            put(f"      {one.message}")
        if len(found) > len(found[:3]):
            put(f"      and {len(found) - 3} more")
        if found[0].mend:
            put(f"      fix: {found[0].mend}")


def _read(paths: tuple[Path, ...]) -> Iterator[tuple[str, bytes]]:
    """Yield what is to be judged by its name; a file that cannot be read is one that cannot be believed.

    Raises:
        UsageError: a file is no report, or too large for the memory.
    """
    left = limits.REPORTS_BYTES
    for named in paths:
        for file in _reports_in(named) if named.is_dir() else [named]:
            data = read_regular(file, min(left, evidence.MAX_BYTES))
            if data is None and _size(file) > left:
                fix = "Check fewer reports at a time."
                raise UsageError(
                    f"the reports together are larger than {limits.REPORTS_BYTES >> 20} MiB", fix=fix
                )
            left -= len(data or b"")
            if file.suffix != ".json":
                _check_form(file, data)
            # The gate judges by the name, and a file that was named is to be judged whatever its name.
            yield str(file) if file.suffix == ".json" else f"{file}.json", data or b""


def _reports_in(folder: Path) -> list[Path]:
    """Return the reports below a folder; what the bridge itself writes beside them is none."""
    found = [
        file
        for file in islice(folder.rglob("*.json"), limits.GATE_FILES + 1)
        if wire.FOLDER not in file.relative_to(folder).parts and wire.FOLDER not in folder.absolute().parts
    ]
    if len(found) > limits.GATE_FILES:
        raise UsageError(
            f"there are more than {limits.GATE_FILES} reports below {folder}",
            fix="Name some of the files instead.",
        )
    if not found:
        fix = "Name a report, or a folder with reports: kakeya gate results/research"
        raise UsageError(f"there are no reports (*.json) below {folder}", fix=fix, code="no_reports")
    return sorted(found)


def _check_form(file: Path, data: bytes | None) -> None:
    """Raise UsageError for a file that was named, is not called ``.json``, and does not look like JSON either."""
    if data is None or not data.lstrip().startswith((b"{", b"[")):
        fix = "Reports are JSON files. Name one, or a folder that holds some."
        raise UsageError(f"{file} is not a report", fix=fix, code="no_reports")


def _size(file: Path) -> int:
    """Return a regular file's size, 0 for everything else."""
    try:
        about = file.stat()
    except OSError:
        return 0
    return about.st_size if stat.S_ISREG(about.st_mode) and about.st_size <= evidence.MAX_BYTES else 0
