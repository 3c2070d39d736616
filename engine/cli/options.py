"""Options that several commands have."""

from typing import Any

import click

from bridge.common.cli.commands import FILE, REFERENCE, Decorator, flag, option, options
from engine.cli.types import CACHE_SPEC, CACHE_SPECS, DTYPES, EmbedScale, numbers

model = options(
    option("--model", REFERENCE, "tiny", help="tiny, tiny-hybrid, qwen3-8b, ..., folder or hub id."),
    option("--dtype", click.Choice(DTYPES), help="[default: float32 on the CPU, else stored]"),
)

draft = option(
    "--draft",
    REFERENCE,
    help="Folder, hub id or pair name of the drafter, or mtp: the head in the model.  [default: the model's own]",
)

embed_scale = option(
    "--embed-scale", EmbedScale(),
    help="Factor of the drafter's embeddings: a number, target (the target's own), or both (the checkpoint's and "
    "the other).  [default: the checkpoint's]",
)  # fmt: skip

threads = option(
    "--threads", click.IntRange(1, 1024),
    help="Threads of OpenBLAS, on the CPU.  [default: OPENBLAS_NUM_THREADS if set, else the fewest with which "
    "mlx-lm's plain loop is about fastest]",
)  # fmt: skip

out_and_json = options(
    option("--out", FILE, help="Write the report to this file."),
    flag("--json as_json", "Print the report instead of a table."),
)

seed = option("--seed", click.IntRange(0, 2**32 - 1), 42, help="Seed of the random numbers.")
boundary = option("--boundary", click.IntRange(0, 1000), 0, help="Layers to keep raw at each end.")
fixed_length = flag("--fixed-length", "Decode --max-tokens tokens, past the natural end of answers.")


def repeats(default: int, more: str = "") -> Decorator:
    """Return ``--repeats``, with ``more`` after its help, and ``--max-repeats``."""
    count = click.IntRange(1, 100)
    return options(
        option("--repeats", count, default, help=f"Runs of each arm and prompt.{more}"),
        option(
            "--max-repeats", count,
            help="Maximum runs, until times are steady.  [default: --repeats]",
        ),
    )  # fmt: skip


decoding = options(
    option(
        "--max-prompts", click.IntRange(1),
        help="Use only the first N prompts.  [default: 10 of an own set; all of a file]",
    ),
    click.option(
        "--chat/--no-chat", default=None,
        help="Use the chat template.  [default: if the model has one; not for the tiny family]",
    ),
    option("--cache", CACHE_SPEC, "raw", help="Cache spec: raw, e8v@4.25, affine@4g64, ..."),
    option("--max-tokens", click.IntRange(1, 1 << 16), 128, help="Maximum tokens per answer."),
    repeats(5),
    threads,
)  # fmt: skip

prompts = options(
    option(
        "--prompts",
        REFERENCE,
        help="Prompt set: code, functions, sums, chat, prose, humaneval, or a JSON lines file.  [default: code]",
    ),
    decoding,
)


def needles(lengths: str, depths: str) -> Decorator:
    """Return the options of needle prompts, with these defaults."""
    return options(
        option("--lengths", numbers(32, 1 << 20), lengths, help="Prompt lengths in tokens."),
        option(
            "--depths", numbers(0, 1, float), depths,
            help="Positions of the code in the padding; 0 is the start.",
        ),
        option("--samples", click.IntRange(1, 1000), 5, help="Prompts per length and depth."),
        option("--max-tokens", click.IntRange(1, 4096), 16, help="Maximum tokens per answer."),
    )  # fmt: skip


def caches(default: str, about: str, **settings: Any) -> Decorator:
    """Return ``--caches``."""
    return option("--caches", CACHE_SPECS, default, help=about, **settings)


def eviction(window: str) -> Decorator:
    """Return ``--sink`` and ``--window``, with this help."""
    return options(
        option("--sink", click.IntRange(0, 1 << 16), 4, help="First tokens that are never evicted."),
        option("--window", click.IntRange(1, 1 << 16), 64, help=window),
    )
