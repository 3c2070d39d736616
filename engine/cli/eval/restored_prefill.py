"""``kakeya-engine eval restored-prefill``."""

from pathlib import Path
from typing import Any

import click

from bridge.common.cli.commands import EXISTING_FOLDER, flag, option
from engine.cli import options
from engine.cli.eval.recall import find_needles, make_needles
from engine.cli.reporting import choose_threads


@click.command(name="restored-prefill")
@options.model
@options.caches("e8v@4.25,e8v@2.25", "Caches that hold the evicted positions.")
@option(
    "--layers", click.Choice(["auto", "full", "sliding"]), "auto",
    help="Layers that evict. With sliding, full-attention layers keep their exact keys and values. "
    "auto means sliding if the restorer was made for the model's sliding layers, and full otherwise.",
)  # fmt: skip
@options.eviction("Last tokens that are never evicted; prompts are read in chunks of this size.")
@options.needles("512,1024", "0.1,0.4,0.7")
@options.repeats(1, " More than one are timed, after a warm-up; claims about time need three.")
@options.threads
@options.fixed_length
@flag("--recompute", "Also decode with every position computed again for each token.")
@flag("--chat", "Use the chat template.")
@option(
    "--restorer", EXISTING_FOLDER, envvar="KAKEYA_MAC_FTHETA_DIR",
    help="Folder of a trained restorer.  [default: the environment variable KAKEYA_MAC_FTHETA_DIR, or the model's own]",
)  # fmt: skip
@options.seed
@options.out_and_json
def command(
    *, model: str, dtype: str | None, restorer: Path | None, threads: int | None, out: Path | None, as_json: bool,
    **config: Any,
) -> None:  # fmt: skip
    """Test recall of needles that the cache has evicted and restored: exactly, from codes, by a restorer, or not.

    Full-attention layers, or sliding ones, keep the first tokens (the sink) and a recent window. If sliding layers
    evict, the full-attention layers can find a needle alone: the report then claims no recall, but how far restored
    layers move predictions. A plot is written next to the report. An interrupted run with --out continues where it
    stopped.
    """
    from dataclasses import replace

    from engine.errors import BadInput
    from engine.evals import restored
    from engine.evals.predictions import Predictions
    from engine.models import load

    plan = restored.RestoredPlan(**config)
    pair = load(model, draft=False, dtype=dtype, restore=restorer)
    if plan.layers == "auto":
        plan = replace(plan, layers=restored.layers_for(pair.target, pair.restorer))
    arms, left_out = restored.arms_of(pair.target, plan, pair.restorer)
    needles = make_needles(pair, plan)
    if near := restored.unevicted_prompts(needles, plan):
        fix = "ask for lesser depths, longer prompts or a smaller window"
        raise BadInput(f"the needle of {near[0]} stays within the window until the question", fix)
    learned = str(restorer) if restorer else None
    config = {"model": model, "dtype": dtype, "restorer": learned, "left_out": left_out}
    if plan.repeats > 1 or threads is not None:
        config |= choose_threads(pair, threads, out).config()
    more = {name: getattr(plan, name) for name in ("repeats", "max_repeats", "fixed_length")}
    more["predictions"] = Predictions(pair.target, arms[0], plan.window)
    find_needles(restored.KIND, pair, arms, needles, plan, config, out, as_json=as_json, **more)
