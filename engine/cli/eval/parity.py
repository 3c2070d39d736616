"""``kakeya-engine eval parity``."""

from pathlib import Path
from typing import Any

import click

from engine.cli.bench import options
from engine.cli.eval import common
from engine.cli.measured import carry_out


@click.command()
@options.model
@options.draft
@click.option(
    "--against",
    type=click.Choice(["package", "float32"]),
    default="package",
    show_default=True,
    help="The dflash package in the same type, or this engine's drafter in float32.",
)
@click.option(
    "--half", type=click.Choice(["bfloat16", "float16"]), default="bfloat16", show_default=True,
    help="With --against float32: the type of the other side.",
)  # fmt: skip
@click.option("--prompts", type=click.Path(dir_okay=False, path_type=Path), help='JSON lines: "id", "text".')
@click.option("--max-prompts", type=click.IntRange(1, 10_000), default=3, show_default=True)
@click.option("--blocks", type=click.IntRange(1, 1000), default=4, show_default=True, help="On each prompt.")
@click.option(
    "--block-size", type=click.IntRange(1, 64),
    help="Rows of a block; 1 drafts nothing, so 2 are compared.  [default: the drafter's own]",
)  # fmt: skip
@click.option(
    "--least",
    type=click.FloatRange(0, 1),
    help="Fail below this agreement.  [default: 1, or 0 against float32]",
)
@common.SEED
@options.out_and_json
@click.pass_context
def parity(
    ctx: click.Context, *, model: str, draft: str | None, dtype: str | None, out: Path | None, as_json: bool,
    least: float | None, **asked: Any,
) -> None:  # fmt: skip
    """Let two drafters draft from the same inputs, step by step, and count on how many tokens they agree."""
    from engine.evals import parity as evaluation
    from engine.measure.job import Job
    from engine.measure.prompts import encode, read
    from engine.models import load

    if asked["against"] == "package":
        evaluation.check_package()
    pair = load(model, draft, dtype=dtype)
    sides = evaluation.sides_of(pair, asked["against"], asked["half"])
    prompts = encode(read(asked["prompts"], asked["max_prompts"]), pair.tokenizer, chat=False)
    block = max(2, asked["block_size"] or int(pair.draft.config.block_size))
    source = str(asked["prompts"] or "bundled")
    sections = {
        "models": pair.describe(),
        "workloads": {"texts": {"task": "code", "source": source, "chat_template": False}},
        "prompts": [prompt.section("texts") for prompt in prompts],
        "arms": [side.section for side in sides],
    }
    job = Job(
        evaluation.KIND,
        sections,
        {**asked, "model": model, "draft": draft, "dtype": dtype, "prompts": source, "block_size": block},
        key=("prompt", "block"),
        steps=len(prompts),
        measure=lambda journal, advance: evaluation.measure(
            pair, sides, prompts, block, asked["blocks"], journal, advance
        ),
        claims=lambda made: evaluation.claims(made["rows"], prompts),
    )
    made = carry_out(job, "drafting", "prompts", show, out, as_json=as_json)
    wanted = least if least is not None else float(asked["against"] == "package")
    if made["claims"][0]["value"] < wanted:
        click.echo(f"error: agreement is {made['claims'][0]['value']:.4f}, below {wanted:g}", err=True)
        ctx.exit(1)


def show(made: dict[str, Any]) -> None:
    """Print the agreement, and the largest difference of logits."""
    (claim,) = made["claims"]
    low, high = claim["interval"]
    reference, candidate = (arm["loop"] for arm in made["arms"])
    drafted = sum(len(row["reference"]) for row in made["rows"])
    click.echo(
        f"{candidate} against {reference}: {claim['value']:.4f} ({low:.4f}-{high:.4f}) of {drafted} tokens"
    )
    errors = [row["max_logit_error"] for row in made["rows"] if "max_logit_error" in row]
    if errors:
        click.echo(f"largest difference of a logit: {max(errors):.3g}")
    margins = [row["margin"] for row in made["rows"] if "margin" in row]
    if margins:
        click.echo(
            f"where tokens part, the reference's logits lie {min(margins):.3g} to {max(margins):.3g} apart"
        )
