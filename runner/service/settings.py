"""The settings of a service, common to launchd and systemd."""

import os
import pwd
import shlex
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bridge.common import environment
from bridge.errors import UsageError
from runner.policy import Policy

_SYSTEM_PATH = ("/usr/local/bin", "/usr/bin", "/bin", "/usr/sbin", "/sbin")
# A job has `grace_s` to end and is then killed within 15 s; handing the request back takes one push.
_HAND_BACK_S = 60


@dataclass(frozen=True)
class Settings:
    """Which runner is started, as which user, and how long it may take to stop."""

    argv: tuple[str, ...]
    user: str
    uid: int
    home: Path
    path: str
    stop_s: int
    system: bool
    # The command that checks every minute whether the runner hangs, for systems without a watchdog.
    watchdog: tuple[str, ...] = ()
    # Variables of the shell that the service needs to reach the bus, and the names of those that it does not get.
    variables: Mapping[str, str] = field(default_factory=dict)
    left_out: Sequence[str] = ()

    @property
    def by_hand(self) -> str:
        """How to run the runner if the system's service manager does not answer, as in a container."""
        command = shlex.join(self.argv)
        return f"Let another supervisor, such as a container's, keep this running until it exits with 0: {command}"

    @property
    def notes(self) -> list[str]:
        """Notes for the operator about the variables that the service does not get."""
        fix = "give it to the service in a file that only its user can read, or do without"
        return [f"The service does not get this shell's {name}: {fix}" for name in self.left_out]


def settings_for(policies: Mapping[Path, Policy | None], who: pwd.struct_passwd, *, system: bool) -> Settings:
    """Return the settings for serving policies, given by their files. None is one that cannot be read.

    Raises:
        UsageError: a system service would run as root.
    """
    if system and who.pw_uid == 0:
        fix = "Name the user whose runner it is: --as NAME"
        raise UsageError("a system service must not run as root", fix=fix)
    first, *others = map(str, policies)
    ends = [
        (each.limits.timeout_s if each.on_stop == "finish" else 0) + each.limits.grace_s
        for each in policies.values()
        if each
    ]
    variables, left_out = environment.for_service(is_own=who.pw_uid == os.getuid())
    runner = (sys.executable, "-I", "-m", "runner", "--policy", first)
    return Settings(
        argv=(*runner, "serve", "--awake", *others),
        watchdog=(*runner, "watchdog", *others),
        user=who.pw_name,
        uid=who.pw_uid,
        home=Path(who.pw_dir),
        path=search_path(),
        stop_s=int(max(ends, default=0)) + _HAND_BACK_S,
        system=system,
        variables=variables,
        left_out=left_out,
    )


def policies_in(argv: Sequence[str]) -> tuple[Path, ...]:
    """Return the policies that a service's command serves; nothing if it is not such a command."""
    if "--policy" not in argv[:-1] or "serve" not in argv:
        return ()
    first, others = argv[argv.index("--policy") + 1], argv[argv.index("serve") + 1 :]
    return (Path(first), *(Path(word) for word in others if not word.startswith("-")))


def settings_to_remove(who: pwd.struct_passwd, *, system: bool) -> Settings:
    """Return settings that only name a service, for a host whose policy is gone."""
    return Settings(
        argv=(), user=who.pw_name, uid=who.pw_uid, home=Path(who.pw_dir), path="", stop_s=0, system=system
    )


def find_user(name: str | None, *, system: bool) -> pwd.struct_passwd:
    """Return the user that a service runs as: the named one, else the caller of sudo, else the current user."""
    name = name or (environment.get("SUDO_USER") if system else None)
    try:
        return pwd.getpwnam(name) if name else pwd.getpwuid(os.getuid())
    except KeyError as error:
        message = f"there is no user {name or os.getuid()!r} on this machine"
        fix = "Name the user of the service: kakeya-runner install --system --as NAME"
        raise UsageError(message, fix=fix) from error


def search_path() -> str:
    """Return a PATH with git on it: services do not inherit a shell's PATH."""
    git = shutil.which("git", path=environment.get("PATH"))
    first = [str(Path(git).parent)] if git else []
    return os.pathsep.join(dict.fromkeys([*first, *_SYSTEM_PATH]))
