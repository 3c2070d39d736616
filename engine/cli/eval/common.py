"""What the evaluations share on the command line."""

import time
from pathlib import Path
from typing import Any

import click

from engine.cli.output import put_out

SEED = click.option("--seed", type=click.IntRange(0, 2**32 - 1), default=42, show_default=True)


def find_needles(
    kind: str, pair: Any, arms: list[Any], needles: list[Any], plan: Any, asked: dict[str, Any],
    out: Path | None, *, as_json: bool,
) -> None:  # fmt: skip
    """Decode every arm on every needle, and put out a report of ``kind``; see :mod:`engine.evals.recall`."""
    from engine import provenance, report
    from engine.bench.show import progress
    from engine.evals import recall
    from engine.evals.claims import recall_claims
    from engine.evals.journal import Journal
    from engine.evals.needles import workload
    from engine.evals.plot import recall_plot

    began = time.perf_counter()
    config = {**plan.config(), **asked}
    sections: dict[str, Any] = {
        "models": pair.describe(),
        "workloads": workload(needles, chat=plan.chat),
        "prompts": [needle.section() for needle in needles],
        "arms": [arm.section() for arm in arms],
    }
    journal = Journal(out, {**sections, "config": config, "code": provenance.code()}, ("arm", "prompt"))
    with progress("needles") as (on_start, advance):
        on_start(len(arms) * len(needles))
        recall.measure(pair, arms, needles, plan, journal, advance)
    made = report.envelope(
        kind,
        config={**config, "resumed_rows": journal.resumed},
        rows=journal.rows,
        claims=recall_claims(journal.rows, sections["prompts"], sections["arms"]),
        seconds=time.perf_counter() - began,
        **sections,
    )
    put_out(made, out, show_needles, as_json=as_json, picture=recall_plot(made))
    journal.close()


def show_needles(made: dict[str, Any]) -> None:
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
