"""``kakeya-runner try``."""

import tempfile
from collections.abc import Collection, Sequence
from pathlib import Path

import click
from pydantic import ValidationError

from bridge.bus import wire
from bridge.common.cli.commands import EXISTING_FOLDER, REFERENCE, json_option, option, split_settings
from bridge.common.cli.output import put, put_block, put_json, say
from bridge.common.validation import describe_all
from bridge.errors import UsageError, one_line
from bridge.presets import Presets, find_preset, find_presets, load_presets, split_params
from bridge.presets.own import own_folder
from bridge.presets.sources import SHARED, write_preset
from bridge.system.git import open_repository
from bridge.verify.verdict import gate_lines
from runner.cli.common import stop_on_signals
from runner.direct.trial import Trial, try_preset
from runner.job.observer import Observer
from runner.ownership import check_presets_owned
from runner.policy import Bus, Policy, default_path, load_policy

# The models of a first policy.
_MODELS = {"KAKEYA_MAC_VERIFIER_PATH": "tiny", "KAKEYA_MAC_DRAFTER_ID": "tiny"}


@click.command()
@click.argument("preset")
@option("-p --param params", multiple=True, metavar="K=V", help="Set a parameter of the preset; repeatable.")
@option(
    "--presets folder", EXISTING_FOLDER, metavar="DIR",
    help="Folder with the preset.  [default: KAKEYA_PRESETS, .kakeya/presets of this repository, or the policy's]",
)  # fmt: skip
@option(
    "-e --env settings", multiple=True, metavar="NAME=VALUE",
    help="Set a ${ENV:NAME} of the preset, as `env` in the policy does; repeatable.",
)  # fmt: skip
@option(
    "-C repo", REFERENCE, ".", show_default=False, metavar="DIR",
    help="Git repository whose HEAD is the tree, if the preset needs one.",
)  # fmt: skip
@option(
    "-R --remote", REFERENCE, "origin", metavar="NAME",
    help="That repository's remote.",
)  # fmt: skip
@json_option
@click.pass_obj
def try_command(
    policy: Path | None, preset: str, params: tuple[str, ...], folder: Path | None, settings: tuple[str, ...],
    repo: str, remote: str, *, as_json: bool,
) -> int:  # fmt: skip
    """Run a preset on this host as a request for it would run.

    The job gets the policy's interpreter, settings, limits and sandbox, and its reports are judged; no bus is used,
    and nothing is kept. Without a policy, that of `kakeya-runner init` counts. A preset that the policy does not
    offer runs too, also one that only the remote's default branch has in .kakeya/presets.

    Shows each command, the variables' names, the log, and what was collected. Exits with the job's exit code.
    """
    rules = _with_settings(_policy(policy), settings)
    chosen = _folder_of(preset, rules, repo, folder)
    if chosen:
        check_presets_owned(chosen)
    presets = load_presets(chosen)
    observer = _Silent() if as_json else _Shown()
    with tempfile.TemporaryDirectory(prefix="kakeya-preset-") as temporary:
        source = ""
        if not folder and preset not in presets and preset not in presets.broken:
            presets, source = _with_those_on_the_bus(presets, preset, repo, remote)
        known = find_preset(presets, preset)
        if source:
            say(f"{preset} comes from {source}, and this runner offers it to nobody")
            chosen = Path(temporary)
            write_preset(known, chosen).chmod(0o600)
        trial = try_preset(
            rules, known, split_params(params, known.params), presets=chosen, repo=repo, observer=observer,
            stop=stop_on_signals, tell=lambda line: say(line) if "WARNING" in line else None,
        )  # fmt: skip
    if as_json:
        put_json(_facts(trial, observer.names))
    else:
        _show(trial, chosen, rules, source)
    return int(trial.conclusion.exit_code or 0)


def _with_those_on_the_bus(presets: Presets, name: str, repo: str, remote: str) -> tuple[Presets, str]:
    """Add the presets on the bus's default branch. Also returns the place of the named preset if it comes from there.

    They are tried by this user alone: the runner reads no preset from the bus.
    """
    try:
        git = open_repository(repo)
    except UsageError:
        return presets, ""
    shared = find_presets(git, remote)
    names = {each for each, source in shared.sources.items() if source.startswith(f"{SHARED} on ")} - {
        *presets
    }
    for note in shared.notes:
        say(f"warning: {note}")
    known = Presets(
        {**presets, **{each: shared[each] for each in names if each in shared}},
        {**presets.broken, **{each: shared.broken[each] for each in names if each in shared.broken}},
    )
    return known, shared.sources[name] if name in names else ""


