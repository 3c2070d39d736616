"""``kakeya-engine bench spec``: speculative decoding beside plain decoding."""

import json
from pathlib import Path
from typing import Any

import click

from engine.bench.prompts import TASKS
from engine.cli.bench.options import draft, model, out_and_json
from engine.cli.types import ListOf

DRAFTERS = ("dflash", "lookup", "adaptive")
ROLLBACKS = ("auto", "late", "trim", "carry")


@click.command()
@model
@draft
@click.option("--prompts", type=click.Path(dir_okay=False, path_type=Path), help='JSON lines: "id", "text".')
@click.option("--max-prompts", type=click.IntRange(1), help="Only the first so many.")
@click.option("--task", type=click.Choice(TASKS), default="code", show_default=True)
@click.option("--chat/--no-chat", default=None, help="Use the chat template.  [default: where there is one]")
@click.option("--drafters", type=ListOf(DRAFTERS), default=",".join(DRAFTERS), show_default=True)
@click.option("--rollbacks", type=ListOf(ROLLBACKS), default="auto", show_default=True)
@click.option("--cache", default="raw", show_default=True, help="Cache spec: raw, e8v@4.25, affine@4g64, ...")
@click.option("--block-size", type=click.IntRange(2, 64), help="Rows to verify at once, at most.")
@click.option("--max-tokens", type=click.IntRange(1, 1 << 16), default=128, show_default=True)
@click.option("--repeats", type=click.IntRange(1, 100), default=5, show_default=True)
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
    from engine import report

    made, faults = _measured(options)
    if out:
        report.write(out, made)
        click.echo(f"wrote {out}", err=True)
    if as_json:
        click.echo(json.dumps(made, indent=2, allow_nan=False))
    else:
        from engine.bench.show import spec_table

        spec_table(made)
    for fault in faults:
        click.echo(f"error: {fault}, and no near tie explains it", err=True)
    if faults:
        ctx.exit(1)


def _measured(options: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    from engine.bench import prompts, spec_report
    from engine.bench.show import progress
    from engine.bench.spec import Plan
    from engine.models import load

    found = prompts.read(options["prompts"], options["max_prompts"])
    pair = load(options["model"], options["draft"], dtype=options["dtype"])
    chat = options["chat"]
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
        return spec_report.benchmark(
            pair,
            found,
            plan,
            source=str(options["prompts"] or "bundled"),
            task=options["task"],
            chat=pair.tokenizer.has_chat_template if chat is None else chat,
            on_start=on_start,
            on_run=on_run,
        )
