"""``kakeya-engine eval recall``."""

from pathlib import Path
from typing import Any

import click

from bridge.common.cli.commands import flag, option
from engine.cli import options
from engine.cli.eval import common


@click.command()
@options.model
@options.caches("e8v@4.25,e8v@2.25,affine@4g64", "Caches to test, besides raw.")
@options.needles("256,512,1024", "0.1,0.5,0.9")
@options.boundary
@option("--chunk", click.IntRange(1, 1 << 16), 512, help="Prompt tokens per forward pass.")
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
    needles = common.make_needles(pair, plan)
    config = {"model": model, "dtype": dtype, "left_out": left_out}
    common.find_needles(evaluation.KIND, pair, arms, needles, plan, config, out, as_json=as_json)
