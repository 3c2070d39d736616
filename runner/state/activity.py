"""Writes what the runner is doing to a small file, which ``kakeya-runner status`` reads without the runner's lock."""

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any

from bridge.errors import one_line
from bridge.manifest import format_time
from bridge.system import local_files

NAME = "status.json"

_ANSWERS = 10
# Fields that every version has written.
_ALWAYS = {"pid", "serving", "written_at", "answers"}
_SHOWN = 50


def now() -> str:
    """Return the current time in the format of all files."""
    return format_time(datetime.now(UTC))


@dataclass
class Facts:
    """The content of the status file. Text that came from the bus is cut to one short line each."""

    pid: int = 0
    serving: bool = False
    started_at: str = ""
    written_at: str = ""
    # Facts from the start of the process, such as the sandbox in use.
    about: dict[str, Any] = field(default_factory=dict)
    # The time of the last successful poll; None before the first one.
    last_poll_at: str | None = None
    # The current fault of the bus or this host, and since when; None without a fault.
    trouble: dict[str, str] | None = None
    job: dict[str, Any] | None = None
    # The operator's order (serving, maintenance or draining) and its reason.
    mode: str = "serving"
    mode_reason: str = ""
    # The number of waiting requests; and the branch and the reason of the first of them.
    waiting: int = 0
    queue: list[dict[str, str]] = field(default_factory=list)
    answers: list[dict[str, Any]] = field(default_factory=list)


class StatusFile:
    """Writes facts about this process to the status file. Write errors are ignored."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        before = read_facts(folder)
        self.facts = Facts(pid=os.getpid(), started_at=now(), answers=before.answers if before else [])

    def set_serving(self, *, serving: bool, **about: Any) -> None:
        """Record that the loop begins or has ended."""
        self.facts.serving = serving
        self.facts.about |= about
        self._write()

    def set_mode(self, mode: str, reason: str) -> None:
        """Record the operator's order if it changed."""
        if (mode, reason) != (self.facts.mode, self.facts.mode_reason):
            self.facts.mode, self.facts.mode_reason = str(mode), one_line(reason)
            self._write()

    def record_poll(self, queue: Mapping[str, str], fault: str = "") -> None:
        """Record a successful poll, why each waiting request waits, and the fault that keeps some waiting, if any."""
        self.facts.last_poll_at = now()
        self._set_trouble(fault)
        self.facts.waiting = len(queue)
        shown = islice(queue.items(), _SHOWN)
        self.facts.queue = [{"branch": one_line(name), "why": one_line(reason)} for name, reason in shown]
        self._write()

    def record_failure(self, reason: str) -> None:
        """Record that the bus cannot be reached, or that this host cannot run jobs."""
        self._set_trouble(reason)
        self._write()

    def _set_trouble(self, reason: str) -> None:
        since = self.facts.trouble["since"] if self.facts.trouble else now()
        self.facts.trouble = {"since": since, "message": one_line(reason)} if reason else None

    @property
    def trouble(self) -> str:
        """The current fault; empty without one."""
        return self.facts.trouble["message"] if self.facts.trouble else ""

    def record_job_start(self, branch: str, description: str) -> None:
        """Record that a job was claimed."""
        self.facts.job = {"branch": branch, "what": one_line(description), "since": now(), "step": None}
        self._write()

    def record_step(self, step: int) -> None:
        """Record which step runs."""
        if self.facts.job is not None:
            self.facts.job["step"] = step
        self._write()

    def record_job_end(self) -> None:
        """Record that no job runs any more."""
        self.facts.job = None
        self._write()

    def record_answer(
        self,
        branch: str,
        description: str,
        state: str,
        reason: str,
        seconds: float,
        *,
        published: bool,
        signed: bool = True,
    ) -> None:
        """Record an answer, published or kept for later."""
        answer = {
            "at": now(), "branch": branch, "what": one_line(description), "state": state, "reason": one_line(reason),
            "seconds": round(seconds, 1), "published": published,
            "signed": signed,
        }  # fmt: skip
        self.facts.answers = [answer, *self.facts.answers][:_ANSWERS]
        self._write()

    def _write(self) -> None:
        self.facts.written_at = now()
        with suppress(OSError):
            local_files.replace(self._folder / NAME, json.dumps(asdict(self.facts)))


def read_facts(folder: Path) -> Facts | None:
    """Return what the last runner of this state folder wrote, or None if there is no readable file."""
    try:
        members = json.loads((folder / NAME).read_text(encoding="utf-8"))
        known = {member.name: members[member.name] for member in fields(Facts) if member.name in members}
        return Facts(**known) if known.keys() >= _ALWAYS else None
    except (OSError, ValueError, TypeError, KeyError):
        return None
