"""Adds answers to the bus's notes, ``refs/notes/kakeya``, beside the commits that their jobs were about.

The policy allows it with ``bus.notes``. The reference is changed by compare-and-swap, upon what the bus has: what
others wrote stays, and several runners can share it. Anyone who may push can write there, so readers verify the answer.
"""

from collections import deque
from collections.abc import Callable
from functools import partial

from bridge.bus import objects
from bridge.bus.notes import REF, change_note, subject_of
from bridge.errors import InfrastructureError, KakeyaError, UsageError
from bridge.presets import Presets
from bridge.verify.public_keys import Pin
from runner.bus.backoff import Retry
from runner.parts import Author
from runner.state.identity import WHO

_ATTEMPTS = 5


class AnswerNotes:
    """Pushes the notes of the answers that wait for it, together, if the push budget has room."""

    def __init__(
        self, names: deque[str], author: Author, presets: Presets, tell: Callable[[str], None]
    ) -> None:
        """Take the names of the branches from ``names``."""
        self._names = names
        self._bus = author.bus
        self._ledger = author.ledger
        self._keys = author.keys
        self._presets = presets
        self._tell = tell
        self._retry = Retry()

    def push_if_due(self) -> None:
        """Push the waiting notes. If that fails, retry less and less often."""
        if not self._names or not self._bus.budget.has_spare() or not self._retry.is_due:
            return
        names = [*self._names]
        try:
            self._push({name: note for name in names if (note := self._note(name))})
        except KakeyaError as error:
            self._retry.failed()
            self._tell(f"{REF} cannot be changed: {error.message}; trying again later")
            return
        self._retry.succeeded()
        for name in names:
            self._names.remove(name)

    def _push(self, notes: dict[str, tuple[str, str]]) -> None:
        from bridge.show.forms.note import merged  # noqa: PLC0415 - few runners need what shows reports

        bus = self._bus
        for _ in range(_ATTEMPTS if notes else 0):
            tip = bus.fetch_reference(REF)
            for name, (commit, text) in list(notes.items()):
                try:
                    change_note(bus.git, commit, WHO, partial(merged, new=text))
                except UsageError as error:
                    # The note of this commit is too large already. The notes of other commits are still written.
                    self._tell(f"{name} is not noted: {error.message}")
                    del notes[name]
            new = objects.resolve(bus.git, REF)
            if new in (None, tip) or bus.push_reference(REF, new, expect=tip):
                return
        if notes:
            raise InfrastructureError("others change it faster")

    def _note(self, name: str) -> tuple[str, str] | None:
        """Return the commit that an answer is about, and what a note says of the answer; None if there is no commit."""
        from bridge.show.forms.note import paragraph  # noqa: PLC0415 - likewise
        from bridge.show.source import Source  # noqa: PLC0415
        from bridge.verify.check import verify  # noqa: PLC0415
        from bridge.verify.export import read_answer  # noqa: PLC0415

        record = self._ledger.entry(name)
        if record is None or record.published is None:
            return None
        git = self._bus.git
        branch = self._keys.reader.read_branch(git, name, record.published)
        pin = Pin(self._keys.public, "this runner's key") if self._keys.signer else None
        report = verify(git, branch, self._presets, pin)
        result = report.result
        commit = subject_of(git, result.request, result.workload) if result and report.holds else None
        if result is None or commit is None:
            return None
        source = Source(name, result, report.checks, read_answer(git, branch, report))
        return commit, paragraph(source)
