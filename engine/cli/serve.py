"""``kakeya-engine serve``: the OpenAI-compatible server."""

import re
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bridge.common.cli.commands import EXISTING_FILE, FILE, FOLDER, REFERENCE, Number, flag, option
from engine.cli.types import CACHE_SPEC, DTYPES

if TYPE_CHECKING:
    from engine.serve.settings import Settings

_SIZE = re.compile(r"([0-9]{1,15})\s*([kmgt]?)(i?b)?", re.IGNORECASE)
DEFAULT, DRAFTING = "tiny-chat", "tiny"  # the models that are served by default, without and with a drafter
WITHOUT_DRAFTER = ("auto", "none", "lookup")
BACKENDS, DEVICES = ("mlx", "torch"), ("auto", "cpu", "gpu", "mps", "cuda")
RECENT_ANSWERS = 1 << 15  # tokens; with their index they take about 10 MB
_LONGEST_S = 10**9  # a longer time than the system can sleep is an error in a thread
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
@option(
    "--model models", REFERENCE, multiple=True, metavar="REF",
    show_default="tiny-chat, or tiny if a drafter is asked for",
    help="A name, a folder or a hub id; repeat it for several. Each request names one of them.",
)  # fmt: skip
@option("--host", str, "127.0.0.1", help="Address to listen on.")
@option("--port", click.IntRange(0, 65535), 1339, help="Port to listen on; 0 takes a free one.")
@option("--cache", CACHE_SPEC, "raw", help="Cache spec of requests that name none.")
@option("--boundary", click.IntRange(0, 512), 0, help="First and last layers to leave raw.")
@option(
    "--draft", REFERENCE, "auto", metavar="auto|none|lookup|dflash|eagle3|mtp|dflash-package|REF",
    help="Drafter of requests that name none, or the drafter to load.",
)  # fmt: skip
@option(
    "--recent-answers", click.IntRange(0, 1 << 20), show_default="32768 on loopback, else 0",
    help="Tokens of earlier answers in which drafts are looked up too; whoever asks may time what was answered.",
)  # fmt: skip
@option(
    "--dtype",
    click.Choice(DTYPES),
    help="Type to compute in.  [default: float32 on the CPU; else a half type]",
)
@option("--api-key-file", EXISTING_FILE, help="File with the API key; required for any address but loopback.")
@option("--token-file", FILE, help="As --api-key-file, but a key is written to it if it is absent or empty.")
@option(
    "--allow-origin origins", multiple=True, metavar="ORIGIN",
    help="Web origin whose pages may call the server; may be repeated.",
)  # fmt: skip
@option(
    "--max-queue", click.IntRange(1, 100_000), 64, help="Answers that may wait; more are refused with 429."
)
@option("--max-active", click.IntRange(1, 1024), 8, help="Answers that are decoded at the same time.")
@option(
    "--max-tokens", click.IntRange(1, 1 << 20), 8192,
    help="Maximum tokens of an answer if its request names none.",
)  # fmt: skip
@option("--max-body", Size(), "4MB", help="Largest request.")
@option(
    "--prefix-cache", Size(), "256MB",
    help="Memory for the beginnings of prompts that were read before; 0 keeps none.",
)  # fmt: skip
@option(
    "--prefix-store", FOLDER,
    help="Folder in which prefixes are kept on disk too; several servers may share it.",
)  # fmt: skip
@option(
    "--prefix-store-size prefix_store_bytes", Size(), "4GB",
    help="Size of the prefix store; the longest unused prefixes are removed.",
)  # fmt: skip
@option(
    "--memory-budget", Size(),
    help="Memory for weights, caches and kept prefixes together; requests wait or are refused by it.",
)  # fmt: skip
@option(
    "--prefill-chunk", click.IntRange(16, 8192), 64,
    help="Prompt tokens to run at once, between rounds of other answers.",
)  # fmt: skip
@option(
    "--request-timeout request_seconds", Number(0.1, _LONGEST_S), 600.0,
    help="Seconds that a request may take, waiting included.",
)  # fmt: skip
@option(
    "--idle-unload idle_seconds", Number(0, _LONGEST_S), 0.0, show_default="never",
    help="Seconds without requests after which a model is unloaded.",
)  # fmt: skip
@option(
    "--drain drain_seconds", Number(0, _LONGEST_S), 60.0,
    help="Seconds that running requests may go on after SIGTERM; the process ends at most 10 s later.",
)  # fmt: skip
@option("--parent-pid", click.IntRange(1, (1 << 31) - 1), help="Process with which the server ends.")
@flag("--print-ready", "Print address, port, pid and token_file as JSON as soon as requests are answered.")
@flag("--prewarm", "Load the first model at the start.")
@option("--backend", click.Choice(BACKENDS), help="Engine.  [default: mlx if MLX is installed, else torch]")
@option("--device", click.Choice(DEVICES), "auto", help="Device to compute on.")
@flag("--enable-dflash", "The same as --draft dflash.")
def command(
    *,
    models: tuple[str, ...],
    prewarm: bool,
    enable_dflash: bool,
    api_key_file: Path | None,
    token_file: Path | None,
    **options: Any,
) -> None:
    """Serve models over OpenAI's HTTP API.

    Clients use http://HOST:PORT/v1 and any API key, unless a file has one. The first line on standard output is the
    address, or --print-ready's JSON.

    After SIGTERM or ^C, running requests may finish within --drain. A second signal ends the server at once. Exit
    codes: 0 after SIGTERM, 130 after ^C or a second signal, 1 if the engine failed or did not stop in time.
    """
    if enable_dflash:
        if options["draft"] not in ("auto", "dflash"):
            raise click.UsageError("--enable-dflash and --draft exclude each other")
        options["draft"] = "dflash"
    if not models:  # the bundled chat model has no drafter
        models = (DEFAULT,) if options["draft"] in WITHOUT_DRAFTER else (DRAFTING,)
    settings = settings_of(
        models=models, api_key=key_of(api_key_file, token_file), token_file=token_file, **options
    )
    from engine.serve.main import run

    run(settings, prewarm=prewarm)


