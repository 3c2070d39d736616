"""``kakeya-engine train restorer``."""

from pathlib import Path

import click

from engine.cli.train.common import carry_out, for_a_target
from engine.cli.types import Numbers


@click.command()
@for_a_target
@click.option(
    "--alone",
    type=click.IntRange(0, 1_000_000),
    default=300,
    show_default=True,
    help="First steps, on the error of keys and values alone.",
)
@click.option("--width", type=click.IntRange(8, 8192), default=96, show_default=True, help="Of its states.")
@click.option(
    "--dilations", type=Numbers(1, 4096), default="1,4,16", show_default=True, help="Of its convolutions."
)
@click.option("--sink", type=click.IntRange(0, 1 << 16), default=4, show_default=True)
@click.option("--window", type=click.IntRange(1, 1 << 16), default=64, show_default=True)
@click.option(
    "--task-share",
    type=click.FloatRange(0, 1),
    default=0.75,
    show_default=True,
    help="Share of rows with generated retrieval tasks.",
)
@click.option(
    "--length", type=click.IntRange(16, 65536), default=512, show_default=True, help="Tokens of a row."
)
@click.option("--rows", type=click.IntRange(1, 512), default=2, show_default=True, help="Rows of a step.")
@click.option("--seed", type=click.IntRange(0, 2**31 - 1), default=0, show_default=True)
def restorer(
    *,
    name: str,
    out: Path,
    text: tuple[Path, ...],
    steps: int,
    alone: int,
    width: int,
    dilations: tuple[int, ...],
    sink: int,
    window: int,
    task_share: float,
    length: int,
    rows: int,
    seed: int,
) -> None:
    """Train a restorer for a target that mlx-lm loads; run again to go on after ^C.

    It gives back the keys and values of evicted positions from their token ids. The folder gets a checkpoint, a
    log, and at the end restore/, which `eval restored-prefill --restorer` takes.
    """
    from engine import models
    from engine.mx import mx
    from engine.restore.learned import config_for
    from engine.restore.restorer import Restorer
    from engine.restore.weights import save_restorer, target_digest
    from engine.train.data import mixed
    from engine.train.data import text as sources
    from engine.train.restorer import recipe as learning
    from engine.train.run import Trainer

    pair = models.load(name, draft=False)
    digest = target_digest(pair.parts["target"].folder)
    mx.random.seed(seed)
    model = Restorer(config_for(pair.target, digest, width=width, dilations=dilations))
    plan = learning.Plan(
        steps=steps, rows=rows, length=length, alone=alone, sink=sink, window=window, seed=seed
    )
    out.mkdir(parents=True, exist_ok=True)
    ids = sources.token_ids(pair.tokenizer, text, out / "text.npy")
    source = mixed.source(pair.tokenizer, ids, task_share=task_share, length=length)
    carry_out(
        Trainer(learning.RestorerLearner(model, pair.target, plan), source, out, plan),
        out / "restore",
        lambda folder: save_restorer(model, folder),
        {"target": pair.name, "task_share": task_share},
    )
