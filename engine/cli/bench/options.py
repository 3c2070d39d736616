"""Options that the benchmarks share."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from engine.cli.types import DTYPES, EmbedScale
from engine.measure.prompts import TASKS


def model(command: Callable[..., Any]) -> Callable[..., Any]:
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


def draft(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add ``--draft``."""
    return click.option(
        "--draft",
        help="Folder, hub id or pair name of the drafter.  [default: the model's own]",
    )(command)


def embed_scale(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add ``--embed-scale``."""
    return click.option(
        "--embed-scale",
        type=EmbedScale(),
        help="Factor of the embeddings that the drafter reads: a number, or target for the target's own. both: "
        "measure the checkpoint's factor and the other one.  [default: the checkpoint's]",
    )(command)


def prompt_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add ``--prompts``, and :func:``decoding``."""
    return click.option(
        "--prompts",
        help="Prompt set: one of the engine's own (code, functions, sums) or a JSON lines file.  [default: code]",
    )(decoding(command))


def repeats(default: int, more: str = "") -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return what adds ``--repeats`` and ``--max-repeats``.

    Args:
        default: of the first.
        more: what its help says besides.
    """
    count = click.IntRange(1, 100)

    def add(command: Callable[..., Any]) -> Callable[..., Any]:
        command = click.option(
            "--max-repeats",
            type=count,
            help="Repeat up to so often in all, until the times are steady.  [default: --repeats]",
        )(command)
        about = f"Runs of each arm and prompt.{more}"
        return click.option("--repeats", type=count, default=default, show_default=True, help=about)(command)

    return add


def threads(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add ``--threads``."""
    return click.option(
        "--threads",
        type=click.IntRange(1, 1024),
        help="Threads of OpenBLAS, on the CPU.  [default: OPENBLAS_NUM_THREADS if set, else the fewest with which "
        "mlx-lm's plain loop is about fastest, measured first]",
    )(command)


def decoding(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add ``--max-prompts``, ``--task``, ``--chat``, ``--cache``, ``--max-tokens``, ``--repeats``, ``--threads``."""
    for option in reversed(
        (
            click.option(
                "--max-prompts",
                type=click.IntRange(1),
                help="Use only the first N prompts.  [default: 10 of an own set, which has 50; all of a file]",
            ),
            click.option("--task", type=click.Choice(TASKS), default="code", show_default=True),
            click.option(
                "--chat/--no-chat",
                default=None,
                help="Use the chat template.  [default: if the model has one; not for the tiny family]",
            ),
            click.option(
                "--cache",
                default="raw",
                show_default=True,
                help="Cache spec: raw, e8v@4.25, affine@4g64, ...",
            ),
            click.option("--max-tokens", type=click.IntRange(1, 1 << 16), default=128, show_default=True),
            repeats(5),
            threads,
        )
    ):
        command = option(command)
    return command


def out_and_json(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add ``--out`` and ``--json``."""
    command = click.option("--json", "as_json", is_flag=True, help="Print the report instead of a table.")(
        command
    )
    return click.option(
        "--out", type=click.Path(dir_okay=False, path_type=Path), help="Write the report to this file."
    )(command)
