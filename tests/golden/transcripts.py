"""Event streams of a real server process over the bundled model ``tiny``, in float32 on the CPU and without sampling.

Chunk boundaries depend on how fast rounds are, so consecutive events that differ only in their text are joined.
"""

from __future__ import annotations

import copy
import json
import re
import tempfile
from pathlib import Path
from typing import Any

from tests.engine.serve.world import Process, serving
from tests.golden.requests import REQUESTS

# Fields whose values are times, or depend on them.
_TIMES = {"created", "created_at", "completed_at", "prefill_seconds", "decode_seconds", "difference"}
# With adaptive drafts (the default) the measured speed decides what is drafted; the tokens stay the same.
_ADAPTIVE = {"draft", "rounds", "proposed", "accepted", "accept_length", "cache_bytes"}
_ID = re.compile(r"(chatcmpl|cmpl|call|resp|msg|fc|rs|toolu)[-_][0-9A-Za-z]{8,}")
_COMPLETION = ("choices", 0, "text")
# Where a delta's text is, by API.
_TEXTS = (
    ("choices", 0, "delta", "content"),
    ("choices", 0, "delta", "tool_calls", 0, "function", "arguments"),
    _COMPLETION,
    ("delta", "text"),
    ("delta", "partial_json"),
    ("delta",),
)


def texts() -> dict[str, str]:
    """Return the transcripts of all requests, sent one after the other to one server."""
    with tempfile.TemporaryDirectory() as folder, serving(Path(folder), "--device", "cpu") as server:
        parts = [_transcript(server, *request) for request in REQUESTS]
    return {"transcripts.txt": "\n".join(parts)}


def _transcript(server: Process, path: str, body: dict[str, Any]) -> str:
    response = server.http.post(path, json={"model": "tiny", "stream": True, "temperature": 0, **body})
    adaptive = body.get("x_kakeya", {}).get("draft", "auto") == "auto"
    head = [f"POST {path} {json.dumps(body)}", f"{response.status_code} {response.headers['content-type']}"]
    alive = (":", "event: ping")  # on a busy machine
    blocks = [_parse(block) for block in response.text.split("\n\n") if block and not block.startswith(alive)]
    lines = [
        f"{name}{json.dumps(_normal(data, adaptive), ensure_ascii=False)}" for name, data in _joined(blocks)
    ]
    return _with_stable_ids("\n".join([*head, *lines])) + "\n"


def _parse(block: str) -> tuple[str, Any]:
    """Return the prefix that names an event, and its data."""
    *names, data = block.split("\n")
    text = data.removeprefix("data: ")
    return "".join(f"{name} " for name in names), text if text == "[DONE]" else json.loads(text)


def _joined(events: list[tuple[str, Any]]) -> list[tuple[str, Any]]:
    """Join consecutive deltas that differ only in their text, and leave out numbers that count events."""
    joined: list[tuple[str, Any]] = []
    for name, data in events:
        if isinstance(data, dict):
            data.pop("sequence_number", None)
        keys = _text_keys(data)
        if joined and keys and joined[-1][0] == name and _text_keys(joined[-1][1]) == keys:
            before, after = _get(joined[-1][1], keys), _get(data, keys)
            same = _without(joined[-1][1], keys) == _without(data, keys)
            # The last round's text of a completion comes in the event that ends it.
            if same or keys == _COMPLETION:
                _set(data, keys, before + after)
                joined.pop()
        joined.append((name, data))
    return joined


def _without(data: Any, keys: tuple[str | int, ...]) -> Any:
    """Return an event without its text."""
    rest = copy.deepcopy(data)
    _set(rest, keys, "")
    return rest


def _text_keys(data: Any) -> tuple[str | int, ...] | None:
    """Return where an event's delta has its text; None if it has none or says more than that."""
    return next((keys for keys in _TEXTS if isinstance(_get(data, keys), str)), None)


def _get(data: Any, keys: tuple[str | int, ...]) -> Any:
    for key in keys:
        try:
            data = data[key]
        except (KeyError, IndexError, TypeError):
            return None
    return data


def _set(data: Any, keys: tuple[str | int, ...], text: str) -> None:
    _get(data, keys[:-1])[keys[-1]] = text


def _normal(data: Any, adaptive: bool) -> Any:
    """Replace values that differ between two runs of the same server."""
    if isinstance(data, list):
        return [_normal(each, adaptive) for each in data]
    if not isinstance(data, dict):
        return data
    replaced = _TIMES | (_ADAPTIVE if adaptive and "token_digest" in data else set())
    return {
        key: key.upper()
        if key in replaced and (value is not None or key in _ADAPTIVE)
        else _normal(value, adaptive)
        for key, value in data.items()
    }


def _with_stable_ids(text: str) -> str:
    """Number the ids of each kind in the order in which they appear."""
    known: dict[str, str] = {}
    return _ID.sub(lambda match: known.setdefault(match[0], f"{match[1]}-{len(known)}"), text)
