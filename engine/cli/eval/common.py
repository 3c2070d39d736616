"""What the evaluations share on the command line."""

from pathlib import Path
from typing import Any

from bridge.common.cli.progress import progress
from bridge.common.cli.terminal import figures_table, rich_console
from engine.cli.measured import carry_out


def make_needles(pair: Any, plan: Any) -> list[Any]:
    """Return the prompts of a plan, made in sight of whoever waits.

    Raises:
        BadInput: the model cannot read prompts of these lengths.
    """
    from engine.dflash.target.context import check_context
    from engine.evals import needles

    check_context(pair.target, pair.name, max(plan.lengths) + plan.max_tokens)
    with progress("prompts", "prompts") as (on_start, on_made):
        on_start(len(plan.lengths) * len(plan.depths) * plan.samples)
        return needles.make(
            pair.tokenizer,
            plan.lengths,
            plan.depths,
            plan.samples,
            plan.seed,
            chat=plan.chat,
            on_made=on_made,
        )


def find_needles(
    kind: str, pair: Any, arms: list[Any], needles: list[Any], plan: Any, asked: dict[str, Any],
    out: Path | None, *, as_json: bool, predictions: Any = None,
) -> None:  # fmt: skip
    """Decode every arm on every needle, and put out a report of ``kind``; see :mod:``engine.evals.recall``."""
    from engine.evals import recall
    from engine.measure.plot import recall_plot

    config = {**plan.config(), **asked}
    job = recall.job(
        kind, pair, arms, needles, config,
        most=plan.max_tokens,
        chat=plan.chat,
        repeats=getattr(plan, "repeats", 1),
        max_repeats=getattr(plan, "max_repeats", None),
        ends=not getattr(plan, "fixed_length", False),
        predictions=predictions,
    )  # fmt: skip
    carry_out(job, "needles", "answers", show_needles, out, as_json=as_json, picture=recall_plot)


def show_needles(report: dict[str, Any]) -> None:
    """Print codes found by arm and length of the prompt, and what is claimed: recall with its interval, divergence."""
    lengths = sorted({prompt["length"] for prompt in report["prompts"]})
    expected = {prompt["id"]: prompt for prompt in report["prompts"]}
    whole = {claim["arm"]: claim for claim in reversed(report["claims"]) if claim["name"] == "recall"}
    apart = {claim["arm"]: claim["value"] for claim in report["claims"] if claim["name"] == "prompt_kl"}
    paces = {claim["arm"]: claim["value"] for claim in report["claims"] if claim["name"] == "decode_tok_s"}
    more = [*(("KL",) if apart else ()), *(("tokens/s",) if paces else ())]
    caption = "interval: 95 %, exact" if whole else "recall is not claimed: other layers find codes alone"
    title = f"{report['kind']} of {report['config']['model']}"
    claimed = ("recall", "interval") if whole else ()
    headings = ("arm", "role", *claimed, *map(str, lengths), *more)
    table = figures_table(title, *headings, names=2, caption=caption)
    for arm in report["arms"]:
        cells, recall = [], []
        if claim := whole.get(arm["name"]):
            low, high = claim["interval"]
            recall = [f"{claim['value']:.2f}", f"{low:.2f}-{high:.2f}"]
        for length in lengths:
            rows = [
                r
                for r in report["rows"]
                if r["arm"] == arm["name"]
                and expected[r["prompt"]]["length"] == length
                and not r.get("warmup")
            ]
            cells.append(f"{sum(expected[r['prompt']]['expected'] in r['text'] for r in rows)}/{len(rows)}")
        cells += [f"{apart[arm['name']]:.3g}" if arm["name"] in apart else ""] if apart else []
        cells += [f"{paces[arm['name']]:.3g}"] if arm["name"] in paces else []
        table.add_row(arm["name"], arm["role"], *recall, *cells)
    rich_console().print(table)
