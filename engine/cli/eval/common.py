"""What the evaluations share on the command line."""

from functools import partial
from pathlib import Path
from typing import Any

from bridge.common.cli.progress import progress
from engine.cli.measured import carry_out, plots, show_tables


def make_needles(pair: Any, plan: Any) -> list[Any]:
    """Return the prompts of a plan, and show progress while they are made.

    Raises:
        BadInput: the model cannot read prompts of these lengths.
    """
    from engine.dflash.target.context import check_context
    from engine.evals import needles

    check_context(pair.target, pair.name, max(plan.lengths) + plan.max_tokens)
    with progress("prompts", "prompts") as (on_start, on_made):
        on_start(len(plan.lengths) * len(plan.depths) * plan.samples)
        return needles.make(
            pair.tokenizer,
            plan.lengths,
            plan.depths,
            plan.samples,
            plan.seed,
            chat=plan.chat,
            on_made=on_made,
        )


def find_needles(
    kind: str, pair: Any, arms: list[Any], needles: list[Any], plan: Any, asked: dict[str, Any],
    out: Path | None, *, as_json: bool, predictions: Any = None,
) -> None:  # fmt: skip
    """Decode every arm on every needle, and put out a report of ``kind``; see :mod:``engine.evals.recall``."""
    from engine.evals import recall

    config = {**plan.config(), **asked}
    job = recall.job(
        kind, pair, arms, needles, config,
        most=plan.max_tokens,
        chat=plan.chat,
        repeats=getattr(plan, "repeats", 1),
        max_repeats=getattr(plan, "max_repeats", None),
        ends=not getattr(plan, "fixed_length", False),
        predictions=predictions,
    )  # fmt: skip
    show = partial(show_tables, claims=("recall", "prompt_kl"))
    carry_out(job, "needles", "answers", show, out, as_json=as_json, picture=plots)
