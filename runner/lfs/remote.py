"""Derives the LFS server from the bus's address, as git-lfs does."""

from __future__ import annotations

import base64
import re
import shlex
from collections.abc import Sequence
from urllib.parse import urlsplit

from bridge.common import environment, strict_json
from bridge.errors import ManifestError, ProcessError
from bridge.system.process import run
from runner.lfs.http import HttpSource, may_be_sent, origin_of
from runner.lfs.source import FolderSource, Missing, Source
from runner.policy import Bus

_SCP = re.compile(r"(?P<host>[^/:]+):(?P<path>.+)")
_SSH_S = 30
_SSH_BYTES = 64 << 10


def source_of(bus: Bus, secret: str | None, hosts: Sequence[str]) -> Source:
    """Return the source of a bus's objects.

    Raises:
        Missing: there is none that can be reached.
    """
    if bus.is_local:
        return FolderSource(bus.url)
    parts = urlsplit(bus.url)
    if parts.scheme in ("http", "https"):
        headers = {}
        if secret:
            pair = base64.b64encode(f"x-access-token:{secret}".encode()).decode()
            headers["Authorization"] = f"Basic {pair}"
        return HttpSource(_endpoint(bus.url), headers, hosts)
    if parts.scheme == "ssh" or _SCP.fullmatch(bus.url):
        return _over_ssh(bus.url, hosts)
    raise Missing(f"LFS is not supported over {parts.scheme or 'this kind of address'}")


def _endpoint(url: str) -> str:
    url = url.rstrip("/")
    return f"{url}/info/lfs" if url.endswith(".git") else f"{url}.git/info/lfs"


def _over_ssh(url: str, hosts: Sequence[str]) -> Source:
    """Ask the bus over SSH for its LFS server and the headers to send: ``git-lfs-authenticate PATH download``."""
    target, port, path = _address(url)
    argv = [
        "ssh",
        "-o",
        "BatchMode=yes",
        "-o",
        f"ConnectTimeout={_SSH_S // 2}",
        *(["-p", port] if port else []),
    ]
    argv += ["--", target, f"git-lfs-authenticate {shlex.quote(path)} download"]
    try:
        done = run(
            *argv, env=environment.for_isolated_git(), timeout=_SSH_S, own_session=True, most=_SSH_BYTES
        )
        reply = strict_json.loads(done.stdout, what="the answer")
        href, headers = str(reply["href"]), dict(reply.get("header") or {})
    except (ProcessError, ManifestError, KeyError, TypeError, ValueError, AttributeError) as error:
        reason = (
            error.message if isinstance(error, ProcessError) else "its answer is not that of an LFS server"
        )
        raise Missing(f"the bus does not answer git-lfs-authenticate over SSH: {reason}") from error
    if not may_be_sent(headers):
        raise Missing("the bus names headers that cannot be sent")
    scheme, host, asked_port = origin_of(href)
    if scheme != "https" and host not in ("127.0.0.1", "::1", "localhost"):
        raise Missing(f"the bus names an LFS server that is not https, at {host!a}")
    own = target.rpartition("@")[2]
    if host != own and not {host, f"{host}:{asked_port}"} & set(hosts):
        raise Missing(f"its LFS server is on {host!a}, which lfs.hosts in the policy does not name")
    return HttpSource(href, headers, hosts)


def _address(url: str) -> tuple[str, str | None, str]:
    """Return user and host, the port, and the repository's path on the server."""
    parts = urlsplit(url)
    if parts.scheme == "ssh":
        user = f"{parts.username}@" if parts.username else ""
        return f"{user}{parts.hostname}", str(parts.port) if parts.port else None, parts.path
    match = _SCP.fullmatch(url)
    assert match  # noqa: S101 - the caller looked
    return match["host"], None, match["path"]
