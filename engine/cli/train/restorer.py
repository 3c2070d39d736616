"""``kakeya-engine train restorer``."""

from pathlib import Path

import click

from bridge.common.cli.commands import flag, option
from engine.cli.options import eviction
from engine.cli.train.common import carry_out, for_a_target
from engine.cli.train.common import seed as seed_option
from engine.cli.types import Numbers


@click.command()
@for_a_target
@option(
    "--alone", click.IntRange(0, 1_000_000), 300,
    help="First steps, which train only the error of keys and values.",
)  # fmt: skip
@option("--width", click.IntRange(8, 8192), 96, help="Width of the restorer's states.")
@option("--dilations", Numbers(1, 4096), "1,4,16", help="Dilations of its convolutions.")
@eviction("Last tokens that are never evicted.")
@option("--task-share", click.FloatRange(0, 1), 0.75, help="Share of rows with generated retrieval tasks.")
@option("--length", click.IntRange(16, 65536), 512, help="Tokens per row.")
@option("--rows", click.IntRange(1, 512), 2, help="Rows per step.")
@flag(
    "--from-drafter",
    "Fit linear maps from the drafter's keys and values, over --steps times --rows rows, instead of training.",
)
@option(
    "--layers", click.Choice(["full", "sliding"]), "full",
    help="Layers to restore. Sliding layers need --from-drafter.",
)  # fmt: skip
@option("--rank", click.IntRange(1, 8192), 192, help="Width of the states with --from-drafter.")
@seed_option
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
