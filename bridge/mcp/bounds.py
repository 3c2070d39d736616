"""Answers that fit into an agent's context, and text from strangers that cannot steer it by invisible means."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from bridge import clean
from bridge.mcp.models import Answer

MOST_BYTES = 2048

# Of one text in an answer; a log has its own bound.
_LINE_BYTES = 300

# Terminal escape sequences: CSI, OSC and similar ones, and sequences of two characters. A runner replaces their control
# characters by pictures of them. A sequence that is cut off at the end counts too, so that the beginning of a growing
# log always reads the same.
_STEERING = re.compile(
    r"[\x1b\u241b](?:\[[0-?]*[ -/]*(?:[@-~]|\Z)|[]PX^_][^\x07\u2407\x1b\u241b\n]*(?:[\x07\u2407]|[\x1b\u241b]\\|\Z)"
    r"|[ -/]*(?:[0-~]|\Z))"
)

_Item = TypeVar("_Item")


def to_dict(answer: Answer) -> dict[str, Any]:
    """Return an answer as JSON holds it."""
    return answer.model_dump(mode="json", exclude_none=True)


def size(answer: Answer) -> int:
    """Return how many bytes an answer's JSON has."""
    return len(text_of(to_dict(answer)).encode())


def text_of(value: object) -> str:
    """Return a value as the JSON that agents read."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def short(text: str, most: int = _LINE_BYTES) -> str:
    """Return text from the bus as one line of at most so many bytes of JSON, in which nothing steers."""
    line = clean.line(strip_ansi(text))
    return line if cut(line, most, most) == line else cut(line, most, most - 3) + "..."


def page(items: Sequence[_Item], offset: int, make: Callable[[list[_Item], int | None], Answer]) -> Answer:
    """Return the answer with as many items from `offset` on as fit, and where the next one begins."""
    taken: list[_Item] = []
    answer = make([], None)
    for i, item in enumerate(items[offset:], offset):
        fuller = make([*taken, item], i + 1 if i + 1 < len(items) else None)
        if taken and size(fuller) > MOST_BYTES:
            break
        taken, answer = [*taken, item], fuller
    return answer


def strip_ansi(text: str) -> str:
    """Return text without what a terminal would obey. Text from strangers may still hold control characters."""
    return _STEERING.sub("", text)


def log_text(raw: str, *, whole: bool) -> str:
    """Return a job's log as an agent may read it. Of one that still grows, the last line is left out until it is whole.

    What follows a line never changes how that line reads, so offsets into the text stay valid while the log grows.
    """
    plain = clean.block(re.sub(r"\r+\n?", "\n", strip_ansi(raw)))
    return plain if whole else plain[: plain.rfind("\n") + 1]


def cut(text: str, limit: int, room: int) -> str:
    """Return the beginning of a text: at most `limit` characters, and `room` bytes as JSON holds them."""
    for i, character in enumerate(text[:limit]):
        room -= len(json.dumps(character, ensure_ascii=False).encode("utf-8", "replace")) - 2
        if room < 0:
            return text[:i]
    return text[:limit]
