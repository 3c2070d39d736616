"""Processes of git that answer many questions, kept from one question to the next: starting one costs more than asking.

A process is ended when it is a few seconds old or was asked a lot, and before git changes its repository by a fetch.
"""

from __future__ import annotations

import atexit
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from bridge.system.process import Child


class _Repository(Protocol):
    """What is needed of ``bridge.system.git.Git``, which ends kept processes and so imports this module."""

    @property
    def directory(self) -> Path: ...
    @property
    def env(self) -> Mapping[str, str]: ...
    @property
    def options(self) -> tuple[str, ...]: ...
    @property
    def memory(self) -> int | None: ...
    def start(self, *args: str) -> Child: ...


# Git caches some of its answers, so its memory grows with each question.
MAX_QUERIES = 2_000
MAX_AGE_S = 10.0
MAX_IDLE = 4


@dataclass(eq=False)
class CatFileProcess:
    """A git process that answers questions through pipes."""

    # The key of a process: the folder, the arguments, and all settings.
    key: tuple[object, ...]
    child: Child
    began: float
    queries: int = 0

    def ask(self, names: Sequence[str]) -> None:
        """Send it names, one a line. The caller reads an answer for each."""
        self.queries += len(names)
        self.child.write("".join(f"{name}\n" for name in names))

    def may_stay(self) -> bool:
        """Return whether the process may be asked again."""
        is_young = time.monotonic() - self.began < MAX_AGE_S
        return is_young and self.queries < MAX_QUERIES and self.child.is_running


# The kept processes by their keys, the oldest first.
_kept: dict[tuple[object, ...], CatFileProcess] = {}
_lock = threading.Lock()


def acquire(git: _Repository, *args: str) -> CatFileProcess:
    """Return a process of ``git *args``, a kept one if possible. The caller gives it back, or closes its child."""
    key = (_place(git), args, git.options, git.memory, tuple(sorted(git.env.items())))
    with _lock:
        process = _kept.pop(key, None)
    if process and process.may_stay():
        process.child.renew()
        return process
    if process:
        process.child.close()
    return CatFileProcess(key, git.start(*args), time.monotonic())


def release(process: CatFileProcess) -> None:
    """Keep a process of which all answers were read."""
    if not process.may_stay():
        process.child.close()
        return
    with _lock:
        surplus = [_kept.pop(process.key)] if process.key in _kept else []
        _kept[process.key] = process
        surplus += [_kept.pop(key) for key in [*_kept][:-MAX_IDLE]]
    for other in surplus:
        other.child.close()


@contextmanager
def acquired(git: _Repository, *args: str) -> Iterator[CatFileProcess]:
    """Lend a process of ``git *args`` to a block, which reads all answers unless it raises."""
    process = acquire(git, *args)
    try:
        yield process
    except BaseException:
        process.child.close()
        raise
    release(process)


def invalidate(git: _Repository) -> None:
    """End the kept processes of a repository that is about to change."""
    directory = _place(git)
    _end(lambda key: key[0] == directory)


@atexit.register
def invalidate_all() -> None:
    """End all that is kept."""
    _end(lambda _: True)


def _end(fits: Callable[[tuple[object, ...]], bool]) -> None:
    with _lock:
        processes = [_kept.pop(key) for key in [*_kept] if fits(key)]
    for process in processes:
        process.child.close()


def _place(git: _Repository) -> str:
    return os.path.abspath(git.directory)  # noqa: PTH100 - without following links
