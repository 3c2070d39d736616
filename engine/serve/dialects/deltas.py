"""Converts pieces of an answer into the fields of the APIs: deltas, messages, log-probabilities, usage."""

import asyncio
import secrets
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from typing import Any

from engine.serve.backend import Model, Piece
from engine.serve.formats.output_parser import Delta, OutputParser
from engine.serve.server import PendingAnswer


async def deltas(answer: PendingAnswer, parser: OutputParser) -> AsyncIterator[tuple[str, Any, Piece]]:
    """Yield a single answer in parts: ``text``, ``thinking``, ``call``, ``arguments``, and ``end`` with its reason.

    Each part comes with its piece. If one piece has several parts, only the first part's piece counts the tokens.
    """
    async for piece in answer.pieces():
        counted = piece
        for delta in feed(parser, piece):
            for kind, value in _events(delta):
                yield kind, value, counted
                counted = replace(piece, tokens=0)
        if piece.finish_reason:
            yield "end", finish(piece, parser), counted
        elif counted is piece:
            yield "nothing", None, counted


def _events(delta: Delta) -> Iterator[tuple[str, Any]]:
    for name, kind in (("content", "text"), ("reasoning_content", "thinking")):
        if name in delta:
            yield kind, delta[name]
    for call in delta.get("tool_calls", ()):
        function = call["function"]
        if "id" in call:
            yield "call", {"id": call["id"], "name": function["name"]}
        if function["arguments"]:
            yield "arguments", function["arguments"]


def logprobs_of(resident: Model, piece: Piece) -> list[dict[str, Any]]:
    """Return the log-probabilities of a piece in the form of chat answers."""

    def entry(token: int, logprob: float) -> dict[str, Any]:
        raw = resident.grammars.token_bytes(token)
        text = raw.decode("utf-8", "replace")
        return {"token": text, "logprob": max(logprob, -9999.0), "bytes": list(raw)}

    return [
        {**entry(token, logprob), "top_logprobs": [entry(*each) for each in best]}
        for token, logprob, best in piece.logprobs or []
    ]


def usage(prompt: int, completion: int, cached: int, thought: int = 0) -> dict[str, Any]:
    """Return the ``usage`` of an answer."""
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": {"cached_tokens": cached},
        "completion_tokens_details": {"reasoning_tokens": thought},
    }


async def tokens_in(resident: Model, texts: list[str]) -> int:
    """Return the number of tokens in texts. Another thread counts: somebody's long prompt may occupy the tokenizer."""
    texts = [text for text in texts if text]
    return sum([len(await asyncio.to_thread(resident.encode, text)) for text in texts])


def new_id(prefix: str) -> str:
    """Return an id for an answer."""
    return f"{prefix}-{secrets.token_hex(12)}"


def feed(parser: OutputParser, piece: Piece) -> list[Delta]:
    """Return the deltas of a piece."""
    return parser.add(piece.text, last=piece.finish_reason is not None, cut=piece.finish_reason == "length")


def finish(piece: Piece, parser: OutputParser) -> str:
    """Return the finish reason of a chat answer: a call that is not whole was cut, whatever ended it."""
    if parser.broken:
        return "length"
    return "tool_calls" if parser.calls and piece.finish_reason == "stop" else str(piece.finish_reason)


def merge(message: dict[str, Any], delta: Delta) -> None:
    """Add a delta to a message."""
    for name in ("content", "reasoning_content"):
        if name in delta:
            message[name] = (message.get(name) or "") + delta[name]
    for call in delta.get("tool_calls", ()):
        calls = message.setdefault("tool_calls", [])
        if "id" in call:
            calls.append({name: call[name] for name in ("id", "type", "function")})
        else:
            calls[call["index"]]["function"]["arguments"] += call["function"]["arguments"]
