"""The runner's own bare store, into which the bus is mirrored, under a configuration that is nobody else's."""

from __future__ import annotations

import base64
from pathlib import Path
from urllib.parse import urlsplit

from bridge import limits
from bridge.errors import PolicyError
from bridge.system import environment, git_output
from bridge.system.git import Git
from runner import policy

# The same for SSH, which also must not ask anybody anything.
_SSH = "ssh -o BatchMode=yes -o ConnectTimeout=30 -o ServerAliveInterval=15 -o ServerAliveCountMax=4"

# As many as a command line takes without doubt.
_MOST_ENDS = 1000


def open_store(settings: policy.Bus, store: Path, secret: str | None) -> Git:
    """Return git in the store, made where it is not there yet. The secret goes to the bus's own server alone."""
    config = {
        "core.hooksPath": "/dev/null",
        "core.fsmonitor": "false",
        "core.attributesFile": "/dev/null",
        "credential.helper": "",
        "fetch.fsckObjects": "true",
        "fetch.recurseSubmodules": "false",
        # Old histories hold modes and dates that git once wrote itself.
        "fetch.fsck.zeroPaddedFilemode": "ignore",
        "fetch.fsck.badTimezone": "ignore",
        # What git may hold in memory at once; larger files pass through in pieces.
        "core.bigFileThreshold": "8m",
        "core.packedGitWindowSize": "32m",
        "core.packedGitLimit": "256m",
        "core.deltaBaseCacheLimit": "32m",
        "pack.windowMemory": "64m",
        "pack.threads": "2",
        "gc.auto": "0",
        "maintenance.auto": "false",
        "protocol.allow": "never",
        f"protocol.{_scheme(settings.url)}.allow": "always",
        # Git sends an `Authorization` of ours to whatever host the first answer redirects it to.
        "http.followRedirects": "false",
        # A server that says nothing for a minute is gone; git's own keep-alive is one byte a second.
        "http.lowSpeedLimit": "1",
        "http.lowSpeedTime": "60",
        "core.sshCommand": _SSH,
        "safe.bareRepository": "all",
    }
    if secret:
        pair = base64.b64encode(f"x-access-token:{secret}".encode()).decode()
        parts = urlsplit(settings.url)
        config[f"http.{parts.scheme}://{parts.netloc}/.extraHeader"] = f"Authorization: Basic {pair}"
    git = Git.isolated(store, config=config, memory=limits.GIT_MEMORY_BYTES)
    if not (store / "HEAD").exists():
        store.mkdir(parents=True, exist_ok=True)
        git("init", "--bare", "--quiet", "--template=", str(store))
    return git


def fetch_flags(url: str) -> tuple[str, ...]:
    """Return what a fetch from this address needs, so that git checks what it gets.

    Over the older, "dumb" HTTP protocol git takes single objects without checking them. It has no setting against
    that, but refuses to ask such a server for a history of a given depth; this one is as deep as any.
    """
    return ("--depth=2147483647",) if _scheme(url) in ("http", "https") else ()


def take_cut(git: Git) -> list[str] | None:
    """Return the references whose history the bus cut off in the last fetch, None if it cut off nothing.

    A fetch by depth takes such a history, and the store would then never ask for the rest of it. What marks it as cut
    is removed, so the caller has to forget these references.
    """
    cut = git.directory / "shallow"
    if not cut.exists():
        return None
    ends = [f"--contains={commit}" for commit in git_output.lines(cut.read_bytes())]
    found = git_output.lines(git("for-each-ref", "--format=%(refname)", *ends[:_MOST_ENDS]).stdout)
    cut.unlink()
    return found


def token_of(settings: policy.Bus) -> str | None:
    """Return the token for the bus: from the file named in the policy, else from the environment of an Actions job."""
    if settings.token_file is None:
        return environment.get("KAKEYA_BUS_TOKEN")
    path = settings.token_file.expanduser()
    try:
        if path.stat().st_mode & 0o077:
            raise PolicyError(f"others may read {path}", fix=f"Run: chmod 600 {path}")
        return path.read_text(encoding="utf-8").strip()
    except OSError as error:
        raise PolicyError(f"cannot read the token file {path}: {error.strerror}") from error


def _scheme(url: str) -> str:
    scheme = urlsplit(url).scheme
    if scheme in ("http", "https", "ssh", "git", "file"):
        return scheme
    return "file" if url.startswith(("/", "./", "../")) else "ssh"
