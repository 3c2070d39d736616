"""Writes a report to a file with its plot, and to the terminal."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click


def put_out(
    document: dict[str, Any],
    out: Path | None,
    show: Callable[[dict[str, Any]], None],
    *,
    as_json: bool,
    picture: str | None = None,
) -> None:
    """Write a report and its plot, and print it as JSON or as a table."""
    from engine.measure import report

    if out:
        report.write(out, document)
        if picture is not None:
            out.with_suffix(".svg").write_text(picture, encoding="utf-8")
    if as_json:
        click.echo(json.dumps(document, indent=2, allow_nan=False))
    else:
        show(document)
    if out:
        click.echo(f"wrote {out}", err=True)
