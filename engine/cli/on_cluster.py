"""``--cluster`` of ``kakeya-engine generate``: decodes with one model over several ranks."""

import json
import secrets
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from bridge.common.cli.commands import Number, option
from bridge.common.cli.commands import options as several
from bridge.common.cli.output import say
from bridge.common.validation.hostfile import FEWEST_RANKS, MOST_RANKS
from engine.errors import BadInput

SPLITS = ("auto", "tensor", "pipeline")
# Options that every rank would have to decide alike, or that mlx-lm's sharded models do not have.
_ONE_HOST = ("draft", "no_draft", "kv", "block_size", "rollback", "lookup", "adaptive")
_OWN = ("backend", "split", "token_timeout", "load_timeout")


class _ClusterOption(click.ParamType[int | Path]):
    """A number of ranks on this machine, or a hostfile."""

    name = "N or file"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int | Path:
        """Return the number or the path."""
        if isinstance(value, int | Path):
            return value
        if not value.lstrip("-").isdecimal():
            return Path(value)
        if not FEWEST_RANKS <= int(value) <= MOST_RANKS:
            self.fail(f"{value} is not a number of ranks from {FEWEST_RANKS} to {MOST_RANKS}", param, ctx)
        return int(value)


_backend = option(
    "--backend", click.Choice(("ring", "jaccl")), help="Backend of MLX.  [default: the file's, or ring]"
)
_clocks = several(
    option("--token-timeout", Number(1, 3600), 20.0, help="Seconds without a token that end a cluster's job."),
    option(
        "--load-timeout", Number(1, 86400), 600.0,
        help="Seconds without progress that end a cluster's job while it loads or reads the prompt.",
    ),
)  # fmt: skip
# For a command that does nothing without a cluster.
required = several(
    option(
        "--cluster", _ClusterOption(), required=True,
        help="N ranks on this machine, or a file with hosts for mlx.launch.",
    ),
    _backend,
    _clocks,
)  # fmt: skip
split = option(
    "--split", click.Choice(SPLITS), "auto",
    help="How a cluster splits the model: each layer (tensor), or the list of layers (pipeline).",
)  # fmt: skip
options = several(
    option(
        "--cluster", _ClusterOption(),
        help="Split the model over N ranks on this machine, or over the hosts of a file for mlx.launch.",
    ),
    _backend,
    split,
    _clocks,
)  # fmt: skip


def is_chosen(settings: dict[str, Any]) -> bool:
    """Return whether ``--cluster`` was passed. Without it, its own options are taken out."""
    context = click.get_current_context()
    if settings["cluster"] is not None:
        wrong = [
            name for name in _ONE_HOST if context.get_parameter_source(name) is not ParameterSource.DEFAULT
        ]
        if wrong:
            name = wrong[0].replace("_", "-")
            raise click.UsageError(
                f"--{name} has no effect on a cluster, which decodes plainly: leave it out"
            )
        return True
    wrong = [name for name in _OWN if context.get_parameter_source(name) is not ParameterSource.DEFAULT]
    if wrong:
        raise click.UsageError(f"--{wrong[0].replace('_', '-')} needs --cluster")
    for name in ("cluster", *_OWN):
        del settings[name]
    return False


def generate(text: str, *, system: str | None, raw: bool, as_json: bool, **settings: Any) -> None:
    """Decode the text on the cluster, and print it as ``generate`` does on one machine."""
    from engine.checkpoints import hub
    from engine.cluster import hosts, sharding, state, supervise
    from engine.models import registry

    ranks = hosts.choose(settings["cluster"], settings["backend"])
    source = registry.find(settings["model"])
    split = sharding.choose(source.name, hub.folder_of(source.target), len(ranks), settings["split"])
    if not text:
        raise BadInput("the prompt is empty", "give at least one token")
    names = ("dtype", "max_tokens", "temperature", "top_p", "top_k", "min_p")
    seed = settings["seed"] if settings["seed"] is not None else secrets.randbits(32)
    job = {
        "task": "generate", "model": for_ranks(settings["model"]), "split": split, "prompts": [text],
        "system": system, "raw": raw, "seed": seed, "stop": list(settings["stop"]), "ids": False,
        **{name: settings[name] for name in names},
    }  # fmt: skip
    clocks = state.Clocks.of(settings["token_timeout"], settings["load_timeout"])
    outcome = supervise.run(ranks, job, clocks, _lines if as_json else _text)
    _print_end({"model": source.name, "split": split}, outcome.ranks, as_json=as_json)


def for_ranks(name: str) -> str:
    """Return a model's name for the ranks, which may run in another folder."""
    from engine.checkpoints.hub import local

    folder = local(name)
    return str(folder.absolute()) if folder.is_dir() else name


def _text(message: dict[str, Any]) -> None:
    if message["event"] == "text":
        click.echo(message["text"], nl=False)


def _lines(message: dict[str, Any]) -> None:
    if message["event"] == "text":
        click.echo(json.dumps({"event": "step", "tokens": message["count"], "text": message["text"]}))


def _print_end(about: dict[str, Any], ends: list[dict[str, Any]], *, as_json: bool) -> None:
    first = ends[0]["answers"][0]
    speed = (
        (first["tokens"] - 1) / first["decode_s"] if first["tokens"] > 1 and first["decode_s"] > 0 else None
    )
    if as_json:
        shared = {name: first[name] for name in ("tokens", "prompt_tokens", "finish_reason", "digest")}
        own = [
            {name: end[name] for name in ("rank", "digest", "peak_bytes", "resident_bytes")} for end in ends
        ]
        click.echo(json.dumps({"event": "done", **about, **shared, "tokens_per_second": speed, "ranks": own}))
        return
    click.echo()
    memory = ", ".join(f"{end['peak_bytes'] / 1e6:.0f}" for end in ends)
    rate = f", {speed:.1f} tok/s" if speed else ""
    reason = {"stop": "stopped", "length": "at the limit"}[first["finish_reason"]]
    say(
        f"{first['tokens']} tokens{rate}, {len(ends)} ranks ({about['split']}), {memory} MB of arrays, {reason}"
    )
