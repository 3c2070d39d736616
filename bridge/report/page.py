"""The view as one self-contained HTML page: no script, no font and no image from anywhere else."""

from __future__ import annotations

from bridge.report.build import version
from bridge.report.forms.templates import inline_policy, render, style
from bridge.report.model import RunsView


def page(view: RunsView) -> str:
    """Return the page."""
    sheet = style()
    return render("report.html", view=view, style=sheet, policy=inline_policy(sheet), version=version())
