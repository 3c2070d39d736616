"""``kakeya-engine eval pass-at-1``."""

from pathlib import Path
from typing import Any

import click

from bridge.common.cli.commands import option
from bridge.common.cli.terminal import figures_table, rich_console
from engine.cli import options
from engine.cli.measured import carry_out


@click.command(name="pass-at-1")
@options.model
@options.draft
@options.caches("e8v@4.25,affine@4g64", "Caches beside the raw one.")
@option("--max-prompts", click.IntRange(1), help="Use only the first N problems.  [default: all 164]")
@option("--max-tokens", click.IntRange(1, 1 << 14), 256)
@click.option(
    "--chat/--no-chat", default=False, show_default=True,
    help="Ask through the chat template, or let the model continue the function.",
)  # fmt: skip
@options.out_and_json
def command(
    *, model: str, draft: str | None, dtype: str | None, caches: tuple[str, ...], max_prompts: int | None,
    max_tokens: int, chat: bool, out: Path | None, as_json: bool,
) -> None:  # fmt: skip
    """Let the model solve HumanEval's problems, and run each solution against the problem's tests.

    Each cache decodes greedily, plainly and with drafts; drafts must not change a token. Two controls show that the
    tests work: the reference solutions, which have to pass, and empty ones, which have to fail.

    The command runs code that a model wrote, so it refuses to start outside of a sandbox. A runner's jobs are in one:
    kakeya measure pass-at-1.
    """
    from engine.evals.solutions import job as solutions
    from engine.evals.solutions import problems
    from engine.evals.solutions.execution import check_confined
    from engine.models import load

    check_confined()
    asked = problems.read(max_prompts)
    pair = load(model, draft, dtype=dtype)
    arms, left_out = solutions.arms_of(pair, caches, chat=chat)
    config = {
        "model": pair.name, "prompts": problems.NAME, "max_prompts": len(asked), "caches": ["raw", *caches],
        "left_out": left_out, "max_tokens": max_tokens, "chat": chat, "temperature": 0.0, "seed": 0,
    }  # fmt: skip
    job = solutions.job(pair, arms, asked, config, most=max_tokens, chat=chat)
    carry_out(job, "solving", "solutions", _show, out, as_json=as_json)


def _show(report: dict[str, Any]) -> None:
    """Print how many problems each arm solves, with the exact interval."""
    claims = {claim["arm"]: claim for claim in report["claims"] if claim["name"] == "pass_at_1"}
    headings = ("arm", "solved", "pass@1", "interval")
    table = figures_table(
        f"pass@1 of {report['config']['model']}", *headings, caption="interval: 95 %, exact"
    )
    for arm in report["arms"]:
        rows = [row for row in report["rows"] if row["arm"] == arm["name"]]
        solved = f"{sum(row['passed'] for row in rows)}/{len(rows)}"
        claim = claims.get(arm["name"])
        figures = [f"{claim['value']:.3f}", "{:.3f}-{:.3f}".format(*claim["interval"])] if claim else ["", ""]
        table.add_row(arm["name"], solved, *figures)
    rich_console().print(table)
