"""``kakeya-engine train drafter``."""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from bridge.common.cli.commands import EXISTING_FOLDER, option
from bridge.common.cli.progress import Bounded
from engine.cli.train.common import carry_out, for_a_target
from engine.cli.train.common import seed as seed_option
from engine.cli.types import Numbers

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np

    from engine.models.pair import Pair
    from engine.train.data.answers import Writer


@click.command()
@for_a_target
@option("--layers", click.IntRange(1, 16), 2)
@option("--block", click.IntRange(2, 64), 8, help="Tokens per block.")
@option("--taps", Numbers(0, 255), help="Target layers to read.  [default: three, evenly spread]")
@option("--mask-token", click.IntRange(0), help="Token id of the mask for tokens still to be drafted.")
@option("--written", click.IntRange(0), 1024, help="Rows that the target writes.")
@option(
    "--prompts prompt_set",
    help="A set of prompts or a JSON lines file: the target answers them, with its chat template, instead of "
    "writing rows; needs --with torch.",
)
@option("--answer-tokens", click.IntRange(1, 65536), 192, help="Tokens of an answer at most.")
@option(
    "--shortlist", is_flag=True,
    help="Compare with the tokens that are likely in a batch, and let the target read in bfloat16: several times "
    "quicker if the vocabulary is large; needs --with torch.",
)  # fmt: skip
@option("--share", click.FloatRange(0, 1), 0.6, help="Share of training rows that the target wrote.")
@option("--length", click.IntRange(64, 65536), 320, help="Tokens per row.")
@option("--anchors", click.IntRange(1, 4096), 64, help="Anchors (blocks) per row.")
@option("--rows", click.IntRange(1, 512), 8, help="Rows per step.")
@seed_option
@option("--start", EXISTING_FOLDER, help="Start from this drafter's weights.")
@option(
    "--rate", click.FloatRange(0, min_open=True), 1.0,
    help="Factor for the learning rates; use less than 1 to refine a drafter given by --start.",
)  # fmt: skip
@option(
    "--decay", click.FloatRange(0, min_open=True), 4.0,
    help="Draft j of a block has weight exp(-j / decay) in the loss.",
)  # fmt: skip
@option(
    "--with library", click.Choice(["mlx", "torch"]), "mlx",
    help="Library; torch is faster on a CPU and supports CUDA.",
)  # fmt: skip
@option("--device", click.Choice(["cpu", "cuda"]), "cpu", help="Device for torch.")
@option("--threads", click.IntRange(1, 256), help="Threads for torch.  [default: all cores]")
def command(
    *,
    name: str,
    out: Path,
    text: tuple[Path, ...],
    steps: int,
    layers: int,
    block: int,
    taps: list[int] | None,
    mask_token: int | None,
    written: int,
    prompt_set: str | None,
    answer_tokens: int,
    shortlist: bool,
    share: float,
    length: int,
    anchors: int,
    rows: int,
    seed: int,
    start: Path | None,
    rate: float,
    decay: float,
    library: str,
    device: str,
    threads: int | None,
) -> None:
    """Train a DFlash drafter for any target that mlx-lm loads; after ^C, run again to continue.

    The target first writes some rows itself, from openings of the text, because the drafter must predict the
    target's own text. The output folder gets those rows, a checkpoint, a log, and at the end draft/, which this
    engine and the dflash package can load.
    """
    if anchors >= length - block:
        raise click.UsageError(
            f"--anchors {anchors}: a row of {length} tokens has room for {max(0, length - block - 1)} blocks of {block}"
        )
    if library != "torch" and (prompt_set is not None or shortlist):
        raise click.UsageError("--prompts and --shortlist need --with torch")
    if library == "torch":
        from engine.train.with_torch import check_device, use_threads

        check_device(device)
        if threads:
            use_threads(threads)
    from engine import models
    from engine.checkpoints import files
    from engine.dflash.drafter.weights import save_draft
    from engine.models import fit
    from engine.train.data import text as sources
    from engine.train.drafter import begin
    from engine.train.drafter import recipe as draft
    from engine.train.run import Pool, Reader, Trainer

    pair = models.load(name, draft=False)
    mask = begin.mask_id_of(pair.tokenizer) if mask_token is None else mask_token
    config = pair.parts["target"].config
    if start is not None:
        fit.check_fit(files.read_config(start), config, pair.tokenizer)
        model = begin.from_folder(start, pair.target)
    else:
        made_for = fit.identity(config, pair.tokenizer)
        shape = begin.draft_config(config, mask, layers=layers, block=block, taps=taps, made_for=made_for)
        model = begin.drafter(shape, pair.target, seed)
    plan = draft.DrafterPlan(
        steps=steps,
        rows=rows,
        anchors=anchors,
        block=block,
        pool=max(rows, draft.DrafterPlan.pool),
        seed=seed,
        decay=decay,
        shortlist=shortlist,
        matrix_rate=rate * draft.DrafterPlan.matrix_rate,
        other_rate=rate * draft.DrafterPlan.other_rate,
    )
    out.mkdir(parents=True, exist_ok=True)
    ids = sources.token_ids(pair.tokenizer, text, out / "text.npy")
    if prompt_set is None:
        say = Bounded(lambda done: click.echo(f"the target wrote {done} of {written} rows", err=True))
        own = sources.written_rows(
            pair.target,
            ids,
            out / "written.npy",
            count=written,
            length=length,
            seed=seed,
            say=lambda done: say(done, last=done == written),
        )
    else:
        from engine.train.drafter.learner_torch import writer

        answering = partial(writer, pair.parts["target"].folder, answer_tokens, device=device, seed=seed)
        own = _answers(pair, prompt_set, answering, out / "answers.npy")
    source_of_rows = {"prompts": Path(prompt_set).name} if prompt_set else {"written": written}
    source = sources.source(ids, own, share=share, length=length)
    if library == "mlx":
        from engine.train.drafter.learner_mlx import MlxLearner

        learner: Reader = MlxLearner(model, pair.target, plan)
    else:
        from engine.dflash.target.embeddings import DraftEmbeddings, TargetEmbeddings
        from engine.train.drafter.learner_torch import TorchLearner

        scale = DraftEmbeddings(TargetEmbeddings.of(pair.target), model.config).scale
        learner = TorchLearner(model, pair.parts["target"].folder, plan, embed_scale=scale, device=device)
    carry_out(
        Trainer(learner, Pool(learner.read, source, plan), out, plan),
        out / "draft",
        lambda folder: save_draft(model, folder, dtype="bfloat16"),
        {"target": pair.name, **source_of_rows, "share": share},
    )


def _answers(pair: "Pair", prompt_set: str, writer: "Callable[[], Writer]", path: Path) -> "np.ndarray":
    """Let the target answer a set of prompts; see :func:``engine.train.data.answers.stream``."""
    from engine.measure import prompts as sets
    from engine.train.data import answers

    texts = sets.read_set(prompt_set, None, "prompts").prompts
    ids = [prompt.ids for prompt in sets.encode(texts, pair.tokenizer, chat=pair.chats)]
    say = Bounded(lambda done: click.echo(f"the target answered {done} of {len(ids)} prompts", err=True))
    return answers.stream(ids, writer, path, lambda done: say(done, last=done == len(ids)))
