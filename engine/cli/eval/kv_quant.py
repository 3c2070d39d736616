"""``kakeya-engine eval kv-quant``."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from bridge.common.cli.commands import FILE, option
from bridge.common.cli.terminal import figures_table, rich_console
from engine.cli import options
from engine.cli.measured import carry_out
from engine.cli.types import CacheSpecs, Names
from engine.tokens import Tokenizer

CACHES = (
    "affine@8g64,affine@4g64,affine@3g64,e8v@6.25,e8v@4.25,e8v@3.25,e8v@2.25,"
    "e8@q2,e8@q3,e8@q5,e8@q6,e8@q10,e8@q25,e8@q38,d4@q3,d4@q7,d4@q10,d4@q31,d4@q38"
)


@click.command(name="kv-quant")
@options.model
@option(
    "--caches",
    CacheSpecs(),
    CACHES,
    show_default=False,
    help=f"Caches to compare with raw.  [default: {CACHES}]",
)
@option(
    "--prompts", Names(),
    help="Text sets: code, functions, sums, chat, prose, humaneval, or JSON lines files.  [default: code]",
)  # fmt: skip
@option("--text", FILE, help="Use pieces of this text instead.")
@option("--tokens", click.IntRange(16, 1 << 16), 512, help="Tokens per text.")
@option("--max-prompts", click.IntRange(1, 10_000), 10)
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
    from engine.measure.plot import quant_plot
    from engine.models import load

    plan = quant.QuantPlan(**config)
    pair = load(model, draft=False, dtype=dtype)
    arms, left_out = quant.arms_of(pair.target, plan)
    workloads = _texts(pair.tokenizer, prompts, text, plan.tokens, max_prompts)
    source = ", ".join(workload.source for workload in workloads)
    config = {
        "model": model,
        "dtype": dtype,
        "source": source,
        "max_prompts": max_prompts,
        "left_out": left_out,
    }
    job = quant.job(pair, arms, workloads, {**plan.config(), **config})
    carry_out(job, "caches", "texts", show, out, as_json=as_json, picture=quant_plot)


def _texts(
    tokenizer: Tokenizer,
    prompts: tuple[str, ...] | None,
    text: Path | None,
    tokens: int,
    most: int,
) -> list[Any]:
    from engine.errors import BadInput
    from engine.evals import quant
    from engine.measure.prompts import TASK, Workload, encode, read, read_sets

    if text is not None:
        try:
            pieces = quant.windows(text.read_text(encoding="utf-8"), tokenizer, tokens, most)
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
    """Print an arm a line, in the order of their stored bits."""
    from bridge.reports.claims.quant import by_arm, verdicts

    arm_figures = by_arm(report)
    caption = "bits: every stored byte (in brackets: the published formula)"
    headings = ("cache", "bits/value", "rel-MSE", "KL (nats)", "same top", "perplexity")
    table = figures_table(f"caches of {report['config']['model']}", *headings, caption=caption)
    for arm in sorted(report["arms"], key=lambda arm: arm_figures[arm["name"]]["stored_bits_per_value"]):
        figures = arm_figures[arm["name"]]
        nominal = arm["options"].get("nominal_bits_per_value")
        bits = f"{figures['stored_bits_per_value']:.3f}" + (f" [{nominal:.3f}]" if nominal else "")
        rest = (f"{figures['rel_mse']:.2e}", f"{figures['kl']:.2e}", f"{figures['same_top']:.4f}")
        table.add_row(arm["name"], bits.replace("[", "\\["), *rest, f"{figures['perplexity']:.3f}")
    rich_console().print(table)
    for line in verdicts(arm_figures, report["arms"]):
        click.echo(line)
