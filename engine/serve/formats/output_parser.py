"""Splits an answer's text into thoughts, content and tool calls while it arrives."""

import json
import secrets
from collections.abc import Callable, Sequence
from typing import Any

from engine.serve.formats.call_text import CallText
from engine.serve.formats.calls import is_object
from engine.stop_strings import StopStrings, hopeful

Delta = dict[str, Any]
LONGEST_HEAD = 512  # characters before a message that are held back at most


class OutputParser:
    """Turns pieces of text into deltas of a message.

    Args:
        thinking: the strings around thoughts, or None.
        calling: the strings around tool calls, or None. If the second one is empty, a call ends with the answer.
        more_calling: further such strings.
        bare: whether an answer that begins with a brace may be a call.
        call_text: creates the reader of the text between the marks of a call.
        single: whether only the first call is wanted.
        only_call: the whole text is one call, in the form of ``engine.serve.grammars.grammar.tools_grammar``.
        stop: strings that end the answer. They count in its content only, not in thoughts and calls.
    """

    def __init__(
        self,
        *,
        thinking: tuple[str, str] | None = None,
        calling: tuple[str, str] | None = None,
        more_calling: Sequence[tuple[str, str]] = (),
        bare: bool = False,
        call_text: Callable[[], CallText] | None = None,
        single: bool = False,
        only_call: bool = False,
        stop: Sequence[str] = (),
    ) -> None:
        self._call_text, self._single = call_text, single
        # The marks that end each state, with the next state.
        self._marks: dict[str, list[tuple[str, str]]] = {"text": [], "thought": [], "call": []}
        if thinking is not None:
            self._marks["text"].append((thinking[0], "thought"))
            self._marks["thought"].append((thinking[1], "text"))
        for begin, end in (calling, *more_calling) if calling is not None else ():
            self._marks["text"].append((begin, "call"))
            self._marks["call"] += [(end, "text")] if end else []
        self._state = "text"
        self._buffer = ""
        self._call: CallText | None = None  # the call that is being read
        self._begun = False
        self._gap = False  # whether a thought or a call has ended without content after it
        # Blank text at the beginning is held back: before a thought or a call, it is not part of the answer.
        self._blank, self._texted = "", not self._marks["text"]
        self._only_call, self._bare, self._arguments = only_call, bare, ""
        self._stop = StopStrings(stop)
        self._prompted: list[Delta] = []  # what the prompt has of an open call
        self._muted = False  # whether the call that is being read is not wanted
        self.calls = 0  # number of calls so far
        self.broken = False  # whether a call has ended before it was whole
        self.thought = ""  # the thoughts so far

    @property
    def stopped(self) -> str | None:
        """The stop string that ended the answer, if one did."""
        return self._stop.matched

    @property
    def state(self) -> str:
        """What the text is now: ``text``, ``thought`` or ``call``; ``head`` between the messages of some formats."""
        return self._state

    def begin(self, prompt: str) -> None:
        """Start where the prompt ends, given the prompt's part of the answer's turn, which is not part of the answer.

        The exception is a call that the prompt leaves open: clients need all of it.
        """
        only_call, self._only_call = self._only_call, False  # which has not begun
        deltas = self._split(prompt)
        self._only_call = only_call
        self.thought = ""
        self.broken = False
        if self._state == "call" and self._call is not None:
            self._prompted = self._opened(deltas) if self._call.begun else []
            self._call.forget()
        else:
            self._buffer = self._blank = ""
        self.calls = len(self._prompted[:1])

    def _opened(self, deltas: list[Delta]) -> list[Delta]:
        """Return the deltas of the last call, with the index of the answer's first call."""
        calls = [call for delta in deltas for call in delta.get("tool_calls", ())]
        last = [{**call, "index": 0} for call in calls if call["index"] == self.calls - 1]
        return [{"tool_calls": [call]} for call in last]

    def add(self, text: str, *, last: bool = False, cut: bool = False) -> list[Delta]:
        """Return the deltas for more text, and for the text that was held back if the answer ends here (``last``).

        If something other than the model ``cut`` it, an open call is not complete.
        """
        if self.stopped is not None:
            return []
        deltas, self._prompted = self._prompted + self._split(text, last=last, cut=cut), []
        return self._before_stop(deltas, last=last) if self._stop.strings else deltas

    def _before_stop(self, deltas: list[Delta], *, last: bool) -> list[Delta]:
        """Cut the content at a stop string, which cannot begin before a thought or a call and end behind it."""
        final: list[Delta] = []
        for delta in deltas:
            if (content := delta.get("content")) is None:
                final += self._flushed()
                final.append(delta)
                continue
            if text := self._stop.add(content):
                final.append({"content": text})
            if self.stopped is not None:
                return final
        return final + (self._flushed() if last else [])

    def _flushed(self) -> list[Delta]:
        text = self._stop.flush()
        return [{"content": text}] if text else []

    def _split(self, text: str, *, last: bool = False, cut: bool = False) -> list[Delta]:
        self._buffer += text
        deltas: list[Delta] = []
        while self._bare or not (self._only_call and self._state == "text"):
            if self._bare and self._state == "text" and not self._begins(last=last):
                return deltas
            own = self._marks[self._state]
            marks = [(at, mark, state) for mark, state in own if (at := self._buffer.find(mark)) >= 0]
            if self._state == "head" and (min(marks)[0] if marks else len(self._buffer)) > LONGEST_HEAD:
                self._state = "text"
            elif marks:
                at, mark, state = min(marks)
                before, self._buffer = self._buffer[:at], self._buffer[at + len(mark) :]
                if self._state == "call" and self._call is not None:
                    deltas += self._give(before)
                    before = ""
                if self._call is not None and self._call.quoted:
                    deltas += self._give(mark)
                else:
                    deltas += self._cross(before, state)
            elif not self._refuted(deltas):
                return deltas + (self._last(cut=cut) if last else self._certain())
        self._buffer = self._buffer if self._begun else self._buffer.lstrip()
        return deltas + self._of_call(last=last)

    def _begins(self, *, last: bool) -> bool:
        """Return whether the answer's text has begun, maybe as a call without a mark."""
        if not self._buffer.strip() and not last:
            return False
        self._bare = False
        if self._buffer.lstrip().startswith("{"):
            self._enter("call")
        return True

    def _last(self, *, cut: bool) -> list[Delta]:
        """Return the deltas of all text, whose end the answer's end is."""
        text, self._buffer, self._blank, self._texted = self._blank + self._buffer, "", "", True
        return self._give(text) + self._ended(cut=cut)

    def _certain(self) -> list[Delta]:
        """Return the deltas of the text that cannot belong to a mark any more."""
        if self._state == "head":
            return []
        safe = len(self._buffer) - hopeful(self._buffer, (mark for mark, _ in self._marks[self._state]))
        text, self._buffer = self._buffer[:safe], self._buffer[safe:]
        return self._give(text)

    def _refuted(self, deltas: list[Delta]) -> bool:
        """Return whether a call without an end mark has proved to be no call. Its text is then read as text."""
        if self._state != "call" or self._marks["call"] or self._call is None:
            return False
        deltas += self._give(self._buffer)
        self._buffer = self._call.rest
        if not self._call.refuted:
            return False
        self._state, self._call = "text", None
        return True

    def _enter(self, state: str) -> None:
        self._state = state
        if state == "call":
            self._call = self._call_text() if self._call_text is not None else CallText(None)

    def _cross(self, text: str, state: str) -> list[Delta]:
        """Return the deltas for the text up to a mark, behind which another state begins."""
        deltas = self._give(text) + self._ended()
        self._gap = self._gap or self._state == "thought"
        self._enter(state)
        self._blank = ""
        return deltas

    def _ended(self, *, cut: bool = False) -> list[Delta]:
        """Return the deltas for the end of a call, if one is being read."""
        if self._state != "call" or self._call is None:
            return []
        call, self._call = self._call, None
        deltas = self._deltas_of(call.end(cut=cut))
        self.broken = self.broken or call.broken
        self._gap = self._gap or not call.refuted
        return deltas

    def _give(self, text: str) -> list[Delta]:
        if not text:
            return []
        if self._state == "thought":
            self.thought += text
            return [{"reasoning_content": text}]
        if self._state == "call" and self._call is not None:
            events = self._call.add(text)
            self.broken = self.broken or self._call.broken  # now: a stop may follow before the call's end
            if self._call.rest and self._marks["call"]:
                events.append(("text", self._call.rest))
            return self._deltas_of(events)
        if self._gap:  # templates put empty lines after thoughts and calls, which are not part of the answer
            text = text.lstrip("\n")
            self._gap = not text
        elif not self._texted:
            text = self._blank + text
            self._blank = "" if text.strip() else text
            text = text.removeprefix(self._blank)
        self._texted = self._texted or bool(text)
        return [{"content": text}] if text else []

    def _deltas_of(self, events: Sequence[tuple[str, Any]]) -> list[Delta]:
        """Return the deltas for what a call's reader has found."""
        deltas: list[Delta] = []
        for kind, value in events:
            if kind == "text":
                self._gap, self._texted = False, True
                deltas.append({"content": value})
            elif kind == "call":
                deltas += self._begin_call(value)
            elif not self._muted:
                deltas.append(self._more(value))
        return deltas

    def _begin_call(self, call: dict[str, str]) -> list[Delta]:
        self._muted = self._single and self.calls > 0
        if self._muted:
            return []
        self.calls += 1
        call_id = call.get("id") or f"call_{secrets.token_hex(12)}"
        function = {"name": call["name"], "arguments": call["arguments"]}
        about = {"index": self.calls - 1, "id": call_id, "type": "function"}
        return [{"tool_calls": [{**about, "function": function}]}]

    def _more(self, arguments: str) -> Delta:
        return {"tool_calls": [{"index": self.calls - 1, "function": {"arguments": arguments}}]}

    def _of_call(self, *, last: bool) -> list[Delta]:
        """Stream the arguments of the only call, without ``{"name":"f","arguments":`` before and ``}`` after them."""
        deltas = []
        if not self._begun:
            head, mark, rest = self._buffer.partition('","arguments":')
            if not mark:
                return [{"content": self._buffer}] if last and self._buffer else []
            name = json.loads(head.removeprefix('{"name":') + '"')
            deltas += self._begin_call({"name": name, "arguments": ""})
            self._begun, self._buffer = True, rest
        give = self._buffer.removesuffix("}") if last else self._buffer[:-1]
        self._buffer = self._buffer[len(give) :]
        self._arguments += give
        self.broken = last and not is_object(self._arguments)
        return [*deltas, self._more(give)] if give else deltas
