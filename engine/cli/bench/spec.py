"""``kakeya-engine bench spec``: speculative decoding compared with plain decoding."""

from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import click

from bridge.common.cli.commands import flag, option, options
from engine.cli import options as shared
from engine.cli.reporting import carry_out, choose_threads
from engine.cli.types import list_of

NEEDLES = 5
SHORTEST = 256
DRAFTERS = ("dflash", "lookup", "adaptive")
ROLLBACKS = ("auto", "late", "trim", "carry")
LOOPS = ("lazy", "fused", "two-phase", "eager")

speculative = options(
    option("--drafters", list_of((*DRAFTERS, "torch")), ",".join(DRAFTERS), help="Drafters to compare."),
    option("--rollbacks", list_of(ROLLBACKS), "auto", help="Rollbacks to compare."),
    option(
        "--loops", list_of(LOOPS), "lazy",
        help="How a round runs: lazy and fused wait for the device once, two-phase twice, eager per draft.",
    ),
    option("--block-size", click.IntRange(1, 64), help="Maximum tokens verified per pass; 1: no drafts."),
    option("--package/--no-package", bool, True, help="Also run the dflash package."),
    flag("--content-channel", "Chat models: begin answers behind the content channel's mark."),
    option(
        "--torch-device", click.Choice(["cpu", "mps", "cuda"]),
        help="For the drafter torch.  [default: the best one]",
    ),
    shared.fixed_length,
)  # fmt: skip


@click.command()
@shared.model
@shared.draft
@shared.embed_scale
@shared.prompts
@option("--needles", click.IntRange(128, 1 << 20), help="Use needle prompts of N tokens, not --prompts.")
@flag("--spread", "With --needles N: also use N/8 and N/4 tokens (if at least 256).")
@flag("--direct-answer", "With --needles and a chat model: ask for the code and nothing else.")
@speculative
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
    for name in ("direct_answer", "spread"):
        if options[name] and not options["needles"]:
            raise click.UsageError(f"--{name.replace('_', '-')} goes with --needles")
    pair, chat = load_drafting(options)
    if options["direct_answer"] and not chat:
        raise click.UsageError("--direct-answer is for chat models: add --chat")
    workloads = workloads_of(pair, options, chat=chat)
    compare(ctx, pair, workloads, options, chat=chat, out=out, as_json=as_json)


def load_drafting(options: dict[str, Any]) -> tuple[Any, bool]:
    """Return the pair that the options name, and whether its prompts go through the chat template."""
    from engine.models import load

    pair = load(options["model"], options["draft"], dtype=options["dtype"])
    pair = pair.with_embed_scale(options["embed_scale"])
    if pair.draft is not None and options.get("drafters"):  # the model's own drafter, of any kind
        named = {DRAFTERS[0]: pair.draft.kind}
        options["drafters"] = tuple(named.get(each, each) for each in options["drafters"])
    return pair, pair.chats if options["chat"] is None else options["chat"]


def workloads_of(pair: Any, options: dict[str, Any], *, chat: bool) -> list[Any]:
    """Return the prompts that the options select, by workload."""
    from engine.dflash.target.context import check_context
    from engine.evals import needles
    from engine.evals.speculation.bench import WORKLOAD
    from engine.harness import prompt_sets

    if not options["needles"]:
        name = options["prompts"] or prompt_sets.DEFAULT
        return [prompt_sets.read_set(name, options["max_prompts"], WORKLOAD)]
    check_context(pair.target, pair.name, options["needles"] + options["max_tokens"])
    lengths = [options["needles"]]
    if options["spread"]:
        lengths = [n for n in (lengths[0] // 8, lengths[0] // 4) if n >= SHORTEST] + lengths
    drawn = needles.make(pair.tokenizer, lengths, [0.5], options["max_prompts"] or NEEDLES, 0, chat=chat)
    drawn = needles.ask_directly(drawn) if options["direct_answer"] else drawn
    names = {n: f"{needles.WORKLOAD}-{n}" if len(lengths) > 1 else WORKLOAD for n in lengths}
    return [
        needles.workload([needle for needle in drawn if needle.length == length], name)
        for length, name in names.items()
    ]


def plan_of(options: dict[str, Any]) -> Any:
    """Return the ``engine.evals.speculation.arms.SpeculationPlan`` that the options describe."""
    from engine.evals.speculation.arms import RESCALED, SpeculationPlan

    if options["embed_scale"] == "both":
        options = {**options, "drafters": (*options["drafters"], RESCALED)}
    names = {field.name for field in fields(SpeculationPlan)} - {"block"}
    return SpeculationPlan(block=options["block_size"], **{name: options[name] for name in names})


def compare(
    ctx: click.Context, pair: Any, workloads: Sequence[Any], options: dict[str, Any], *,
    chat: bool, out: Path | None, as_json: bool, **kind: str,
) -> None:  # fmt: skip
    """Measure and write the report; fail if our own loop decoded other tokens than its oracle."""
    from engine.cli.bench.show import show_decoding
    from engine.evals.speculation.bench import acceptance_warning, faults, speculation

    threads = choose_threads(pair, options["threads"], out)
    job, arms = speculation(pair, workloads, plan_of(options), chat=chat, threads=threads, **kind)
    report = carry_out(job, "decoding", "runs", show_decoding, out, as_json=as_json)
    if warning := acceptance_warning(report["rows"]):
        click.echo(f"warning: {warning}", err=True)
    problems = faults(report["rows"], arms)
    for fault in problems:
        click.echo(f"error: {fault}, and no near tie explains it", err=True)
    if problems:
        ctx.exit(1)
