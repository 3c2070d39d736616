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
    help="First steps, which train only the error of keys and values.",
)
@click.option(
    "--width",
    type=click.IntRange(8, 8192),
    default=96,
    show_default=True,
    help="Width of the restorer's states.",
)
@click.option(
    "--dilations",
    type=Numbers(1, 4096),
    default="1,4,16",
    show_default=True,
    help="Dilations of its convolutions.",
)
@click.option(
    "--sink",
    type=click.IntRange(0, 1 << 16),
    default=4,
    show_default=True,
    help="First tokens that are never evicted.",
)
@click.option(
    "--window",
    type=click.IntRange(1, 1 << 16),
    default=64,
    show_default=True,
    help="Last tokens that are never evicted.",
)
@click.option(
    "--task-share",
    type=click.FloatRange(0, 1),
    default=0.75,
    show_default=True,
    help="Share of rows with generated retrieval tasks.",
)
@click.option(
    "--length", type=click.IntRange(16, 65536), default=512, show_default=True, help="Tokens per row."
)
@click.option("--rows", type=click.IntRange(1, 512), default=2, show_default=True, help="Rows per step.")
@click.option(
    "--from-drafter",
    is_flag=True,
    help="Fit linear maps from the drafter's keys and values, over --steps times --rows rows, instead of training.",
)
@click.option(
    "--layers",
    type=click.Choice(["full", "sliding"]),
    default="full",
    show_default=True,
    help="Layers to restore. Sliding layers need --from-drafter.",
)
@click.option(
    "--rank",
    type=click.IntRange(1, 8192),
    default=192,
    show_default=True,
    help="Width of the states with --from-drafter.",
)
@click.option("--seed", type=click.IntRange(0, 2**31 - 1), default=0, show_default=True)
def command(
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
    from_drafter: bool,
    layers: str,
    rank: int,
    seed: int,
) -> None:
    """Train a restorer for any target that mlx-lm loads; after ^C, run again to continue.

    A restorer reconstructs the keys and values of evicted positions from their token ids. The output folder gets a
    checkpoint, a log, and at the end restore/, which `eval restored-prefill --restorer` loads. With --from-drafter, it
    is computed from the keys and values of the target's drafter, in closed form and without checkpoints.
    """
    if from_drafter:
        from engine.cli.train.fitted import fit_restorer

        fit_restorer(
            name, out, text,
            layers=layers, rank=rank, rows=steps * rows, length=length, task_share=task_share, seed=seed,
        )  # fmt: skip
        return
    if layers == "sliding":
        raise click.UsageError("sliding layers are restored from the drafter alone: add --from-drafter")
    from engine import models
    from engine.mx import mx
    from engine.restore.learned import config_for
    from engine.restore.restorer import Restorer
    from engine.restore.weights import save_restorer, target_digest
    from engine.train.data import mixed
    from engine.train.data import text as sources
    from engine.train.restorer import recipe as learning
    from engine.train.run import Pool, Trainer

    pair = models.load(name, draft=False)
    digest = target_digest(pair.parts["target"].folder)
    mx.random.seed(seed)
    model = Restorer(config_for(pair.target, digest, width=width, dilations=dilations))
    plan = learning.RestorerPlan(
        steps=steps, rows=rows, length=length, alone=alone, sink=sink, window=window, seed=seed
    )
    out.mkdir(parents=True, exist_ok=True)
    ids = sources.token_ids(pair.tokenizer, text, out / "text.npy")
    source = mixed.source(pair.tokenizer, ids, task_share=task_share, length=length)
    learner = learning.RestorerLearner(model, pair.target, plan)
    carry_out(
        Trainer(learner, Pool(learner.read, source, plan), out, plan),
        out / "restore",
        lambda folder: save_restorer(model, folder),
        {"target": pair.name, "task_share": task_share},
    )
