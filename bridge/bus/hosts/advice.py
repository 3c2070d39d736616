"""Advice for each cause of a failed push or fetch, which takes git's settings and variables into account."""

import shlex
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from bridge.common import environment
from bridge.common.advice import PREFIX, Advice, command
from bridge.system import git_output
from bridge.system.git import Git

_LET_PUSH = (
    "Let the job's token push (permissions: contents: write), or set KAKEYA_BRANCH_PREFIX in the job's environment to "
    "a prefix that it may push to."
)
# The fix if a host protects branches of this name.
OTHER_PREFIX = Advice(
    "Choose a prefix that this account may push to: ", PREFIX, "; ", command("doctor"), " tries it without sending.",
    action=_LET_PUSH,
)  # fmt: skip


@dataclass(frozen=True)
class Surroundings:
    """The context of a failed push: the remote as the user names it, the branch, and git with its settings."""

    git: Git
    name: str
    branch: str = ""
    # A runner's git has neither the user's settings nor a terminal.
    is_runner: bool = False

    def setting(self, key: str) -> str:
        """Return a setting of git, or an empty text."""
        return self.git.maybe("config", "--get", key) or ""

    def variable(self, *names: str) -> str:
        """Return the first of these environment variables that git gets, or an empty text."""
        return next((name for name in names if self.git.env.get(name)), "")

    @property
    def branches(self) -> str:
        """A pattern for the branches of requests."""
        return f"{self.branch.rpartition('/')[0]}/*" if "/" in self.branch else self.branch


Help = Callable[[Surroundings], str | None]


def how_to_check(near: Surroundings) -> str:
    """Return commands that work in the user's folder, for a named remote and for an address."""
    if near.is_runner:
        return "Check bus.url in the policy, and the SSH key or bus.token_file of the runner's user on this machine."
    git, name = near.git, near.name
    here = [] if git.directory == Path() else ["-C", str(git.directory)]
    access = f"Check your access with: git {shlex.join([*here, 'ls-remote', name])}"
    if name not in git_output.lines(git("remote").stdout):
        return access
    return f"{access}; and the address with: git {shlex.join([*here, 'remote', 'get-url', name])}"


def right(_near: Surroundings) -> str:
    """Return what lets an account push."""
    return Advice("Whoever administers the remote can give this account the right to push.", action=_LET_PUSH)


def exempt(near: Surroundings) -> str:
    """Return what exempts requests from a rule about commits."""
    who = "Whoever administers the remote"
    return f"{who} can exempt {near.branches} from this rule, for runners too."


def prefix(near: Surroundings) -> str:
    """Return what helps if a branch name is protected."""
    if near.is_runner:
        return f"Whoever administers the remote can let this account write to {near.branches}."
    return OTHER_PREFIX


def credentials(near: Surroundings) -> str:
    """Return what helps if a user and a token are wanted."""
    if near.is_runner:
        return "Check the token in bus.token_file, and that it may write to this repository."
    if helper := near.setting("credential.helper"):
        return f"Renew what the credential helper {helper!r} keeps for this server. {how_to_check(near)}"
    return how_to_check(near)


def certificate(near: Surroundings) -> str:
    """Return what helps if a certificate is not trusted."""
    first = "Check this machine's clock, the address and the server's certificate. "
    if near.is_runner:
        return first + "If its authority is your own, name it for the runner with SSL_CERT_FILE."
    own = "If its authority is your own, add it to the file that"
    if variable := near.variable("GIT_SSL_CAINFO", "SSL_CERT_FILE"):
        return f"{first}{own} {variable} names, which counts instead of http.sslCAInfo."
    if file := near.setting("http.sslCAInfo"):
        return f"{first}{own} http.sslCAInfo names: {file}"
    return first + "If its authority is your own, name it with: git config http.sslCAInfo FILE"


def _proxy_of(near: Surroundings) -> str:
    setting = "" if near.is_runner else near.setting("http.proxy")
    return "http.proxy" if setting else near.variable(*environment.PROXIES)


def proxy(near: Surroundings) -> str:
    """Return what helps if a proxy refuses."""
    source = _proxy_of(near)
    which = f"the proxy that {source} names, and its user and password" if source else "this network's proxy"
    return f"Check {which}."


def network(near: Surroundings) -> str:
    """Return what helps if nobody answers."""
    through = f" and the proxy that {source} names" if (source := _proxy_of(near)) else ""
    return f"Check the address, the network{through}, and try again."


def ssh_key(near: Surroundings) -> str:
    """Return what helps if an SSH key is unknown."""
    agent = "" if near.variable("SSH_AUTH_SOCK", "GIT_SSH_COMMAND") else ", or start an agent that holds it"
    where = "the runner's user" if near.is_runner else "this user"
    return f"Give the server the public SSH key of {where}{agent}. {how_to_check(near)}"


def moved(near: Surroundings) -> str:
    """Return what helps against a redirect."""
    where = "in bus.url" if near.is_runner else "with `git remote set-url`"
    return (
        f"Name the new address {where}. No redirect is followed after "
        "git has contacted the server, or if http.extraHeader is set, which may hold a token."
    )


def ownership(near: Surroundings) -> str:
    """Return what helps if git does not trust a folder's owner."""
    if near.is_runner:
        return (
            "Give the folder of the bus to the runner's user, or reach it over SSH (ssh://localhost/...): "
            "safe.directory has no effect on a runner, whose git reads no user's settings."
        )
    return "Run: git config --global --add safe.directory FOLDER, with the folder that git names."


def large_files(near: Surroundings) -> str:
    """Return what helps if files in Git LFS are missing."""
    return f"Upload them first: git lfs push --all {near.name}"


def constant(text: str | None) -> Help:
    """Return advice that does not depend on the surroundings."""
    return lambda _near: text
