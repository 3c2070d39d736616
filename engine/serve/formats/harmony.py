"""Reads answers in the harmony format of gpt-oss: messages on channels for thoughts, calls and the final text.

A message is ``<|channel|>NAME<|message|>TEXT<|end|>``; the next one begins with ``<|start|>assistant``. A call names
its function in the head: ``<|channel|>commentary to=functions.NAME <|constrain|>json<|message|>ARGUMENTS<|call|>``. The
last mark of an answer is a stop token, so it is not in the text. The published package ``openai-harmony`` does the same
from tokens, and downloads its vocabulary when it is first used.
"""

import re
from collections.abc import Sequence
from typing import Any

from engine.serve.formats.call_forms import reader_of_arguments
from engine.serve.formats.output_parser import Delta, OutputParser
from engine.tokens import Tokenizer

CHANNEL, MESSAGE = "<|channel|>", "<|message|>"
TURN = "<|start|>assistant"
ANALYSIS = f"{CHANNEL}analysis{MESSAGE}"  # before a thought
FINAL = f"{CHANNEL}final{MESSAGE}"  # after a prompt, so that the model writes only the final text
TO_FINAL = f"<|end|>{TURN}{FINAL}"  # from a thought to the final text
ENDS = ("<|end|>", "<|call|>", "<|return|>", "<|start|>")
RECIPIENT = re.compile(r"\bto=(?:functions\.)?([^\s<]+)")
ON = re.compile(r"<\|channel\|>\s*(\w+)")


def is_spoken_by(tokenizer: Tokenizer) -> bool:
    """Return whether a tokenizer's model answers in this format."""
    template = getattr(tokenizer, "chat_template", None)
    return isinstance(template, str) and CHANNEL in template and MESSAGE in template


def is_open(prompt: str) -> bool:
    """Return whether a prompt ends inside a message, which the answer continues."""
    return prompt.rfind(MESSAGE) > max(map(prompt.rfind, ENDS))


def begun(prompt: str) -> str:
    """Return the end of a prompt that already belongs to the answer's turn."""
    return prompt.rpartition(TURN)[2]


class Harmony(OutputParser):
    """Turns pieces of text into deltas of a message."""

    def __init__(
        self, tools: Sequence[dict[str, Any]], *, single: bool = False, stop: Sequence[str] = ()
    ) -> None:
        super().__init__(single=single, stop=stop)
        self._tools = tools
        self._state = "head"
        ends = [(mark, "head") for mark in ENDS]
        self._marks = {"head": [(MESSAGE, "text")], **dict.fromkeys(("text", "thought", "call"), ends)}

    def _cross(self, text: str, state: str) -> list[Delta]:
        if self._state == "head":
            self._open(text)
            return []
        deltas = self._give(text) + self._ended()
        self._state = state
        return deltas

    def _give(self, text: str) -> list[Delta]:
        if self._state == "head":  # the answer ends here
            self._state, text = "text", "" if self._begun or CHANNEL in text else text
        return super()._give(text)

    def _open(self, head: str) -> None:
        self._begun = True
        channel, recipient = ON.search(head), RECIPIENT.search(head)
        if recipient and self._tools:
            self._state, self._call = "call", reader_of_arguments(recipient[1], self._tools)
        else:
            self._state = "thought" if channel and channel[1] == "analysis" else "text"
