"""``kakeya-engine eval parity``."""

from pathlib import Path
from typing import Any

import click

from bridge.common.cli.commands import FILE, Number, option
from engine.cli import options
from engine.cli.reporting import carry_out


@click.command()
@options.model
@options.draft
@options.embed_scale
@option(
    "--against", click.Choice(["package", "float32", "torch"]), "package",
    help="Reference: the dflash package in the same type, this engine's drafter in float32, or the layers in torch.",
)  # fmt: skip
@option(
    "--half", click.Choice(["bfloat16", "float16"]), "bfloat16",
    help="With --against float32: the half-precision type to compare.",
)  # fmt: skip
@option("--prompts", FILE, help='JSON lines: "id", "text".')
@option("--max-prompts", click.IntRange(1, 10_000), 3, help="Use only the first N prompts.")
@option("--blocks", click.IntRange(1, 1000), 4, help="Blocks per prompt.")
@option(
    "--block-size", click.IntRange(1, 64),
    help="Tokens per block; 1 counts as 2.  [default: the drafter's own]",
)  # fmt: skip
@option(
    "--least", Number(0, 1),
    help="Minimum agreement, or the command fails.  [default: 1; 0 against float32]",
)  # fmt: skip
@options.seed
@options.out_and_json
@click.pass_context
def command(
    ctx: click.Context, /, *, out: Path | None, as_json: bool, least: float | None, **settings: Any
) -> None:
    """Run two drafters on the same inputs, step by step, and count the tokens on which they agree.

    Also counts the candidate's drafts that the target accepts. With --embed-scale both, all of this is done with the
    checkpoint's factor and then with the other one. That makes two reports: -rescaled is inserted before the suffix of
    --out for the second one. If the target multiplies its embeddings by 1, there is one.
    """
    from engine.evals import parity as evaluation
    from engine.harness.prompt_sets import encode, read
    from engine.models import load

    against, half = settings["against"], settings["half"]
    if against == "package":
        evaluation.check_package()
    pair = load(settings["model"], settings["draft"], dtype=settings["dtype"])
    pair = pair.with_embed_scale(settings["embed_scale"])
    sides = evaluation.sides_of(pair, against, half)
    prompts = encode(read(settings["prompts"], settings["max_prompts"]), pair.tokenizer, chat=False)
    block = max(2, settings["block_size"] or int(pair.draft.config.block_size))
    source = str(settings["prompts"] or "bundled")
    config = {**settings, "prompts": source, "block_size": settings["block_size"] or block}
    pairs = []
    for scaled, path in both(pair, out) if settings["embed_scale"] == "both" else [(pair, out)]:
        if scaled is not pair:
            sides = evaluation.sides_of(scaled, against, half)
        job = evaluation.job(scaled, sides, prompts, config, block=block, blocks=settings["blocks"])
        pairs.append(carry_out(job, "drafting", "prompts", show, path, as_json=as_json)["claims"][0]["value"])
    wanted = least if least is not None else float(against != "float32")
    if min(pairs) < wanted:
        click.echo(f"error: agreement is {min(pairs):.4f}, below {wanted:g}", err=True)
        ctx.exit(1)


def both(pair: Any, out: Path | None) -> list[tuple[Any, Path | None]]:
    """Return the pair and, if different, the pair with the other embedding factor, each with its report's file."""
    from engine.evals.speculation.bench import SAME

    other = pair.rescaled()
    if other is None:
        click.echo(SAME, err=True)
        return [(pair, out)]
    return [(pair, out), (other, out and out.with_name(f"{out.stem}-rescaled{out.suffix}"))]


def show(report: dict[str, Any]) -> None:
    """Print the agreement, and the largest difference of logits."""
    from engine.evals.parity import accepted

    (claim,) = report["claims"]
    low, high = claim["interval"]
    reference, candidate = (arm["loop"] for arm in report["arms"])
    click.echo(f"the drafter reads embeddings times {report['arms'][0]['options']['embed_scale']:g}")
    rows = report["rows"]
    drafted = sum(len(row["reference"]) for row in rows)
    agreement = f"{claim['value']:.4f} ({low:.4f}-{high:.4f}) of {drafted} tokens"
    click.echo(f"{candidate} against {reference}: {agreement}")
    if all("target" in row for row in rows):
        click.echo(f"the target accepts {accepted(rows)} of {drafted} drafts of {candidate}")
    if errors := [row["max_logit_error"] for row in rows if "max_logit_error" in row]:
        click.echo(f"largest difference of a logit: {max(errors):.3g}")
    if margins := [row["margin"] for row in rows if "margin" in row]:
        span = f"{min(margins):.3g} to {max(margins):.3g}"
        click.echo(f"where tokens part, the reference's logits lie {span} apart")
