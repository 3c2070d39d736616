"""Reads a request's log: the pieces streamed while the job runs, or the complete log in its answer."""

from __future__ import annotations

from collections.abc import Iterator

from bridge.bus.history import View
from bridge.common import limits
from bridge.errors import UsageError
from bridge.requests.status import events
from bridge.system.git import Git
from bridge.verify.answer_files import Contents, read_result


def streamed_log(git: Git, view: View) -> str:
    """Return the output streamed so far, up to the limit for logs."""
    return "".join(_bounded(event.log for event in events(git, view, None)))


def kept_log(git: Git, view: View) -> str:
    """Return the log in an answer.

    Raises:
        UsageError: it is larger than the limit for logs.
    """
    result = read_result(git, view)
    paths = [log.path for log in result.logs]
    contents = Contents.of(git, view.tip, result)
    if sum(contents.files[path].size for path in paths if path in contents.files) > limits.LOG_BYTES:
        message = f"the log is larger than {limits.LOG_BYTES >> 20} MiB"
        raise UsageError(message, fix=f"Write it to disk: kakeya fetch {view.branch}", code="too_large")
    read = contents.read(paths, limits.LOG_BYTES)
    return b"".join(read.get(path, b"") for path in paths).decode("utf-8", "replace")


def _bounded(pieces: Iterator[str]) -> Iterator[str]:
    remaining = limits.LOG_BYTES
    for piece in pieces:
        remaining -= len(piece)
        yield piece if remaining >= 0 else ""
