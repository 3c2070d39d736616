"""Reads the content of a request's page: its verified answer, or the log of a running job."""

import threading
from collections import OrderedDict
from dataclasses import dataclass, is_dataclass

from bridge.bus import history, wire
from bridge.bus.history import RequestBranch
from bridge.checklist import Check
from bridge.common import limits, sanitize
from bridge.errors import InfrastructureError, VerificationError
from bridge.reports.readable import Readable, readable
from bridge.show.build import view_of
from bridge.show.model import RunView
from bridge.show.source import Source
from bridge.verify.answer_files import Contents, read_result
from bridge.verify.check import KnownAnswers, verify
from bridge.verify.export import read_answer
from bridge.verify.verdict import Conclusion
from bridge.web.snapshot import Row
from bridge.web.watch import Watch

# How many characters at the end of a log are on the request's page. The whole log is a separate page.
TAIL = 64 * 1024
MOST_LOG = 4 * limits.MIB
# How many commits are read at a time to collect a log, newest first.
_COMMITS, _AT_ONCE = 2_000, 16
# How many answers are cached, and about how many bytes of them. A larger answer is cached alone.
_MOST_CACHED, CACHE_BYTES = 64, 64 * limits.MIB
# About how many bytes an object takes besides its text.
_OBJECT_BYTES = 64


@dataclass(frozen=True)
class Answered:
    """The view of an answer, or why it cannot be read."""

    run: RunView | None
    checks: tuple[Check, ...]


@dataclass(frozen=True)
class LogText:
    """The end of a log as plain lines. ``cut``: the beginning is left out."""

    text: str
    cut: bool


class Runs:
    """Reads requests for pages. Answers are verified once and cached while there is room."""

    def __init__(self, watch: Watch) -> None:
        self._watch = watch
        # Cached answers, each with its approximate size in bytes.
        self._kept: OrderedDict[tuple[str, str], tuple[Answered, int]] = OrderedDict()
        # The conclusions of the answers that were verified so far.
        self._found: OrderedDict[tuple[str, str], Conclusion] = OrderedDict()
        # Incremented with each verified answer, so that a page can ask for news.
        self.version = 0
        self._lock = threading.Lock()
        # At most two answers are verified at a time: verifying reads all files of an answer.
        self._turn = threading.BoundedSemaphore(2)
        # At most two logs, which may be long, are read at a time.
        self._log_turn = threading.BoundedSemaphore(2)

    def shown(self, row: Row) -> Conclusion:
        """Return the verified conclusion about a request's answer, or its state if there is no answer."""
        return self._found.get((row.branch, row.request_branch.tip), row.status.shown)

    def answered(self, branch: RequestBranch) -> Answered:
        """Verify an answer and return its view."""
        key = (branch.name, branch.tip)
        with self._turn:
            with self._lock:
                if key in self._kept:
                    self._kept.move_to_end(key)
                    return self._kept[key][0]
            answer = self.load(branch)
            size = _size(answer)
            with self._lock:
                self._kept[key] = answer, size
                total = sum(each for _, each in self._kept.values())
                while len(self._kept) > 1 and (len(self._kept) > _MOST_CACHED or total > CACHE_BYTES):
                    total -= self._kept.popitem(last=False)[1][1]
        return answer

    def source(self, branch: RequestBranch) -> Source | None:
        """Verify an answer and return it with its reports, without caching it; None if it cannot be read."""
        with self._turn:
            return self._read(branch)[0]

    def load(self, branch: RequestBranch) -> Answered:
        """Verify an answer and return its view, without the cache."""
        source, checks = self._read(branch)
        return Answered(view_of([source]).runs[0] if source else None, checks)

    def _read(self, branch: RequestBranch) -> tuple[Source | None, tuple[Check, ...]]:
        watch = self._watch
        report = verify(watch.git, branch, watch.presets, watch.pin, watch.client.sent.commit_of(branch.name))
        with self._lock:
            report = KnownAnswers(watch.git, watch.client.place).compare(report)
            self._found[branch.name, branch.tip] = report.conclusion
            self.version += 1
            if len(self._found) > limits.BRANCHES:
                self._found.popitem(last=False)
        if report.result is None:
            return None, tuple(report.checks)
        files = read_answer(watch.git, branch, report)
        return Source(branch.name, report.result, report.checks, files), tuple(report.checks)

    def log(self, branch: RequestBranch, most: int = TAIL) -> LogText:
        """Return the end of the answer's log or, without an answer, of the streamed output."""
        with self._log_turn:
            is_final = branch.current_state.is_final
            # Of a log that grows, the beginning of a line of digests waits for its end.
            shown = (
                readable(self._kept_log(branch)) if is_final else Readable().add(self._streamed(branch, most))
            )
            raw = shown[-most:]
            text = sanitize.log(raw)
            return LogText(text[-most:], cut=len(raw) >= most)

    def _kept_log(self, branch: RequestBranch) -> str:
        try:
            result = read_result(self._watch.git, branch)
            contents = Contents.of(self._watch.git, branch.tip, result)
        except (VerificationError, InfrastructureError):
            return ""
        read = contents.read([log.path for log in result.logs], limits.LOG_BYTES)
        return "".join(blob.decode("utf-8", "replace") for blob in read.values())

    def _streamed(self, branch: RequestBranch, most: int) -> str:
        git, size = self._watch.git, 0
        lines: list[str] = []
        commits = history.commits_between(git, branch.request, branch.tip)[::-1][:_COMMITS]
        own = branch.name, branch.request
        previous: bytes | None = None
        for i in range(0, len(commits), _AT_ONCE):
            some = list(history.read_states(git, commits[i : i + _AT_ONCE], wire.STREAM))
            for _, state, (raw, piece) in some:
                # A commit that no runner made still contains the piece of its parent.
                if state is None or raw == previous or (state.branch, state.request) != own:
                    continue
                previous = raw
                gap = f"\n[{state.left_out} bytes were not streamed]\n" if state.left_out else ""
                lines.append(gap + (piece or b"").decode("utf-8", "replace"))
                size += len(lines[-1])
            if size >= most:
                break
        return "".join(reversed(lines))


def _size(root: object) -> int:
    size, pending = 0, [root]
    while pending:
        item = pending.pop()
        size += _OBJECT_BYTES
        if isinstance(item, str):
            size += len(item)
        elif isinstance(item, tuple):
            pending += item
        elif is_dataclass(item):
            pending += vars(item).values()
    return size
