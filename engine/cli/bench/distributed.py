"""``kakeya-engine bench distributed``."""

from pathlib import Path
from typing import Any

import click

from bridge.common.cli.commands import REFERENCE, option
from bridge.common.cli.progress import progress
from engine.cli import on_cluster, options
from engine.cli.reporting import put_out, show_tables


@click.command()
@options.model
@on_cluster.required
@on_cluster.split
@option("--prompts", REFERENCE, "code", help="Prompt set, or a JSON lines file.")
@option("--max-prompts", click.IntRange(1, 1000), 3, help="Use only the first N prompts.")
@option("--max-tokens", click.IntRange(1, 1 << 12), 32, help="Maximum tokens per answer.")
@option("--repeats", click.IntRange(1, 100), 1, help="Runs of the cluster.")
@options.out_and_json
def command(*, model: str, dtype: str | None, out: Path | None, as_json: bool, **settings: Any) -> None:
    """Decode on one host and on a cluster: equal tokens, the speed of both, and the memory of each rank."""
    from engine.checkpoints import hub
    from engine.cluster import hosts, sharding, state
    from engine.evals import distributed
    from engine.harness import prompt_sets
    from engine.models import registry

    cluster = hosts.choose(settings["cluster"], settings["backend"])
    source = registry.find(model)
    split = sharding.choose(source.name, hub.folder_of(source.target), len(cluster), settings["split"])
    prompts = prompt_sets.read_set(settings["prompts"], settings["max_prompts"], "prompts").prompts
    job = {
        "task": "generate", "model": on_cluster.for_ranks(model), "split": split, "system": None,
        "raw": False, "seed": 0, "stop": [], "dtype": dtype, "max_tokens": settings["max_tokens"],
        "temperature": 0.0, "top_p": 1.0, "top_k": 0, "min_p": 0.0,
    }  # fmt: skip
    clocks = state.Clocks.of(settings["token_timeout"], settings["load_timeout"])
    with progress("decoding", "runs") as (on_start, on_step):
        on_start(len(prompts) + settings["repeats"])
        report = distributed.decoded(cluster, model, job, prompts, settings["repeats"], clocks, on_step)
    put_out(report, out, show_tables, as_json=as_json)
