"""``kakeya-engine bench spec``: speculative decoding beside plain decoding."""

from pathlib import Path
from typing import Any

import click

from engine.cli.bench.options import asked, draft, model, out_and_json
from engine.cli.output import put_out
from engine.cli.types import ListOf

DRAFTERS = ("dflash", "lookup", "adaptive")
ROLLBACKS = ("auto", "late", "trim", "carry")
NEEDLES = 5


@click.command()
@model
@draft
@asked
@click.option(
    "--needles", type=click.IntRange(128, 1 << 20), help="No --prompts: codes in so many tokens of padding."
)
@click.option("--drafters", type=ListOf(DRAFTERS), default=",".join(DRAFTERS), show_default=True)
@click.option("--rollbacks", type=ListOf(ROLLBACKS), default="auto", show_default=True)
@click.option("--block-size", type=click.IntRange(2, 64), help="Rows to verify at once, at most.")
@click.option("--package/--no-package", default=True, show_default=True, help="Run the dflash package too.")
@out_and_json
@click.pass_context
def spec(ctx: click.Context, *, out: Path | None, as_json: bool, **options: Any) -> None:
    """Compare speculative decoding with mlx-lm's own generation.

    Arms: mlx-lm (native), one forward pass a token (verify1), our loop without drafts (incremental) and with
    each drafter and rollback, and the dflash package where it is installed. Every arm runs on every prompt in
    each repeat, in an order that changes; one more repeat warms up. All arms decode greedily, and whatever our
    loop decodes otherwise than mlx-lm has to be a near tie of two logits: the command fails where it is not.
    """
    if options["needles"] and options["prompts"]:
        raise click.UsageError("--prompts or --needles, not both")
    from engine.bench.show import spec_table

    made, faults = _measured(options)
    put_out(made, out, spec_table, as_json=as_json)
    for fault in faults:
        click.echo(f"error: {fault}, and no near tie explains it", err=True)
    if faults:
        ctx.exit(1)


def _measured(options: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    from engine.bench import spec_report
    from engine.bench.show import progress
    from engine.bench.spec import Plan
    from engine.models import load

    pair = load(options["model"], options["draft"], dtype=options["dtype"])
    chat = pair.tokenizer.has_chat_template if options["chat"] is None else options["chat"]
    found, about = _asked(pair, options, chat=chat)
    plan = Plan(
        drafters=options["drafters"],
        rollbacks=options["rollbacks"],
        cache=options["cache"],
        block=options["block_size"],
        max_tokens=options["max_tokens"],
        repeats=options["repeats"],
        package=options["package"],
    )
    with progress("decoding") as (on_start, on_run):
        return spec_report.benchmark(pair, found, plan, chat=chat, on_start=on_start, on_run=on_run, **about)


def _asked(pair: Any, options: dict[str, Any], *, chat: bool) -> tuple[list[Any], dict[str, Any]]:
    """Return the prompts, and what a report says of them."""
    from engine.bench import prompts
    from engine.evals import needles

    if not options["needles"]:
        found = prompts.read(options["prompts"], options["max_prompts"])
        return found, {"source": str(options["prompts"] or "bundled"), "task": options["task"]}
    count = options["max_prompts"] or NEEDLES
    made = needles.make(pair.tokenizer, [options["needles"]], [0.5], count, 0, chat=chat)
    section = needles.workload(made, chat=chat)[needles.WORKLOAD]
    shared = {name: section[name] for name in ("shared_prefix", "shared_suffix")}
    about = {"source": section["source"], "task": section["task"], "shared": shared}
    return [needle.prompt for needle in made], about
