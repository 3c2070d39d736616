"""``kakeya-engine eval recall``."""

import time
from pathlib import Path
from typing import Any

import click

from engine.cli.bench import options
from engine.cli.eval import common


@click.command()
@options.model
@click.option(
    "--caches",
    type=common.Names(),
    default="e8v@4.25,e8v@2.25,affine@4g64",
    show_default=True,
    help="Beside the raw cache.",
)
@click.option("--lengths", type=common.Numbers(int, 32, 1 << 20), default="256,512,1024", show_default=True)
@click.option("--depths", type=common.Numbers(float, 0, 1), default="0.1,0.5,0.9", show_default=True)
@click.option("--samples", type=click.IntRange(1, 1000), default=5, show_default=True, help="Of each bucket.")
@click.option("--max-tokens", type=click.IntRange(1, 4096), default=16, show_default=True)
@click.option(
    "--boundary", type=click.IntRange(0, 1000), default=0, show_default=True, help="Layers left raw."
)
@click.option("--chunk", type=click.IntRange(1, 1 << 16), default=512, show_default=True)
@click.option("--chat", is_flag=True, help="Ask through the chat template.")
@common.SEED
@options.out_and_json
def recall(*, model: str, dtype: str | None, out: Path | None, as_json: bool, **asked: Any) -> None:
    """Look for needles in padding with each cache, beside a control that must fail and one that must not.

    A plot is written beside the report. An interrupted run with --out goes on where it stopped.
    """
    from engine import code, host, report
    from engine.bench.show import progress
    from engine.evals import needles
    from engine.evals import recall as evaluation
    from engine.evals.claims import recall_claims
    from engine.evals.journal import Journal
    from engine.evals.plot import recall_plot
    from engine.models import load

    began, busy = time.perf_counter(), host.load()
    plan = evaluation.Plan(**asked)
    pair = load(model, draft=False, dtype=dtype)
    arms = evaluation.arms_of(pair.target, plan)
    prompts = evaluation.prompts_of(pair, plan)
    models = pair.describe()
    config = {**plan.config(), "model": model, "dtype": dtype}
    journal = Journal(out, {"config": config, "models": models, "code": code.identity()}, ("arm", "prompt"))
    with progress("recall") as (on_start, advance):
        on_start(len(arms) * len(prompts))
        evaluation.measure(pair, arms, prompts, plan, journal, advance)
    sections = {
        "models": models,
        "workloads": needles.workload(prompts, chat=plan.chat),
        "prompts": [needle.section() for needle in prompts],
        "arms": [arm.section() for arm in arms],
    }
    made = report.envelope(
        evaluation.KIND,
        config={**config, "resumed_rows": journal.resumed},
        rows=journal.rows,
        claims=recall_claims(journal.rows, sections["prompts"], sections["arms"]),
        seconds=time.perf_counter() - began,
        load=busy,
        **sections,
    )
    common.put_out(made, out, recall_plot(made), lambda: show(made), as_json=as_json)
    journal.close()


def show(made: dict[str, Any]) -> None:
    """Print recall by arm: over everything with its interval, and codes found by length of the prompt."""
    from rich.console import Console
    from rich.table import Table

    lengths = sorted({prompt["length"] for prompt in made["prompts"]})
    expected = {prompt["id"]: prompt for prompt in made["prompts"]}
    whole = {claim["arm"]: claim for claim in reversed(made["claims"]) if claim["name"] == "recall"}
    table = Table(title=f"{made['kind']} of {made['config']['model']}", caption="interval: 95 %, exact")
    for name in ("arm", "role", "recall", "interval", *map(str, lengths)):
        table.add_column(name, justify="left" if name in {"arm", "role"} else "right", no_wrap=True)
    for arm in made["arms"]:
        claim = whole[arm["name"]]
        cells = []
        for length in lengths:
            rows = [
                r
                for r in made["rows"]
                if r["arm"] == arm["name"] and expected[r["prompt"]]["length"] == length
            ]
            cells.append(f"{sum(expected[r['prompt']]['expected'] in r['text'] for r in rows)}/{len(rows)}")
        low, high = claim["interval"]
        table.add_row(arm["name"], arm["role"], f"{claim['value']:.2f}", f"{low:.2f}-{high:.2f}", *cells)
    Console().print(table)
