"""What a runner is doing, in a small file that `kakeya-runner status` reads beside it, without its lock."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bridge.errors import one_line
from bridge.manifest import format_time

NAME = "status.json"

_ANSWERS = 10
_SHOWN = 50


def now() -> str:
    """Return the time as it is written everywhere."""
    return format_time(datetime.now(UTC))


@dataclass
class Facts:
    """What the file holds. All of it is what the runner itself saw; text of strangers is one bounded line each."""

    pid: int = 0
    serving: bool = False
    started_at: str = ""
    written_at: str = ""
    # What was found out at the start: the sandbox that is in use.
    about: dict[str, Any] = field(default_factory=dict)
    # None where no poll has succeeded yet.
    last_poll_at: str | None = None
    # What is wrong with the bus or this host since when; None if nothing is.
    trouble: dict[str, str] | None = None
    job: dict[str, Any] | None = None
    # How many requests wait, and of the first of them the branch and why it waits.
    waiting: int = 0
    queue: list[dict[str, str]] = field(default_factory=list)
    answers: list[dict[str, Any]] = field(default_factory=list)


class Standing:
    """The facts of this process. Without a folder nothing is written; a file that cannot be written stops nothing."""

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder
        before = read_facts(folder) if folder else None
        self.facts = Facts(pid=os.getpid(), started_at=now(), answers=before.answers if before else [])

    def serves(self, *, serving: bool, **about: Any) -> None:
        """Note that the loop begins or has ended."""
        self.facts.serving = serving
        self.facts.about |= about
        self._write()

    def polled(self, queue: Mapping[str, str]) -> None:
        """Note a poll that succeeded, and of each request that waits why it does."""
        self.facts.last_poll_at, self.facts.trouble = now(), None
        self.facts.waiting = len(queue)
        self.facts.queue = [
            {"branch": one_line(branch), "why": one_line(why)} for branch, why in list(queue.items())[:_SHOWN]
        ]
        self._write()

    def failed(self, why: str) -> None:
        """Note that the bus cannot be reached, or that this host cannot be worked on."""
        since = self.facts.trouble["since"] if self.facts.trouble else now()
        self.facts.trouble = {"since": since, "message": one_line(why)}
        self._write()

    def began(self, branch: str, what: str) -> None:
        """Note that a job was claimed."""
        self.facts.job = {"branch": branch, "what": one_line(what), "since": now(), "step": None}
        self._write()

    def steps(self, step: int) -> None:
        """Note which step runs, or that it still does."""
        if self.facts.job is not None:
            self.facts.job["step"] = step
        self._write()

    def ended(self) -> None:
        """Note that no job runs any more."""
        self.facts.job = None
        self._write()

    def answered(
        self, branch: str, what: str, state: str, reason: str, seconds: float, *, published: bool
    ) -> None:
        """Note an answer, published or kept."""
        answer = {
            "at": now(), "branch": branch, "what": one_line(what), "state": state, "reason": one_line(reason),
            "seconds": round(seconds, 1), "published": published,
        }  # fmt: skip
        self.facts.answers = [answer, *self.facts.answers][:_ANSWERS]
        self._write()

    def _write(self) -> None:
        if self._folder is None:
            return
        self.facts.written_at = now()
        with suppress(OSError):
            handle, name = tempfile.mkstemp(dir=self._folder, prefix=f".{NAME}.")
            try:
                with os.fdopen(handle, "w", encoding="utf-8") as file:
                    json.dump(asdict(self.facts), file)
                Path(name).replace(self._folder / NAME)
            except OSError:
                Path(name).unlink(missing_ok=True)
                raise


def read_facts(folder: Path) -> Facts | None:
    """Return what the last runner that used this state folder wrote, None if that is nothing, or nothing readable."""
    try:
        found = json.loads((folder / NAME).read_text(encoding="utf-8"))
        return Facts(**{one.name: found[one.name] for one in fields(Facts)})
    except (OSError, ValueError, TypeError, KeyError):
        return None
