"""HTML in which untrusted text cannot escape its element: everything that is not `Markup` is escaped."""

from __future__ import annotations

import html

from bridge.report.text import number, printable

_VOID = ("br", "meta", "line", "path", "circle", "rect")


class Markup(str):
    """HTML made here. Every other text is escaped where it is put into HTML."""

    __slots__ = ()


Child = str | int | float | Markup | None


def tag(_name: str, /, *children: Child, **attributes: str | float | bool | None) -> Markup:
    """Return an element. Names of elements and attributes are ours; `class_` is `class`, `view_box` is `viewBox`.

    An attribute that is None or False is left out; one that is True has no value.
    """
    parts = [f"<{_name}"]
    for name, value in attributes.items():
        if value is None or value is False:
            continue
        spelled = _SPELLED.get(name, name.replace("_", "-"))
        parts.append(f" {spelled}" if value is True else f' {spelled}="{text(value)}"')
    if _name in _VOID:
        return Markup("".join(parts) + (">" if _name in ("br", "meta") else "/>"))
    return Markup("".join(parts) + ">" + join(*children) + f"</{_name}>")


def join(*children: Child, between: str = "") -> Markup:
    """Return elements and texts in sequence."""
    return Markup(between.join(text(child) for child in children if child is not None))


def text(value: Child) -> str:
    """Return what stands for a value in HTML, in an element and in an attribute alike."""
    if isinstance(value, Markup):
        return str(value)
    if isinstance(value, int | float):
        return html.escape(number(value))
    lines = (value or "").split("\n")
    return "\n".join(html.escape(printable(line), quote=True) for line in lines)


_SPELLED = {"class_": "class", "view_box": "viewBox", "http_equiv": "http-equiv", "for_": "for", "id_": "id"}
