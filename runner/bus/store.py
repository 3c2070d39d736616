"""The runner's own bare store, a mirror of the bus with a git configuration of its own."""

import base64
import shutil
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from bridge.bus.hosts.address import parse
from bridge.common import environment, limits
from bridge.errors import PolicyError
from bridge.system.git import Git
from runner import policy

# SSH must not prompt.
_SSH = "ssh -o BatchMode=yes -o ConnectTimeout=30 -o ServerAliveInterval=15 -o ServerAliveCountMax=4"


def open_store(settings: policy.Bus, store: Path, secret: str | None) -> Git:
    """Return git in the store, which is created if needed. The secret is sent only to the bus's own server."""
    config = {
        "core.hooksPath": "/dev/null",
        "core.fsmonitor": "false",
        "core.attributesFile": "/dev/null",
        "credential.helper": "",
        "fetch.fsckObjects": "true",
        "fetch.recurseSubmodules": "false",
        # Old histories contain modes and dates that early versions of git wrote.
        "fetch.fsck.zeroPaddedFilemode": "ignore",
        "fetch.fsck.badTimezone": "ignore",
        # How much git may hold in memory at once; larger files are streamed.
        "core.bigFileThreshold": "8m",
        "core.packedGitWindowSize": "32m",
        "core.packedGitLimit": "256m",
        "core.deltaBaseCacheLimit": "32m",
        "pack.windowMemory": "64m",
        "pack.threads": "2",
        "gc.auto": "0",
        "maintenance.auto": "false",
        "protocol.allow": "never",
        f"protocol.{parse(settings.url).scheme}.allow": "always",
        # Otherwise git would send our `Authorization` header to whatever host the first answer redirects it to.
        "http.followRedirects": "false",
        "core.sshCommand": environment.get("GIT_SSH_COMMAND") or _SSH,
        "safe.bareRepository": "all",
    }
    if secret and parse(settings.url).is_web:
        pair = base64.b64encode(f"x-access-token:{secret}".encode()).decode()
        config[f"http.{_origin(settings.url)}/.extraHeader"] = f"Authorization: Basic {pair}"
    git = Git.isolated(store, config=config, memory=limits.GIT_MEMORY_BYTES)
    if not (store / "HEAD").exists():
        store.mkdir(parents=True, exist_ok=True)
        git("init", "--bare", "--quiet", "--template=", str(store))
    return git


def fetch_flags(url: str) -> tuple[str, ...]:
    """Return the extra options for a fetch from this address, so that git checks the objects that it receives.

    Over the older "dumb" HTTP protocol, git accepts single objects without checking them. No setting forbids that, but
    git refuses to use ``--depth`` with such a server. So HTTP fetches ask for a depth that no history reaches.
    """
    return ("--depth=2147483647",) if parse(url).is_web else ()


def scratch_repository(git: Git) -> Git:
    """Return git in a new repository that shares the store's objects and references, for one long fetch.

    A fetch with ``--depth`` holds a lock until it ends, and meanwhile other fetches in the same repository fail.
    This repository has a lock of its own.
    """
    folder = scratch_folder(git.directory)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for name in ("objects", "refs", "packed-refs", "config"):
        (folder / name).symlink_to(Path("..", name))
    (folder / "HEAD").write_text("ref: refs/heads/none\n", encoding="utf-8")
    return replace(git, directory=folder)


def scratch_folder(store: Path) -> Path:
    """Return the folder of ``scratch_repository``."""
    return store / "scratch"


def token_of(settings: policy.Bus) -> str | None:
    """Return the token for the bus: from the policy's token file, else from the environment of an Actions job."""
    if settings.token_file is None:
        return environment.get("KAKEYA_BUS_TOKEN")
    path = environment.expand(settings.token_file)
    try:
        if path.stat().st_mode & 0o077:
            raise PolicyError(f"others may read {path}", fix=f"Run: chmod 600 {path}")
        return path.read_text(encoding="utf-8").strip()
    except OSError as error:
        raise PolicyError(f"cannot read the token file {path}: {error.strerror}") from error


def _origin(url: str) -> str:
    """Return the server of an address, in the only form to which git compares the name of a setting."""
    address = parse(url)
    if address.host.isascii() and "%" not in address.host:
        return address.origin
    with suppress(UnicodeError):
        ascii_host = address.host.encode("idna").decode()
        if "%" not in ascii_host:
            fix = f"Write {ascii_host} as its host in bus.url."
            raise PolicyError(f"git cannot keep a token for {url}: its host is not ASCII", fix=fix)
    fix = "Name the host in bus.url without percent signs, or reach it over SSH."
    raise PolicyError(f"git cannot keep a token for {url}", fix=fix)
