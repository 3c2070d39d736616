"""Laws of bytes: what caches hold is what the model makes, of every position that went in, in the bits of a name."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from bridge.evidence.claims import stored_bits
from bridge.evidence.floors import LARGEST, floor_of
from bridge.evidence.laws.law import DECODED, FOUND, QUANT, law
from bridge.evidence.names import MEMORY
from bridge.evidence.report_index import ReportIndex
from bridge.evidence.rows import Decode, Layer, QuantRow

# mlx-lm's caches grow by so many positions, and a prompt is read in pieces of up to so many.
STEP = 256
PIECE = 2048

# Caches that keep every position.
WHOLE = ("KVCache", "QuantizedKVCache", "LatticeKVCache")
# Caches that do not, by what their names hold: whatever else keeps arrays of four dimensions keeps every position.
PARTIAL = re.compile("Rotating|Chunked|Arrays|Mamba|Restored|List|Pool|State")
# Those that stand before another one, which is the baseline's of that layer.
AROUND = ("KakeyaLatticeMLXCache", "ControlCache")

_RANK = 4


# Models of mlx-lm of which some layers read another layer's cache, or neither attend nor remember.
SHARING = re.compile("Gemma3n|Gemma4|Nemotron|DeciLM|Afm", re.IGNORECASE)


def _told(index: ReportIndex, field: str) -> Any:
    return getattr(index.target, field, None)


def _layers(index: ReportIndex) -> int | None:
    """Return how many layers the target is said to have; None if nothing says so."""
    found = _told(index, "layers")
    return found if isinstance(found, int) and not isinstance(found, bool) else None


@law(
    "BYTES_IMPOSSIBLE", (*DECODED, *QUANT), "rows.memory.layers models.layers",
    "a cache has as many layers as the model, in every row; fewer if layers of its architecture share or keep none",
)  # fmt: skip
def layers_of_the_model(index: ReportIndex) -> Iterator[str]:
    most = _layers(index)
    counts: dict[int, int] = {}
    for i, row in enumerate(index.rows):
        if row.memory is not None:
            counts.setdefault(len(row.memory.layers), i)
    if len(counts) > 1:
        (one, _), (other, at) = sorted(counts.items(), key=lambda item: item[1])[:2]
        yield f"row {at} lists {other} layers, and others list {one}"
    for count, i in counts.items():
        fewer = isinstance(index.rows[i], Decode) and not SHARING.search(str(_told(index, "architecture")))
        if most is not None and (count > most or (count < most and fewer)):
            yield f"row {i} lists {count} layers; the model has {most}"


@law(
    "BYTES_IMPOSSIBLE", DECODED, "rows.memory",
    "if one row lists its arrays, every row does",
)  # fmt: skip
def every_row_lists_arrays(index: ReportIndex) -> Iterator[str]:
    listed = [row.memory is not None for row in index.rows]
    if any(listed) and not all(listed) and [*index.named(*MEMORY)]:
        yield f"row {listed.index(False)} lists no arrays, and others do"


@law(
    "BYTES_IMPOSSIBLE", DECODED, "rows.memory.layers.arrays rows.tokens prompts.n_tokens",
    "a cache that keeps every position has room for all positions, and for few more",
)  # fmt: skip
def room_for_all_positions(index: ReportIndex) -> Iterator[str]:
    for i, row in enumerate(index.rows):
        prompt = index.prompts.get(row.prompt)
        if prompt is None or row.memory is None:
            continue
        least = prompt.n_tokens + len(row.tokens) - 1
        whole = _whole(index, row)
        for j, layer in enumerate(row.memory.layers):
            for array in layer.arrays if j in whole else ():
                if layer.kind in WHOLE and len(array.shape) != _RANK:
                    yield f"row {i}: an array of layer {j} has {len(array.shape)} dimensions"
                    break
                if len(array.shape) == _RANK and not least <= array.shape[2] <= least + STEP + PIECE:
                    yield (
                        f"row {i}: layer {j} has room for {array.shape[2]} positions; {least} were processed"
                    )
                    break


def _whole(index: ReportIndex, row: Decode) -> set[int]:
    """Return the layers of a row's cache that keep every position, as far as that can be known."""
    plain = index.once(("plain layers", row.prompt), lambda: _plain(index, row.prompt))
    layers = row.memory.layers if row.memory else []
    kinds = [
        plain[i].kind if layer.kind in AROUND and i < len(plain) else layer.kind
        for i, layer in enumerate(layers)
    ]
    return {i for i, kind in enumerate(kinds) if kind not in AROUND and not PARTIAL.search(kind)}


def _plain(index: ReportIndex, prompt: str) -> list[Layer]:
    """Return the layers of the raw baseline's cache on a prompt."""
    rows = [
        row
        for arm in index.arms_of("baseline")
        if arm.cache == "raw"
        for row in index.decodes(arm.name, prompt)
    ]
    return next((row.memory.layers for row in rows if row.memory), [])


@law(
    "BYTES_IMPOSSIBLE", DECODED, "rows.memory.layers.arrays models.dtype arms.cache",
    "an uncompressed cache stores numbers in the type of the model",
)  # fmt: skip
def width_of_the_model(index: ReportIndex) -> Iterator[str]:
    dtypes = {model.dtype for model in index.report.models if model.role == "target"}
    for i, row in enumerate(index.rows):
        arm = index.arms.get(row.arm)
        if arm is None or arm.cache != "raw" or row.memory is None or len(dtypes) != 1:
            continue
        (dtype,) = dtypes
        wide = {a.dtype for layer in row.memory.layers if layer.kind in WHOLE for a in layer.arrays}
        if index.mixes_widths:
            wide -= {"float32"}
        if dtype in ("float32", "float16", "bfloat16") and wide - {dtype}:
            yield f"row {i}: {arm.name} keeps {min(wide - {dtype})}, and the model computes in {dtype}"


