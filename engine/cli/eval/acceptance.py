"""``kakeya-engine eval acceptance``."""

from pathlib import Path
from typing import Any

import click

from bridge.common.cli.commands import option
from bridge.reports import kinds
from engine.cli import options
from engine.cli.bench import speculation
from engine.cli.types import Names


@click.command()
@options.model
@options.draft
@options.embed_scale
@option(
    "--prompts", Names(), "code,functions",
    help="Prompt sets: code, functions, sums, chat, prose, humaneval, or JSON lines files.",
)  # fmt: skip
@option(
    "--more-prompts", Names(), envvar="KAKEYA_MAC_PROMPTS",
    help="More JSON lines files.  [default: those that the environment variable KAKEYA_MAC_PROMPTS names]",
)  # fmt: skip
@options.decoding
@speculation.speculative
@options.out_and_json
@click.pass_context
def command(
    ctx: click.Context, /, *, model: str, draft: str | None, dtype: str | None, prompts: tuple[str, ...],
    more_prompts: tuple[str, ...] | None,
    max_prompts: int | None, chat: bool | None, out: Path | None, as_json: bool, **asked: Any,
) -> None:  # fmt: skip
    """Measure draft acceptance and the resulting speed on sets of prompts.

    Each set is reported as a workload with the name of its file. Lines are {"id", "text"}, or in the published
    formats of gsm8k ("question") and humaneval ("task_id", "prompt"). A report contains its prompts. The arms are
    the same as in bench spec. The command fails if our loop decodes other tokens than mlx-lm, except at near ties.
    An interrupted run with --out continues where it stopped.
    """
    from engine.measure.prompts import read_sets
    from engine.models import load

    workloads = read_sets((*prompts, *(more_prompts or ())), max_prompts)
    pair = load(model, draft, dtype=dtype).with_embed_scale(asked["embed_scale"])
    in_chat = pair.chats if chat is None else chat
    speculation.compare(
        ctx, pair, workloads, asked, chat=in_chat, out=out, as_json=as_json, kind=kinds.ACCEPTANCE
    )
