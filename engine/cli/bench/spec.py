"""``kakeya-engine bench spec``: speculative decoding beside plain decoding."""

from pathlib import Path
from typing import Any

import click

from engine.cli.bench import speculation
from engine.cli.bench.options import asked, draft, model, out_and_json

NEEDLES = 5


@click.command()
@model
@draft
@asked
@click.option(
    "--needles", type=click.IntRange(128, 1 << 20), help="No --prompts: codes in so many tokens of padding."
)
@speculation.options
@out_and_json
@click.pass_context
def spec(ctx: click.Context, *, out: Path | None, as_json: bool, **options: Any) -> None:
    """Compare speculative decoding with mlx-lm's own generation.

    Arms: mlx-lm (native), one forward pass a token (verify1), our loop without drafts (incremental) and with
    each drafter and rollback, and the dflash package where it is installed. With a cache that is not mlx-lm's
    own these two keep the raw one, and mlx-lm's generation over that cache is there too. Every arm runs on
    every prompt in each repeat, in an order that changes; one more repeat warms up. All arms decode greedily,
    and whatever our loop decodes otherwise than mlx-lm has to be a near tie of two logits: the command fails
    where it is not. An interrupted run with --out goes on where it stopped.
    """
    if options["needles"] and options["prompts"]:
        raise click.UsageError("--prompts or --needles, not both")
    from engine.evals.speculation import job as spec_report
    from engine.models import load

    pair = load(options["model"], options["draft"], dtype=options["dtype"])
    chat = pair.chats if options["chat"] is None else options["chat"]
    workload = _asked(pair, options, chat=chat)
    job, arms = spec_report.speculation(pair, [workload], speculation.plan_of(options), chat=chat)
    speculation.carry_out_checked(ctx, job, arms, out, as_json=as_json)


def _asked(pair: Any, options: dict[str, Any], *, chat: bool) -> Any:
    from engine.evals import needles
    from engine.evals.speculation import job as spec_report
    from engine.measure import prompts
    from engine.models import fit

    if not options["needles"]:
        found = prompts.read(options["prompts"], options["max_prompts"])
        source = str(options["prompts"] or "bundled")
        return prompts.Workload(spec_report.WORKLOAD, found, options["task"], source)
    fit.check_context(pair.parts["target"].config, pair.name, options["needles"] + options["max_tokens"])
    count = options["max_prompts"] or NEEDLES
    made = needles.make(pair.tokenizer, [options["needles"]], [0.5], count, 0, chat=chat)
    section = needles.workload(made, chat=chat)[needles.WORKLOAD]
    shared = {name: section[name] for name in ("shared_prefix", "shared_suffix")}
    found = [needle.prompt for needle in made]
    return prompts.Workload(spec_report.WORKLOAD, found, section["task"], section["source"], shared)
