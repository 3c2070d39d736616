"""``kakeya-engine serve``: the OpenAI-compatible server."""

import re
import sys
from pathlib import Path
from typing import Any

import click

from engine.cli.types import DTYPES

_SIZE = re.compile(r"([0-9]{1,15})\s*([kmgt]?)(i?b)?", re.IGNORECASE)
DEFAULT, DRAFTING = "tiny-chat", "tiny"  # what is served if no model is named
WITHOUT_DRAFTER = ("auto", "none", "lookup")
SCALES = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}


class Size(click.ParamType[int]):
    """A number of bytes: ``4096``, ``256MB``, ``8GB``."""

    name = "size"

    def convert(self, value: Any, param: Any, ctx: Any) -> int:
        """Return the bytes."""
        if isinstance(value, int):
            return value
        match = _SIZE.fullmatch(value.strip())
        if not match:
            self.fail(f"{value!r} is no size; write it like 256MB", param, ctx)
        return int(match[1]) * SCALES[match[2].lower()]


@click.command()
@click.option(
    "--model",
    "models",
    multiple=True,
    metavar="REF",
    show_default="tiny-chat, or tiny if a drafter is asked for",
    help="A name, a folder or a hub id; repeat it for several. Each request names one of them.",
)
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=1339,
    show_default=True,
    help="Port to listen on; 0 takes a free one.",
)
@click.option("--cache", default="raw", show_default=True, help="Cache spec of requests that name none.")
@click.option(
    "--boundary",
    type=click.IntRange(0, 512),
    default=0,
    show_default=True,
    help="First and last layers to leave raw.",
)
@click.option(
    "--draft",
    default="auto",
    show_default=True,
    metavar="auto|none|lookup|dflash|dflash-package|REF",
    help="Drafter of requests that name none, or the drafter to load.",
)
@click.option(
    "--dtype",
    type=click.Choice(DTYPES),
    help="Type to compute in.  [default: float32 on the CPU, else as stored]",
)
@click.option(
    "--api-key-file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="File with the API key; required for any address but loopback.",
)
@click.option(
    "--allow-origin",
    "origins",
    multiple=True,
    metavar="ORIGIN",
    help="Web origin whose pages may call the server; may be repeated.",
)
@click.option(
    "--max-queue",
    type=click.IntRange(1, 100_000),
    default=64,
    show_default=True,
    help="Answers that may wait; more are refused with 429.",
)
@click.option(
    "--max-active",
    type=click.IntRange(1, 1024),
    default=8,
    show_default=True,
    help="Answers that are decoded at the same time.",
)
@click.option(
    "--max-tokens",
    type=click.IntRange(1, 1 << 20),
    default=8192,
    show_default=True,
    help="Tokens of an answer whose request does not say.",
)
@click.option("--max-body", type=Size(), default="4MB", show_default=True, help="Largest request.")
@click.option(
    "--prefix-cache",
    type=Size(),
    default="256MB",
    show_default=True,
    help="Memory for the beginnings of prompts that were read before; 0 keeps none.",
)
@click.option(
    "--prefix-store",
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder in which prefixes are kept on disk too; several servers may share it.",
)
@click.option(
    "--prefix-store-size",
    "prefix_store_bytes",
    type=Size(),
    default="4GB",
    show_default=True,
    help="Size of the prefix store; the longest unused prefixes are removed.",
)
@click.option(
    "--memory-budget",
    type=Size(),
    help="Memory for weights, caches and kept prefixes together; requests wait or are refused by it.",
)
@click.option(
    "--prefill-chunk",
    type=click.IntRange(16, 8192),
    default=64,
    show_default=True,
    help="Prompt tokens to run at once, between rounds of other answers.",
)
@click.option(
    "--request-timeout",
    "request_seconds",
    type=click.FloatRange(0.1),
    default=600.0,
    show_default=True,
    help="Seconds that a request may take, waiting included.",
)
@click.option(
    "--idle-unload",
    "idle_seconds",
    type=click.FloatRange(0),
    default=0.0,
    show_default="never",
    help="Seconds without requests after which a model is unloaded.",
)
@click.option(
    "--drain",
    "drain_seconds",
    type=click.FloatRange(0),
    default=60.0,
    show_default=True,
    help="Seconds that running requests may go on after SIGTERM; the process ends at most 10 s later.",
)
@click.option("--prewarm", is_flag=True, help="Load the first model at the start.")
@click.option("--device", type=click.Choice(["cpu", "gpu"]), help="MLX device.  [default: MLX's own]")
@click.option("--enable-dflash", is_flag=True, help="The same as --draft dflash.")
def command(
    *,
    models: tuple[str, ...],
    prewarm: bool,
    enable_dflash: bool,
    api_key_file: Path | None,
    **options: Any,
) -> None:
    """Serve models over OpenAI's HTTP API.

    A client is pointed at http://HOST:PORT/v1 with any API key, unless --api-key-file asks for one. The first line
    on standard output is the address.

    After SIGTERM or ^C the server lets running requests finish, within --drain. A second signal ends it at once. Exit
    codes: 0 after SIGTERM, 130 after ^C or a second signal, 1 if the engine failed or did not stop within 10 s of the
    drain.
    """
    if enable_dflash:
        if options["draft"] not in ("auto", "dflash"):
            raise click.UsageError("--enable-dflash and --draft exclude each other")
        options["draft"] = "dflash"
    if not models:  # the bundled model that answers has no drafter
        models = (DEFAULT,) if options["draft"] in WITHOUT_DRAFTER else (DRAFTING,)
    key = _key(api_key_file)
    from engine.cache.spec import parse
    from engine.serve.http.guard import is_loopback
    from engine.serve.settings import Settings

    parse(options["cache"])
    if key is None and not is_loopback(options["host"]):
        raise click.UsageError(f"--host {options['host']} is not loopback: give --api-key-file too")
    from engine.serve.main import run

    run(Settings(models=tuple(dict.fromkeys(models)), api_key=key, **options), prewarm=prewarm)


def _key(path: Path | None) -> str | None:
    if path is None:
        return None
    try:
        key = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise click.UsageError(f"the API key cannot be read from {path}: {error}") from error
    if len(key) < 16 or not key.isascii() or not key.isprintable():  # noqa: PLR2004
        raise click.UsageError(f"{path} has to hold one line of at least 16 ASCII characters")
    return key


def main() -> None:
    """Run ``kakeya-sidecar-mlx``: the same command under its earlier name."""
    from engine.cli import main as engine

    engine(["--version"] if "--version" in sys.argv[1:] else ["serve", *sys.argv[1:]])
