"""Options that the benchmarks share."""

from collections.abc import Callable
from pathlib import Path

import click

DTYPES = ("float32", "float16", "bfloat16", "stored")


def model(command: Callable) -> Callable:
    """Add ``--model`` and ``--dtype``."""
    command = click.option(
        "--dtype", type=click.Choice(DTYPES), help="[default: float32 on the CPU, else stored]"
    )(command)
    return click.option(
        "--model",
        default="tiny",
        show_default=True,
        help="tiny, tiny-hybrid, qwen3-8b, ..., folder or hub id.",
    )(command)


def draft(command: Callable) -> Callable:
    """Add ``--draft``."""
    return click.option(
        "--draft", help="The drafter's folder or hub id.  [default: the one that belongs to the model]"
    )(command)


def out_and_json(command: Callable) -> Callable:
    """Add ``--out`` and ``--json``."""
    command = click.option("--json", "as_json", is_flag=True, help="Print the report instead of a table.")(
        command
    )
    return click.option(
        "--out", type=click.Path(dir_okay=False, path_type=Path), help="Write the report here."
    )(command)
