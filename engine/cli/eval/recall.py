"""``kakeya-engine eval recall``."""

from functools import partial
from pathlib import Path
from typing import Any

import click

from bridge.common.cli.commands import flag
from bridge.common.cli.progress import progress
from engine.cli import options
from engine.cli.reporting import carry_out, show_tables


@click.command()
@options.model
@options.caches("e8v@4.25,e8v@2.25,affine@4g64", "Caches to test, besides raw.")
@options.needles("256,512,1024", "0.1,0.5,0.9")
@options.boundary
@flag("--chat", "Use the chat template.")
@options.seed
@options.out_and_json
def command(*, model: str, dtype: str | None, out: Path | None, as_json: bool, **config: Any) -> None:
    """Test needle recall with each cache, with a control that must fail and one that must succeed.

    A plot is written next to the report. An interrupted run with --out continues where it stopped.
    """
    from engine.evals import recall as evaluation
    from engine.models import load

    plan = evaluation.RecallPlan(**config)
    pair = load(model, draft=False, dtype=dtype)
    arms, left_out = evaluation.arms_of(pair.target, plan)
    needles = make_needles(pair, plan)
    config = {"model": model, "dtype": dtype, "left_out": left_out}
    find_needles(evaluation.KIND, pair, arms, needles, plan, config, out, as_json=as_json)


def make_needles(pair: Any, plan: Any) -> list[Any]:
    """Return a plan's prompts, and show progress; BadInput if the model cannot read prompts of these lengths."""
    from engine.dflash.target.context import check_context
    from engine.evals import needles

    check_context(pair.target, pair.name, max(plan.lengths) + plan.max_tokens)
    with progress("prompts", "prompts") as (on_start, on_made):
        on_start(len(plan.lengths) * len(plan.depths) * plan.samples)
        grid = (plan.lengths, plan.depths, plan.samples, plan.seed)
        return needles.make(pair.tokenizer, *grid, chat=plan.chat, on_made=on_made)


def find_needles(
    kind: str, pair: Any, arms: list[Any], needles: list[Any], plan: Any, config: dict[str, Any],
    out: Path | None, *, as_json: bool, **more: Any,
) -> None:  # fmt: skip
    """Decode every arm on every needle, and output a report of ``kind``; see ``engine.evals.recall.job``."""
    from engine.evals import recall

    job = recall.job(kind, pair, arms, needles, plan, config, **more)
    show = partial(show_tables, claims=("recall", "prompt_kl"))
    carry_out(job, "needles", "answers", show, out, as_json=as_json, plot=True)
