"""``python -m training target``."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bridge.common.cli.progress import Bounded
from engine.cli.train.common import run_to_the_end
from engine.errors import BadInput

if TYPE_CHECKING:
    from engine.train.run import Trainer
    from training.target import TargetPlan

CHATS = "tiny-chat"
FAMILY = ("tiny", "tiny-hybrid", CHATS)
STEPS = 1400


@click.command()
@click.argument("name", type=click.Choice(FAMILY))
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    required=True,
    help="Output folder for checkpoints, log and model.",
)
@click.option(
    "--steps", type=click.IntRange(1, 1_000_000), default=STEPS, show_default=True, help="Training steps."
)
@click.option("--rows", type=click.IntRange(2, 512), default=8, show_default=True, help="Rows per batch.")
@click.option(
    "--seed",
    type=click.IntRange(0, 2**31 - 1),
    default=0,
    show_default=True,
    help="Seed of the random numbers.",
)
@click.option(
    "--device", type=click.Choice(["cpu", "cuda"]), default="cpu", show_default=True, help="Device for torch."
)
@click.option("--threads", type=click.IntRange(1, 256), help="CPU threads.  [default: all cores]")
@click.option(
    "--start",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Start from this model's weights and tokenizer.",
)
@click.option(
    "--retrieval",
    is_flag=True,
    help="Refine a trained target (--start): most rows are tasks, most of them needles between lines of code.",
)
def command(
    *,
    name: str,
    out: Path,
    steps: int,
    rows: int,
    seed: int,
    device: str,
    threads: int | None,
    start: Path | None,
    retrieval: bool,
) -> None:
    """Train a target of the bundled family on this machine's Python sources; after ^C, run again to continue.

    tiny-chat learns from generated chats instead, starting from the folder of tiny's target (--start).

    The output folder gets a tokenizer, a checkpoint, a log, and at the end target/, which mlx-lm and transformers
    can load. Needs torch.
    """
    if retrieval and (start is None or name == CHATS):
        raise BadInput(
            "--retrieval refines a target that learnt from sources", "give its folder with --start"
        )
    from engine.train.with_torch import check_device, use_threads
    from training import refine
    from training.target import TargetPlan, chat_plan

    check_device(device)
    if threads:
        use_threads(threads)
    made = out / "target"
    if name == CHATS:
        run = _of_chats(out, chat_plan(steps, rows, seed), device, start)
    else:
        make = refine.plan if retrieval else TargetPlan
        run = _of_sources(
            name, out, make(steps=steps, rows=rows, seed=seed), device, start, retrieval=retrieval
        )
    run_to_the_end(run, every=50, save_every=200)
    run.learner.export(made)
    click.echo(made)


def _of_chats(out: Path, plan: "TargetPlan", device: str, start: Path | None) -> "Trainer[Any]":
    from training import shapes, tokenizer
    from training.target import chat_trainer

    if start is None:
        raise BadInput(f"{CHATS} starts from another target", "give its folder with --start")
    words = tokenizer.with_chat_marks(tokenizer.load(start))
    tokenizer.save(words, out / "target")
    return chat_trainer(shapes.TARGETS[CHATS], words, out, plan, device=device, start=start)


def _of_sources(
    name: str, out: Path, plan: "TargetPlan", device: str, start: Path | None, *, retrieval: bool
) -> "Trainer[Any]":
    from engine.train.data import corpus
    from training import refine, shapes, tokenizer
    from training.target import trainer

    found = corpus.collect()
    click.echo(
        f"{len(found.train)} files to learn from, {len(found.held_out)} held out, {found.digest()[:12]}",
        err=True,
    )
    made = out / "target"
    if start is not None:
        words = tokenizer.load(start)
    elif (made / "tokenizer.json").exists():
        words = tokenizer.load(made)
    else:
        words = tokenizer.train(file.text for file in found.train if file.source == "python")
    tokenizer.save(words, made)
    config = shapes.TARGETS[name]
    if retrieval and start is not None:
        said = Bounded(lambda done: click.echo(f"the target wrote {done} rows", err=True))
        return refine.trainer(
            config, words, found.train, found.held_out, out, plan, device=device, start=start, say=said
        )
    return trainer(config, words, found.train, found.held_out, out, plan, device=device, start=start)
