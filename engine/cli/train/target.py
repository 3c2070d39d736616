"""``kakeya-engine train target``."""

from pathlib import Path

import click

from engine.cli.train.progress import sayer

FAMILY = ("tiny", "tiny-hybrid")
STEPS = 1400


@click.command()
@click.argument("name", type=click.Choice(FAMILY))
@click.option(
    "--out", type=click.Path(file_okay=False, path_type=Path), required=True, help="Where it grows."
)
@click.option("--steps", type=click.IntRange(1, 1_000_000), default=STEPS, show_default=True)
@click.option("--rows", type=click.IntRange(2, 512), default=8, show_default=True, help="Rows of a batch.")
@click.option("--seed", type=click.IntRange(0, 2**31 - 1), default=0, show_default=True)
@click.option("--device", type=click.Choice(["cpu", "cuda"]), default="cpu", show_default=True)
@click.option(
    "--threads", type=click.IntRange(1, 256), help="CPU threads; as many as there are cores if left out."
)
@click.option(
    "--start",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Go on from this model's weights and tokenizer instead of from nothing.",
)
def target(
    *,
    name: str,
    out: Path,
    steps: int,
    rows: int,
    seed: int,
    device: str,
    threads: int | None,
    start: Path | None,
) -> None:
    """Train a target of the bundled family on this machine's Python sources; run again to go on after ^C.

    The folder gets a tokenizer, a checkpoint, a log, and at the end target/, which mlx-lm and transformers
    load. Needs torch.
    """
    from engine.train.data import corpus, tokenizer
    from engine.train.tiny import shapes
    from engine.train.tiny.target import Plan, Trainer
    from engine.train.with_torch import check_device, use_threads

    check_device(device)
    if threads:
        use_threads(threads)
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
    plan = Plan(steps=steps, rows=rows, seed=seed)
    run = Trainer(
        shapes.TARGETS[name], words, found.train, found.held_out, out, plan, device=device, start=start
    )
    if run.step:
        click.echo(f"going on from step {run.step}", err=True)
    say = sayer(steps)
    run.run(lambda line: say(line, plan.rows * plan.length / line["tokens_per_s"]))
    run.export(made)
    click.echo(made)
