"""Keeps git processes that answer many queries, because starting a process takes longer than a query.

A process is ended after a few seconds, after many queries, and before git changes its repository, as by a fetch.
"""

import atexit
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from bridge.system.process import Child

# Git caches some of its answers, so its memory grows with each query.
MAX_QUERIES = 2_000
MAX_AGE_S = 10.0
MAX_IDLE = 4


@dataclass(eq=False)
class CatFileProcess:
    """A git process that answers queries through pipes."""

    # The key of a process: the folder, the arguments, and all settings.
    key: tuple[object, ...]
    child: Child
    began: float
    queries: int = 0

    def ask(self, names: Sequence[str]) -> None:
        """Send names to the process, one per line. The caller reads an answer for each."""
        self.queries += len(names)
        self.child.write("".join(f"{name}\n" for name in names))

    def is_reusable(self) -> bool:
        """Return whether the process may be asked again."""
        is_young = time.monotonic() - self.began < MAX_AGE_S
        return is_young and self.queries < MAX_QUERIES and self.child.is_running


# The kept processes by their keys, the oldest first.
_idle: dict[tuple[object, ...], CatFileProcess] = {}
_lock = threading.Lock()


def acquire(key: tuple[object, ...], start: Callable[[], Child]) -> CatFileProcess:
    """Return the kept process with a key, or a new one."""
    with _lock:
        process = _idle.pop(key, None)
    if process and process.is_reusable():
        process.child.renew()
        return process
    if process:
        process.child.close()
    return CatFileProcess(key, start(), time.monotonic())


def release(process: CatFileProcess) -> None:
    """Keep a process whose answers were all read."""
    if not process.is_reusable():
        process.child.close()
        return
    with _lock:
        surplus = [_idle.pop(process.key)] if process.key in _idle else []
        _idle[process.key] = process
        surplus += [_idle.pop(key) for key in [*_idle][:-MAX_IDLE]]
    for other in surplus:
        other.child.close()


@contextmanager
def releasing(process: CatFileProcess) -> Iterator[CatFileProcess]:
    """Lend a process to a block, which reads all answers unless it raises."""
    try:
        yield process
    except BaseException:
        process.child.close()
        raise
    release(process)


def invalidate(directory: str) -> None:
    """End the kept processes of a repository that is about to change; their keys begin with its folder."""
    _end(lambda key: key[0] == directory)


@atexit.register
def invalidate_all() -> None:
    """End all kept processes."""
    _end(lambda _: True)


def _end(fits: Callable[[tuple[object, ...]], bool]) -> None:
    with _lock:
        processes = [_idle.pop(key) for key in [*_idle] if fits(key)]
    for process in processes:
        process.child.close()
