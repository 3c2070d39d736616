"""Reads whole calls whose arguments are text between marks, as ``call_xml`` reads them in pieces."""

import json
import re
from collections.abc import Callable
from typing import Any

from engine.serve.formats.call_xml import CDATA, Form, name_of

Convert = Callable[[str, bool], Any]  # an argument's text, and whether the function declares the argument


class Positions:
    """Where marks stand in a text. All searches for one mark together go through the text once.

    The positions that a mark is searched from must not fall.
    """

    def __init__(self, text: str) -> None:
        self._text = text
        self._next: dict[str, int] = {}

    def next(self, mark: str, at: int) -> int:
        """Return where the next such mark begins, from ``at`` on; -1 if there is none."""
        begins = self._next.get(mark, 0)
        if 0 <= begins < at or mark not in self._next:
            begins = self._next[mark] = self._text.find(mark, at)
        return begins

    def until(self, mark: str, at: int) -> tuple[str, int]:
        """Return the text from ``at`` up to a mark, and the position behind it; ValueError if it is missing."""
        begins = self.next(mark, at)
        if begins < 0:
            raise ValueError(f"{mark} is missing")
        return self._text[at:begins], begins + len(mark)


def whole_calls(form: Form, convert: Convert, text: str, tools: Any) -> list[dict[str, Any]]:
    """Return the calls in a text."""
    marks, declared, parsed, at = Positions(text), _declared(tools), list[dict[str, Any]](), 0
    while (begins := marks.next(form.opens, at) if form.opens else at) >= 0 and at <= len(text):
        at = begins + len(form.opens)
        ends = marks.next(form.named or form.key, at)
        if ends < 0:
            break
        name = name_of(text[at:ends], form.name_in)
        at = ends + len(form.named)
        arguments = {}
        while (begins := marks.next(form.key, at)) >= 0:
            # An argument's text may contain the mark, so it is searched behind each argument.
            if form.closes and 0 <= marks.next(form.closes, at) < begins:
                break
            head, at = marks.until(form.keyed, begins + len(form.key))
            if form.value:
                at = marks.until(form.value, at)[1]
            key, (value, at) = name_of(head, form.key_in), marks.until(form.valued, at)
            arguments[key] = convert(_stripped(value, form), key in declared.get(name, ()))
        begins = marks.next(form.whole[0], at) if form.whole is not None and not arguments else -1
        if form.whole is not None and 0 <= begins < marks.next(form.closes, at):
            whole, at = marks.until(form.whole[1], marks.until(form.named, begins)[1])
            arguments = json.loads(whole)
        parsed.append({"name": name, "arguments": arguments})
        if not form.closes:
            break
        at = marks.until(form.closes, at)[1]
    return parsed or [_json_or_bare(text)]


def _stripped(value: str, form: Form) -> str:
    if form.lines:
        return value.removeprefix("\n").removesuffix("\n")
    value = value if form.exact else value.strip()
    return value[len(CDATA) : -3] if value.startswith(CDATA) and value.endswith("]]>") else value


def _declared(tools: Any) -> dict[str, frozenset[str]]:
    """Return the names of each function's arguments."""
    functions = [tool.get("function") or {} for tool in tools or ()]
    return {
        function["name"]: frozenset((function.get("parameters") or {}).get("properties") or {})
        for function in reversed(functions)
        if "name" in function
    }


def _json_or_bare(text: str) -> dict[str, Any]:
    """Return a call without marks around its arguments: JSON, a name with JSON behind it, or a name alone."""
    text = text.strip()
    if text.startswith("{"):
        call = json.loads(text)
        return {"name": call.get("name", call.get("function")), "arguments": call.get("arguments", {})}
    name, _, rest = text.replace("\n", " ", 1).partition(" ")
    if not re.fullmatch(r"[\w.-]+", name):
        raise ValueError("there is no call")
    return {"name": name, "arguments": json.loads(rest) if rest.strip() else {}}
