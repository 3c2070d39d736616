"""The progress of a command: a bar on a terminal, otherwise an occasional line for the log."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from bridge.common.cli.output import is_read_by_people, rich_console, say

# Seconds until the first line, and the longest pause: each pause is twice as long as the one before.
FIRST, MOST = 5.0, 30.0
_BAR_S = 0.2

Callbacks = tuple[Callable[[int], None], Callable[[], None]]


@contextmanager
def progress(title: str, unit: str) -> Iterator[Callbacks]:
    """Show progress on standard error; yield a function to call with the number of steps, and after each step.

    Args:
        title: the word beside the bar.
        unit: the name of a step, in the plural, as in ``progress 3/20 prompts, 12 s``.
    """
    console = rich_console(stderr=True)
    if console.is_terminal:
        from rich import progress as bars  # noqa: PLC0415 - slow to import

        parts = (bars.BarColumn(), bars.MofNCompleteColumn(), bars.TimeRemainingColumn())
        with bars.Progress(bars.TextColumn(title), *parts, console=console, transient=True) as bar:
            task = bar.add_task(title, total=None)
            yield lambda total: bar.update(task, total=total), lambda: bar.advance(task)
        return
    done, total = 0, 0

    def start(steps: int) -> None:
        nonlocal total
        total = steps

    def step() -> None:
        nonlocal done
        done += 1

    with _lines(lambda: f"{done}{f'/{total}' if total else ''} {unit}"):
        yield start, step


@contextmanager
def download(total: int, size_now: Callable[[], int]) -> Iterator[None]:
    """Show a download on standard error: its size, its speed and its time.

    Args:
        total: the size of the file in bytes.
        size_now: returns how many bytes are there.
    """
    from rich.filesize import decimal  # noqa: PLC0415 - slow to import

    console = rich_console(stderr=True)
    if not console.is_terminal:
        with _lines(lambda: f"{decimal(size_now())} of {decimal(total)}"):
            yield
        return
    from rich import progress as bars  # noqa: PLC0415 - likewise

    parts = (bars.BarColumn(), bars.DownloadColumn(), bars.TransferSpeedColumn(), bars.TimeRemainingColumn())
    with bars.Progress(*parts, console=console, transient=True) as bar:
        task = bar.add_task("", total=total)
        with _repeated(lambda: bar.update(task, completed=size_now()), _BAR_S, _BAR_S):
            yield


@contextmanager
def _lines(text: Callable[[], str]) -> Iterator[None]:
    """Print lines from a thread of their own, so that progress is visible during a long step."""
    began = time.monotonic()
    with _repeated(lambda: say(f"progress {text()}, {time.monotonic() - began:.0f} s"), FIRST, MOST):
        yield


@contextmanager
def _repeated(act: Callable[[], None], first: float, most: float) -> Iterator[None]:
    """Do something in a thread again and again; each pause is twice as long as the one before, up to ``most``."""
    ended = threading.Event()

    def repeat() -> None:
        wait = first
        while not ended.wait(wait):
            act()
            wait = min(2 * wait, most)

    thread = threading.Thread(target=repeat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


class Bounded:
    """Passes figures on to ``print_``: all of them on a terminal, otherwise one every few seconds.

    Args:
        print_: prints a figure.
    """

    def __init__(self, print_: Callable[..., None]) -> None:
        self._print = print_
        self._all = is_read_by_people(err=True)
        self._next, self._wait = 0.0, FIRST

    def __call__(self, *figures: object, last: bool = False) -> None:
        """Print figures if it is time to, or if they are the last."""
        now = time.monotonic()
        if not (self._all or last or now >= self._next):
            return
        self._next, self._wait = now + self._wait, min(2 * self._wait, MOST)
        self._print(*figures)
