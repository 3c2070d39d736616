"""``kakeya gate``."""

import stat
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import click

from bridge import gate
from bridge.bus import wire
from bridge.bus.wire import Gate, Violation
from bridge.cli.common import key_option, report_keys_of
from bridge.common import limits
from bridge.common.advice import step
from bridge.common.cli.commands import json_option, option
from bridge.common.cli.output import Colored, put, put_json
from bridge.errors import UsageError
from bridge.reports.own.model import check_kind
from bridge.show.forms.words import color
from bridge.system.local_files import read_regular
from bridge.verify.public_keys import ReportKeys
from bridge.verify.run_file import voucher_for
from bridge.verify.verdict import Conclusion, conclude_gate


class _Kind(click.Choice[str]):
    """The type of ``--kind``: a built-in kind of report, chosen from a list, or a kind that a preset declares."""

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return a kind; a name that no preset could declare must be in the list."""
        try:
            return check_kind(value)
        except ValueError:
            return super().convert(value, param, ctx)


@click.command()
@click.argument("paths", nargs=-1, required=True, type=click.Path(exists=True, path_type=Path))
@option("--kind kinds", _Kind(gate.KINDS), multiple=True, help="Require a report of this kind; repeatable.")
@key_option
@json_option
@click.pass_context
def command(context: click.Context, paths: tuple[Path, ...], kinds: tuple[str, ...], *, as_json: bool) -> int:
    """Judge local reports with the checks that a runner uses.

    A report is accepted only if a run vouches for it: a file X.run beside X.json, or the fetched answer that it is part
    of, signed with a key that is pinned as for `kakeya verify`, or that the remote's default branch has as runner.pub
    beside X.run. Any other file is INCOMPLETE at most.

    PATHS are report files, or folders: then all *.json files below them, except those in .mac-bridge/, which the
    bridge itself writes.

    Exits with 0 if all reports are accepted, with 5 if one is rejected, with 7 if none is rejected and one is
    incomplete, and with 2 if there are none.
    """
    names: dict[str, tuple[str, str]] = {}
    judged = gate.judge_each(_read(paths, report_keys_of(context), names), kinds)
    shown = conclude_gate(judged, names.values())
    if as_json:
        vouched = {"voucher": shown.voucher} if shown.judged else {}
        put_json({"reports": list(names), **judged.model_dump(mode="json"), **vouched})
    else:
        show_gate(judged, shown, has_runs=all(trust for trust, _ in names.values()))
    return int(shown.exit_code or 0)


def show_gate(judged: Gate, shown: Conclusion | None = None, *, has_runs: bool = False) -> None:
    """Print a verdict for people, with each reason and, once for equal reasons, the fix.

    With what the answer amounts to, the verdict is shown with who vouches for it, if a run does for each report. A
    verdict that is not the answer's own is called that of the rules installed here.
    """
    groups: dict[tuple[str, str], list[Violation]] = {}
    for violation in judged.violations:
        groups.setdefault((violation.path, violation.code), []).append(violation)
    codes = list(dict.fromkeys(violation.code for violation in judged.violations))

    def order(group: tuple[str, str]) -> tuple[str, bool, int]:
        path, code = group
        return path, gate.verdict([groups[group][0]]) != judged.verdict, codes.index(code)

    against = "no reason" if not groups else "1 reason" if len(groups) == 1 else f"{len(groups)} reasons"
    shown = shown or conclude_gate(judged)
    verdict: str = judged.verdict
    if shown.judged and shown.verdict == verdict and (judged.accepted or has_runs):
        verdict = shown.judged
    elif has_runs:
        verdict += " by the rules installed here"
    put(Colored(verdict, color(shown.verdict_grade)), f": {against} against the reports")
    for path, code in sorted(groups, key=order):
        first, *others = groups[path, code]
        put(f"  {path + ': ' if path else ''}{code}{f' ({len(others) + 1} times)' if others else ''}")
        for violation in (first, *others[:2]):
            put(f"      {violation.message}")
        if len(others) > 2:  # noqa: PLR2004 - three are shown
            put(f"      and {len(others) - 2} more")
        if first.mend:
            put(f"      fix: {first.mend}")
    for note in judged.notes:
        put(f"  note: {note}")


def _read(
    paths: tuple[Path, ...], keys: ReportKeys, names: dict[str, tuple[str, str]]
) -> Iterator[tuple[str, bytes | None, gate.Voucher]]:
    """Yield each report with its name and the run that vouches for it. ``names`` gets that run's trust and signer.

    None takes the place of what cannot be read.
    """
    remaining = limits.REPORTS_BYTES
    for file in (file for named in paths for file in (reports_in(named) if named.is_dir() else [named])):
        data = read_regular(file, remaining)
        if data is None and _size(file) > remaining:
            message = f"the reports together are larger than {limits.REPORTS_BYTES >> 20} MiB"
            raise UsageError(message, fix="Check fewer reports at a time.")
        remaining -= len(data or b"")
        # The gate judges only files whose names end in .json, but a file that the user named is judged
        # whatever its name.
        name = str(file) if file.suffix == ".json" else f"{file}.json"
        if file.suffix != ".json" and (data is None or not data.lstrip().startswith((b"{", b"["))):
            fix = "Reports are JSON files. Name one, or a folder that holds some."
            raise UsageError(f"{file} is not a report", fix=fix, code="no_reports")
        if name not in names:
            run = gate.NO_RUN if data is None else voucher_for(file, data, keys.pin, keys.pin_for)
            names[name] = (run.trust, run.signer) if isinstance(run, gate.RunBinding) else ("", "")
            yield name, data, run


def reports_in(folder: Path) -> list[Path]:
    """Return the reports below a folder, without the files that git and the bridge itself write there."""
    files = [
        file
        for file in islice(folder.rglob("*.json"), limits.GATE_FILES + 1)
        if not {wire.FOLDER, ".git"}.intersection(file.relative_to(folder).parts)
        and wire.FOLDER not in folder.absolute().parts
        and not file.is_dir()
    ]
    if len(files) > limits.GATE_FILES:
        message = f"there are more than {limits.GATE_FILES} reports below {folder}"
        raise UsageError(message, fix="Name some of the files instead.")
    if not files:
        fix = step("Name a report, or a folder with reports", "gate", "results/research")
        raise UsageError(f"there are no reports (*.json) below {folder}", fix=fix, code="no_reports")
    return sorted(files)


def _size(file: Path) -> int:
    try:
        about = file.stat()
    except OSError:
        return 0
    return about.st_size if stat.S_ISREG(about.st_mode) else 0
