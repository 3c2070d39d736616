"""Finds out where a prompt ends: inside a thought, a call or a text of the model, which the answer continues."""

from contextlib import suppress
from typing import Any, NamedTuple

from engine.serve.backend import Model
from engine.serve.errors import ApiError
from engine.serve.formats import harmony
from engine.serve.formats.template import Turn
from engine.tokens import Tokenizer


class Prompt(NamedTuple):
    """The text that the model reads."""

    text: str
    begun: str  # what it has of the answer's turn, if that decides what the answer begins with


def is_only_thought(turn: Turn) -> bool:
    """Return whether a turn of the model has a thought and nothing else."""
    content, thought = turn.get("content"), turn.get("reasoning_content") or ""
    says = bool(content.strip() if isinstance(content, str) else content)
    return turn["role"] == "assistant" and bool(thought.strip()) and not says and not turn.get("tool_calls")


def with_open_thought(turn: Turn, tokenizer: Tokenizer) -> Turn:
    """Return a turn to continue. If its text leaves a thought open, the thought is moved to the field for thoughts."""
    start, end, text = tokenizer.think_start, tokenizer.think_end, turn["content"].lstrip()
    if turn["role"] != "assistant" or start is None or not text.startswith(start) or str(end) in text:
        return turn
    thought = "".join(filter(None, [turn.get("reasoning_content"), text.removeprefix(start).lstrip("\n")]))
    return {**turn, "content": "", "reasoning_content": thought} if thought.strip() else turn


def in_thought(turns: list[Turn], resident: Model, extra: dict[str, Any]) -> Prompt:
    """Return the prompt that ends inside the thought of the last turn."""
    template, tokenizer = resident.template, resident.tokenizer
    thought, start = turns[-1]["reasoning_content"], tokenizer.think_start or ""
    channels = harmony.is_spoken_by(tokenizer)
    mark = harmony.ANALYSIS if channels else start
    if not mark:
        raise no_thought()
    with suppress(Exception):  # a template that does not show thoughts
        text = template.render(turns, continued="reasoning_content", **extra)
        before = text.rstrip().removesuffix(thought.rstrip()).rstrip()
        if before.endswith(mark.rstrip()):
            return Prompt(text, mark)
    text = template.render(turns[:-1], **{**extra, "add_generation_prompt": True})
    if not text.rstrip().endswith(mark):
        text += mark if channels else f"{mark}\n"
    return Prompt(text + thought, mark)


def no_thought() -> ApiError:
    """Return the error for a last thought that the model would not read."""
    message = (
        "The last message has only a thought, which this model's chat template does not show. Add text to it."
    )
    return ApiError(400, message, param="messages", code="invalid_value")


def written(turn: Turn, resident: Model) -> str:
    """Return the part of the answer's turn that the request has written."""
    if turn["role"] != "assistant":
        return ""
    start, end = resident.tokenizer.think_start, resident.tokenizer.think_end
    thought = turn.get("reasoning_content")
    closed = f"{start}{thought}{end}" if thought and start is not None else ""
    return f"{closed}{turn['content']}"


def opened(text: str, resident: Model, extra: dict[str, Any]) -> str:
    """Return the text that begins a thought, if the template begins a thought for the answer."""
    start, end = resident.tokenizer.think_start, resident.tokenizer.think_end
    if start is None or text.rfind(start) <= text.rfind(str(end)):
        return ""
    if text.rstrip().endswith(start):
        return start
    with suppress(Exception):  # the thought's first words may follow
        options = {**extra, "tools": None}
        turns = [{"role": "user", "content": "x"}]
        before = resident.template.render(turns, **{**options, "add_generation_prompt": False})
        own = resident.template.render(turns, **options).removeprefix(before)
        if start in own and text.endswith(own):
            return own[own.rfind(start) :]
    return ""
