"""``kakeya init``."""

import os
import shlex
from importlib.resources import files
from pathlib import Path

import click

from bridge.common.cli.commands import json_option
from bridge.common.cli.output import put, put_block, put_json, say
from bridge.errors import UsageError
from bridge.presets.own import top_of

PRESET, SCRIPT, README = ".kakeya/presets/time-sort.yaml", "jobs/time_sort.py", "README.md"
# The first line of the text for the README.
_HEADING = "## Jobs on another machine"
_README_BYTES = 1 << 20
_HAND_OVER = (
    "the runner's owner copies {} and {} into a folder, names it as `preset_folder` in the policy, "
    "sets TIME_SORT_SCRIPT under `env` there, and restarts the runner"
)


@click.command()
@json_option
@click.pass_context
def command(context: click.Context, *, as_json: bool) -> None:
    """Write a first preset of your own into this repository, with the script that it runs and lines for the README.

    Files that exist already are never changed; if there is a README, its lines are printed, to be pasted.
    """
    top = top_of(context.obj["repo"])
    written = {name: _write(top, name) for name in (PRESET, SCRIPT, README)}
    lacks_lines = not written[README] and not _mentions_jobs(top / README)
    script = shlex.quote(str(top / SCRIPT))
    git = "git" if Path.cwd() == top.resolve() else f"git -C {shlex.quote(str(top))}"
    steps = [
        f"kakeya-runner try time-sort -e TIME_SORT_SCRIPT={script}",
        f"{git} add {PRESET} {SCRIPT} {README} && {git} commit -m 'Add a job' && {git} push",
        _HAND_OVER.format(Path(PRESET).name, Path(SCRIPT).name),
        "kakeya run time-sort --wait",
    ]
    if as_json:
        lists = {"wrote": [name for name, new in written.items() if new]}
        lists["kept"] = [name for name, new in written.items() if not new]
        paste = _template(README) if lacks_lines else None
        put_json({"repository": str(top), **lists, "paste_into_readme": paste, "next": steps})
        return
    for name, is_new in written.items():
        put(f"{'wrote' if is_new else 'kept'} {name}")
    if lacks_lines:
        say(f"{README} exists, so these lines were not written into it:")
        put_block(_template(README))
    if any(written.values()):
        for i, step in enumerate(steps):
            say(f"{'next: ' if i == 0 else '      '}{step}")
        say(f"requesters find it with `kakeya presets` once {PRESET} is on the remote's default branch")


def _template(name: str) -> str:
    return (files("presets") / "_starter" / Path(name).name).read_text(encoding="utf-8")


def _write(top: Path, name: str) -> bool:
    """Write a file of the example, unless something has its name. Returns whether it was written."""
    path = top / name
    try:
        if not path.parent.resolve().is_relative_to(top.resolve()):
            raise UsageError(
                f"{path.parent} leads out of the repository", fix="Remove that link, or write elsewhere."
            )
        if os.path.lexists(path):
            return False
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("x", encoding="utf-8", newline="\n") as file:
            file.write(_template(name))
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}", fix="Move what is in its way.") from error
    return True


def _mentions_jobs(readme: Path) -> bool:
    if not readme.is_file():
        return False
    with readme.open("rb") as file:
        return _HEADING.encode() in file.read(_README_BYTES)
