"""Lets a GitHub workflow's variables choose among the models that the host allows.

A variable of the workflow comes before the policy's ``env``. The workflow is part of the pushed commit, so whoever may
push can set its variables. They count only for folders below those in ``actions.models``.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from bridge.common import environment
from bridge.errors import PolicyError
from runner.host.models import DRAFTER, TARGET
from runner.policy import Policy


def with_workflow_models(policy: Policy, tell: Callable[[str], None]) -> Policy:
    """Return the policy with the models that the environment's variables name.

    Raises:
        PolicyError: the folder of a variable is not below those in ``actions.models``.
    """
    chosen = {name: value for name in (TARGET, DRAFTER) if (value := environment.get(name))}
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
