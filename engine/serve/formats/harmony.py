"""Reads answers in the harmony format of gpt-oss: messages on channels for thoughts, calls and the final text.

A message is ``<|channel|>NAME<|message|>TEXT<|end|>``; the next one begins with ``<|start|>assistant``. A call names
its function in the head: ``<|channel|>commentary to=functions.NAME <|constrain|>json<|message|>ARGUMENTS<|call|>``. The
last mark of an answer is a stop token, so it is not in the text. The published package ``openai-harmony`` does the same
from tokens, and downloads its vocabulary when it is first used.
"""

import json
import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from engine.serve.formats import calls
from engine.serve.formats.parts import Delta, OutputParser
from engine.tokens import Tokenizer

CHANNEL, MESSAGE = "<|channel|>", "<|message|>"
FINAL = f"{CHANNEL}final{MESSAGE}"  # behind a prompt, it leaves the final text as all that is to be written
ENDS = ("<|end|>", "<|call|>", "<|return|>", "<|start|>")
RECIPIENT = re.compile(r"\bto=(?:functions\.)?([^\s<]+)")
ON = re.compile(r"<\|channel\|>\s*(\w+)")


def speaks(tokenizer: Tokenizer) -> bool:
    """Return whether a tokenizer's model answers in this format."""
    template = getattr(tokenizer, "chat_template", None)
    return isinstance(template, str) and CHANNEL in template and MESSAGE in template


def is_open(prompt: str) -> bool:
    """Return whether a prompt ends inside a message, which the answer continues."""
    return prompt.rfind(MESSAGE) > max(map(prompt.rfind, ENDS))


class Harmony(OutputParser):
    """Turns pieces of text into deltas of a message.

    Args:
        tools: the functions that may be called.
        single: whether only the first call is wanted.
        continued: whether the text continues a message of the final channel.
    """

    def __init__(
        self, tools: Sequence[dict[str, Any]], *, single: bool = False, continued: bool = False
    ) -> None:
        super().__init__(single=single)
        self._tools = tools
        self._state = "text" if continued else "head"
        self._begun = continued

    def add(self, text: str, *, last: bool = False, cut: bool = False) -> list[Delta]:
        """Return the deltas for more text, as in the other formats."""
        self._held += text
        deltas: list[Delta] = []
        while True:
            marks = (MESSAGE,) if self._state == "head" else ENDS
            at, mark = min((at, mark) for mark in (*marks, "") if (at := self._position(mark)) >= 0)
            if not mark:
                break
            if self._state == "head":
                self._open(self._held[:at])
            else:
                deltas += self._give(self._held[:at], closing=True)
                self._state = "head"
            self._held = self._held[at + len(mark) :]
        if last:
            if self._state == "head":
                self._state = "text"
                self._held = "" if self._begun or CHANNEL in self._held else self._held
            return deltas + self._give(self._held, closing=True, cut=cut)
        if self._state in ("text", "thought"):
            safe = len(self._held) - self._hopeful()
            deltas += self._give(self._held[:safe])
            self._held = self._held[safe:]
        return deltas

    def _position(self, mark: str) -> int:
        """Return where a mark begins; the text's end for the empty mark, and -1 if there is none."""
        return self._held.find(mark) if mark else len(self._held)

    def _marks(self) -> list[tuple[str, str]]:
        return [(mark, "head") for mark in ENDS]

    def _open(self, head: str) -> None:
        """Begin the text of a message."""
        self._begun = True
        channel, recipient = ON.search(head), RECIPIENT.search(head)
        if recipient and self._tools:
            self._state = "call"
            self._parse = partial(calls.read, parse=_of(recipient[1]), tools=self._tools)
        else:
            self._state = "thought" if channel and channel[1] == "analysis" else "text"


def _of(name: str) -> Callable[[str, Any], Any]:
    return lambda text, _: {"name": name, "arguments": json.loads(text)}