@law(
    "BYTES_IMPOSSIBLE", DECODED, "rows.memory.layers.arrays arms.cache",
    "a cache that is named after a codec is smaller than the raw cache",
)  # fmt: skip
def codes_are_codes(index: ReportIndex) -> Iterator[str]:
    raw: dict[str, list[Layer]] = {}
    for row in index.rows:
        arm = index.arms.get(row.arm)
        if arm is not None and arm.role == "baseline" and arm.cache == "raw" and row.memory:
            raw.setdefault(row.prompt, row.memory.layers)
    for i, row in enumerate(index.rows):
        arm, base = index.arms.get(row.arm), raw.get(row.prompt)
        if arm is None or row.memory is None or not arm.cache.startswith(("e8v@", "affine@")) or not base:
            continue
        held = [
            (layer.nbytes, plain.nbytes) for layer, plain in zip(row.memory.layers, base, strict=False)
            if plain.kind in WHOLE
        ]  # fmt: skip
        if (
            held
            and all(one >= other for one, other in held)
            and index.report.kind != "kakeya.restored-prefill"
        ):
            yield f"row {i}: {arm.name} keeps {arm.cache}, and no layer is smaller than the raw cache's"


@law(
    "BYTES_IMPOSSIBLE", DECODED, "rows.memory.peak_bytes rows.memory.cache_bytes",
    "peak_bytes is at least cache_bytes",
)  # fmt: skip
def peak_above_cache(index: ReportIndex) -> Iterator[str]:
    for i, row in enumerate(index.rows):
        memory = row.memory
        if memory is not None and memory.peak_bytes is not None and memory.peak_bytes < memory.cache_bytes:
            yield f"row {i}: {memory.cache_bytes} bytes of cache, and a peak of {memory.peak_bytes}"


@law(
    "BYTES_IMPOSSIBLE", FOUND, "rows.counters rows.tokens prompts.n_tokens models.layers",
    "no layer counts more positions than were processed, and no codec failed",
)  # fmt: skip
def positions_are_counted_once(index: ReportIndex) -> Iterator[str]:
    for i, row in enumerate(index.rows):
        prompt = index.prompts.get(row.prompt)
        if prompt is None or row.memory is None:
            continue
        counted = [row.counters.get(name) for name in ("injected_positions", "raw_positions")]
        if counted[0] is None:
            continue
        most = len(row.memory.layers) * (prompt.n_tokens + len(row.tokens))
        if sum(n or 0 for n in counted) > most:
            yield f"row {i}: {sum(n or 0 for n in counted)} positions are counted; {most} were processed"
        elif row.counters.get("packed_bytes", 0) > row.memory.cache_bytes:
            yield f"row {i}: {row.counters['packed_bytes']} bytes of codes in {row.memory.cache_bytes} of cache"
        elif row.counters.get("codec_failures"):
            yield f"row {i}: the codec failed {row.counters['codec_failures']} times"


@law(
    "BYTES_IMPOSSIBLE", QUANT, "rows.memory rows.n_values arms.cache",
    "a codec stores no more bits than its format takes",
)  # fmt: skip
def no_more_bits(index: ReportIndex) -> Iterator[str]:
    for arm in index.all_arms:
        for prompt in index.measured.get(arm.name, {}):
            most = _most(index, arm.cache, prompt)
            bits = stored_bits(index, arm.name, [prompt])
            left_raw = bool(arm.options.get("raw_layers"))
            if most is not None and bits > most + 1e-6 and not left_raw:
                yield f"{arm.name} counts {bits:.4g} bits a value on {prompt}; {arm.cache} stores {most:.4g}"


def _most(index: ReportIndex, cache: str, prompt: str) -> float | None:
    """Return the most bits a value that a cache stores: rows of codes are filled up to whole bytes."""
    if cache == "raw":
        return 32.0
    rows = [
        row
        for arm in index.arms_of("baseline")
        if arm.cache == "raw"
        for row in index.quants(arm.name, prompt)
    ]
    dims = {array.shape[-1] for row in rows for layer in row.memory.layers for array in layer.arrays}
    dim = min(dims, default=LARGEST)
    least = floor_of(cache, dim)
    if least is None:
        return None
    # Scales and biases of affine codes are of the model's width, of 16 bits or of 32.
    group = int(cache.rpartition("g")[2]) if cache.startswith("affine@") else 0
    return least + (32 / group if group else 0.0 if cache.startswith("e8v@") else 32 / dim)


@law(
    "BYTES_IMPOSSIBLE", QUANT, "rows.memory.layers.arrays prompts.n_tokens rows.n_positions",
    "the scored arrays hold each token of the text once, and one position fewer is scored",
)  # fmt: skip
def positions_of_the_text(index: ReportIndex) -> Iterator[str]:
    cut = getattr(index.report.config, "tokens", None)
    for i, row in enumerate(index.rows):
        prompt = index.prompts.get(row.prompt)
        if prompt is None or not isinstance(row, QuantRow):
            continue
        tokens = min(prompt.n_tokens, cut) if isinstance(cut, int) and cut > 0 else prompt.n_tokens
        if row.n_positions != tokens - 1:
            yield f"row {i}: {row.n_positions} positions of {tokens} tokens are scored"
        lengths = {a.shape[2] for layer in row.memory.layers for a in layer.arrays if len(a.shape) == _RANK}
        if lengths - {tokens}:
            yield f"row {i}: an array holds {min(lengths - {tokens})} positions; the text has {tokens} tokens"
