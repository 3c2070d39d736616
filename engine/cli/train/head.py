"""``kakeya-engine train head``."""

from pathlib import Path
from typing import Any

import click

from bridge.common.cli.commands import REFERENCE, Number, option
from bridge.common.cli.progress import Bounded
from engine.cli.train.common import for_a_target, run_to_the_end, write_description
from engine.cli.train.common import seed as seed_option

ANSWER_TOKENS = 128  # of an answer that the target writes, at most
HELD_OUT = 16  # rows to measure with, from the end of the text


@click.command()
@for_a_target
@option(
    "--prompts prompt_set", REFERENCE,
    help="A set of prompts or a JSON lines file: the target answers them, with its chat template, and the head "
    "learns from that alone.",
)  # fmt: skip
@option(
    "--vocabulary", click.IntRange(64), 8192, help="Tokens that the head can draft: the most frequent ones."
)
@option("--unroll", click.IntRange(1, 8), 3, help="Drafts of a chain in training.")
@option("--length", click.IntRange(32, 65536), 160, help="Tokens per row.")
@option("--rows", click.IntRange(1, 512), 8, help="Rows per step.")
@option("--every", click.IntRange(1), 25, help="Steps between two lines of the log.")
@option("--rate", Number(0, min_open=True), 1.0, help="Factor for the learning rates.")
@seed_option
def command(*, name: str, out: Path, text: tuple[Path, ...], prompt_set: str | None, **options: Any) -> None:
    """Train an EAGLE-3 head for any target that mlx-lm loads; after ^C, run again to continue.

    The output folder gets the text as token ids, a checkpoint, a log, and at the end draft/, for --draft.
    """
    from engine import models
    from engine.dflash.heads.weights import save_eagle3
    from engine.models import fit
    from engine.train.data import text as sources
    from engine.train.head import learner
    from engine.train.head.recipe import HeadPlan, vocabulary_of
    from engine.train.run import Pool, Trainer

    pair = models.load(name, draft=False)
    config, seed = pair.parts["target"].config, options["seed"]
    plan = HeadPlan(
        pool=max(options["rows"], HeadPlan.pool),
        matrix_rate=options["rate"] * HeadPlan.matrix_rate,
        other_rate=options["rate"] * HeadPlan.other_rate,
        **{each: options[each] for each in ("steps", "rows", "unroll", "length", "seed")},
    )
    out.mkdir(parents=True, exist_ok=True)
    if prompt_set is None:
        ids = sources.token_ids(pair.tokenizer, text, out / "text.npy")
    else:
        ids = _answers(pair, prompt_set, out / "answers.npy", seed)
    count_out = min(HELD_OUT * plan.length, len(ids) // 8) // plan.length
    sources.check_length(ids, 2 * plan.length)
    known = ids[: len(ids) - count_out * plan.length]
    shape = learner.head_config(config, options["vocabulary"], fit.identity(config, pair.tokenizer))
    head = learner.new_head(
        shape, pair.target, vocabulary_of(known, shape.draft_vocab_size, shape.vocab_size), seed
    )
    rows = ids[len(known) :].reshape(count_out, plan.length) if count_out else None
    taught = learner.HeadLearner(head, pair.target, plan, rows)
    batches = Pool(taught.read, lambda rng, count: sources.windows(known, plan.length, rng, count), plan)
    trainer = Trainer(taught, batches, out, plan)
    run_to_the_end(trainer, every=options["every"], save_every=4 * options["every"])
    save_eagle3(head, out / "draft")
    source = {} if prompt_set is None else {"prompts": Path(prompt_set).name}
    write_description(
        out / "draft",
        {"plan": {**vars(plan)}, "target": pair.name, "vocabulary": options["vocabulary"], **source},
    )


def _answers(pair: Any, prompt_set: str, path: Path, seed: int) -> Any:
    """Let the target answer a set of prompts; see ``engine.train.data.answers.stream``."""
    from engine.dflash.stops import ends_of
    from engine.harness import prompt_sets
    from engine.train.data import answers, chats

    texts = prompt_sets.read_set(prompt_set, None, "prompts").prompts
    ids = [prompt.ids for prompt in prompt_sets.encode(texts, pair.tokenizer, chat=pair.chats)]
    say = Bounded(lambda done: click.echo(f"the target answered {done} of {len(ids)} prompts", err=True))
    write = lambda: chats.writer(pair.target, ANSWER_TOKENS, ends_of(pair.tokenizer), seed)  # noqa: E731
    return answers.stream(ids, write, path, lambda done: say(done, last=done == len(ids)))
