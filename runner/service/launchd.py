"""The runner as a launchd service on macOS."""

import plistlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from xml.parsers.expat import ExpatError

from runner.service.plan import Service, call
from runner.service.settings import Settings
from runner.state.heartbeat import EVERY_S

LABEL = "com.kakeya.bridge-runner"
WATCHDOG = f"{LABEL}-watchdog"


def plist(settings: Settings) -> bytes:
    """Return the property list of an agent (starts at login) or a daemon (starts at boot)."""
    return _plist(settings, LABEL, settings.argv, {
        # Exit code 0 means a requested end (SIGTERM or `kakeya-runner drain`), so there is no restart.
        "KeepAlive": {"SuccessfulExit": False},
        "ThrottleInterval": 10,
        # macOS may move other process types to the efficiency cores, which would slow down every measurement.
        "ProcessType": "Interactive",
        "ExitTimeOut": settings.stop_s,
    })  # fmt: skip


def watchdog_plist(settings: Settings) -> bytes:
    """Return the property list of the watchdog, which checks every minute whether the runner hangs.

    launchd itself notices only processes that end.
    """
    return _plist(settings, WATCHDOG, settings.watchdog, {
        "StartInterval": EVERY_S,
        "ProcessType": "Background",
        # Processes that the watchdog starts must survive its end.
        "AbandonProcessGroup": True,
    })  # fmt: skip


def _plist(settings: Settings, label: str, argv: Sequence[str], more: Mapping[str, object]) -> bytes:
    log = str(log_of(settings))
    keys: dict[str, object] = {
        "Label": label,
        "ProgramArguments": list(argv),
        "RunAtLoad": True,
        **more,
        "WorkingDirectory": "/",
        "EnvironmentVariables": {
            "PATH": settings.path,
            "HOME": str(settings.home),
            "LC_ALL": "en_US.UTF-8",
            **settings.variables,
        },
        "StandardOutPath": log,
        "StandardErrorPath": log,
        "Umask": 0o077,
    }
    if settings.system:
        keys["UserName"] = settings.user
    return plistlib.dumps(keys, sort_keys=False)


def argv_in(content: bytes) -> list[str]:
    """Return the command that a property list starts."""
    try:
        return [str(word) for word in plistlib.loads(content)["ProgramArguments"]]
    except (ValueError, LookupError, TypeError, plistlib.InvalidFileException, ExpatError):
        return []


def log_of(settings: Settings) -> Path:
    """Return the file that launchd writes the runner's output to."""
    return settings.home / "Library/Logs/kakeya-runner.log"


def service(settings: Settings) -> Service:
    """Return the service with its watchdog."""
    domain = "system" if settings.system else f"gui/{settings.uid}"
    folder = Path("/Library/LaunchDaemons") if settings.system else settings.home / "Library/LaunchAgents"
    contents = {LABEL: plist(settings), WATCHDOG: watchdog_plist(settings)}
    stop = {label: call("launchctl", "bootout", f"{domain}/{label}", may_fail=True) for label in contents}
    start = [
        step
        for label in contents
        for step in (
            stop[label],
            call("launchctl", "enable", f"{domain}/{label}"),
            call(
                "launchctl",
                "bootstrap",
                domain,
                str(folder / f"{label}.plist"),
                undo=stop[label],
            ),
        )
    ]
    note = "An agent starts at login, not at boot; a daemon needs no login: sudo kakeya-runner install --system --yes"
    return Service(
        files={folder / f"{label}.plist": content for label, content in contents.items()},
        start=start,
        stop=list(stop.values()),
        then=[*([] if settings.system else [note]), *settings.notes],
        if_fails=settings.by_hand,
        argv_in=argv_in,
    )
