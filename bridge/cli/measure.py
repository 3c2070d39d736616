"""``kakeya measure``."""

import tempfile
from pathlib import Path

import click

from bridge.cli.common import complete_preset, param_option, presets_of, raw_option
from bridge.cli.gate import show_gate
from bridge.common import environment
from bridge.common.cli.commands import EXISTING_FOLDER, FOLDER, json_option, option, split_settings
from bridge.common.cli.output import put, put_block, put_json, say
from bridge.demo.walkthrough import MODELS
from bridge.errors import UsageError, one_line
from bridge.presets import Preset, find_preset, split_params
from bridge.presets.sources import write_preset
from bridge.reports.readable import Readable
from bridge.requests.status import Event

KEY_FOLDER = "~/.config/kakeya/measure"
_INTERPRETER = "KAKEYA_MAC_PYTHON"  # the runner's own, whose value it knows


@click.command()
@click.argument("preset", shell_complete=complete_preset)
@param_option
@option(
    "--presets folder", EXISTING_FOLDER, metavar="DIR",
    help="Folder with the preset.  [default: where `kakeya presets` finds it]",
)  # fmt: skip
@option(
    "-e --env settings", multiple=True, metavar="NAME=VALUE",
    help="Set a ${ENV:NAME} of the preset, such as a model; repeatable.  [default: the bundled model]",
)  # fmt: skip
@option(
    "--out", FOLDER, Path("results"), metavar="DIR",
    help="Write the reports here: X.json, and beside it X.run, which vouches for it.",
)  # fmt: skip
@option(
    "--key-folder", FOLDER, KEY_FOLDER, metavar="DIR",
    help="Folder with the key that signs the runs; made if it is missing.",
)  # fmt: skip
@raw_option
@json_option
@click.pass_context
def command(
    context: click.Context, preset: str, params: tuple[str, ...], folder: Path | None, settings: tuple[str, ...],
    out: Path, key_folder: Path, *,
    raw: bool, as_json: bool,
) -> int:  # fmt: skip
    """Run a preset on this machine, and write its reports with their signed runs.

    A runner beside a temporary bus measures, judges and signs, as on any other machine. So a report counts as one that
    a run vouches for: `kakeya gate DIR --key FILE` accepts it, with the public key that is printed at the end.

    Exits with the exit code of the job.
    """
    from bridge.preset_run import run_preset  # noqa: PLC0415 - slow to import, and the help does not need it

    known = find_preset(presets_of(context, folder), preset)
    people = None if raw else Readable()
    env = {**MODELS, **_settings(settings, known)}
    with tempfile.TemporaryDirectory(prefix="kakeya-preset-") as temporary:
        write_preset(known, Path(temporary)).chmod(0o600)
        done = run_preset(
            preset, split_params(params, known.params), out, env,
            key_folder=environment.expand(key_folder), preset_folder=Path(temporary),
            on_event=lambda event: _show(event, people, as_json=as_json),
        )  # fmt: skip
    put_block(people.end() if people else "", err=True)
    result, shown = done.result, done.conclusion
    code = int(shown.exit_code or 0)
    if as_json:
        facts = {"state": shown.state, "exit_code": code} | result.model_dump(
            mode="json", include={"reason", "gate"}
        )
        reports = [str(path) for path in done.reports]
        put_json({
            **facts, "conclusion": shown.as_dict(), "reports": reports, "public_key": str(done.public_key),
        })  # fmt: skip
        return code
    if result.gate:
        show_gate(result.gate, shown, has_runs=True)
    if code:
        say(f"{shown.state}: {one_line(result.reason.message)}")
    for path in done.reports:
        put(f"wrote {path} and {path.with_suffix('.run').name}")
    if done.reports:
        say(f"next: kakeya gate {out} --key {done.public_key}")
    else:
        say(f"the job left no reports, so nothing was written into {out}")
    return code


def _settings(texts: tuple[str, ...], preset: Preset) -> dict[str, str]:
    settings, known = split_settings(texts), sorted({*preset.env_names, *preset.pass_env})
    for name, value in settings.items():
        if name not in known and name not in MODELS:
            fix = f"It takes {', '.join(known) or 'none'}."
            raise UsageError(
                f"--env {name}={value}: the preset {preset.name} takes no setting {name}", fix=fix
            )
    for name in preset.env_names:
        if name not in (_INTERPRETER, *MODELS) and not settings.get(name):
            raise UsageError(
                f"the preset {preset.name} needs the setting {name}", fix=f"Add -e {name}=VALUE."
            )
    return settings


def _show(event: Event, people: Readable | None, *, as_json: bool) -> None:
    if as_json:
        return
    if event.log:
        put_block(people.add(event.log) if people else event.log, err=True)
    elif event.status:
        say(str(event.status.state))
