"""What the tests of the bus share."""

from __future__ import annotations

import pytest

from bridge.bus.remote import PRIVATE
from bridge.system.git import Git


@pytest.fixture
def list_fetches(monkeypatch) -> list[dict[str, str]]:
    """The fetches of listed branches from now on, each as `{branch: commit id}`."""
    fetches: list[dict[str, str]] = []
    call = Git.__call__

    def record(self, *args, stdin=b"", **more):
        if args[0] == "fetch" and stdin:
            specs = (line.removeprefix("+").partition(f":{PRIVATE}") for line in stdin.splitlines())
            fetches.append({branch: oid for oid, _, branch in specs})
        return call(self, *args, stdin=stdin, **more)

    monkeypatch.setattr(Git, "__call__", record)
    return fetches
