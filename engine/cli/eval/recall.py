"""``kakeya-engine eval recall``."""

from pathlib import Path
from typing import Any

import click

from engine.cli.bench import options
from engine.cli.eval import common
from engine.cli.types import Names, Numbers


@click.command()
@options.model
@click.option(
    "--caches",
    type=Names(),
    default="e8v@4.25,e8v@2.25,affine@4g64",
    show_default=True,
    help="Caches to test, besides raw.",
)
@click.option(
    "--lengths",
    type=Numbers(32, 1 << 20),
    default="256,512,1024",
    show_default=True,
    help="Prompt lengths in tokens.",
)
@click.option(
    "--depths",
    type=Numbers(0, 1, float),
    default="0.1,0.5,0.9",
    show_default=True,
    help="Positions of the code in the padding; 0 is the start.",
)
@click.option(
    "--samples",
    type=click.IntRange(1, 1000),
    default=5,
    show_default=True,
    help="Prompts per length and depth.",
)
@click.option(
    "--max-tokens",
    type=click.IntRange(1, 4096),
    default=16,
    show_default=True,
    help="Maximum tokens per answer.",
)
@click.option(
    "--boundary",
    type=click.IntRange(0, 1000),
    default=0,
    show_default=True,
    help="Layers to keep raw at each end.",
)
@click.option(
    "--chunk",
    type=click.IntRange(1, 1 << 16),
    default=512,
    show_default=True,
    help="Prompt tokens per forward pass.",
)
@click.option("--chat", is_flag=True, help="Use the chat template.")
@common.SEED
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
    needles = common.make_needles(pair, plan)
    config = {"model": model, "dtype": dtype, "left_out": left_out}
    common.find_needles(evaluation.KIND, pair, arms, needles, plan, config, out, as_json=as_json)
