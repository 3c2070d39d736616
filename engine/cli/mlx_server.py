"""``kakeya-mlx-server``: replaces a host application's own ``mlx-server``, with one process for each model."""

from typing import Any

import click

from bridge.common.cli.commands import CONTEXT, REFERENCE, Number, option
from bridge.common.cli.program import run_program
from bridge.common.version import version_option
from engine import commit
from engine.cli import serve
from engine.cli.types import CACHE_SPEC
from engine.dflash.kinds import DFLASH, KINDS

UNIFORM_BITS = (2, 3, 4, 5, 6, 8)


@click.command(context_settings=CONTEXT)
@version_option("kakeya-engine", commit.of)
@option(
    "-m --model", REFERENCE, required=True, metavar="PATH", help="Model: a folder, a file in it or a hub id."
)
@option("--model-id", str, metavar="ID", help="Name of the model in requests.  [default: the folder's name]")
@option("--host", str, "127.0.0.1", help="Address to listen on.")
@option("--port", click.IntRange(0, 65535), 8080, help="Port to listen on; 0 takes a free one.")
@option(
    "--ctx-size", click.IntRange(0, 1 << 24), 0, show_default="the model's own",
    help="Maximum tokens of prompt and answer together.",
)  # fmt: skip
@option("--draft-model", REFERENCE, metavar="PATH", help="Drafter.")
@option("--draft-kind", str, "dflash", metavar="|".join(KINDS), help="Kind of the drafter.")
@option(
    "--block-size --draft-block-size block_size", click.IntRange(0, 512), 0, show_default="the drafter's own",
    help="Most tokens to verify at once.",
)  # fmt: skip
@option(
    "--api-key", str, "", show_default="none",
    help="Key that requests must have. Other users of this machine can read it in the list of processes.",
)  # fmt: skip
@option("--cache", CACHE_SPEC, "raw", help="Cache spec of requests that name none.")
@option("--kv-bits", Number(0, 16), 0.0, show_default="none", help="Bits of a value in the cache.")
@option(
    "--kv-quant-scheme",
    str,
    "",
    show_default="none",
    metavar="uniform",
    help="Form of such a cache: mlx-lm's quantized one.",
)
def command(
    *,
    model: str,
    model_id: str | None,
    draft_model: str | None,
    draft_kind: str,
    cache: str,
    kv_bits: float,
    kv_quant_scheme: str,
    **options: Any,
) -> None:
    """Serve one model to a host application, with the options of its own mlx-server.

    The line "http server listening on http://HOST:PORT" on standard output says that the model is loaded. If it cannot
    be loaded, the process ends with code 1 or 2, and standard error says why. SIGTERM ends the server.
    """
    _check_drafter(draft_kind, draft_model)
    cache = _cache(cache, kv_bits, kv_quant_scheme)
    draft = draft_model or (draft_kind if draft_kind in KINDS and KINDS[draft_kind].within else None)
    settings = _settings(model, model_id or None, draft, cache=cache, **options)
    from engine.serve.main import run

    run(settings, prewarm=True, waits=True)


def _check_drafter(kind: str, draft: str | None) -> None:
    """Raise UsageError for a kind of drafter that this engine does not have, or that needs a drafter's files."""
    if kind in ("", DFLASH) or (kind in KINDS and (draft or KINDS[kind].within)):
        return
    if kind in KINDS:
        raise click.UsageError(
            f"--draft-kind {kind}: such a drafter has files of its own; give --draft-model"
        )
    raise click.UsageError(f"--draft-kind {kind}: there is no such kind of drafter, only {', '.join(KINDS)}")


def _cache(spec: str, bits: float, scheme: str) -> str:
    """Return the cache spec that a host asks for by its own options; UsageError if there is none."""
    if not bits or scheme in ("", "off"):
        return spec
    if spec != "raw":
        raise click.UsageError("--cache and --kv-bits exclude each other")
    if scheme != "uniform":
        raise click.UsageError(
            f"--kv-quant-scheme {scheme}: the only one here is uniform; --cache has the others"
        )
    if bits not in UNIFORM_BITS:
        raise click.UsageError(f"--kv-bits {bits:g}: uniform caches have 2, 3, 4, 5, 6 or 8 bits")
    return f"affine@{bits:.0f}g64"


def _settings(
    model: str,
    model_id: str | None,
    draft: str | None,
    *,
    ctx_size: int,
    block_size: int,
    api_key: str,
    **more: Any,
) -> Any:
    from engine.checkpoints import hub
    from engine.serve.http.guard import is_loopback

    if api_key and (not api_key.isascii() or not api_key.isprintable() or api_key != api_key.strip()):
        raise click.UsageError(
            "no client can send the key of --api-key: it has to be ASCII, without spaces around it"
        )
    if api_key and not is_loopback(more["host"]):
        from bridge.common.validation import weakness

        if reason := weakness(api_key):
            raise click.UsageError(f"the API key {reason}; --host {more['host']} is not loopback")
    path = hub.local(model)
    folder = str(path.parent) if path.is_file() else model
    return serve.settings_of(
        models=(folder,),
        model_id=model_id,
        draft=draft or "auto",
        context=ctx_size or None,
        block_size=block_size or None,
        api_key=api_key or None,
        **more,
    )


def main() -> None:
    """Run ``kakeya-mlx-server``."""
    run_program(command, "kakeya-mlx-server")
