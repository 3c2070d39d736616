"""The runner as a systemd service on Linux."""

from __future__ import annotations

from pathlib import Path

from runner.service.plan import Call, Plan, Remove, Step, Write, below
from runner.service.settings import Settings
from runner.state.sign_of_life import SILENCE_S

UNIT = "kakeya-runner.service"

# Left out on purpose: RestrictNamespaces, PrivateUsers, ProtectProc, ProtectKernelTunables, ProtectKernelLogs and
# SystemCallFilter. They would forbid the namespaces and the /proc mount that bubblewrap makes for each job.
_HARDENED = """\
NoNewPrivileges=yes
LockPersonality=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
UMask=0077
"""
# A user's service manager lacks the rights for these.
_HARDENED_SYSTEM = """\
CapabilityBoundingSet=
PrivateTmp=yes
ProtectClock=yes
ProtectHostname=yes
ProtectSystem=full
"""


def unit(settings: Settings) -> bytes:
    """Return the unit file. The runner itself ends its jobs; systemd kills what is left after that."""
    network = "After=network-online.target\nWants=network-online.target\n" if settings.system else ""
    user = f"User={settings.user}\n" if settings.system else ""
    return f"""\
[Unit]
Description=kakeya-bridge runner
{network}StartLimitIntervalSec=0

[Service]
Type=notify
NotifyAccess=main
# A runner that gives no sign of life for this long is killed and started again.
WatchdogSec={SILENCE_S}
# Before it serves it may have to make its ledger anew.
TimeoutStartSec={SILENCE_S}
{user}ExecStart={" ".join(map(quote, settings.argv))}
WorkingDirectory=/
Environment={quote(f"PATH={settings.path}")}
# An end with 0 was asked for: SIGTERM, or `kakeya-runner drain`.
Restart=on-failure
RestartSec=10
KillMode=mixed
TimeoutStopSec={settings.stop_s}
# The kernel may kill a job that uses all memory; the runner then has something to answer.
OOMPolicy=continue
{_HARDENED}{_HARDENED_SYSTEM if settings.system else ""}
[Install]
WantedBy={"multi-user.target" if settings.system else "default.target"}
""".encode()


def quote(word: str) -> str:
    """Quote a word for systemd, so that it contains no specifier, variable or separator."""
    for old, new in (("\\", "\\\\"), ('"', '\\"'), ("%", "%%"), ("$", "$$")):
        word = word.replace(old, new)
    return f'"{word}"'


def service_file(settings: Settings, root: Path | None) -> Path:
    """Return the path of the unit file."""
    folder = Path("/etc/systemd/system") if settings.system else settings.home / ".config/systemd/user"
    return below(root, folder / UNIT)


def install(settings: Settings, root: Path | None = None) -> Plan:
    """Return the plan that installs and starts the service."""
    control = _control(settings)
    steps: list[Step] = [
        Write(service_file(settings, root), unit(settings)),
        Call([*control, "daemon-reload"]),
        Call([*control, "enable", UNIT]),
        Call([*control, "restart", UNIT]),
    ]
    if not settings.system:
        # Without lingering, a user's services start at the first login and end with the last logout.
        steps.insert(1, Call(["loginctl", "enable-linger", settings.user]))
    return Plan(steps, (f"Its log: journalctl {'' if settings.system else '--user '}-u {UNIT}",))


def uninstall(settings: Settings, root: Path | None = None) -> Plan:
    """Return the plan that stops and removes the service. Policy, state and lingering stay."""
    control = _control(settings)
    steps: list[Step] = [
        Call([*control, "disable", "--now", UNIT], may_fail=True),
        Remove(service_file(settings, root)),
        Call([*control, "daemon-reload"]),
    ]
    return Plan(steps)


def _control(settings: Settings) -> list[str]:
    return ["systemctl"] if settings.system else ["systemctl", "--user"]
