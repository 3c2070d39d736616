"""``kakeya-engine bench torch-parity``."""

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from bridge.common.cli.commands import REFERENCE, option
from engine.cli import options
from engine.cli.reporting import carry_out, choose_threads, show_tables
from engine.cli.types import DTYPES, NAMES

CACHES = "e8v@4.25,e8v@2.25,e8@q38"
SETS = "code,prose"


@click.command("torch-parity")
@option("--model", REFERENCE, "tiny", help="tiny, smollm2-135m, ..., folder or hub id.")
@option("--dtype", click.Choice(DTYPES), "float32", help="Type in which both backends compute.")
@option(
    "--device", click.Choice(["auto", "cpu", "mps", "cuda"]), "auto",
    help="Where torch computes. Never run on a GPU so far.",
)  # fmt: skip
@option(
    "--torch-blas", click.Choice(["own", "mlx"]), "own",
    help="With mlx, torch multiplies with the OpenBLAS that the engine loads for MLX.",
)  # fmt: skip
@options.caches(CACHES, "Packed caches to measure beside raw.")
@option(
    "--prompts", NAMES, SETS, help="Prompt sets: code, functions, sums, chat, prose, humaneval, or files."
)
@option("--max-prompts", click.IntRange(1, 10_000), 2, help="Use only the first N prompts of each set.")
@option("--max-tokens", click.IntRange(2, 1 << 12), 48, help="Tokens to decode after each prompt.")
@option("--repeats", click.IntRange(1, 100), 5, help="Runs of each arm and prompt.")
@options.threads
@options.out_and_json
def command(*, out: Path | None, as_json: bool, **settings: Any) -> None:
    """Compare the backends over MLX and torch on one model: tokens, codes, bytes, KL, speed and memory.

    Both decode greedily with raw and packed caches. Torch computes in a process of its own, with its own BLAS. An
    interrupted run with --out continues where it stopped.
    """
    from engine.evals.backends.companion import TorchProcess
    from engine.evals.backends.job import BackendPlan, arms_of, job
    from engine.harness.job import config_of
    from engine.harness.prompt_sets import encode, read_sets
    from engine.models import load

    names = ("caches", "max_tokens", "repeats", "device", "dtype", "torch_blas")
    plan = BackendPlan(**{name: settings[name] for name in names})
    model = settings["model"]
    pair = load(model, draft=False, dtype=plan.dtype)
    threads = choose_threads(pair, settings["threads"], out)
    torch = TorchProcess(
        preload=plan.torch_blas == "mlx", model=model, device=plan.device, dtype=plan.dtype,
        threads=threads.count, caches=plan.caches,
    )  # fmt: skip
    try:
        arms, left_out = arms_of(pair, torch, plan)
        workloads = [
            replace(some, prompts=encode(some.prompts, pair.tokenizer, chat=False))
            for some in read_sets(settings["prompts"], settings["max_prompts"])
        ]
        config = {
            **config_of(plan), "model": model, "max_prompts": settings["max_prompts"], "left_out": left_out,
            "source": ", ".join(workload.source for workload in workloads), **threads.config(),
        }  # fmt: skip
        with tempfile.TemporaryDirectory() as folder:
            measured = job(pair, torch, arms, workloads, config, Path(folder))
            carry_out(measured, "backends", "answers", show, out, as_json=as_json)
    finally:
        torch.close()


def show(report: dict[str, Any]) -> None:
    """Print the tables, and what is claimed of each arm."""
    show_tables(report, {claim["name"] for claim in report["claims"]})
