"""Writes a report to a file with its plot, and to the terminal."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from bridge.common.whole_files import written_whole


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
            with written_whole(out.with_suffix(".svg")) as part:
                part.write_text(picture, encoding="utf-8")
    if as_json:
        click.echo(json.dumps(document, indent=2, allow_nan=False))
    else:
        show(document)
    if out:
        click.echo(f"wrote {out}", err=True)
