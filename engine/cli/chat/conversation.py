"""A conversation with a model of the server, which runs in this process and without HTTP.

So prompts, drafts, caches, thoughts and limits are those of ``kakeya-engine serve``.
"""

import asyncio
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any, NamedTuple

from bridge.common.cli.output import is_read_by_people
from bridge.common.errors import ExitCode
from engine.cli.chat.screen import Screen, note
from engine.cli.serve import settings_of
from engine.errors import BadInput, EngineError
from engine.serve.backend import Model, Piece
from engine.serve.dialects import chat, deltas
from engine.serve.errors import ApiError
from engine.serve.main import BACKENDS
from engine.serve.protocol import ChatRequest
from engine.serve.server import Server

DAY = 86_400.0
TEMPERATURE = 0.7  # of models that name none
TOO_LONG = "context_length_exceeded"


class Opened(NamedTuple):
    """A server with one loaded model, and the event loop for its answers."""

    server: Server
    model: Model
    name: str  # of the model, in requests
    loop: asyncio.Runner


@contextmanager
def opened(reference: str, **options: Any) -> Iterator[Opened]:
    """Load a model with options of ``settings_of``, and stop its engine after the block.

    Raises:
        EngineError: it cannot be loaded.
    """
    settings = settings_of(
        models=(reference,), api_key=None, host="127.0.0.1", max_active=1, request_seconds=DAY, **options
    )
    server = Server(settings, import_module(BACKENDS[settings.backend]).start)
    name, wanted = next(iter(server.names.items()))
    server.engine.start()
    try:
        if is_read_by_people(err=True):
            note(f"loading {name}")
        model = server.engine.load(wanted).result()
    except KeyboardInterrupt:  # nothing can interrupt the loading
        note("interrupted")
        os._exit(ExitCode.INTERRUPTED)
    except BaseException:
        server.engine.stop()
        raise
    for library in ("engine.serve", "transformers"):  # a log would stand in the middle of an answer
        logging.getLogger(library).setLevel(logging.ERROR)
    try:
        with asyncio.Runner() as loop:
            yield Opened(server, model, name, loop)
    finally:
        server.engine.stop()


class Conversation:
    """The turns so far, and the settings of the next answer. ``fields`` are part of every request."""

    def __init__(self, served: Opened, system: str | None, fields: dict[str, Any]) -> None:
        self._served = served
        self._fields = {
            "model": served.name,
            **{key: value for key, value in fields.items() if value is not None},
        }
        self._fields.setdefault("temperature", served.model.sampling.get("temperature", TEMPERATURE))
        self._system = [] if system is None else [{"role": "system", "content": system}]
        self._turns: list[dict[str, str]] = []
        self._last: tuple[int, int, Piece] | None = (
            None  # tokens of the prompt and the answer, and the last piece
        )

    @property
    def about(self) -> str:
        """The model and its context."""
        model = self._served.model
        drafter = ", with a drafter" if model.drafted else ""
        return f"{self._served.name}, {model.context} tokens of context{drafter}"

    def clear(self) -> None:
        """Forget all turns but the system message."""
        self._turns, self._last = [], None

    def stats(self) -> str:
        """Return figures of the last answer."""
        if self._last is None:
            return "There is no answer yet."
        prompt, tokens, piece = self._last
        report, context = piece.report, self._served.model.context
        cached, seconds = report["cached_tokens"], report["prefill_seconds"]
        speed = f" at {tokens / report['decode_seconds']:.1f} tokens/s" if report["decode_seconds"] else ""
        drafts = f"drafts   {report['draft']}"
        if report["proposed"]:
            drafts += f", {report['accepted'] / report['proposed']:.0%} of {report['proposed']} accepted"
        return "\n".join(
            (
                f"answer   {tokens} tokens{speed}",
                f"prompt   {prompt} tokens, {cached} known from before, read in {seconds:.2f} s",
                drafts,
                f"cache    {report['cache']}, {report['cache_bytes'] / 1e6:.2f} MB",
                f"context  {prompt + tokens} of {context} tokens used",
            )
        )

    def answer_once(self, text: str) -> None:
        """Print the answer to the only message; EngineError if there is none."""
        try:
            self._answer(text)
        except ApiError as error:
            raise BadInput(error.message.rstrip("."), "") from error

    def answer(self, text: str) -> None:
        """Print the answer to a message. Ctrl-C cancels it, and errors are printed.

        Raises:
            EngineError: the engine has failed, so there is no answer to any other message.
        """
        before = len(self._turns)
        try:
            self._answer(text)
        except KeyboardInterrupt:
            cut = len(self._turns) > before
            note("Cancelled." if cut else "\nCancelled; the message is forgotten, because it has no answer.")
        except ApiError as error:
            if error.code == TOO_LONG:
                note(
                    f"With this message the conversation exceeds {self._served.model.context} tokens, the model's "
                    "context, so it was not sent. /clear begins a new conversation."
                )
            elif error.status >= 500:  # noqa: PLR2004 - the engine's own failures
                raise EngineError(error.message.rstrip("."), "begin the chat again") from error
            else:
                note(f"error: {error.message}")

    def _answer(self, text: str) -> None:
        """Print an answer, and add both to the conversation, unless there is no text of an answer."""
        screen, parts, before = Screen(), list[str](), len(self._turns)
        self._turns.append({"role": "user", "content": text})
        complete = False
        try:
            self._served.loop.run(self._stream(screen, parts))
            complete = True
        finally:
            screen.end()
            if complete or parts:
                self._turns.append({"role": "assistant", "content": "".join(parts)})
            else:
                del self._turns[before:]

    async def _stream(self, screen: Screen, parts: list[str]) -> None:
        request = ChatRequest.model_validate({**self._fields, "messages": self._system + self._turns})
        begun = await chat.begin(self._served.server, request)
        tokens = 0
        try:
            async for kind, value, piece in deltas.deltas(begun.pending, begun.new_parser()):
                tokens += piece.tokens
                if kind in ("text", "thinking"):
                    screen.add(kind, value)
                if kind == "text":
                    parts.append(value)
                if kind == "end":
                    self._last = begun.pending.prompt_tokens, tokens, piece
                    self._explain(value, begun.pending.prompt_tokens + tokens, screen)
        finally:
            begun.pending.cancel()

    def _explain(self, reason: str, used: int, screen: Screen) -> None:
        """Say why an answer was cut."""
        if reason != "length":
            return
        screen.end()
        if used >= self._served.model.context:
            note(
                f"The context of {self._served.model.context} tokens is full. /clear begins a new conversation."
            )
        else:
            note(f"The answer was cut at {self._fields['max_tokens']} tokens (--max-tokens).")
