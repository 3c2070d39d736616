"""Bounds answers to an agent's context, and removes invisible characters from untrusted text."""

import json
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from bridge.common import sanitize
from bridge.common.advice import Door, printed
from bridge.errors import KakeyaError
from bridge.mcp.models import Answer
from bridge.reports.readable import readable

MOST_BYTES = 2048

# Limit of one text in an answer; logs have their own limit.
_LINE_BYTES = 300
# Limit of each text of an error.
_ERROR_BYTES = 600

_Item = TypeVar("_Item")


def to_dict(answer: Answer) -> dict[str, Any]:
    """Return an answer as JSON values."""
    return answer.model_dump(mode="json", exclude_none=True)


def size(answer: Answer) -> int:
    """Return the size of an answer's JSON in bytes."""
    return len(text_of(to_dict(answer)).encode())


def text_of(value: object) -> str:
    """Return a value as the JSON that agents read."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def short(text: str, most: int = _LINE_BYTES) -> str:
    """Return text from the bus as one line without control characters, with a limited number of bytes as JSON."""
    line = sanitize.line(sanitize.strip_ansi(text))
    return line if cut(line, most, most) == line else cut(line, most, most - 3) + "..."


def error_fields(error: KakeyaError) -> dict[str, object]:
    """Return an error as ``--json`` prints it, cut to the limits, with quoted text from others in a separate field."""
    quoted = {"untrusted_error": error.quoting} if error.quoting else {}
    return {
        name: short(value, _ERROR_BYTES) if isinstance(value, str) else value
        for name, value in {
            **error.as_dict(),
            "error": error.own_message,
            "fix": printed(error.fix, Door.MCP),
            **quoted,
        }.items()
    }


def page(items: Sequence[_Item], offset: int, make: Callable[[list[_Item], int | None], Answer]) -> Answer:
    """Return an answer with as many items as fit, beginning at ``offset``, and the offset of the next item."""
    included: list[_Item] = []
    answer = make([], None)
    for i, item in enumerate(items[offset:], offset):
        fuller = make([*included, item], i + 1 if i + 1 < len(items) else None)
        if included and size(fuller) > MOST_BYTES:
            break
        included, answer = [*included, item], fuller
    return answer


def log_text(raw: str, *, whole: bool) -> str:
    """Return a job's log, sanitised for an agent, without lines of digests.

    While the log grows, an incomplete last line is left out.

    Later output never changes earlier lines, so offsets into the text stay valid while the log grows.
    """
    plain = sanitize.log(raw)
    return readable(plain if whole else plain[: plain.rfind("\n") + 1])


def cut(text: str, limit: int, room: int) -> str:
    """Return the beginning of a text: at most ``limit`` characters and ``room`` bytes of JSON."""
    for i, character in enumerate(text[:limit]):
        room -= len(json.dumps(character, ensure_ascii=False).encode("utf-8", "replace")) - 2
        if room < 0:
            return text[:i]
    return text[:limit]
