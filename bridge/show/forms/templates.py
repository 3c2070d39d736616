"""Renders pages from templates. Every value is sanitised and escaped, whatever its origin.

No template turns escaping off, and only this module and bridge.common.drawing.markup create ``Markup``.
tests/repo/test_output.py checks both.
"""

import base64
import hashlib
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from bridge.common.advice import Door, printed
from bridge.common.drawing.markup import shown
from bridge.common.drawing.svg import figures
from bridge.common.drawing.text import cell
from bridge.reports.views.rows import claims_tables
from bridge.show.build import version
from bridge.show.forms.words import ago, badges, grade, spaced, stamp
from bridge.show.model import RunsView

_HERE = Path(__file__).with_name("templates")


@cache
def _environment(*folders: Path) -> Environment:
    environment = Environment(
        loader=FileSystemLoader([*folders, _HERE]), autoescape=True, undefined=StrictUndefined, finalize=shown,
        trim_blocks=True, lstrip_blocks=True, auto_reload=False,
    )  # fmt: skip
    environment.globals |= {
        "badges": badges, "cell": cell, "claims_tables": claims_tables, "figures": figures, "grade": grade,
        "kind": _kind,
    }  # fmt: skip
    environment.filters |= {
        "advice": _for_a_page, "ago": ago, "stamp": stamp,
        "words": lambda text: spaced(str(text)),
    }  # fmt: skip
    return environment


def _for_a_page(fix: str | None) -> str | None:
    return printed(fix, Door.WEB)


def render(name: str, /, *folders: Path, **values: Any) -> str:
    """Render a page from the report templates and the templates in further folders."""
    return _environment(*folders).get_template(name).render(**values)


def page(view: RunsView) -> str:
    """Return a view of runs as one self-contained page: no script, no font and no image from anywhere else."""
    sheet = style()
    return render("report.html", view=view, style=sheet, policy=inline_policy(sheet), version=version())


def style() -> Markup:
    """Return the style sheet of reports."""
    sheet = resources.files("bridge.show.forms").joinpath("style.css").read_text(encoding="utf-8")
    return Markup(sheet)  # noqa: S704 - a file of ours


def inline_policy(sheet: str) -> str:
    """Return the Content-Security-Policy of a page that has one inline style sheet and loads and runs nothing."""
    digest = base64.b64encode(hashlib.sha256(sheet.encode()).digest()).decode()
    return f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"


_CODE_COLUMNS = ("SHA-256", "command", "branch", "file")
_CHECKS = {"ok": "ok", "FAIL": "fail"}


def _kind(column: str, value: str, *, numeric: bool) -> str | None:
    if numeric:
        return "n"
    return _CHECKS.get(value) if not column else "t code" if column in _CODE_COLUMNS else "t"
