"""``kakeya-engine bench native``: measures plain decoding, the baseline of speed-ups."""

from pathlib import Path
from typing import Any

import click

from engine.cli import options as shared
from engine.cli.reporting import carry_out, choose_threads


@click.command()
@shared.model
@shared.prompts
@shared.out_and_json
def command(*, out: Path | None, as_json: bool, **options: Any) -> None:
    """Time mlx-lm's own generation: the baseline for other reports.

    Uses no drafts and no patches. A plain loop of one forward pass per token is timed too; it shows whether mlx-lm
    was slowed down.
    """
    from engine.cli.bench.show import show_decoding
    from engine.evals.speculation.arms import SpeculationPlan
    from engine.evals.speculation.bench import WORKLOAD, baseline
    from engine.harness import prompt_sets
    from engine.models import load

    pair = load(options["model"], draft=False, dtype=options["dtype"])
    chat = pair.chats if options["chat"] is None else options["chat"]
    lengths = {name: options[name] for name in ("cache", "max_tokens", "repeats", "max_repeats")}
    plan = SpeculationPlan(drafters=(), rollbacks=(), package=False, **lengths)
    name = options["prompts"] or prompt_sets.DEFAULT
    workload = prompt_sets.read_set(name, options["max_prompts"], WORKLOAD)
    threads = choose_threads(pair, options["threads"], out)
    job = baseline(pair, workload, plan, chat=chat, threads=threads)
    carry_out(job, "decoding", "runs", show_decoding, out, as_json=as_json)
