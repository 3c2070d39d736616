"""Remembers which answers were verified in this clone, because an answer is final: one that changes later was replaced.

Each is noted by its branch and the id of its result in a file of the clone, for the newest requests.
"""

from __future__ import annotations

import re
from dataclasses import replace

from bridge.bus import lookup, wire
from bridge.checks import Check
from bridge.system.git import Git
from bridge.system.local_files import NoteFile
from bridge.verify.check import Report

_NAME = "kakeya-answers"
_MOST = 1_000
_LINE = re.compile(r"([0-9a-f]{40}) (\S+)")


class KnownAnswers:
    """The answers that were verified in one clone."""

    def __init__(self, git: Git) -> None:
        self._git = git
        self._file = NoteFile(git, _NAME, _LINE, _MOST)

    def compare(self, report: Report) -> Report:
        """Note an answer that holds. If another one was noted for its branch, return the report with a failed check.

        An answer that a pinned key signed needs no such check: the key says more than what came first.
        """
        name = f"{report.tip}:{wire.RESULT}"
        entry = lookup.locate(self._git, [name]).get(name)
        if entry is None or not report.holds:
            return report
        before = self.of(report.branch)
        if before == entry.oid:
            return report
        if before is not None and not report.signed:
            message = (
                f"another answer was verified here before, with the result {before[:12]}: it was replaced"
            )
            return replace(report, checks=[*report.checks, Check("known", ok=False, message=message)])
        self.note(report.branch, entry.oid)
        return report

    def of(self, branch: str) -> str | None:
        """Return the id of the result that was noted for a branch, or None."""
        return self._read().get(branch)

    def note(self, branch: str, result: str) -> None:
        """Note the id of a result. In a repository that cannot be written to, nothing is noted."""
        noted = {**self._read(), branch: result}
        self._file.write(f"{oid} {name}" for name, oid in noted.items())

    def _read(self) -> dict[str, str]:
        """Return the noted ids by branch, oldest first."""
        return {branch: result for result, branch in self._file.read()}
