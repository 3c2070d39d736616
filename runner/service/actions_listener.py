"""Prepares GitHub's own self-hosted runner: installs the hook, and lists the manual steps."""

from __future__ import annotations

import sys
from pathlib import Path

from runner.service import hook_script
from runner.service.plan import Plan, Step, Write

_LABELS = "kakeya-mac-m4"
_VARIABLE = "ACTIONS_RUNNER_HOOK_JOB_STARTED"


def install(folder: Path, policy: Path, root: Path | None = None) -> Plan:
    """Return the plan that installs the job-started hook for the listener in ``folder``.

    Steps that need the network, GitHub's token or another user's rights are listed as commands for a person.
    """
    hook = hook_script.install(policy, root)
    file = folder / ".env"
    old = file.read_text(encoding="utf-8") if file.is_file() else ""
    lines = "".join(f"{line}\n" for line in old.splitlines() if not line.startswith(f"{_VARIABLE}="))
    line = f"{_VARIABLE}={hook_script.path_of_script(policy)}\n"
    steps: list[Step] = [*hook.steps]
    if folder.is_dir():
        steps.append(Write(file, (lines + line).encode(), mode=0o600))
    return Plan(steps, tuple(by_hand(folder)))


def by_hand(folder: Path) -> list[str]:
    """Return the manual steps for the listener."""
    sudo = "" if sys.platform == "darwin" else "sudo "
    todo = []
    if not (folder / "config.sh").is_file():
        todo.append(
            f"download GitHub's runner into {folder}: the repository's Settings, Actions, Runners has the commands"
        )
    if not (folder / ".runner").is_file():
        todo.append(
            f"cd {folder} && ./config.sh --url https://github.com/OWNER/REPO --token TOKEN --labels {_LABELS}"
        )
    if not (folder / ".service").is_file():
        todo.append(
            f"cd {folder} && {sudo}./svc.sh install && {sudo}./svc.sh start   # starts it after each reboot"
        )
    if sys.platform != "darwin":
        todo.append(
            f"sudo systemctl edit $(cat {folder}/.service)   # add: [Service] Restart=always RestartSec=10"
        )
    return [
        *todo,
        "name the jobs that may run under `actions` in the policy: docs/operations.md, The job-started hook",
    ]
