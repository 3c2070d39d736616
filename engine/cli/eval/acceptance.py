"""``kakeya-engine eval acceptance``."""

from pathlib import Path
from typing import Any

import click

from bridge.common import environment
from bridge.common.cli.commands import option
from bridge.reports import kinds
from engine.cli import options
from engine.cli.bench import spec
from engine.cli.types import NAMES


@click.command()
@options.model
@options.draft
@options.embed_scale
@option(
    "--prompts", NAMES, "code,functions",
    help="Prompt sets: code, functions, sums, chat, prose, humaneval, or JSON lines files.",
)  # fmt: skip
@options.decoding
@spec.speculative
@options.out_and_json
@click.pass_context
def command(
    ctx: click.Context, /, *, prompts: tuple[str, ...], out: Path | None, as_json: bool, **settings: Any
) -> None:
    """Measure draft acceptance and the resulting speed on sets of prompts.

    Each set is reported as a workload with the name of its file. Lines are {"id", "text"}, or in the published
    formats of gsm8k ("question") and humaneval ("task_id", "prompt"). The environment variable KAKEYA_MAC_PROMPTS adds
    files. A report contains its prompts. The arms are the same as in bench spec. The command fails if our loop decodes
    other tokens than mlx-lm, except at near ties. An interrupted run with --out continues where it stopped.
    """
    from engine.harness.prompt_sets import read_sets

    more = NAMES.convert(environment.get("KAKEYA_MAC_PROMPTS", ""), None, None)
    workloads = read_sets((*prompts, *more), settings["max_prompts"])
    pair, chat = spec.load_drafting(settings)
    spec.compare(ctx, pair, workloads, settings, chat=chat, out=out, as_json=as_json, kind=kinds.ACCEPTANCE)
