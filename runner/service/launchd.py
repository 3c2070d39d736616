"""The runner as a service of macOS."""

from __future__ import annotations

import plistlib
from pathlib import Path

from runner.service.plan import Call, Plan, Remove, Step, Write, below
from runner.service.settings import Settings

LABEL = "com.kakeya.bridge-runner"


def plist(settings: Settings) -> bytes:
    """Return the property list of an agent, which starts at login, or of a daemon, which starts at boot."""
    log = str(settings.home / "Library/Logs/kakeya-runner.log")
    keys: dict[str, object] = {
        "Label": LABEL,
        "ProgramArguments": list(settings.argv),
        "RunAtLoad": True,
        "KeepAlive": True,
        "ThrottleInterval": 10,
        # Anything else may be moved to the efficiency cores and slowed down, and with it every measurement.
        "ProcessType": "Interactive",
        "ExitTimeOut": settings.stop_s,
        "WorkingDirectory": "/",
        "EnvironmentVariables": {"PATH": settings.path, "HOME": str(settings.home), "LC_ALL": "en_US.UTF-8"},
        "StandardOutPath": log,
        "StandardErrorPath": log,
        "Umask": 0o077,
    }
    if settings.system:
        keys["UserName"] = settings.user
    return plistlib.dumps(keys, sort_keys=False)


def place(settings: Settings, root: Path | None) -> Path:
    """Return where the property list lies."""
    folder = Path("/Library/LaunchDaemons") if settings.system else settings.home / "Library/LaunchAgents"
    return below(root, folder / f"{LABEL}.plist")


def install(settings: Settings, root: Path | None = None) -> Plan:
    """Return what makes the service run, now and after each start of the machine."""
    file, domain = place(settings, root), _domain(settings)
    steps: list[Step] = [
        Write(file, plist(settings)),
        Call(["launchctl", "bootout", f"{domain}/{LABEL}"], may_fail=True),
        Call(["launchctl", "enable", f"{domain}/{LABEL}"]),
        Call(["launchctl", "bootstrap", domain, str(file)]),
    ]
    note = "An agent starts at login, not at boot; --system makes a daemon, which needs no login."
    return Plan(steps, () if settings.system else (note,))


def uninstall(settings: Settings, root: Path | None = None) -> Plan:
    """Return what ends the service and removes it. Policy, state and log stay."""
    stop = Call(["launchctl", "bootout", f"{_domain(settings)}/{LABEL}"], may_fail=True)
    return Plan([stop, Remove(place(settings, root))])


def _domain(settings: Settings) -> str:
    return "system" if settings.system else f"gui/{settings.uid}"
