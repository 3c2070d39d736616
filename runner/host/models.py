"""The models that presets need: named by the policy, and checked by the engine of the jobs' own interpreter.

Before a job, only the files are checked, which takes half a second. ``kakeya-runner check`` also generates one token.
"""

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bridge.common import environment
from bridge.errors import PolicyError, ProcessError
from bridge.presets import Preset
from bridge.system.process import run
from runner.host.interpreter import Problem
from runner.job.command import job_environment
from runner.policy import INTERPRETER, Policy

TARGET = "KAKEYA_MAC_VERIFIER_PATH"
DRAFTER = "KAKEYA_MAC_DRAFTER_ID"
# Folder of a trained restorer, which only some presets pass to their job.
RESTORER = "KAKEYA_MAC_FTHETA_DIR"
_ROLES = {TARGET: "target", DRAFTER: "draft"}
# Only presets that import this module load models; other presets may use the same settings for anything.
_LOADS_MODELS = "mlx_lm"
_BELIEVED_S = 60.0
_LOOK_S = 120.0
# Jobs have their own home folder, without a Hugging Face cache.
_NO_HOME = Path("/nonexistent")


# Identifies a `Need`: its models and variables.
Key = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Need:
    """The models that a preset loads, by setting, and the variables under which its job looks for them."""

    models: Mapping[str, str]
    env: Mapping[str, str]

    @property
    def key(self) -> Key:
        """The models and the variables."""
        return (*sorted(self.models.items()), *sorted(self.env.items()))

    def command(self, interpreter: str, *, files: bool) -> list[str]:
        """Return the command that checks only the models' files, or loads the models and generates a token."""
        drafter = self.models.get(DRAFTER)
        options = ["--draft", drafter] if drafter else ["--no-draft"]
        options += ["--files"] if files else []
        named = ["--check", self.models[TARGET], *options]
        return [interpreter, "-P", "-m", "engine", "models", *named, "--json"]


def need_of(preset: Preset, policy: Policy) -> Need | None:
    """Return the models that a preset loads, or None if it loads none or the policy names no target."""
    if _LOADS_MODELS not in preset.requires:
        return None
    names = {*preset.env_names, *preset.pass_env}
    models = {name: policy.settings[name] for name in _ROLES if name in names and policy.settings.get(name)}
    passed = {name: policy.env[name] for name in preset.pass_env if name in policy.env and name not in _ROLES}
    return Need(models, {**passed, **preset.env}) if TARGET in models else None


def read_answer(output: str, need: Need) -> dict[str, Problem] | None:
    """Parse the engine's output: what is wrong with each model, by setting. None if there was no answer."""
    for line in reversed(output.splitlines()):
        if line.startswith('{"ok"'):
            try:
                return _problems(json.loads(line), need)
            except (ValueError, KeyError, TypeError):
                return None
    return None


def _problems(answer: Mapping[str, Any], need: Need) -> dict[str, Problem]:
    problems = {}
    for name, reference in need.models.items():
        entry = answer[_ROLES[name]]
        if entry["ok"]:
            continue
        fix = str(entry["fix"] or f"Name another model under env.{name} in the policy.")
        if fix.startswith("hf download") and "HF_HOME" in need.env:
            fix = f"HF_HOME={need.env['HF_HOME']} {fix}"
        elif fix.startswith("hf download"):
            fix = f"{fix}, and set HF_HOME under env in the policy to the folder of the hub's cache"
        message = f"{name} names {reference}, which cannot be loaded: {entry['error']}"
        problems[name] = Problem(message, fix)
    return problems


class Models:
    """The models that the policy names. The result of a successful check is cached for a minute."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._seen: dict[object, float] = {}

    def problem_for(self, preset: Preset) -> Problem | None:
        """Return why a preset cannot find its models, or None. Only files are checked."""
        need = need_of(preset, self._policy)
        if need is None or time.monotonic() - self._seen.get(need.key, -_BELIEVED_S) < _BELIEVED_S:
            return None
        problems = self.look(need)
        if not problems:
            self._seen[need.key] = time.monotonic()
        return next(iter(problems.values()), None)

    def look(self, need: Need) -> dict[str, Problem]:
        """Return what is wrong with each model's files, by setting."""
        interpreter = Path(self._policy.settings[INTERPRETER])
        argv = need.command(str(interpreter), files=True)
        env = job_environment(_NO_HOME, interpreter=interpreter, extra=need.env)
        try:
            done = run(*argv, env=env, cwd="/", timeout=_LOOK_S, check=False, own_session=True)
        except ProcessError as error:
            reason = error.message
        else:
            problems = read_answer(done.text, need)
            if problems is not None:
                return problems
            lines = done.stderr.decode("utf-8", "replace").strip().splitlines() or ["it printed nothing"]
            reason = lines[-1]
        message = f"the engine of {interpreter} could not look at the models: {reason}"
        fix = f"See why: {interpreter} -P -m engine probe"
        return dict.fromkeys(need.models, Problem(message, fix))


def with_workflow_models(policy: Policy, tell: Callable[[str], None]) -> Policy:
    """Return the policy with the models that a GitHub workflow's variables name. They override its ``env``.

    Whoever may push can set them, so they count only for folders below those in ``actions.models``; PolicyError for
    any other.
    """
    chosen = {name: value for name in (TARGET, DRAFTER, RESTORER) if (value := environment.get(name))}
    if not chosen:
        return policy
    allowed = policy.actions.models if policy.actions else []
    folders = {name: str(_folder(name, value, allowed)) for name, value in chosen.items()}
    for name, folder in folders.items():
        tell(f"{name} is {folder}, as the workflow's variable says")
    return policy.model_copy(update={"env": {**policy.env, **folders}})


def _folder(name: str, value: str, allowed: list[Path]) -> Path:
    """Return the folder that a variable names, with all links resolved, so that no link can change it later."""
    path = Path(value)
    real = path.resolve() if path.is_absolute() else path
    if any(real.is_relative_to(root.resolve()) for root in allowed) and real.is_dir():
        return real
    roots = ", ".join(map(str, allowed)) or "no folder"
    message = f"the workflow's variable {name} names {value!r}; the policy's actions.models allows {roots}"
    fix = "On the runner, name a folder above the model there, or unset the variable in the repository."
    raise PolicyError(message, fix=fix, code="model_not_allowed")
