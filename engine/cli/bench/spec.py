"""``kakeya-engine bench spec``: speculative decoding compared with plain decoding."""

from pathlib import Path
from typing import Any

import click

from bridge.common.cli.commands import flag, option
from engine.cli import options as shared
from engine.cli.bench import speculation

NEEDLES = 5
SHORTEST = 256


@click.command()
@shared.model
@shared.draft
@shared.embed_scale
@shared.prompts
@option("--needles", click.IntRange(128, 1 << 20), help="Use needle prompts of N tokens, not --prompts.")
@flag("--spread", "With --needles N: also use N/8 and N/4 tokens (if at least 256).")
@flag("--direct-answer", "With --needles and a chat model: ask for the code and nothing else.")
@speculation.speculative
@shared.out_and_json
@click.pass_context
def command(ctx: click.Context, /, *, out: Path | None, as_json: bool, **options: Any) -> None:
    """Compare speculative decoding with mlx-lm's own generation.

    Arms: mlx-lm (native), one forward pass a token (verify1), our loop without drafts (incremental) and with
    each drafter and rollback, and the dflash package if it is installed. With a cache that is not mlx-lm's own,
    the baselines keep the raw cache, and mlx-lm over that cache is an additional arm. Each repeat runs every arm
    on every prompt, in a changing order, after one warm-up repeat. All arms decode greedily. If our loop decodes
    another token than mlx-lm and the two logits are not a near tie, the command fails. An interrupted run with
    --out continues where it stopped.
    """
    if options["needles"] and options["prompts"]:
        raise click.UsageError("--prompts or --needles, not both")
    if options["direct_answer"] and not options["needles"]:
        raise click.UsageError("--direct-answer goes with --needles")
    if options["spread"] and not options["needles"]:
        raise click.UsageError("--spread goes with --needles")
    from engine.models import load

    pair = load(options["model"], options["draft"], dtype=options["dtype"]).with_embed_scale(
        options["embed_scale"]
    )
    chat = pair.chats if options["chat"] is None else options["chat"]
    if options["direct_answer"] and not chat:
        raise click.UsageError("--direct-answer is for chat models: add --chat")
    workloads = workloads_of(pair, options, chat=chat)
    speculation.compare(ctx, pair, workloads, options, chat=chat, out=out, as_json=as_json)


def workloads_of(pair: Any, options: dict[str, Any], *, chat: bool) -> list[Any]:
    """Return the prompts that options ask for, by workload."""
    from engine.dflash.target.context import check_context
    from engine.evals import needles
    from engine.evals.speculation import job as spec_report
    from engine.measure import prompts

    if not options["needles"]:
        name = options["prompts"] or prompts.DEFAULT
        return [prompts.read_set(name, options["max_prompts"], spec_report.WORKLOAD)]
    check_context(pair.target, pair.name, options["needles"] + options["max_tokens"])
    count = options["max_prompts"] or NEEDLES
    lengths = [options["needles"]]
    if options["spread"]:
        lengths = [n for n in (lengths[0] // 8, lengths[0] // 4) if n >= SHORTEST] + lengths
    drawn = needles.make(pair.tokenizer, lengths, [0.5], count, 0, chat=chat)
    drawn = needles.directly(drawn) if options["direct_answer"] else drawn
    workloads = []
    for length in lengths:
        mine = [needle for needle in drawn if needle.length == length]
        section = needles.workload(mine, chat=chat)[needles.WORKLOAD]
        shared = {name: section[name] for name in ("shared_prefix", "shared_suffix")}
        name = f"{needles.WORKLOAD}-{length}" if len(lengths) > 1 else spec_report.WORKLOAD
        own = [needle.prompt for needle in mine]
        workloads.append(prompts.Workload(name, own, section["task"], section["source"], shared))
    return workloads
