"""Splits an answer's text into thoughts, content and tool calls while it arrives."""

import json
import secrets
from collections.abc import Callable
from typing import Any

Delta = dict[str, Any]


class OutputParser:
    """Turns pieces of text into deltas of a message.

    Args:
        thinking: the strings around thoughts, or None.
        open_thought: whether the prompt ends inside a thought.
        calling: the strings around tool calls, or None. An empty second one leaves the end to the answer's.
        parse_call: converts the text of a call to functions as :func:``engine.serve.formats.calls.read`` does.
        single: whether only the first call is wanted.
        only_call: the whole text is one call, in the form of :func:``engine.serve.formats.grammar.of_tools``.

    Attributes:
        calls: number of calls so far.
        thought: the thoughts so far.
    """

    def __init__(
        self,
        *,
        thinking: tuple[str, str] | None = None,
        open_thought: bool = False,
        calling: tuple[str, str] | None = None,
        parse_call: Callable[[str], list[dict[str, str]]] | None = None,
        single: bool = False,
        only_call: bool = False,
    ) -> None:
        self._thinking, self._calling, self._parse, self._single = thinking, calling, parse_call, single
        self._state = "thought" if open_thought else "text"
        self._held = ""
        self._begun = False
        self._gap = False  # whether a thought has ended and no content has come since
        self._only_call = only_call
        self.calls, self.thought = 0, ""

    def add(self, text: str, *, last: bool = False, cut: bool = False) -> list[Delta]:
        """Return the deltas for more text.

        Args:
            text: what is new.
            last: whether the answer ends here; then the text that was held back is returned too.
            cut: whether something other than the model ended it, so that an open call is not complete.
        """
        self._held += text
        deltas: list[Delta] = []
        while True:
            if self._only_call and self._state == "text":
                self._held = self._held if self._begun else self._held.lstrip()
                return deltas + self._of_call(last=last)
            marks = [(at, mark, after) for mark, after in self._marks() if (at := self._held.find(mark)) >= 0]
            if not marks:
                break
            at, mark, after = min(marks)
            deltas += self._give(self._held[:at], closing=True)
            self._gap = self._gap or self._state == "thought"
            self._held, self._state = self._held[at + len(mark) :], after
        if last:
            deltas += self._give(self._held, closing=True, cut=cut)
            self._held = ""
        elif self._state != "call":
            safe = len(self._held) - self._hopeful()
            deltas += self._give(self._held[:safe])
            self._held = self._held[safe:]
        return deltas

    def _marks(self) -> list[tuple[str, str]]:
        """Return the marks that end the current state, each with the next state."""
        if self._state == "thought":
            return [(self._thinking[1], "text")] if self._thinking else []
        if self._state == "call":
            return [(self._calling[1], "text")] if self._calling and self._calling[1] else []
        marks = [(self._thinking[0], "thought")] if self._thinking else []
        return marks + ([(self._calling[0], "call")] if self._calling else [])

    def _hopeful(self) -> int:
        """Return how many characters at the end could be the beginning of a mark."""
        marks = [mark for mark, _ in self._marks()]
        most = min(len(self._held), max((len(mark) - 1 for mark in marks), default=0))
        return next(
            (n for n in range(most, 0, -1) if any(mark.startswith(self._held[-n:]) for mark in marks)), 0
        )

    def _give(self, text: str, *, closing: bool = False, cut: bool = False) -> list[Delta]:
        if not text:
            return []
        if self._state == "thought":
            self.thought += text
            return [{"reasoning_content": text}]
        if self._state == "call" and closing and not cut:
            return self._parsed(text)
        if self._gap:  # templates put empty lines behind a thought, which are no part of the answer
            text = text.lstrip("\n")
            self._gap = not text
        return [{"content": text}] if text else []

    def _parsed(self, text: str) -> list[Delta]:
        try:
            calls = self._parse(text) if self._parse is not None else []
        except Exception:  # noqa: BLE001 - parsers of many models, over text that a model wrote
            return [{"content": text}]
        return [self._call(call) for call in (calls if not self._single else [] if self.calls else calls[:1])]

    def _call(self, call: dict[str, str]) -> Delta:
        """Return the delta that begins a call."""
        self.calls += 1
        call_id = call.get("id") or f"call_{secrets.token_hex(12)}"
        function = {"name": call["name"], "arguments": call["arguments"]}
        return {
            "tool_calls": [{"index": self.calls - 1, "id": call_id, "type": "function", "function": function}]
        }

    def _of_call(self, *, last: bool) -> list[Delta]:
        """Stream the arguments of the only call, without ``{"name":"f","arguments":`` before and ``}`` after them."""
        deltas = []
        if not self._begun:
            head, mark, rest = self._held.partition('","arguments":')
            if not mark:
                return [{"content": self._held}] if last and self._held else []
            name = json.loads(head.removeprefix('{"name":') + '"')
            deltas.append(self._call({"name": name, "arguments": ""}))
            self._begun, self._held = True, rest
        give = self._held.removesuffix("}") if last else self._held[:-1]
        self._held = self._held[len(give) :]
        more = {"tool_calls": [{"index": self.calls - 1, "function": {"arguments": give}}]}
        return [*deltas, more] if give else deltas
