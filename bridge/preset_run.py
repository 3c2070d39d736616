"""Runs a preset through a runner on this machine, and keeps its reports with the runs that vouch for them."""

import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from bridge import local_runner
from bridge.bus import wire
from bridge.bus.wire import Result
from bridge.errors import UsageError
from bridge.presets import find_preset, load_presets
from bridge.requests.status import Event
from bridge.verify.run_file import SUFFIX, make_run_file, parts_of
from bridge.verify.verdict import Conclusion
from bridge.without_bus import needed_files

RUNNER = "local-runner"
_ELSEWHERE = "Name another folder."


@dataclass(frozen=True)
class PresetRun:
    """A job that ran here.

    Attributes:
        result: of the answer.
        conclusion: what the answer amounts to.
        reports: the written reports, each with a run file beside it.
        public_key: the key that signed the runs.
    """

    result: Result
    conclusion: Conclusion
    reports: list[Path]
    public_key: Path


def run_preset(
    preset: str, params: Mapping[str, str], out: Path, env: Mapping[str, str], *,
    key_folder: Path, preset_folder: Path | None = None, on_event: Callable[[Event], None] = lambda _: None,
) -> PresetRun:  # fmt: skip
    """Run a preset on a temporary bus, and write its reports into a folder.

    Args:
        preset: its name.
        params: its parameters, as texts.
        out: the folder for the reports; earlier ones of the same names are replaced.
        env: values for ``${ENV:NAME}`` in the preset.
        key_folder: the folder of the signing key, which is created if missing.
        preset_folder: a folder with the preset, to use instead of the installed one.
        on_event: called with the states and pieces of log as they come.

    Raises:
        UsageError: the engine is not installed, the preset reads a requester's files, or an argument does not fit.
        VerificationError: the answer does not hold.
    """
    known = find_preset(load_presets(preset_folder), preset)
    if reason := needed_files(known):
        message = f"the request {reason}, and a measurement here brings no files"
        raise UsageError(message, fix=f"To run it in your clone and keep nothing: kakeya-runner try {preset}")
    _check_place(out)
    with local_runner.stage(
        RUNNER, [preset], env, key_folder=key_folder, preset_folder=preset_folder,
        needs_engine=any(name.partition(".")[0] in ("mlx", "mlx_lm", "engine") for name in known.requires),
    ) as stage, local_runner.serving(stage):  # fmt: skip
        client = stage.client(preset_folder)
        run = client.run(preset, known.read_params(dict(params)), lifetime=timedelta(hours=1))
        for event in run.follow():
            on_event(event)
        answer = run.fetch(stage.folder / "answer")
        reports = _keep_reports(answer.folder, answer.result, out)
        return PresetRun(
            answer.result, answer.report.conclusion, reports, key_folder / local_runner.PUBLIC_KEY
        )


def _check_place(out: Path) -> None:
    """Raise UsageError unless reports can be written into a folder, before they are measured."""
    place = next(each for each in (out.absolute(), *out.absolute().parents) if each.exists())
    if not (place.is_dir() and os.access(place, os.W_OK | os.X_OK)):
        raise UsageError(
            f"cannot write into {out}: {place} is no folder that you may write to", fix=_ELSEWHERE
        )


def _keep_reports(folder: Path, result: Result, out: Path) -> list[Path]:
    """Copy the reports of a fetched answer into a folder, each with its run file beside it."""
    paths = [file.path for file in result.files if file.path.startswith(f"{wire.REPORTS}/")]
    if not any(path.endswith(".json") for path in paths):
        return []
    run_file = make_run_file({path: (folder / path).read_bytes() for path in parts_of(result)})
    reports = []
    try:
        for path in paths:
            target = out / Path(path).relative_to(wire.REPORTS)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(folder / path, target)
            if target.suffix == ".json":
                target.with_suffix(SUFFIX).write_bytes(run_file)
                reports.append(target)
    except OSError as error:
        raise UsageError(f"cannot write into {out}: {error.strerror}", fix=_ELSEWHERE) from error
    return reports
