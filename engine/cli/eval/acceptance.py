"""``kakeya-engine eval acceptance``."""

from pathlib import Path
from typing import Any

import click

from engine.cli.bench import options, speculation
from engine.cli.types import Names


@click.command()
@options.model
@options.draft
@click.option(
    "--prompts",
    type=Names(),
    default="code,functions",
    show_default=True,
    help="Sets of prompts: code, functions or sums, which come with the engine, or files of JSON lines.",
)
@options.decoding
@speculation.options
@options.out_and_json
@click.pass_context
def acceptance(
    ctx: click.Context, *, model: str, draft: str | None, dtype: str | None, prompts: tuple[str, ...],
    max_prompts: int | None, task: str, chat: bool | None, out: Path | None, as_json: bool, **asked: Any,
) -> None:  # fmt: skip
    """Count how many drafts are accepted on sets of prompts, and what that is worth in speed.

    Each set is a workload of its file's name, with figures of its own. Lines are {"id", "text"}, or as gsm8k
    ("question") and humaneval ("task_id", "prompt") publish theirs. Arms are those of bench spec, and the command
    fails where our loop decodes otherwise than mlx-lm has to. An interrupted run with --out goes on where it
    stopped.
    """
    from engine.evals.speculation import job as spec_report
    from engine.measure.prompts import read_sets
    from engine.models import load

    found = read_sets(prompts, max_prompts, task)
    pair = load(model, draft, dtype=dtype)
    in_chat = pair.chats if chat is None else chat
    plan = speculation.plan_of(asked)
    job, arms = spec_report.speculation(pair, found, plan, chat=in_chat, kind=spec_report.ACCEPTANCE)
    speculation.carry_out_checked(ctx, job, arms, out, as_json=as_json)
