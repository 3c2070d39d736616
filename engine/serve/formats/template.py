"""Finds out what a model's chat template supports, by rendering short conversations with it.

Templates refuse or silently drop unexpected content: a second user turn, a system turn, calls of tools. A probe is a
conversation with marked texts. Its content is supported if rendering succeeds and shows every mark.
"""

import json
import re
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from engine.tokens import Tokenizer

Turn = dict[str, Any]

A, B, C, NAME, KEY, VALUE = "zqA", "zqB", "zqC", "zq_name", "zq_key", "zq_value"
TOOL = {
    "type": "function",
    "function": {
        "name": NAME,
        "description": A,
        "parameters": {"type": "object", "properties": {KEY: {"type": "string", "description": B}}},
    },
}
USER = {"role": "user", "content": "zqU"}
# Ids of calls. Mistral's templates accept only nine letters and digits.
LONG, SHORT = "call_zq0123456789abcdef", "zq0123456"


@dataclass(frozen=True)
class Calls:
    """The form of an assistant's calls that a template accepts."""

    short: bool  # whether an id has to have nine letters and digits
    text: bool  # whether arguments have to be JSON text instead of an object

    def turn(self, *values: str) -> Turn:
        """Return a turn with one call for each value."""
        calls = []
        for i, value in enumerate(values):
            arguments = {KEY: value}
            function = {"name": NAME, "arguments": json.dumps(arguments) if self.text else arguments}
            calls.append({"id": self.id(i), "type": "function", "function": function})
        return {"role": "assistant", "content": "", "tool_calls": calls}

    def id(self, i: int = 0) -> str:
        """Return an id for the i-th tool call of the text that tries the template."""
        return f"{(SHORT if self.short else LONG)[:-1]}{i}"


class Template:
    """A tokenizer's chat template. The caller holds the tokenizer's lock."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer

    def render(self, turns: list[Turn], *, continued: bool | str = False, **options: Any) -> str:
        """Return the text of a conversation; without a template, one line for each turn.

        If it is ``continued``, the text ends inside the last turn: in its content, or in a field with another name.

        Raises:
            Exception: any error of the template.
        """
        if not self._tokenizer.has_chat_template:
            text = "".join(f"{turn['role']}: {turn['content']}\n" for turn in turns)
            return text[:-1] if continued else f"{text}assistant:"
        if continued:
            options["continue_final_message"] = continued
        options = {"add_generation_prompt": not continued, **options}
        return self._tokenizer.apply_chat_template(turns, tokenize=False, **options)

    def reads(self, name: str) -> bool:
        """Return whether a template argument with this name may have an effect."""
        if not self._tokenizer.has_chat_template:
            return False
        source = getattr(self._tokenizer, "chat_template", None)  # None for a template that is a function
        return not isinstance(source, str) or re.search(rf"\b{re.escape(name)}\b", source) is not None

    def _shows(self, turns: list[Turn], *marks: str, **options: Any) -> bool:
        try:
            text = self.render(turns, **options)
        except Exception:  # noqa: BLE001 - a template is a program of the model's authors
            return False
        return all(mark in text for mark in marks)

    @cached_property
    def system(self) -> bool:
        """Whether a conversation may begin with a system turn."""
        return self._shows([{"role": "system", "content": A}, USER], A)

    @cached_property
    def systems(self) -> bool:
        """Whether a conversation may begin with several system turns."""
        return self._shows([{"role": "system", "content": A}, {"role": "system", "content": B}, USER], A, B)

    @cached_property
    def late_system(self) -> bool:
        """Whether a system turn may follow others."""
        begun = [{"role": "system", "content": A}, USER] if self.system else [USER]
        turns = [{"role": "assistant", "content": B}, {"role": "system", "content": C}, USER]
        return self._shows([*begun, *turns], B, C, *([A] if self.system else []))

    @cached_property
    def repeats(self) -> bool:
        """Whether turns of the same role may follow each other."""
        users = [{"role": "user", "content": A}, {"role": "user", "content": B}]
        answers = [USER, {"role": "assistant", "content": A}, {"role": "assistant", "content": B}, USER]
        return self._shows(users, A, B) and self._shows(answers, A, B)

    @cached_property
    def parts(self) -> bool:
        """Whether content has to be a list of parts."""
        listed = [{"role": "user", "content": [{"type": "text", "text": A}]}]
        return not self._shows([{"role": "user", "content": A}], A) and self._shows(listed, A)

    @cached_property
    def tools(self) -> bool:
        """Whether the template writes the tools into the prompt."""
        return self._shows([USER], NAME, KEY, tools=[TOOL])

    @cached_property
    def bare_tools(self) -> bool:
        """Whether the template takes a function without description and parameters."""
        return self._shows([USER], NAME, tools=[{"type": "function", "function": {"name": NAME}}])

    @cached_property
    def calls(self) -> Calls | None:
        """The form in which the template writes calls, or None if it writes none."""
        for text in (False, True):
            for short in (False, True):
                form = Calls(short, text)
                if self._shows([USER, form.turn(VALUE)], NAME, KEY, VALUE, tools=[TOOL]):
                    return form
        return None

    @cached_property
    def bare_calls(self) -> bool:
        """Whether a call is written as JSON without any mark around it, as Llama's are."""
        if self.calls is None or not self.tools:
            return False
        begun = self.render([USER], tools=[TOOL])
        called = self.render([USER, self.calls.turn(VALUE)], tools=[TOOL], add_generation_prompt=False)
        return called.removeprefix(begun).lstrip().startswith('{"name": ')

    @cached_property
    def parallel(self) -> bool:
        """Whether a turn may have several calls."""
        return self.calls is None or self._follows(marks=(VALUE, C), values=(VALUE, C))

    @cached_property
    def results(self) -> bool | None:
        """Whether a tool's turn has to name its function; None if the template does not show such turns."""
        forms = (named for named in (False, True) if self._follows(self._result(named), marks=(A,)))
        return next(forms, None)

    @cached_property
    def user_after_result(self) -> bool:
        """Whether a user's turn may follow a tool's turn."""
        named = bool(self.results)
        return self._follows(self._result(named), {"role": "user", "content": B}, marks=(A, B))

    @cached_property
    def thought_beside_text(self) -> bool:
        """Whether a turn with calls may have both a thought and text."""
        if self.calls is None:
            return True
        turn = {**self.calls.turn(VALUE), "content": A, "reasoning_content": B}
        return self._shows([USER, turn], VALUE, tools=[TOOL])

    def _result(self, named: bool) -> Turn:
        result = {"role": "tool", "tool_call_id": self.calls.id() if self.calls else LONG, "content": A}
        return result | ({"name": NAME} if named else {})

    def _follows(self, *turns: Turn, marks: tuple[str, ...], values: tuple[str, ...] = (VALUE,)) -> bool:
        """Return whether these turns may follow a turn with calls, and are shown."""
        if self.calls is None:
            return False
        return self._shows([USER, self.calls.turn(*values), *turns], *marks, tools=[TOOL])
