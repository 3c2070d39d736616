"""Derives the LFS server from the bus's address, as git-lfs does."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from urllib.parse import urlsplit

from runner.lfs.http import HttpSource
from runner.lfs.source import FolderSource, Missing, Source
from runner.policy import Bus


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
    raise Missing("Git LFS files are fetched over HTTPS only: bus.url in the policy is of another kind")


def _endpoint(url: str) -> str:
    url = url.rstrip("/")
    return f"{url}/info/lfs" if url.endswith(".git") else f"{url}.git/info/lfs"