def settings_of(
    *,
    models: tuple[str, ...],
    api_key: str | None,
    backend: str | None = None,
    recent_answers: int | None = None,
    **options: Any,
) -> "Settings":
    """Return the server's settings; UsageError for a wrong cache, or an address that needs a key."""
    from bridge.reports.cache_spec import parse
    from engine.serve.http.guard import is_loopback
    from engine.serve.settings import Settings

    parse(options["cache"])
    if api_key is None and not is_loopback(options["host"]):
        raise click.UsageError(f"--host {options['host']} is not loopback: give --api-key-file too")
    if recent_answers is None:  # behind another address there may be several users
        recent_answers = RECENT_ANSWERS if is_loopback(options["host"]) else 0
    if backend is None:
        backend = "mlx" if find_spec("mlx") or not find_spec("torch") else "torch"
    return Settings(
        models=tuple(dict.fromkeys(models)),
        api_key=api_key,
        backend=backend,
        recent_answers=recent_answers,
        **options,
    )


def key_of(key_file: Path | None, token_file: Path | None = None) -> str | None:
    """Return the API key in a file; UsageError if it cannot be read or is weak. The token's file may be written."""
    path = key_file or token_file
    if path is None:
        return None
    if key_file and token_file:
        raise click.UsageError("--api-key-file and --token-file exclude each other")
    from engine.serve.hosting.token_file import read_or_create

    try:
        key = read_or_create(path) if token_file else path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise click.UsageError(f"the API key cannot be read from {path}: {error}") from error
    from bridge.common.validation import weakness

    if reason := weakness(key):
        raise click.UsageError(f"the API key in {path} {reason}")
    return key
