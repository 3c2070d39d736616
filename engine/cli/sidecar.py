"""``kakeya-sidecar-mlx`` and ``kakeya-sidecar``: the server under the names, and with the options, of earlier ones."""

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from bridge.common import environment
from bridge.common.cli.commands import CONTEXT, FOLDER, REFERENCE, option
from bridge.common.cli.program import run_program
from bridge.common.version import version_option
from engine import commit
from engine.cli import serve
from engine.cli.types import DTYPES

FIRST = "*"  # the value of --prewarm without a channel
LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR")


@dataclass(frozen=True)
class Program:
    """An earlier program."""

    variant: str  # its name for itself
    owner: str  # of its models
    backend: str
    port: int


ON_MLX = Program("B2", "kakeyalattice-mlx", "mlx", 1339)
ON_TORCH = Program("B1", "kakeyalattice", "torch", 1338)


def _command(program: Program) -> click.Command:
    """Return the command of an earlier program: its own options, and those of ``kakeya-engine serve``."""

    @click.command(context_settings=CONTEXT)
    @version_option("kakeya-engine", commit.of)
    @option("--port", click.IntRange(0, 65535), program.port, help="Port to listen on; 0 takes a free one.")
    @option("--device", click.Choice(serve.DEVICES), "auto", help="Device to compute on.")
    @option("--dtype", click.Choice(["auto", *DTYPES]), "auto", help="Type to compute in.")
    @option(
        "--max-resident", click.IntRange(1, 1024), 1,
        help="Models that are loaded at the same time; the longest unused is unloaded.",
    )  # fmt: skip
    @option("--hf-cache-dir", FOLDER, help="Folder of huggingface_hub's cache.")
    @option(
        "--prewarm", REFERENCE, is_flag=False, flag_value=FIRST, metavar="[CHANNEL]",
        help="Load a model at the start: that of the channel, or the first one.",
    )  # fmt: skip
    @option("--log-level", click.Choice(LEVELS, case_sensitive=False), "INFO", help="What to log.")
    @click.pass_context
    def command(ctx: click.Context, /, **options: Any) -> None:
        """Serve models over OpenAI's HTTP API, to clients of the earlier program of this name.

        Each published model of the catalogue may be named in requests, without a --model option; it is downloaded when
        it is first needed. GET /v1/models has an entry for each channel. A model that is named without a channel uses
        its default one, unless --cache is given. Drafts by DFlash need MLX and --enable-dflash.
        """
        _serve(program, ctx, **options)

    own = {each.name for each in command.params} | {"backend"}
    command.params += [each for each in serve.command.params if each.name not in own]
    return command


def _serve(
    program: Program,
    ctx: click.Context,
    *,
    models: tuple[str, ...],
    api_key_file: Path | None,
    token_file: Path | None,
    hf_cache_dir: Path | None,
    dtype: str,
    prewarm: str | None,
    log_level: str,
    enable_dflash: bool,
    **options: Any,
) -> None:
    logging.basicConfig(level=log_level.upper(), format="%(asctime)s %(levelname)s %(message)s")
    if hf_cache_dir is not None:
        environment.set_hub_cache(hf_cache_dir)
    if ctx.get_parameter_source("draft") is ParameterSource.DEFAULT:
        options["draft"] = "auto" if enable_dflash else "lookup"
    elif enable_dflash and options["draft"] not in ("auto", "dflash"):
        raise click.UsageError("--enable-dflash and --draft exclude each other")
    own_cache = ctx.get_parameter_source("cache") is not ParameterSource.DEFAULT
    from engine.serve.contracts.earlier import Earlier
    from engine.serve.contracts.registry import names

    first = serve.DRAFTING if enable_dflash else serve.DEFAULT
    settings = serve.settings_of(
        models=models or (first,),
        listed=() if models else names(mlx=program.backend == "mlx"),
        api_key=serve.key_of(api_key_file, token_file),
        token_file=token_file,
        backend=program.backend,
        dtype=None if dtype == "auto" else dtype,
        **options,
    )
    from engine.serve.main import run

    earlier = Earlier(program.variant, program.owner, dflash=enable_dflash, own_cache=own_cache)
    run(settings, prewarm=True if prewarm == FIRST else prewarm or False, earlier=earlier)


on_mlx, on_torch = _command(ON_MLX), _command(ON_TORCH)


def main() -> None:
    """Run ``kakeya-sidecar-mlx``."""
    run_program(on_mlx, "kakeya-sidecar-mlx")


def main_on_torch() -> None:
    """Run ``kakeya-sidecar``."""
    run_program(on_torch, "kakeya-sidecar")