def _policy(path: Path | None) -> Policy:
    """Return the policy or, without one, the policy that `init` would write."""
    if path is None and not default_path().exists():
        say("there is no policy here: trying with the defaults of `kakeya-runner init`")
        return Policy(schema_version=1, bus=Bus(url="unused"), env=_MODELS)
    return load_policy(path)


def _with_settings(rules: Policy, texts: tuple[str, ...]) -> Policy:
    """Return the policy with further settings."""
    settings = {**rules.env, **split_settings(texts)}
    checked = {**rules.model_dump(include={"schema_version", "bus"}), "env": settings}
    try:
        return rules.model_copy(update={"env": Policy.model_validate(checked).env})
    except ValidationError as error:
        raise UsageError(f"--env: {describe_all(error, Policy, checked)}") from error


def _folder_of(name: str, rules: Policy, repo: str, named: Path | None) -> Path | None:
    """Return the folder that holds the preset: the named one, else the first one that has a file for it."""
    if named:
        return named.absolute()
    folders = [folder for folder in (own_folder(repo), rules.preset_folder) if folder]
    return next(
        (folder for folder in folders if (folder / f"{name}.yaml").exists()), next(iter(folders), None)
    )


class _Silent(Observer):
    """Notes the names of the variables."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def begins(self, step: int, argv: Sequence[str], names: Collection[str]) -> None:
        del step, argv
        self.names = sorted(names)


class _Shown(_Silent):
    """Shows the commands and the log as they come."""

    def begins(self, step: int, argv: Sequence[str], names: Collection[str]) -> None:
        if not step:
            put(f"variables: {' '.join(sorted(names))}")
        put(f"step {step}: {list(argv)}")
        super().begins(step, argv, names)

    def prints(self, data: bytes) -> None:
        put_block(data.decode("utf-8", "replace"))


def _collected(trial: Trial) -> list[wire.FileDigest]:
    return [file for file in trial.result.files if file.path.startswith(f"{wire.REPORTS}/")]


def _show(trial: Trial, folder: Path | None, rules: Policy, source: str) -> None:
    result, shown = trial.result, trial.conclusion
    for i, command in enumerate(result.commands):
        ended = f"exit code {command.exit_code}" if command.signal is None else f"signal {command.signal}"
        put(f"step {i}: {ended} after {command.seconds:.1f} s")
    for file in _collected(trial):
        put(f"collected: {file.path}, {file.size} bytes")
    for left_out in result.skipped:
        put(f"left out: {left_out}")
    for kind, text in gate_lines(result.gate, shown) if result.gate else ():
        put(f"  {kind} {text}" if kind else f"    {text}")
    put(f"sandbox: {trial.sandbox}")
    say(f"{shown.state}: {one_line(result.reason.message)}")
    for note in trial.notes:
        say(f"note: {note}")
    is_built_in = not folder or (not source and not (folder / f"{result.preset}.yaml").exists())
    if not is_built_in and not shown.exit_code:
        is_policys = folder == rules.preset_folder
        where = f" from {source}" if source else ""
        copy = (
            ""
            if is_policys
            else f"copy {result.preset}.yaml{where} into the `preset_folder` of the policy, and "
        )
        say(f"next: {copy}restart the runner, which reads presets when it starts")


def _facts(trial: Trial, names: list[str]) -> dict[str, object]:
    """Return what ``--json`` prints."""
    result, shown = trial.result, trial.conclusion
    dumped = result.model_dump(mode="json", include={"reason", "gate", "params", "skipped", "preset_digest"})
    logs = [*trial.logs, *[""] * len(result.commands)]
    steps = [
        {
            "argv": each.argv,
            "exit_code": each.exit_code,
            "signal": each.signal,
            "seconds": each.seconds,
            "log": log,
        }
        for each, log in zip(result.commands, logs, strict=False)
    ]
    collected = [file.model_dump(mode="json") for file in _collected(trial)]
    return {
        "preset": result.preset, "state": shown.state, "exit_code": int(shown.exit_code or 0), **dumped,
        "conclusion": shown.as_dict(),
        "steps": steps, "variables": names, "collected": collected, "sandbox": trial.sandbox,
        "notes": list(trial.notes),
    }  # fmt: skip
