"""``kakeya-engine eval pass-at-1``."""

from pathlib import Path

import click

from bridge.common.cli.commands import option
from engine.cli import options
from engine.cli.reporting import carry_out, show_tables


@click.command(name="pass-at-1")
@options.model
@options.draft
@options.caches("e8v@4.25,affine@4g64", "Caches beside the raw one.")
@option("--max-prompts", click.IntRange(1), help="Use only the first N problems.  [default: all 164]")
@option("--max-tokens", click.IntRange(1, 1 << 14), 256, help="Maximum tokens per solution.")
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
    posed = problems.read(max_prompts)
    pair = load(model, draft, dtype=dtype)
    arms, left_out = solutions.arms_of(pair, caches, chat=chat)
    config = {
        "model": pair.name, "prompts": problems.NAME, "max_prompts": len(posed), "caches": ["raw", *caches],
        "left_out": left_out, "max_tokens": max_tokens, "chat": chat, "temperature": 0.0, "seed": 0,
    }  # fmt: skip
    job = solutions.job(pair, arms, posed, config, most=max_tokens, chat=chat)
    carry_out(job, "solving", "solutions", show_tables, out, as_json=as_json)
