"""The runner as a systemd service on Linux."""

import shlex
from itertools import starmap
from pathlib import Path
from string import Template

from runner.service.plan import Service, call
from runner.service.settings import Settings
from runner.state.heartbeat import SILENCE_S

UNIT = "kakeya-runner.service"

# Only the system's service manager has the rights for these settings. The following ones are left out on
# purpose, because they would forbid the namespaces and the /proc mount that bubblewrap makes for each job:
# RestrictNamespaces, PrivateUsers, ProtectProc, ProtectKernelTunables, ProtectKernelLogs and
# SystemCallFilter.
_HARDENED = (
    "CapabilityBoundingSet=\nPrivateTmp=yes\nProtectClock=yes\nProtectHostname=yes\nProtectSystem=full\n"
)


def unit(settings: Settings) -> bytes:
    """Return the unit file. The runner itself ends its jobs; systemd kills what is left after that."""
    template = Template(Path(__file__).with_name(UNIT).read_text(encoding="ascii"))
    system = settings.system
    variables = {"PATH": settings.path, **settings.variables}
    text = template.substitute(
        network="After=network-online.target\nWants=network-online.target\n" if system else "",
        user=f"User={settings.user}\n" if system else "",
        hardened=_HARDENED if system else "",
        target="multi-user.target" if system else "default.target",
        command=" ".join(map(quote, settings.argv)),
        variables="\n".join(starmap(assignment, variables.items())),
        silence_s=SILENCE_S,
        stop_s=settings.stop_s,
    )
    return text.encode()


def quote(word: str) -> str:
    """Quote a word for systemd, so that it contains no specifier, variable or separator."""
    for old, new in (("\\", "\\\\"), ('"', '\\"'), ("%", "%%"), ("$", "$$")):
        word = word.replace(old, new)
    return f'"{word}"'


def argv_in(unit_file: bytes) -> list[str]:
    """Return the command that a unit file starts."""
    lines = unit_file.decode(errors="replace").splitlines()
    commands = [line.partition("=")[2] for line in lines if line.startswith("ExecStart=")]
    try:
        words = shlex.split(commands[-1]) if commands else []
    except ValueError:
        return []
    return [word.replace("%%", "%").replace("$$", "$") for word in words]


def assignment(name: str, value: str) -> str:
    """Return the line that sets a variable. Line ends are escaped, and systemd expands no variables in it."""
    return f"Environment={quote(f'{name}={value}')}".replace("$$", "$").replace("\n", "\\n")


def service(settings: Settings) -> Service:
    """Return the service. Lingering stays enabled when the service is uninstalled."""
    system = settings.system
    folder = Path("/etc/systemd/system") if system else settings.home / ".config/systemd/user"
    control = ["systemctl"] if system else ["systemctl", "--user"]
    stop = call(*control, "disable", "--now", UNIT, may_fail=True)
    # A service that was there before is not stopped because its new version cannot be installed.
    undo = None if (folder / UNIT).exists() else stop
    reload = call(*control, "daemon-reload")
    start = [reload, call(*control, "enable", UNIT, undo=undo), call(*control, "restart", UNIT)]
    # Without lingering, a user's services start at the first login and end with the last logout.
    end_linger = None if lingers(settings) else call("loginctl", "disable-linger", settings.user)
    linger = [] if system else [call("loginctl", "enable-linger", settings.user, undo=end_linger)]
    return Service(
        files={folder / UNIT: unit(settings)},
        start=[*linger, *start],
        stop=[stop],
        after_removal=[call(*control, "daemon-reload", may_fail=True)],
        then=[f"Its log: journalctl {'' if system else '--user '}-u {UNIT}", *settings.notes],
        if_fails=settings.by_hand,
        argv_in=argv_in,
    )


def lingers(settings: Settings) -> bool:
    """Return whether the user's services run without a login."""
    return (Path("/var/lib/systemd/linger") / settings.user).exists()
