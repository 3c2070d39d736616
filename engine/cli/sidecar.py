"""``kakeya-sidecar-mlx``: the server under the name, and with the options, of an earlier program."""

import logging
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
from engine.errors import BadInput

FIRST = "*"  # the value of --prewarm without a channel
LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR")


@click.command(context_settings=CONTEXT)
@version_option("kakeya-engine", commit.of)
@option("--device", click.Choice(["auto", "mps", "cuda", "cpu", "gpu"]), "auto", help="Device to compute on.")
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
def command(
    ctx: click.Context,
    /,
    *,
    models: tuple[str, ...],
    api_key_file: Path | None,
    token_file: Path | None,
    hf_cache_dir: Path | None,
    device: str,
    dtype: str,
    prewarm: str | None,
    log_level: str,
    enable_dflash: bool,
    **options: Any,
) -> None:
    """Serve models over OpenAI's HTTP API, to clients of the earlier program of this name.

    Each published model of the catalogue may be named in requests, without a --model option; it is downloaded when it
    is first needed. GET /v1/models has an entry for each channel. A model that is named without a channel uses its
    default one, unless --cache is given. Drafts by DFlash need --enable-dflash.
    """
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
        listed=() if models else names(mlx=True),
        api_key=serve.key_of(api_key_file, token_file),
        token_file=token_file,
        device=_device(device),
        dtype=None if dtype == "auto" else dtype,
        **options,
    )
    from engine.serve.main import run

    earlier = Earlier("B2", "kakeyalattice-mlx", dflash=enable_dflash, own_cache=own_cache)
    run(settings, prewarm=True if prewarm == FIRST else prewarm or False, earlier=earlier)


command.params += [each for each in serve.command.params if each.name not in {p.name for p in command.params}]


def _device(name: str) -> str | None:
    """Return MLX's name of a device; None for its own choice. BadInput if this machine has no such device."""
    if name in ("auto", "cpu", "gpu"):
        return None if name == "auto" else name
    from engine.mx import mx

    if not (mx.metal.is_available() if name == "mps" else mx.cuda.is_available()):
        fix = "leave the option out, or name a device that `kakeya-engine probe` shows"
        raise BadInput(f"--device {name}: MLX has no such device on this machine", fix)
    return "gpu"


def main() -> None:
    """Run ``kakeya-sidecar-mlx``."""
    run_program(command, "kakeya-sidecar-mlx")
