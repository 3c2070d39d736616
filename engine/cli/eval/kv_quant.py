"""``kakeya-engine eval kv-quant``."""

from pathlib import Path
from typing import Any

import click

from engine.cli.bench import options
from engine.cli.eval import common
from engine.cli.measured import carry_out
from engine.cli.types import Names

CACHES = (
    "affine@8g64,affine@4g64,affine@3g64,e8v@6.25,e8v@4.25,e8v@3.25,e8v@2.25,"
    "e8@q3,e8@q6,e8@q10,e8@q38,d4@q3,d4@q7,d4@q10,d4@q38"
)


@click.command(name="kv-quant")
@options.model
@click.option("--caches", type=Names(), default=CACHES, help=f"Beside the raw one.  [default: {CACHES}]")
@click.option("--prompts", type=click.Path(dir_okay=False, path_type=Path), help='JSON lines: "id", "text".')
@click.option(
    "--text", type=click.Path(dir_okay=False, path_type=Path), help="A text instead, cut in pieces."
)
@click.option(
    "--tokens", type=click.IntRange(16, 1 << 16), default=512, show_default=True, help="Of each text."
)
@click.option("--max-prompts", type=click.IntRange(1, 10_000), default=10, show_default=True)
@click.option(
    "--task", type=click.Choice(["code", "maths", "chat", "prose"]), default="code", show_default=True
)
@click.option(
    "--store",
    type=click.Choice(["float16", "model"]),
    default="float16",
    show_default=True,
    help="Keep keys, values and scales of a float32 model in half precision.",
)
@click.option(
    "--boundary", type=click.IntRange(0, 1000), default=0, show_default=True, help="Layers left raw."
)
@common.SEED
@options.out_and_json
def kv_quant(
    *, model: str, dtype: str | None, out: Path | None, as_json: bool, prompts: Path | None, text: Path | None,
    max_prompts: int, task: str, **asked: Any,
) -> None:  # fmt: skip
    """Compare caches at the bits that they store: error, KL divergence, top token, perplexity.

    A plot is written beside the report. An interrupted run with --out goes on where it stopped.
    """
    if prompts and text:
        raise click.UsageError("--prompts or --text, not both")
    from engine.evals import quant
    from engine.evals.quant_claims import claims, picture
    from engine.measure.job import Job
    from engine.models import load

    plan = quant.Plan(**asked)
    pair = load(model, draft=False, dtype=dtype)
    arms, left_out = quant.arms_of(pair.target, plan)
    found = _texts(pair.tokenizer, prompts, text, plan.tokens, max_prompts)
    source = str(prompts or text or "bundled")
    sections = {
        "models": pair.describe(),
        "workloads": {"texts": {"task": task, "source": source, "chat_template": False}},
        "prompts": [prompt.section("texts") for prompt in found],
        "arms": [arm.section for arm in arms],
    }
    job = Job(
        quant.KIND,
        sections,
        {
            **plan.config(),
            "model": model,
            "dtype": dtype,
            "source": source,
            "max_prompts": max_prompts,
            "left_out": left_out,
        },
        key=("arm", "prompt"),
        steps=len(arms) * len(found),
        measure=lambda journal, advance: quant.measure(pair.target, arms, found, journal, advance),
        claims=claims,
    )
    carry_out(job, "caches", "texts", show, out, as_json=as_json, picture=picture)


def _texts(tokenizer: Any, prompts: Path | None, text: Path | None, tokens: int, most: int) -> list[Any]:
    from engine.errors import BadInput
    from engine.evals import quant
    from engine.measure.prompts import encode, read

    if text is None:
        return quant.cut(encode(read(prompts, most), tokenizer, chat=False), tokens)
    try:
        return quant.windows(text.read_text(encoding="utf-8"), tokenizer, tokens, most)
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"the text {text} cannot be read: {error}") from error


def show(made: dict[str, Any]) -> None:
    """Print an arm a line, in the order of their stored bits."""
    from rich.console import Console
    from rich.table import Table

    from engine.evals.quant_claims import by_arm

    found = by_arm(made)
    caption = "bits: every stored byte (in brackets: the published formula)"
    table = Table(title=f"caches of {made['config']['model']}", caption=caption)
    for name in ("cache", "bits/value", "rel-MSE", "KL (nats)", "same top", "perplexity"):
        table.add_column(name, justify="left" if name == "cache" else "right", no_wrap=True)
    for arm in sorted(made["arms"], key=lambda arm: found[arm["name"]]["stored_bits_per_value"]):
        figures = found[arm["name"]]
        nominal = arm["options"].get("nominal_bits_per_value")
        bits = f"{figures['stored_bits_per_value']:.3f}" + (f" [{nominal:.3f}]" if nominal else "")
        rest = (f"{figures['rel_mse']:.2e}", f"{figures['kl']:.2e}", f"{figures['same_top']:.4f}")
        table.add_row(arm["name"], bits.replace("[", "\\["), *rest, f"{figures['perplexity']:.3f}")
    Console().print(table)
