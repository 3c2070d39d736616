"""Laws of rooms: how many positions a cache has room for follows from how mlx-lm's caches grow."""

from __future__ import annotations

import re
from collections.abc import Iterator

from bridge.evidence.bundled import bundled_target
from bridge.evidence.floors import floor_of
from bridge.evidence.laws.law import DECODED, QUANT, SERVED, law
from bridge.evidence.laws.served import WIDTHS
from bridge.evidence.laws.stored import STEP
from bridge.evidence.report_index import STOCK_LOOP, ReportIndex
from bridge.evidence.rows import Decode, QuantRow

# Blocks of a prompt that the server keeps have so many tokens.
KEPT = 64
_RANK = 4
_NUMBERS = re.compile("float32|float16|bfloat16")


@law(
    "BYTES_IMPOSSIBLE", DECODED, "rows.memory.layers.arrays rows.tokens prompts.n_tokens arms.loop models.weights",
    "on a bundled model, a raw cache of mlx-lm has room for the least number of whole steps that holds its positions",
)  # fmt: skip
def least_whole_steps(index: ReportIndex) -> Iterator[str]:
    chunk = getattr(index.report.config, "chunk", STEP)
    even = isinstance(chunk, int) and chunk > 0 and (chunk % STEP == 0 or STEP % chunk == 0)
    if not bundled_target(index) or not even:
        return
    for i, row in enumerate(index.rows):
        arm, prompt = index.arms.get(row.arm), index.prompts.get(row.prompt)
        if arm is None or prompt is None or row.memory is None or not isinstance(row, Decode):
            continue
        if arm.loop != STOCK_LOOP or arm.role != "baseline" or arm.cache != "raw" or arm.patches:
            continue
        held = prompt.n_tokens + len(row.tokens)
        # The last token of an answer may have been put in as well.
        wanted = {STEP * -(-count // STEP) for count in (held - 1, held)}
        rooms = {
            array.shape[2] for layer in row.memory.layers if layer.kind == "KVCache"
            for array in layer.arrays if len(array.shape) == _RANK
        }  # fmt: skip
        if rooms - wanted:
            yield f"row {i}: room for {max(rooms - wanted)} positions; {held - 1} take {min(wanted)}"
            return


@law(
    "BYTES_IMPOSSIBLE", QUANT, "arms.options.raw_layers rows.memory.layers.arrays",
    "layers that a scored cache leaves raw are stored as numbers, and no others are",
)  # fmt: skip
def raw_layers_are_raw(index: ReportIndex) -> Iterator[str]:
    for i, row in enumerate(index.rows):
        arm = index.arms.get(row.arm)
        told = arm.options.get("raw_layers") if arm is not None else None
        if not isinstance(row, QuantRow) or not isinstance(told, list) or not told:
            continue
        for place, layer in enumerate(row.memory.layers):
            raw = len(layer.arrays) == 2 and all(_NUMBERS.fullmatch(a.dtype) for a in layer.arrays)  # noqa: PLR2004
            if place in told and not raw:
                yield f"row {i}: layer {place} is said to be left raw, and {row.arm} stores it as codes"
                return


@law(
    "FEATURE_NEVER_RAN", SERVED, "rows.counters.cache_bytes rows.cache models.weights",
    "on a bundled model, a packed cache has room for as many positions as the raw one of an answer, half or twice",
)  # fmt: skip
def same_room_in_every_cache(index: ReportIndex) -> Iterator[str]:
    shape = bundled_target(index).get("cache")
    width = WIDTHS.get(index.target.dtype) if index.target is not None else None
    if not shape or not width or any(shape["windows"]):
        return
    values = len(shape["windows"]) * shape["heads"] * shape["dim"] * 2
    rooms: dict[tuple[object, ...], dict[str, float]] = {}
    for row in index.rows:
        bits = width if row.cache == "raw" else floor_of(row.cache, shape["dim"])
        held = row.counters.get("cache_bytes")
        if bits is None or held is None or row.draft == "dflash":
            continue
        if row.cache.startswith("affine@"):
            bits += 2 * (width - 16) / int(row.cache.rpartition("g")[2])
        key = (row.draft, row.warm, row.clients, row.form, row.question)
        room = held * 8 / (values * bits)
        raw = (
            rooms.setdefault(key, {}).setdefault("raw", round(room))
            if row.cache == "raw"
            else rooms.get(key, {}).get("raw")
        )
        if abs(room - round(room)) > 1e-6 * room:
            yield f"{row.draft} with {row.cache}: {held} bytes are no whole number of positions"
        elif raw is not None and round(room) not in (raw, raw / 2, raw * 2):
            yield f"{row.draft} with {row.cache}: room for {room:g} positions, and the raw cache has room for {raw:g}"


@law(
    "ROW_CONTRADICTS", SERVED, "rows.counters.cached_tokens",
    "what was kept of a prompt is a whole number of blocks",
)  # fmt: skip
def whole_blocks_are_kept(index: ReportIndex) -> Iterator[str]:
    for i, row in enumerate(index.rows):
        kept = row.counters.get("cached_tokens", 0)
        if kept % KEPT:
            yield f"row {i}: {kept} tokens were kept; blocks have {KEPT}"
            return
