"""Splits an answer's text into thoughts, content and tool calls while it arrives."""

import json
import secrets
from collections.abc import Callable, Sequence
from typing import Any

Delta = dict[str, Any]


class OutputParser:
    """Turns pieces of text into deltas of a message.

    Args:
        thinking: the strings around thoughts, or None.
        open_thought: whether the prompt ends inside a thought.
        calling: the strings around tool calls, or None. If the second one is empty, a call ends with the answer.
        more_calling: further such strings.
        bare: whether an answer that begins with a brace may be a call.
        parse_call: converts the text of a call to functions, as ``engine.serve.formats.calls.read`` does.
        single: whether only the first call is wanted.
        only_call: the whole text is one call, in the form of ``engine.serve.formats.grammar.tools_grammar``.
    """

    def __init__(
        self,
        *,
        thinking: tuple[str, str] | None = None,
        open_thought: bool = False,
        calling: tuple[str, str] | None = None,
        more_calling: Sequence[tuple[str, str]] = (),
        bare: bool = False,
        parse_call: Callable[[str], list[dict[str, str]]] | None = None,
        single: bool = False,
        only_call: bool = False,
    ) -> None:
        self._parse, self._single = parse_call, single
        # The marks that end each state, with the next state.
        self._marks: dict[str, list[tuple[str, str]]] = {"text": [], "thought": [], "call": []}
        if thinking is not None:
            self._marks["text"].append((thinking[0], "thought"))
            self._marks["thought"].append((thinking[1], "text"))
        for begin, end in (calling, *more_calling) if calling is not None else ():
            self._marks["text"].append((begin, "call"))
            self._marks["call"] += [(end, "text")] if end else []
        self._state = "thought" if open_thought else "text"
        self._buffer = ""
        self._begun = False
        self._gap = False  # whether a thought or a call has ended without content after it
        # Blank text at the beginning is held back: before a thought or a call, it is not part of the answer.
        self._blank, self._texted = "", not self._marks["text"]
        self._only_call, self._bare = only_call, bare
        self.calls = 0  # number of calls so far
        self.thought = ""  # the thoughts so far

    def add(self, text: str, *, last: bool = False, cut: bool = False) -> list[Delta]:
        """Return the deltas for more text, and for the text that was held back if the answer ends here (``last``).

        If something other than the model ``cut`` it, an open call is not complete.
        """
        self._buffer += text
        deltas: list[Delta] = []
        while True:
            if self._only_call and self._state == "text":
                self._buffer = self._buffer if self._begun else self._buffer.lstrip()
                return deltas + self._of_call(last=last)
            if self._bare and self._state == "text":
                if not self._buffer.strip() and not last:
                    return deltas
                self._bare = False
                if self._buffer.lstrip().startswith("{"):
                    self._state = "call"
            own = self._marks[self._state]
            marks = [(at, mark, state) for mark, state in own if (at := self._buffer.find(mark)) >= 0]
            if not marks:
                break
            at, mark, state = min(marks)
            deltas += self._cross(self._buffer[:at], state)
            self._buffer = self._buffer[at + len(mark) :]
        if last:
            text, self._buffer, self._texted = self._blank + self._buffer, "", True
            deltas += self._give(text, closing=True, cut=cut)
        elif self._state not in ("call", "head"):
            safe = len(self._buffer) - self._hopeful()
            deltas += self._give(self._buffer[:safe])
            self._buffer = self._buffer[safe:]
        return deltas

    def _cross(self, text: str, state: str) -> list[Delta]:
        """Return the deltas for the text up to a mark, behind which another state begins."""
        deltas = self._give(text, closing=True)
        self._gap = self._gap or self._state == "thought"
        self._state, self._blank = state, ""
        return deltas

    def _hopeful(self) -> int:
        """Return how many characters at the end could be the beginning of a mark."""
        marks = [mark for mark, _ in self._marks[self._state]]
        most = min(len(self._buffer), max((len(mark) - 1 for mark in marks), default=0))
        sizes = range(most, 0, -1)
        return next((n for n in sizes if any(mark.startswith(self._buffer[-n:]) for mark in marks)), 0)

    def _give(self, text: str, *, closing: bool = False, cut: bool = False) -> list[Delta]:
        if not text:
            return []
        if self._state == "thought":
            self.thought += text
            return [{"reasoning_content": text}]
        if self._state == "call" and closing and not cut:
            return self._parsed(text)
        if self._gap:  # templates put empty lines after thoughts and calls, which are not part of the answer
            text = text.lstrip("\n")
            self._gap = not text
        elif not self._texted:
            text = self._blank + text
            self._blank = "" if text.strip() else text
            text = text.removeprefix(self._blank)
        self._texted = self._texted or bool(text)
        return [{"content": text}] if text else []

    def _parsed(self, text: str) -> list[Delta]:
        try:
            calls = self._parse(text) if self._parse is not None else []
        except Exception:  # noqa: BLE001 - parsers of many models fail in many ways
            return [{"content": text}]
        self._gap = True
        return [self._call(call) for call in (calls if not self._single else [] if self.calls else calls[:1])]

    def _call(self, call: dict[str, str]) -> Delta:
        self.calls += 1
        call_id = call.get("id") or f"call_{secrets.token_hex(12)}"
        function = {"name": call["name"], "arguments": call["arguments"]}
        about = {"index": self.calls - 1, "id": call_id, "type": "function"}
        return {"tool_calls": [{**about, "function": function}]}

    def _of_call(self, *, last: bool) -> list[Delta]:
        """Stream the arguments of the only call, without ``{"name":"f","arguments":`` before and ``}`` after them."""
        deltas = []
        if not self._begun:
            head, mark, rest = self._buffer.partition('","arguments":')
            if not mark:
                return [{"content": self._buffer}] if last and self._buffer else []
            name = json.loads(head.removeprefix('{"name":') + '"')
            deltas.append(self._call({"name": name, "arguments": ""}))
            self._begun, self._buffer = True, rest
        give = self._buffer.removesuffix("}") if last else self._buffer[:-1]
        self._buffer = self._buffer[len(give) :]
        more = {"tool_calls": [{"index": self.calls - 1, "function": {"arguments": give}}]}
        return [*deltas, more] if give else deltas
