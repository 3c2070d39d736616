"""``POST /v1/completions``: continues a text, as one object or as a stream."""

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from typing import Any

from engine.dflash.text import Detokenizer
from engine.errors import BadInput
from engine.serve.backend import Model, Piece
from engine.serve.dialects.chat import of_format
from engine.serve.dialects.deltas import new_id, usage
from engine.serve.errors import ApiError, own_names, unsupported
from engine.serve.http.streams import DONE, event
from engine.serve.http.streams import failed as failed  # noqa: PLC0414 - part of a dialect
from engine.serve.protocol import CompletionRequest
from engine.serve.server import PendingAnswer, Server


@dataclass
class Completion:
    """A completion request in progress."""

    request: CompletionRequest
    resident: Model
    pending: PendingAnswer
    texts: list[Detokenizer]  # of each answer: what makes its tokens text
    offsets: list[int]  # the length of each answer's text so far
    cached: list[int]  # for each prompt, the tokens that came from the prefix cache in any of its answers

    def ended(self, piece: Piece) -> None:
        """Record the report in the last piece of an answer."""
        at = piece.index // (self.request.n or 1)
        self.cached[at] = max(self.cached[at], piece.report["cached_tokens"])

    def usage(self, tokens: int) -> dict[str, Any]:
        """Return the usage, given the number of generated tokens."""
        return usage(self.pending.prompt_tokens, tokens, sum(self.cached))


async def begin(server: Server, request: CompletionRequest) -> Completion:
    """Queue the answers to a request; ApiError if it cannot be served."""
    with own_names({"messages": "prompt"}):
        return await _begin(server, request)


async def _begin(server: Server, request: CompletionRequest) -> Completion:
    for name in ("echo", "suffix"):
        if getattr(request, name):
            raise unsupported(name)
    if request.best_of not in (None, 1, request.n):
        raise unsupported("best_of")
    chosen = server.choose(request)
    resident = await server.resident(chosen)
    prompts = await asyncio.to_thread(_prompts, request, resident)
    longest = max(prompts, key=len)
    options = server.options(request, chosen, resident, longest, request.max_tokens or 16)
    format_grammar = await of_format(request.response_format, resident)
    options = replace(options, logprobs=request.logprobs, grammar=format_grammar)
    answer = PendingAnswer(server, chosen, prompts, options, request)
    texts = [Detokenizer(resident.tokenizer) for _ in answer.jobs]
    return Completion(request, resident, answer, texts, [0] * len(texts), [0] * len(prompts))


def _prompts(request: CompletionRequest, resident: Model) -> list[list[int]]:
    prompt: Any = request.prompt
    if isinstance(prompt, str) or (prompt and isinstance(prompt[0], int)):
        prompt = [prompt]
    try:
        prompts = [resident.encode(each, begins=True) if isinstance(each, str) else each for each in prompt]
    except BadInput as error:
        raise ApiError(400, f"{error.message}; {error.fix}.", param="prompt", code="invalid_value") from error
    for ids in prompts:
        if not ids:
            raise ApiError(400, "The prompt is empty.", param="prompt", code="invalid_value")
        resident.check(ids, "prompt")
    return prompts


async def whole(completion: Completion) -> dict[str, Any]:
    """Return the answer in one object."""
    count = len(completion.pending.jobs)
    choices: list[dict[str, Any]] = [{"index": i, "text": "", "logprobs": None} for i in range(count)]
    tokens = 0
    async for piece in completion.pending.pieces():
        choice = choices[piece.index]
        tokens += piece.tokens
        choice["text"] += piece.text
        if piece.logprobs is not None:
            more = _logprobs(completion, piece)
            known = choice["logprobs"] or {name: [] for name in more}
            choice["logprobs"] = {name: known[name] + more[name] for name in more}
        if piece.finish_reason:
            choice["finish_reason"], choice["x_kakeya"] = piece.finish_reason, piece.report
            completion.ended(piece)
    return {
        **_head(completion),
        "choices": choices,
        "usage": completion.usage(tokens),
        "x_kakeya": choices[0]["x_kakeya"],
    }


async def streamed(completion: Completion) -> AsyncIterator[bytes]:
    """Yield the answer's events."""
    head, tokens = _head(completion), 0
    async for piece in completion.pending.pieces():
        tokens += piece.tokens
        choice: dict[str, Any] = {
            "index": piece.index,
            "text": piece.text,
            "logprobs": _logprobs(completion, piece) if piece.logprobs is not None else None,
            "finish_reason": piece.finish_reason,
        }
        if piece.report:
            choice["x_kakeya"] = piece.report
        if piece.finish_reason:
            completion.ended(piece)
        live = {"usage": completion.usage(tokens)} if completion.request.live else {}
        yield event({**head, "choices": [choice], **live})
    options = completion.request.stream_options
    if options and options.include_usage:
        yield event({**head, "choices": [], "usage": completion.usage(tokens)})
    yield event(DONE)


def _head(completion: Completion) -> dict[str, Any]:
    about = {"id": new_id("cmpl"), "object": "text_completion", "created": int(time.time())}
    return {**about, "model": completion.pending.model}


def _logprobs(completion: Completion, piece: Piece) -> dict[str, list[Any]]:
    """Return the log-probabilities of a piece in the form of text completions."""
    text, at = completion.texts[piece.index], completion.offsets[piece.index]

    def name_of(token: int) -> str:
        """Return a token's text. One that is a part of a character has OpenAI's name, because U+FFFD is no key."""
        raw = completion.resident.grammars.token_bytes(token)
        try:
            return raw.decode()
        except UnicodeDecodeError:
            return "bytes:" + "".join(f"\\x{byte:02x}" for byte in raw)

    names = ("tokens", "token_logprobs", "top_logprobs", "text_offset")
    columns: dict[str, list[Any]] = {name: [] for name in names}
    for token, logprob, best in piece.logprobs or []:
        name, more = name_of(token), len(text.add([token]))
        columns["tokens"].append(name)
        columns["token_logprobs"].append(max(logprob, -9999.0))
        columns["top_logprobs"].append({name_of(each): max(value, -9999.0) for each, value in best})
        columns["text_offset"].append(at + max(0, more - len(name)))  # behind characters that were given up
        at += more
    completion.offsets[piece.index] = at
    return columns
