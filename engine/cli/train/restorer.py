"""``kakeya-engine train restorer``."""

from pathlib import Path
from typing import Any

import click

from bridge.common.cli.commands import Number, flag, option
from bridge.common.cli.progress import progress
from engine.cli.options import eviction
from engine.cli.train.common import carry_out, for_a_target, seed, write_description

DILATIONS = (1, 4, 16)  # the dilations of a restorer's convolutions


@click.command()
@for_a_target
@option(
    "--alone", click.IntRange(0, 1_000_000), 300,
    help="First steps, which train only the error of keys and values.",
)  # fmt: skip
@option("--width", click.IntRange(8, 8192), 96, help="Width of the restorer's states.")
@eviction("Last tokens that are never evicted.")
@option("--task-share", Number(0, 1), 0.75, help="Share of rows with generated retrieval tasks.")
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
@option(
    "--rank", click.IntRange(1, 8192), 192, help="With --from-drafter: values in the state of each position."
)
@seed
def command(
    *, name: str, out: Path, text: tuple[Path, ...], from_drafter: bool, layers: str, **options: Any
) -> None:
    """Train a restorer for any target that mlx-lm loads; after ^C, run again to continue.

    A restorer reconstructs the keys and values of evicted positions from their token ids. The output folder gets a
    checkpoint, a log, and at the end restore/, which `eval restored-prefill --restorer` loads. With --from-drafter, it
    is computed from the keys and values of the target's drafter, in closed form and without checkpoints.
    """
    if layers == "sliding" and not from_drafter:
        raise click.UsageError("sliding layers are restored from the drafter alone: add --from-drafter")
    from engine import models

    pair = models.load(name, draft=None if from_drafter else False)
    learn = _fit if from_drafter else _train
    learn(pair, out, text, layers=layers, **options)


def _source(pair: Any, out: Path, text: tuple[Path, ...], task_share: float, length: int) -> Any:
    """Return the source of rows, and make the output folder, which keeps the text's tokens."""
    from engine.train.data import mixed
    from engine.train.data import text as sources

    out.mkdir(parents=True, exist_ok=True)
    ids = sources.token_ids(pair.tokenizer, text, out / "text.npy")
    return mixed.source(pair.tokenizer, ids, task_share=task_share, length=length)


def _train(pair: Any, out: Path, text: tuple[Path, ...], *, task_share: float, **options: Any) -> None:
    from engine.mx import mx
    from engine.restore.learned import config_for
    from engine.restore.restorer import Restorer
    from engine.restore.weights import save_restorer, target_digest
    from engine.train.restorer.recipe import RestorerLearner, RestorerPlan
    from engine.train.run import Pool, Trainer

    digest = target_digest(pair.parts["target"].folder)
    mx.random.seed(options["seed"])
    model = Restorer(config_for(pair.target, digest, width=options["width"], dilations=DILATIONS))
    names = ("steps", "rows", "length", "alone", "sink", "window", "seed")
    plan = RestorerPlan(**{each: options[each] for each in names})
    source = _source(pair, out, text, task_share, plan.length)
    learner = RestorerLearner(model, pair.target, plan)
    carry_out(
        Trainer(learner, Pool(learner.read, source, plan), out, plan),
        out / "restore",
        lambda folder: save_restorer(model, folder),
        {"target": pair.name, "task_share": task_share},
    )


def _fit(pair: Any, out: Path, text: tuple[Path, ...], *, task_share: float, **options: Any) -> None:
    import numpy as np

    from engine.errors import BadInput
    from engine.restore.cache import restored_layers
    from engine.restore.weights import save_restorer, target_digest
    from engine.train.restorer.fit import fit, relative_errors

    if pair.draft is None:
        raise BadInput(f"{pair.name} has no drafter to read", "train one: kakeya-engine train drafter")
    layers, seed, length = (options[each] for each in ("layers", "seed", "length"))
    rows = options["steps"] * options["rows"]
    restored = restored_layers(pair.target, sliding=layers == "sliding")
    source = _source(pair, out, text, task_share, length)
    *read, unseen = source(np.random.default_rng(seed), rows + 1).tolist()
    digests = target_digest(pair.parts["target"].folder), target_digest(pair.parts["draft"].folder)
    with progress("fit", "rows") as (on_start, on_row):
        on_start(rows)
        restorer = fit(
            pair.target, pair.draft.bind(pair.target), restored, read,
            rank=options["rank"], digests=digests, on_row=on_row,
        )  # fmt: skip
    errors = [round(error, 4) for error in relative_errors(restorer, pair.target, unseen)]
    save_restorer(restorer, out / "restore")
    plan = {
        "rows": rows, "length": length, "rank": restorer.config.rank, "task_share": task_share, "seed": seed,
        "layers": layers,
    }  # fmt: skip
    write_description(out / "restore", {"target": pair.name, "plan": plan, "held_out_error": errors})
