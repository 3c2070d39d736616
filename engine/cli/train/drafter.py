"""``kakeya-engine train drafter``."""

from functools import partial
from pathlib import Path
from typing import Any

import click

from bridge.common.cli.commands import EXISTING_FOLDER, REFERENCE, Number, option
from bridge.common.cli.progress import Bounded
from engine.cli.train.common import carry_out, for_a_target
from engine.cli.train.common import seed as seed_option

ANSWER_TOKENS = 192  # of an answer that the target writes, at most
PLANNED = ("steps", "rows", "anchors", "block", "seed", "decay", "shortlist")  # options that the plan has too


@click.command()
@for_a_target
@option("--layers", click.IntRange(1, 16), 2, help="Layers of the drafter.")
@option("--block", click.IntRange(2, 64), 8, help="Tokens per block.")
@option("--written", click.IntRange(0), 1024, help="Rows that the target writes.")
@option(
    "--prompts prompt_set",
    REFERENCE,
    help="A set of prompts or a JSON lines file: the target answers them, with its chat template, instead of "
    "writing rows; needs --with torch.",
)
@option(
    "--shortlist", is_flag=True,
    help="Compare with the tokens that are likely in a batch, and let the target read in bfloat16: several times "
    "quicker if the vocabulary is large; needs --with torch.",
)  # fmt: skip
@option("--share", Number(0, 1), 0.6, help="Share of training rows that the target wrote.")
@option("--length", click.IntRange(64, 65536), 320, help="Tokens per row.")
@option("--anchors", click.IntRange(1, 4096), 64, help="Anchors (blocks) per row.")
@option("--rows", click.IntRange(1, 512), 8, help="Rows per step.")
@seed_option
@option("--start", EXISTING_FOLDER, help="Start from this drafter's weights.")
@option(
    "--rate", Number(0, min_open=True), 1.0,
    help="Factor for the learning rates; use less than 1 to refine a drafter given by --start.",
)  # fmt: skip
@option(
    "--decay", Number(0, min_open=True), 4.0,
    help="Draft j of a block has weight exp(-j / decay) in the loss.",
)  # fmt: skip
@option(
    "--with library", click.Choice(["mlx", "torch"]), "mlx",
    help="Library; torch is faster on a CPU and supports CUDA.",
)  # fmt: skip
@option("--device", click.Choice(["cpu", "cuda"]), "cpu", help="Device for torch.")
@option("--threads", click.IntRange(1, 256), help="Threads for torch.  [default: all cores]")
def command(*, name: str, out: Path, text: tuple[Path, ...], **options: Any) -> None:
    """Train a DFlash drafter for any target that mlx-lm loads; after ^C, run again to continue.

    The target first writes some rows itself, from openings of the text, because the drafter must predict the
    target's own text. The output folder gets those rows, a checkpoint, a log, and at the end draft/, which this
    engine and the dflash package can load.
    """
    anchors, length, block, seed = (options[each] for each in ("anchors", "length", "block", "seed"))
    torch = options["library"] == "torch"
    if anchors > (room := max(0, length - block - 1)):
        raise click.UsageError(
            f"--anchors {anchors}: a row of {length} tokens has room for {room} blocks of {block}"
        )
    if not torch and (options["prompt_set"] is not None or options["shortlist"]):
        raise click.UsageError("--prompts and --shortlist need --with torch")
    if torch:
        from engine.train.with_torch import check_device, use_threads

        check_device(options["device"])
        if options["threads"]:
            use_threads(options["threads"])
    from engine import models
    from engine.checkpoints import files
    from engine.dflash.drafter.weights import save_draft
    from engine.models import fit
    from engine.train.data import text as sources
    from engine.train.drafter import init
    from engine.train.drafter.recipe import DrafterPlan
    from engine.train.run import Pool, Reader, Trainer

    pair = models.load(name, draft=False)
    config, folder = pair.parts["target"].config, pair.parts["target"].folder
    if options["start"] is not None:
        fit.check_fit(files.read_config(options["start"]), config, pair.tokenizer)
        model = init.from_folder(options["start"], pair.target)
    else:
        made_for, mask = fit.identity(config, pair.tokenizer), init.mask_id_of(pair.tokenizer)
        shape = init.draft_config(config, mask, layers=options["layers"], block=block, made_for=made_for)
        model = init.drafter(shape, pair.target, seed)
    plan = DrafterPlan(
        pool=max(options["rows"], DrafterPlan.pool),
        matrix_rate=options["rate"] * DrafterPlan.matrix_rate,
        other_rate=options["rate"] * DrafterPlan.other_rate,
        **{each: options[each] for each in PLANNED},
    )
    out.mkdir(parents=True, exist_ok=True)
    ids = sources.token_ids(pair.tokenizer, text, out / "text.npy")
    if options["prompt_set"] is not None:
        own = _answers(pair, options["prompt_set"], out / "answers.npy", options["device"], seed)
        source_of_rows = {"prompts": Path(options["prompt_set"]).name}
    else:
        count = options["written"]
        say = Bounded(lambda done: click.echo(f"the target wrote {done} of {count} rows", err=True))
        own = sources.written_rows(
            pair.target, ids, out / "written.npy",
            count=count, length=length, seed=seed, say=lambda done: say(done, last=done == count),
        )  # fmt: skip
        source_of_rows = {"written": count}
    source = sources.source(ids, own, share=options["share"], length=length)
    if torch:
        from engine.dflash.target.embeddings import DraftEmbeddings, TargetEmbeddings
        from engine.train.drafter.learner_torch import TorchLearner

        scale = DraftEmbeddings(TargetEmbeddings.of(pair.target), model.config).scale
        learner: Reader = TorchLearner(model, folder, plan, embed_scale=scale, device=options["device"])
    else:
        from engine.train.drafter.learner_mlx import MlxLearner

        learner = MlxLearner(model, pair.target, plan)
    carry_out(
        Trainer(learner, Pool(learner.read, source, plan), out, plan),
        out / "draft",
        lambda folder: save_draft(model, folder, dtype="bfloat16"),
        {"target": pair.name, **source_of_rows, "share": options["share"]},
    )


def _answers(pair: Any, prompt_set: str, path: Path, device: str, seed: int) -> Any:
    """Let the target answer a set of prompts; see ``engine.train.data.answers.stream``."""
    from engine.harness import prompt_sets
    from engine.train.data import answers
    from engine.train.drafter.learner_torch import writer

    texts = prompt_sets.read_set(prompt_set, None, "prompts").prompts
    ids = [prompt.ids for prompt in prompt_sets.encode(texts, pair.tokenizer, chat=pair.chats)]
    say = Bounded(lambda done: click.echo(f"the target answered {done} of {len(ids)} prompts", err=True))
    write = partial(writer, pair.parts["target"].folder, ANSWER_TOKENS, device=device, seed=seed)
    return answers.stream(ids, write, path, lambda done: say(done, last=done == len(ids)))
