"""``python -m training measure``."""

from pathlib import Path
from typing import Any

import click

from bridge.common.cli.progress import progress
from engine.cli.reporting import put_out


@click.command()
@click.argument("model")
@click.option(
    "--recall-count",
    type=click.IntRange(1, 10_000),
    default=100,
    show_default=True,
    help="Needles per task kind and length.",
)
@click.option(
    "--prompts",
    type=click.IntRange(1, 1000),
    default=20,
    show_default=True,
    help="Prompts for draft acceptance.",
)
@click.option(
    "--tokens", type=click.IntRange(8, 4096), default=128, show_default=True, help="Tokens per prompt."
)
@click.option("--block", type=click.IntRange(2, 64), help="Tokens per block.  [default: the drafter's own]")
@click.option(
    "--out", type=click.Path(dir_okay=False, path_type=Path), help="Also write the figures to this file."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of tables.")
def command(
    *,
    model: str,
    recall_count: int,
    prompts: int,
    tokens: int,
    block: int | None,
    out: Path | None,
    as_json: bool,
) -> None:
    """Measure a model of the bundled family: held-out loss, recall, accepted drafts.

    The held-out files come from this interpreter's standard library. They are the files that were held out in
    training only if corpus_digest equals the one in the model card.
    """
    from engine import models
    from engine.train.data import corpus
    from training import card, tokenizer

    pair = models.load(model)
    found = corpus.collect()
    words = tokenizer.load(pair.parts["target"].folder)
    texts = [text for _, text in card.openings(found.held_out, prompts)]
    drafted: list[dict[str, Any]] = []
    with progress("measuring", "steps") as (on_start, on_row):
        asked = len(card.KINDS) * len(card.LENGTHS)
        on_start(asked + (len(texts) if pair.draft is not None else 0) + 1)
        if pair.draft is not None:
            drafted = card.acceptance(pair, texts, tokens=tokens, block=block, on_row=on_row)
        lost = card.held_out_loss(pair.target, words, found.held_out)
        on_row()
        recalled = card.recall(pair.target, words, found.held_out, count=recall_count, on_row=on_row)
    figures: dict[str, Any] = {
        "model": pair.name,
        "corpus_digest": found.digest(),
        "held_out": lost,
        "recall": recalled,
        "acceptance": {
            "block": block or (pair.draft.config.block_size if pair.draft is not None else None),
            "tau": sum(row["verified_tokens"] for row in drafted)
            / max(1, sum(row["verify_steps"] for row in drafted)),
            "prompts": drafted,
        },
    }
    put_out(figures, out, _show, as_json=as_json)


def _show(figures: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console()
    held_out = figures["held_out"]
    console.print(
        f"held-out code: {held_out['nats']:.3f} nats a token, the first guess right {held_out['top1']:.1%} "
        f"of {held_out['tokens']} tokens"
    )
    table = Table(title="recall of a needle, exact answers")
    for name in ("needle", "tokens of the prompt", "right", "of"):
        table.add_column(name, justify="left" if name == "needle" else "right")
    for row in figures["recall"]:
        table.add_row(row["kind"], str(row["prompt_tokens"]), str(row["hits"]), str(row["count"]))
    console.print(table)
    drafted = figures["acceptance"]
    if drafted["prompts"]:
        taus = sorted(row["tau"] for row in drafted["prompts"])
        console.print(
            f"drafter, block {drafted['block']}: {drafted['tau']:.2f} tokens a verify step over "
            f"{len(taus)} held-out openings ({taus[0]:.2f} to {taus[-1]:.2f}), the target's own token counted"
        )
