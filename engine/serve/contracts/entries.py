"""Entries of ``/v1/models`` in the fields of the earlier programs."""

from collections.abc import Callable
from typing import Any

from bridge.reports.cache_spec import FORMS
from engine.checkpoints import files, hub
from engine.checkpoints.published import FOUR_BIT
from engine.codec.spec import published_bits
from engine.errors import EngineError
from engine.models import catalogue, registry
from engine.models.catalogue import ADVANCED, DEFAULT, LONG, least_boundary
from engine.serve import listing
from engine.serve.channels import Channel
from engine.serve.contracts.registry import LABELS, LISTED, Shape
from engine.serve.server import Server

RAW_BITS = 16  # of a value of an uncompressed cache


def channels(server: Server, name: str) -> list[Channel]:
    """Return a model's channels with the published codec, which are all that the earlier programs had."""
    reference = server.names[name]
    resident, known = server.engine.models.get(reference), catalogue.entry(reference)
    if DEFAULT not in catalogue.channels(name, reference, resident.caches if resident else None):
        return []
    specs = (DEFAULT, LONG, ADVANCED) if known is None or not known.boundary else (DEFAULT, LONG)
    return [Channel(name, spec, least_boundary(reference, spec)) for spec in specs]


def default_channel(server: Server, name: str, *, mlx: bool) -> Channel | None:
    """Return the channel of requests that only name a model; None if it has none with the published codec."""
    known = catalogue.entry(server.names[name])
    row = LISTED.get(known.name) if known else None
    spec = DEFAULT if row is None else row.default
    if row is not None and row.mlx_default and mlx:
        spec = row.mlx_default
    return next((each for each in channels(server, name) if each.cache == spec), None)


def described(server: Server, name: str, channel: Channel | None) -> dict[str, Any]:
    """Return the earlier fields of a model and a channel; without a channel, most are null."""
    reference = server.names[name]
    shape, known = _shape(reference), catalogue.entry(reference)
    at = (channel.cache, channel.boundary) if channel else ("raw", 0)
    measured = known.measured.get(at) if known else None
    dims, draft = shape.dims if shape else (), drafter(server, name)
    row, parts = LISTED.get(known.name) if known else None, parts_of(channel)

    def nominal(dim: int) -> int:
        return published_bits(parts["variant"], dim, parts["q_range"])

    full = catalogue.ENTRIES[row.name] if row else known
    return {
        "hf_repo_id": full.target if full else name,
        "mlx_repo_id": FOUR_BIT.get(row.name) if row else None,
        "head_dim": list(dims) if len(dims) > 1 else next(iter(dims), None),
        "num_hidden_layers": shape.layers if shape else None,
        **parts,
        "est_compression": _compression(shape, parts, nominal),
        "est_compression_source": "computed",
        "stored_compression": _stored(server, shape, parts, channel),
        "est_delta_ppl_pct": float(measured.split()[0]) if measured else None,
        "est_delta_ppl_pct_source": "measured" if measured else "unmeasured",
        "label": LABELS.get(at[0], at[0]),
        "notes": _notes(known, measured),
        "dflash_draft_repo": draft,
        "dflash_available": draft is not None,
    }


def drafter(server: Server, name: str) -> str | None:
    """Return the name of the drafter that a model has, or would have with drafts by DFlash."""
    draft = "auto" if server.settings.draft == "lookup" else server.settings.draft
    repository: str | None = listing.availability(server.names[name], draft)["dflash_draft_repo"]
    return repository


def parts_of(channel: Channel | None) -> dict[str, Any]:
    """Return a channel in the earlier fields."""
    form = FORMS["classic"].pattern.fullmatch(channel.cache) if channel else None
    return {
        "variant": form["lattice"] if form else None,
        "q_range": int(form["q_range"]) if form else None,
        "boundary": channel.boundary if channel else 0,
    }


def _shape(reference: str) -> Shape | None:
    """Return the shape by a model's folder, or the published one; None if neither is known."""
    known = catalogue.entry(reference)
    listed = LISTED.get(known.name) if known else None
    if listed is not None:
        return listed.shape
    try:
        parts = {role: at for role, _, at in registry.find(reference).parts()}
        config = files.text_config(files.read_config(hub.folder_of(parts["target"], download=False)))
        dim = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
        return Shape(int(config["num_hidden_layers"]), (int(dim),))
    except (EngineError, KeyError, TypeError, ValueError, ZeroDivisionError):
        return None


def _stored(
    server: Server, shape: Shape | None, parts: dict[str, Any], channel: Channel | None
) -> float | None:
    """Return the ratio of an uncompressed cache's bits to the stored bits; 1 if the cache stores decoded values."""
    if channel is None or parts["variant"] is None:
        return None
    if server.engine.code_bytes(channel.cache, 128) is None:
        return 1.0
    return _compression(shape, parts, lambda dim: 8 * (server.engine.code_bytes(channel.cache, dim) or 0))


def _compression(shape: Shape | None, parts: dict[str, Any], bits_of: Callable[[int], int]) -> float | None:
    """Return the ratio of an uncompressed cache's bits to those of a channel's vectors; None if unknown."""
    if shape is None or parts["variant"] is None or any(dim & (dim - 1) for dim in shape.dims):
        return None
    outer, counts = 2 * parts["boundary"], shape.counts or (shape.layers,)
    if outer and (len(counts) > 1 or outer > shape.layers):
        return None
    raw = coded = 0
    for dim, count in zip(shape.dims, counts, strict=True):
        raw += RAW_BITS * dim * count
        bits = bits_of(dim)
        coded += bits * (count - outer) + RAW_BITS * dim * outer
    return round(raw / coded, 2)


def _notes(known: catalogue.Entry | None, measured: str | None) -> str:
    """Return what a user should know about a model and a channel."""
    figure = (
        f"Change of perplexity as published with the codec: {measured}."
        if measured
        else "Nobody measured what this channel does to this model."
    )
    if known is not None and known.boundary:
        return f"{known.why_boundary}. {figure}"
    return figure
