"""Stores prefixes on disk, in a folder that several servers may share, even over a network.

Each block is a separate file that appears atomically by a rename and never changes, so no locks are needed. If the
folder exceeds its budget, the least recently used files are deleted; a file that another server deleted is a miss. The
engine's thread does no file access: one other thread reads for it, another one writes.
"""

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

from engine.errors import BadInput
from engine.serve.prefix_cache import block_file
from engine.serve.prefix_cache.block_file import PendingBlock, RefusedError
from engine.serve.prefix_cache.folder import LOW, Folder
from engine.serve.prefix_cache.namespace import BlockNamespace, namespace_of
from engine.serve.prefix_cache.snapshots import Snapshot
from engine.serve.resident import Resident

log = logging.getLogger("engine.serve")
READ_SECONDS = 5.0  # seconds to wait for a block before the folder counts as unreachable
REST_SECONDS = 30.0  # an unreachable folder is not read for this time
WAIT = 0.005  # the most seconds that a read delays the engine's thread
MOST_WAITING = 64 << 20  # the most bytes that may wait to be written; more are dropped
FLUSH_SECONDS = 8.0  # time for the remaining writes when the server ends
TOUCHED = 60.0  # a prefix used within this time is not marked as used again


class Store:
    """The stored prefixes. A missing folder is created for its owner alone; BadInput if it cannot be used.

    ``count`` is called with the name of each event: ``hit``, ``miss``, ``written``, ``dropped``, ``evicted``,
    ``error``, ``slow``, or ``refused_`` with the reason of a ``RefusedError``.
    """

    def __init__(self, path: Path, budget: int, count: Callable[[str], None] = lambda _: None) -> None:
        self.events: Counter[str] = Counter()
        self._count = count
        try:
            self._folder = Folder(path, budget)
        except OSError as error:
            message = f"the prefix store {path} cannot be used: {error.strerror or error}"
            raise BadInput(message, "give --prefix-store a folder that you may write to") from error
        self._reader = ThreadPoolExecutor(1, thread_name_prefix="prefix reader")
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="prefix writer")
        self._namespaces: WeakKeyDictionary[Resident, dict[Any, BlockNamespace]] = WeakKeyDictionary()
        self._waiting = 0
        self._bytes = threading.Lock()
        self._resting = 0.0
        self._bad: set[str] = set()  # files to overwrite
        self._used: dict[str, float] = {}
        self._silent: dict[str, float] = {}  # the time until which failures are only counted

    def namespace(
        self, resident: Resident, spec: str, boundary: int, block: int, *, drafts: bool
    ) -> BlockNamespace:
        """Return the namespace for a model, cache and drafter."""
        namespaces = self._namespaces.setdefault(resident, {})
        key = spec, boundary, block, drafts
        if key not in namespaces:
            namespaces[key] = namespace_of(resident, spec, boundary, block, drafts=drafts)
        return namespaces[key]

    def load(
        self, namespace: BlockNamespace, block_id: str, end: int
    ) -> Generator[None, None, tuple[list[Snapshot], list[Snapshot]] | None]:
        """Return a block's snapshots of caches and drafter, or None if it is not stored. Yields while it is read."""
        if time.monotonic() < self._resting:
            return None
        late = time.monotonic() + READ_SECONDS
        reading = self._reader.submit(self._read, namespace, block_id, end)
        while not wait({reading}, WAIT).done:
            if time.monotonic() > late:
                self._resting = time.monotonic() + REST_SECONDS
                self._event("slow")
                message = "the prefix store did not answer within %g s; it is not used for %g s"
                log.warning(message, READ_SECONDS, REST_SECONDS)
                return None
            yield
        if (block := reading.result()) is None:
            return None
        self._event("hit")
        return block_file.on_device(block, namespace)

    def save(
        self, namespace: BlockNamespace, block_id: str, caches: list[Snapshot], context: list[Snapshot]
    ) -> None:
        """Write a block in the background, unless it exists."""
        name = _name(namespace, block_id)
        pending = PendingBlock(namespace, block_id, (caches, context))
        with self._bytes:
            if self._waiting + pending.nbytes > MOST_WAITING or pending.nbytes > self._folder.budget * LOW:
                self._event("dropped")
                return
            self._waiting += pending.nbytes
        self._writer.submit(self._write, name, pending)

    def distrust(self, namespace: BlockNamespace, chain: list[str]) -> None:
        """If the first block of a chain was refused, replace the later ones too when they are computed again.

        Damage seldom comes alone, and nothing after the first damaged block is read. So without this, each request
        would repair only one block.
        """
        if chain and _name(namespace, chain[0]) in self._bad:
            self._bad.update(_name(namespace, each) for each in chain)

    def used(self, namespace: BlockNamespace, chain: list[str]) -> None:
        """Mark the blocks of a chain as used. Its beginning counts as most recent, so it is deleted last."""
        now = time.monotonic()
        if not chain or now - self._used.get(chain[-1], -TOUCHED) < TOUCHED:
            return
        self._used = {each: at for each, at in self._used.items() if now - at < TOUCHED}
        self._used[chain[-1]] = now
        self._writer.submit(self._folder.touch, [_name(namespace, each) for each in reversed(chain)])

    def flush(self, seconds: float = FLUSH_SECONDS) -> bool:
        """Wait until all queued blocks are written. Returns whether that happened in time."""
        return not wait([self._writer.submit(lambda: None)], seconds).not_done

    def stats(self) -> dict[str, Any]:
        """Return the statistics."""
        names = ("hit", "miss", "written", "dropped", "evicted", "error")
        refused = {name: count for name, count in list(self.events.items()) if name.startswith("refused_")}
        return {
            "bytes": self._folder.nbytes,
            "budget": self._folder.budget,
            "reachable": time.monotonic() >= self._resting,
            **{name: self.events[name] for name in names},
            "refused": {name.removeprefix("refused_"): count for name, count in refused.items()},
        }

    def _read(self, namespace: BlockNamespace, block_id: str, end: int) -> list[list[Snapshot]] | None:
        name = _name(namespace, block_id)
        try:
            data = self._folder.read(name, block_file.largest(namespace))
            if data is not None:
                return block_file.decoded(data, namespace, block_id, end)
            self._event("miss")
        except RefusedError as refused:
            self._bad.add(name)
            self._event(f"refused_{refused.reason}")
            log.warning("the stored prefix %s is not used: %s", name, refused)
        except OSError as error:
            self._failed("read", error)
        return None

    def _write(self, name: str, pending: PendingBlock) -> None:
        try:
            if (self._folder.path / name).exists() and name not in self._bad:
                return
            self._event("evicted", self._folder.write(name, pending.encoded()))
            self._bad.discard(name)
            self._event("written")
        except Exception as error:  # noqa: BLE001 - a block that could not be stored is recomputed later
            self._failed("written", error)
        finally:
            with self._bytes:
                self._waiting -= pending.nbytes

    def _failed(self, action: str, error: Exception) -> None:
        self._event("error")
        if time.monotonic() >= self._silent.get(action, 0.0):
            self._silent[action] = time.monotonic() + REST_SECONDS
            message = "a stored prefix could not be %s: %s; further failures are only counted for %g s"
            log.warning(message, action, error, REST_SECONDS)

    def _event(self, name: str, times: int = 1) -> None:
        self.events[name] += times
        for _ in range(times):
            self._count(name)


def _name(namespace: BlockNamespace, block_id: str) -> str:
    return f"{namespace.key[:32]}/{block_id}.kv"
