"""Tries a preset: runs it as the job of a request, on a temporary bus, with this host's policy."""

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from bridge.bus import exact_refs, objects
from bridge.bus.wire import Result
from bridge.errors import InfrastructureError, UsageError
from bridge.local_runner import client_of, make_repositories
from bridge.presets import Preset
from bridge.system.git import Git, open_repository
from bridge.system.signals import StopRequest
from bridge.verify.public_keys import UNPINNED
from bridge.verify.verdict import Conclusion
from runner.context import open_runner
from runner.host.fitness import refusal_of
from runner.job.observer import Observer
from runner.policy import Bus, Policy
from runner.policy.model import Trust
from runner.serve.loop import once


@dataclass(frozen=True)
class Trial:
    """How a tried job ended.

    Attributes:
        result: of the answer that a requester would get.
        conclusion: what it amounts to.
        logs: the log of each step.
        notes: what would keep requests of others from running here.
        sandbox: how the job was confined.
    """

    result: Result
    conclusion: Conclusion
    logs: Sequence[str]
    notes: Sequence[str]
    sandbox: str


def try_preset(
    policy: Policy, preset: Preset, params: Mapping[str, str], *,
    presets: Path | None, repo: Path | str, observer: Observer,
    stop: Callable[[StopRequest], None], tell: Callable[[str], None],
) -> Trial:  # fmt: skip
    """Run a preset as a request for it would run here, even if the policy does not offer it to others yet.

    Args:
        policy: of this host. Its bus, state folder and key are not used.
        preset: the preset.
        params: its parameters, as texts.
        presets: the folder that it comes from; None: it is a built-in one.
        repo: for a preset that needs the request's tree: the repository whose HEAD that is.
        observer: is told what the job does.
        stop: called with the request to stop, so that a signal can make it.
        tell: called with what the runner says meanwhile.

    Raises:
        PresetError: a parameter does not fit.
        UsageError: the preset needs a repository, and there is none.
        InfrastructureError: nothing was answered.
    """
    preset.check_texts(params)
    messages: list[str] = []

    def note(line: str) -> None:
        messages.append(line)
        tell(line)

    with tempfile.TemporaryDirectory(prefix="kakeya-try-", ignore_cleanup_errors=True) as temporary:
        root = Path(temporary)
        bus, clone = root / "bus.git", root / "clone"
        make_repositories(bus, clone, {})
        ref = _bring_tree(clone, repo) if preset.code == "request" or preset.inputs else "HEAD"
        client = client_of(clone, presets, UNPINNED)
        run = client.run(preset.name, preset.read_params(params), ref=ref)
        rules = _for_trial(policy, preset, bus, root / "state", presets)
        with open_runner(rules, note) as context:
            stop(context.process.stop)
            operator = replace(context.operator, observer=observer)
            once(replace(context, operator=operator), run.branch)
            if context.process.stop.is_set():
                raise KeyboardInterrupt
            sandbox = context.machine.sandbox.kind
        report, files = client.answer(run.branch) if run.status().answered else (None, {})
        if report is None or report.result is None:
            raise InfrastructureError(
                f"the job was not answered: {messages[-1] if messages else 'no reason is known'}"
            )
        result = report.result
        logs = [files[log.path].decode("utf-8", "replace") for log in result.logs if log.path in files]
        return Trial(result, report.conclusion, logs, _notes(policy, preset), sandbox)


def _bring_tree(clone: Path, repo: Path | str) -> str:
    """Fetch the HEAD of a repository, and return its commit."""
    origin = open_repository(repo)
    top = origin.text("rev-parse", "--show-toplevel")
    commit = objects.resolve(origin, "HEAD")
    if commit:
        exact_refs.fetch_objects(Git.of_user(clone), top, [commit])
        return commit
    raise UsageError(
        f"{top} has no commit whose files the job could read", fix="Commit something there first."
    )


def _for_trial(policy: Policy, preset: Preset, bus: Path, state_folder: Path, folder: Path | None) -> Policy:
    """Return the policy for a trial: the same limits, settings and sandbox, but offered to this user alone."""
    return policy.model_copy(
        update={
            "bus": Bus(url=str(bus)), "state": state_folder, "preset_folder": folder,
            "presets": [preset.name], "labels": [*dict.fromkeys([*policy.labels, *preset.labels])],
            # Trust the tree's code: it is this user's own.
            "trust": Trust(code_request="allow"), "retention": None,
        }
    )  # fmt: skip


def _notes(policy: Policy, preset: Preset) -> list[str]:
    """Return why this host would not run the preset for others."""
    notes = []
    if not policy.allows(preset.name):
        notes.append(f"the policy's `presets` does not include {preset.name}: requests for it are refused")
    elif refused := refusal_of(preset, policy):
        notes.append(f"requests of others are refused: {refused}")
    if missing := [label for label in preset.labels if label not in policy.labels]:
        notes.append(
            f"this host lacks the labels {', '.join(missing)}, so it leaves requests to other runners"
        )
    return notes
