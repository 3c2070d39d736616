"""Reads the presence records of the bus, into a store of their own: anybody who may push can put anything there."""

from __future__ import annotations

import shutil
import time
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

from bridge.bus.remote import Remote
from bridge.requests.runners import read_runners
from bridge.requests.waiting import RunnerSighting
from bridge.verify.public_keys import PublicKey
from runner import policy
from runner.bus.store import open_store, token_of

_STORE = "presences.git"


class Presences:
    """The runners that have announced themselves on the bus, as this process has seen them."""

    def __init__(self, settings: policy.Bus, state: Path, keys: Sequence[PublicKey] = ()) -> None:
        self._settings = settings
        self._folder = state / _STORE
        self._keys = keys
        self._since: dict[str, tuple[str, float]] = {}

    def read(self) -> list[RunnerSighting]:
        """Fetch and return the records; with keys, only those that one of them signed.

        Raises:
            InfrastructureError: the bus cannot be reached.
        """
        listed = self._remote.fetch_presences()
        now = time.monotonic()
        self._since = {
            ref: known if (known := self._since.get(ref)) and known[0] == oid else (oid, now)
            for ref, oid in listed.items()
        }
        return read_runners(self._remote.git, listed, self._keys, lambda ref, _: now - self._since[ref][1])

    @cached_property
    def _remote(self) -> Remote:
        # What an earlier process fetched is outdated: records are replaced every few minutes.
        shutil.rmtree(self._folder, ignore_errors=True)
        return Remote(open_store(self._settings, self._folder, token_of(self._settings)), self._settings.url)
