"""What the evaluations share on the command line: options, and writing what came out."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

SEED = click.option("--seed", type=click.IntRange(0, 2**32 - 1), default=42, show_default=True)


class Numbers(click.ParamType):
    """A comma-separated list of numbers within bounds: ``0.1,0.5`` becomes ``(0.1, 0.5)``."""

    name = "list"

    def __init__(self, kind: type, least: float, most: float) -> None:
        self.kind, self.least, self.most = kind, least, most

    def convert(self, value, param, ctx):  # noqa: D102
        if not isinstance(value, str):
            return tuple(value)
        try:
            found = tuple(dict.fromkeys(self.kind(item) for item in value.split(",")))
        except ValueError:
            self.fail(f"{value!r} is not a list of numbers", param, ctx)
        if not all(self.least <= x <= self.most for x in found):
            self.fail(f"{value!r} is not within {self.least:g} and {self.most:g}", param, ctx)
        return found


class Names(click.ParamType):
    """A comma-separated list of names."""

    name = "list"

    def convert(self, value, param, ctx):  # noqa: ARG002, D102
        if not isinstance(value, str):
            return tuple(value)
        return tuple(dict.fromkeys(item.strip() for item in value.split(",") if item.strip()))


def put_out(
    made: dict[str, Any], out: Path | None, picture: str | None, show: Callable[[], None], *, as_json: bool
) -> None:
    """Write a report and its plot, and print it as JSON or as a table."""
    from engine import report

    if out:
        report.write(out, made)
        if picture is not None:
            out.with_suffix(".svg").write_text(picture, encoding="utf-8")
    if as_json:
        click.echo(json.dumps(made, indent=2, allow_nan=False))
    else:
        show()
    if out:
        click.echo(f"wrote {out}", err=True)
