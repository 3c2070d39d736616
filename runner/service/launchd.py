"""The runner as a service of macOS."""

from __future__ import annotations

import plistlib
from collections.abc import Mapping, Sequence
from pathlib import Path

from runner.service.plan import Call, Plan, Remove, Step, Write, below
from runner.service.settings import Settings
from runner.service.watchdog import EVERY_S

LABEL = "com.kakeya.bridge-runner"
WATCHDOG = f"{LABEL}-watchdog"


def plist(settings: Settings) -> bytes:
    """Return the property list of an agent, which starts at login, or of a daemon, which starts at boot."""
    return _plist(settings, LABEL, settings.argv, {
        "KeepAlive": True,
        "ThrottleInterval": 10,
        # Anything else may be moved to the efficiency cores and slowed down, and with it every measurement.
        "ProcessType": "Interactive",
        "ExitTimeOut": settings.stop_s,
    })  # fmt: skip


def watchdog_plist(settings: Settings) -> bytes:
    """Return the property list of the second job: it looks every minute whether the first one hangs.

    launchd itself only notices a process that ended.
    """
    return _plist(settings, WATCHDOG, settings.watchdog, {
        "StartInterval": EVERY_S,
        "ProcessType": "Background",
        # What it starts goes on when it ends.
        "AbandonProcessGroup": True,
    })  # fmt: skip


def _plist(settings: Settings, label: str, argv: Sequence[str], more: Mapping[str, object]) -> bytes:
    log = str(settings.home / "Library/Logs/kakeya-runner.log")
    keys: dict[str, object] = {
        "Label": label,
        "ProgramArguments": list(argv),
        "RunAtLoad": True,
        **more,
        "WorkingDirectory": "/",
        "EnvironmentVariables": {"PATH": settings.path, "HOME": str(settings.home), "LC_ALL": "en_US.UTF-8"},
        "StandardOutPath": log,
        "StandardErrorPath": log,
        "Umask": 0o077,
    }
    if settings.system:
        keys["UserName"] = settings.user
    return plistlib.dumps(keys, sort_keys=False)


def place(settings: Settings, root: Path | None, label: str = LABEL) -> Path:
    """Return where a property list lies."""
    folder = Path("/Library/LaunchDaemons") if settings.system else settings.home / "Library/LaunchAgents"
    return below(root, folder / f"{label}.plist")


def install(settings: Settings, root: Path | None = None) -> Plan:
    """Return what makes the service run, now and after each start of the machine, and what watches it."""
    domain = _domain(settings)
    steps: list[Step] = []
    for label, content in ((LABEL, plist(settings)), (WATCHDOG, watchdog_plist(settings))):
        file = place(settings, root, label)
        steps += [
            Write(file, content),
            Call(["launchctl", "bootout", f"{domain}/{label}"], may_fail=True),
            Call(["launchctl", "enable", f"{domain}/{label}"]),
            Call(["launchctl", "bootstrap", domain, str(file)]),
        ]
    note = "An agent starts at login, not at boot; a daemon needs no login: sudo kakeya-runner install --system --yes"
    return Plan(steps, () if settings.system else (note,))


def uninstall(settings: Settings, root: Path | None = None) -> Plan:
    """Return what ends the service and removes it. Policy, state and log stay."""
    steps: list[Step] = []
    for label in (WATCHDOG, LABEL):
        steps.append(Call(["launchctl", "bootout", f"{_domain(settings)}/{label}"], may_fail=True))
        steps.append(Remove(place(settings, root, label)))
    return Plan(steps)


def _domain(settings: Settings) -> str:
    return "system" if settings.system else f"gui/{settings.uid}"
