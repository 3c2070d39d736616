"""Builds SVG elements. Everything that is not ``Markup`` is escaped, so untrusted text cannot become markup.

Drawings are computed, so code builds them. Pages are templates: see bridge.show.forms.templates.
"""

from markupsafe import Markup, escape

from bridge.common.drawing.text import number, printable

Child = str | int | float | Markup | None

_EMPTY = ("line", "path", "circle", "rect")


def tag(_name: str, /, *children: Child, **attributes: str | float | None) -> Markup:
    """Return an element. The names of elements and attributes must not come from a report.

    ``class_`` becomes ``class``, and ``view_box`` becomes ``viewBox``. An attribute that is None is left out.
    """
    written = "".join(
        f' {_SPELLED.get(name, name.replace("_", "-"))}="{text(value)}"'
        for name, value in attributes.items() if value is not None
    )  # fmt: skip
    element = f"<{_name}{written}/>" if _name in _EMPTY else f"<{_name}{written}>{join(*children)}</{_name}>"
    return Markup(element)  # noqa: S704 - escaped above


def join(*children: Child) -> Markup:
    """Return elements and texts in sequence."""
    return Markup("".join(text(child) for child in children if child is not None))  # noqa: S704


def text(value: Child) -> Markup:
    """Return a value escaped for an element or an attribute."""
    return escape(shown(value))


def shown(value: object) -> str:
    """Return a value as a page shows it: numbers rounded, text without control characters.

    Markup is not changed, and None becomes empty. Pages pass every value through here before it is escaped.
    """
    if isinstance(value, Markup):
        return value
    if isinstance(value, int | float):
        return number(value)
    return "\n".join(map(printable, str(value).split("\n"))) if value is not None else ""


_SPELLED = {"class_": "class", "view_box": "viewBox"}
