"""``kakeya-engine eval kv-quant``."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from bridge.common.cli.commands import FILE, option
from engine.cli import options
from engine.cli.reporting import carry_out, show_tables
from engine.cli.types import NAMES
from engine.tokens import Tokenizer

CACHES = (
    "affine@8g64,affine@4g64,affine@3g64,e8v@6.25,e8v@4.25,e8v@3.25,e8v@2.25,k=e8v@5.25,v=e8v@3.25,"
    "e8@q2,e8@q3,e8@q5,e8@q6,e8@q10,e8@q25,e8@q38,d4@q3,d4@q7,d4@q10,d4@q31,d4@q38"
)


@click.command(name="kv-quant")
@options.model
@options.caches(CACHES, f"Caches to compare with raw.  [default: {CACHES}]", show_default=False)
@option(
    "--prompts", NAMES,
    help="Text sets: code, functions, sums, chat, prose, humaneval, or JSON lines files.  [default: code]",
)  # fmt: skip
@option("--text", FILE, help="Use pieces of this text instead.")
@option("--tokens", click.IntRange(16, 1 << 16), 512, help="Tokens per text.")
@option("--max-prompts", click.IntRange(1, 10_000), 10, help="Use only the first N texts.")
@option(
    "--store", click.Choice(["float16", "model"]), "float16",
    help="Type for the keys, values and scales of a float32 model.",
)  # fmt: skip
@options.boundary
@options.seed
@options.out_and_json
def command(
    *, model: str, dtype: str | None, out: Path | None, as_json: bool, prompts: tuple[str, ...] | None,
    text: Path | None, max_prompts: int, **config: Any,
) -> None:  # fmt: skip
    """Compare caches at equal stored bits: error, KL divergence, top token, perplexity.

    A plot is written next to the report. An interrupted run with --out continues where it stopped.
    """
    if prompts and text:
        raise click.UsageError("--prompts or --text, not both")
    from engine.evals import quant
    from engine.harness.job import config_of
    from engine.models import load

    plan = quant.QuantPlan(**config)
    pair = load(model, draft=False, dtype=dtype)
    arms, left_out = quant.arms_of(pair.target, plan)
    workloads = _texts(pair.tokenizer, prompts, text, plan.tokens, max_prompts)
    source = ", ".join(workload.source for workload in workloads)
    config = {
        "model": model, "dtype": dtype, "source": source, "max_prompts": max_prompts, "left_out": left_out,
    }  # fmt: skip
    job = quant.job(pair, arms, workloads, {**config_of(plan), **config})
    carry_out(job, "caches", "texts", show, out, as_json=as_json, plot=True)


def _texts(
    tokenizer: Tokenizer, prompts: tuple[str, ...] | None, text: Path | None, tokens: int, most: int
) -> list[Any]:
    from engine.errors import BadInput
    from engine.evals import quant
    from engine.harness.prompt_sets import TASK, Workload, encode, read, read_sets

    if text is not None:
        try:
            pieces = quant.windows(text.read_text(encoding="utf-8-sig"), tokenizer, tokens, most)
        except (OSError, UnicodeDecodeError) as error:
            raise BadInput(f"the text {text} cannot be read: {error}") from error
        return [Workload("texts", pieces, TASK, str(text))]
    bundled = [Workload("texts", read(None, most), TASK, "bundled")]
    workloads = bundled if prompts is None else read_sets(prompts, most)
    return [
        replace(some, prompts=quant.cut(encode(some.prompts, tokenizer, chat=False), tokens))
        for some in workloads
    ]


def show(report: dict[str, Any]) -> None:
    """Print the caches, and which kind has less error at equal stored bits."""
    from bridge.reports.claims.quant import by_arm, verdicts

    show_tables(report)
    for line in verdicts(by_arm(report), report["arms"]):
        click.echo(line)
