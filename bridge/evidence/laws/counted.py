"""Laws of counters: the numbers of positions that a cache held, injected, evicted and packed are known exactly."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from bridge.evidence.bundled import bundled_target
from bridge.evidence.laws.identity import least_of_the_name
from bridge.evidence.laws.law import DECODED, FOUND, QUANT, law
from bridge.evidence.laws.loops import RECOMPUTING
from bridge.evidence.laws.loops import RESTORED_CACHE as RESTORED
from bridge.evidence.laws.stored import AROUND
from bridge.evidence.parts import Arm
from bridge.evidence.report_index import ReportIndex
from bridge.evidence.rows import Decode, Layer, Memory
from bridge.evidence.rules_bytes import buffer_bytes

INJECTED, RAW, PACKED = "injected_positions", "raw_positions", "packed_bytes"
EVICTED, READS = "evicted_positions", "injected_reads"
# Caches that keep no positions, and those that hold others.
_NO_POSITIONS = ("ArraysCache", "MambaCache")
_LISTS = "CacheList"
# The tokens of a question may be one more or less where they meet the text before.
_QUESTION = 2


def holders(memory: Memory) -> int | None:
    """Return how many layers keep positions; None if that cannot be known."""
    kinds = [layer.kind for layer in memory.layers]
    return None if _LISTS in kinds else sum(kind not in _NO_POSITIONS for kind in kinds)


def _rows(index: ReportIndex) -> Iterator[tuple[int, Decode, Arm, int, int]]:
    """Yield rows that count positions, with place, arm, holders and the positions that went in at most."""
    for i, row in enumerate(index.rows):
        prompt, arm = index.prompts.get(row.prompt), index.arms.get(row.arm)
        count = holders(row.memory) if row.memory is not None else None
        if prompt is not None and arm is not None and count and INJECTED in row.counters:
            yield i, row, arm, count, prompt.n_tokens + len(row.tokens)


@law(
    "BYTES_IMPOSSIBLE", FOUND, "rows.counters rows.tokens prompts.n_tokens rows.memory.layers",
    "in every layer, each processed position is counted once: as injected, as raw, or as evicted",
)  # fmt: skip
def every_position_is_counted(index: ReportIndex) -> Iterator[str]:
    late: dict[str, set[bool]] = defaultdict(set)
    for i, row, arm, count, most in _rows(index):
        counted = row.counters[INJECTED] + row.counters.get(RAW, 0)
        if arm.role == "evicted":
            counted += row.counters.get(EVICTED, 0)
        if RAW not in row.counters:
            continue
        # A loop that computes one token ahead has put the last token of the answer in too.
        if counted not in (count * most, count * (most - 1)):
            yield f"row {i}: {counted} positions are counted in {count} layers; {count * most} were processed"
        else:
            late[arm.loop].add(counted == count * most)
    if any(len(some) > 1 for some in late.values()):
        yield "some rows count the last token of the answer, and others do not"


@law(
    "INJECTION_NEVER_RAN", ("kakeya.recall",), "rows.counters rows.tokens prompts.n_tokens arms.options",
    "a codec injects every position, in every layer that it does not leave raw",
)  # fmt: skip
def codecs_take_every_position(index: ReportIndex) -> Iterator[str]:
    for i, row, arm, count, most in _rows(index):
        if arm.role in ("poison", "identity") or arm.cache == "raw" or RAW not in row.counters:
            continue
        raw = arm.options.get("raw_layers")
        coded = count - len(raw) if isinstance(raw, list) else count
        if row.counters[INJECTED] not in (coded * most, coded * (most - 1)):
            yield f"row {i}: {arm.name} injected {row.counters[INJECTED]} positions; {coded * most} were processed"


@law(
    "INJECTION_NEVER_RAN", ("kakeya.recall",), "rows.counters prompts.n_tokens arms.role",
    "the controls inject all positions before the question, the same number in each control",
)  # fmt: skip
def controls_take_the_same(index: ReportIndex) -> Iterator[str]:
    counts: dict[str, set[int]] = defaultdict(set)
    questions = set()
    for _, row, arm, count, _ in _rows(index):
        if arm.role in ("poison", "identity") and arm.options.get("positions") == BEFORE:
            put = row.counters[INJECTED]
            counts[row.prompt].add(put)
            questions.add(index.prompts[row.prompt].n_tokens - put // count)
    for prompt, some in counts.items():
        if len(some) > 1:
            yield f"controls on {prompt} injected {' and '.join(map(str, sorted(some)))} positions"
    if questions and max(questions) - min(questions) > _QUESTION:
        yield f"controls leave {min(questions)} to {max(questions)} positions of the question"


BEFORE = "before the question"


@law(
    "INJECTION_NEVER_RAN", ("kakeya.restored-prefill",),
    "rows.counters rows.tokens prompts.n_tokens config.sink config.window config.chunk",
    "a restored layer evicts everything between sink and window, and each pass reads all evicted positions",
)  # fmt: skip
def restored_exactly(index: ReportIndex) -> Iterator[str]:
    config = index.report.config
    sink, window, chunk = (_whole(getattr(config, name, None)) for name in ("sink", "window", "chunk"))
    if sink is None or not window:
        return
    for i, row, arm, count, most in _rows(index):
        layers = sum(layer.kind == RESTORED for layer in row.memory.layers) if row.memory else 0
        if not layers or EVICTED not in row.counters:
            continue
        late = row.counters[INJECTED] + row.counters.get(RAW, 0) + (
            row.counters[EVICTED] if arm.role == "evicted" else 0
        ) == count * most  # fmt: skip
        total = most if late else most - 1
        gone = layers * max(0, total - 1 - sink - window)
        given = 0 if arm.role == "evicted" else gone
        passes = _passes(index.prompts[row.prompt].n_tokens, total, chunk) if chunk else None
        reads = layers * sum(max(0, at - sink - window) for at in passes or ())
        reads = 0 if arm.role == "evicted" else reads
        for name, wanted in ((EVICTED, gone), (INJECTED, given), (READS, reads)):
            if name == READS and (passes is None or READS not in row.counters):
                continue
            if row.counters[name] != wanted:
                yield f"row {i}: {arm.name} counts {name} {row.counters[name]}; sink and window make it {wanted}"
        yield from _odd_arrays(i, row, min(total, sink + window + 1), given // layers)


def _odd_arrays(place: int, row: Decode, kept: int, given: int) -> Iterator[str]:
    """Yield how a restored row's arrays are not sink, window and what is given back."""
    layers = [layer for layer in row.memory.layers if layer.kind == RESTORED] if row.memory else []
    for layer in layers:
        rooms = [array.shape[2] for array in layer.arrays[:2] if len(array.shape) == 4]  # noqa: PLR2004
        if rooms != [kept, kept]:
            yield f"row {place}: sink and window are {kept} positions, and the arrays hold {rooms}"
            return
    if given and all(len(layer.arrays) <= 2 for layer in layers):  # noqa: PLR2004
        yield f"row {place}: evicted positions are given back, and no array holds them"
    rooms = [array.shape[-2] for layer in layers for array in layer.arrays[2:] if len(array.shape) > 2]  # noqa: PLR2004
    if rooms and min(rooms) < given:
        yield f"row {place}: {given} evicted positions are given back, and an array holds {min(rooms)}"


def _passes(prompt: int, total: int, chunk: int) -> list[int]:
    """Return the positions that were held before each pass: chunks of the prompt, its last token, the answer."""
    return [*range(0, prompt - 1, chunk), *range(prompt - 1, total)]


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


@law(
    "BYTES_IMPOSSIBLE", FOUND, "rows.counters.packed_bytes rows.memory.layers",
    "packed_bytes is the size of the arrays that hold codes",
)  # fmt: skip
def packed_bytes_are_the_codes(index: ReportIndex) -> Iterator[str]:
    for i, row, _, _, _ in _rows(index):
        if row.memory is None or PACKED not in row.counters:
            continue
        if any(layer.kind == RESTORED and _has(layer, "uint32") for layer in row.memory.layers):
            continue  # an affine cache behind a window: its scales are among the window's arrays
        codes = sum(
            buffer_bytes(array)
            for layer in row.memory.layers for array in layer.arrays
            if layer.kind == "QuantizedKVCache" or array.dtype == "uint8"
        )  # fmt: skip
        if row.counters[PACKED] != codes:
            yield f"row {i}: {row.counters[PACKED]} bytes of codes are counted, and the arrays hold {codes}"


def _has(layer: Layer, dtype: str) -> bool:
    return any(array.dtype == dtype for array in layer.arrays)


@law(
    "BYTES_IMPOSSIBLE", QUANT, "rows.counters rows.n_positions rows.memory.layers arms.cache",
    "a scored cache counts each position of the text once in every layer, as injected or as raw",
)  # fmt: skip
def scored_positions(index: ReportIndex) -> Iterator[str]:
    for i, row in enumerate(index.rows):
        count, arm = holders(row.memory), index.arms.get(row.arm)
        if count is None or arm is None or not {INJECTED, RAW} <= {*row.counters}:
            continue
        whole = count * (row.n_positions + 1)
        held, raw = row.counters[INJECTED], row.counters[RAW]
        if held + raw != whole or (arm.role == "baseline" and held):
            yield f"row {i}: {held} positions are injected and {raw} are raw; the text has {whole}"


@law(
    "BYTES_IMPOSSIBLE", DECODED, "rows.memory.layers.arrays rows.tokens",
    "after equally many positions, all plain loops have room for equally many",
)  # fmt: skip
def same_room(index: ReportIndex) -> Iterator[str]:
    known: dict[tuple[str, int, int], int] = {}
    for i, row in enumerate(index.rows):
        arm = index.arms.get(row.arm)
        steps = arm is not None and index.report.kind in FOUND and arm.loop != RECOMPUTING
        plain = steps or (arm is not None and arm.role in ("baseline", "verify1"))
        prompt = index.prompts.get(row.prompt)
        if row.memory is None or prompt is None or not plain:
            continue
        if (prompt.n_tokens + len(row.tokens) - 1) % STEP == 0:
            continue  # a loop that computes a token ahead has made room for the next step
        for j, layer in enumerate(row.memory.layers):
            rooms = {array.shape[2] for array in layer.arrays if len(array.shape) == 4}  # noqa: PLR2004
            if layer.kind == RESTORED or len(rooms) != 1:
                continue
            (room,) = rooms
            if known.setdefault((row.prompt, j, len(row.tokens)), room) != room:
                yield f"row {i}: layer {j} has room for {room} positions; another row of as many tokens has not"
                return


@law(
    "BYTES_IMPOSSIBLE", (*DECODED, *QUANT), "rows.memory.layers.arrays models.weights",
    "caches of a bundled model have its layers, heads and head size",
)  # fmt: skip
def shape_of_the_bundled_model(index: ReportIndex) -> Iterator[str]:
    shape = bundled_target(index).get("cache")
    sliding = index.restores_sliding
    for i, row in enumerate(index.rows if shape else ()):
        for j, layer in enumerate(row.memory.layers if row.memory and shape else ()):
            quant = not isinstance(row, Decode)
            odd = _odd_shape(layer, j, shape, quant=quant, sliding=sliding) if shape else None
            if odd:
                yield f"row {i}: layer {j} {odd}"
                break


def _odd_shape(layer: Layer, place: int, shape: dict[str, Any], *, quant: bool, sliding: bool) -> str | None:
    """Return how a layer's arrays are not of a model, of which the sliding layers are restored or the others."""
    if place >= len(shape["windows"]):
        return f"is one of a model of {len(shape['windows'])}"
    window = shape["windows"][place]
    for array in layer.arrays:
        if len(array.shape) != 4:  # noqa: PLR2004 - of keys or values: batch, heads, positions, head size
            continue
        if array.shape[1] != shape["heads"]:
            return f"has {array.shape[1]} heads; the model has {shape['heads']}"
        if array.dtype.startswith(("float", "bfloat")) and array.shape[3] not in (shape["dim"], shape["dim"] // 64,
                                                                                  shape["dim"] // 32):  # fmt: skip
            return f"has heads of {array.shape[3]} values; the model's have {shape['dim']}"
    rotating = "Rotating" in layer.kind or (layer.kind == RESTORED and sliding)
    if not quant and layer.kind not in AROUND and "Control" not in layer.kind and rotating != bool(window):
        return f"is a {layer.kind}; the model's has {f'a window of {window}' if window else 'no window'}"
    return None


@law(
    "BYTES_IMPOSSIBLE", DECODED, "rows.memory.peak_bytes rows.memory.cache_bytes models.parameters models.dtype",
    "peak_bytes is at least the size of the model and of the cache",
)  # fmt: skip
def peak_above_the_model(index: ReportIndex) -> Iterator[str]:
    target = index.target
    count = _whole(getattr(target, "parameters", None)) or (least_of_the_name(target) if target else None)
    size = {"float32": 4, "float16": 2, "bfloat16": 2}.get(getattr(target, "dtype", ""))
    if target is None or not count or not size or target.quantization:
        return
    for i, row in enumerate(index.rows):
        peak = row.memory.peak_bytes if row.memory else None
        held = row.memory.cache_bytes if row.memory else 0
        if peak is not None and peak < count * size + held:
            yield f"row {i}: a peak of {peak} bytes; the model takes {count * size}, and the cache {held}"
            return


@law(
    "BYTES_IMPOSSIBLE", DECODED, "rows.memory.layers.arrays prompts.n_tokens rows.tokens",
    "a bundled model's raw cache has room for whole steps of 256 positions until it grows, and is not filled exactly",
)  # fmt: skip
def rooms_are_steps(index: ReportIndex) -> Iterator[str]:
    full: dict[str, dict[str, bool]] = defaultdict(dict)
    for i, row in enumerate(index.rows if bundled_target(index) else ()):
        prompt = index.prompts.get(row.prompt)
        if row.memory is None or prompt is None:
            continue
        held = prompt.n_tokens + len(row.tokens) - 1
        rooms = {
            array.shape[2] for layer in row.memory.layers if layer.kind == "KVCache"
            for array in layer.arrays if len(array.shape) == 4  # noqa: PLR2004
        }  # fmt: skip
        first = STEP * -(-max(prompt.n_tokens - 1, 1) // STEP)
        # A cache grows for drafts that are refused, too.
        reached = held + max(row.drafted or [0])
        if reached < first and any(room % STEP for room in rooms):
            yield f"row {i}: room for {min(rooms)} positions is no whole number of steps of {STEP}"
            return
        if rooms and not row.warmup:
            full[row.arm][row.prompt] = rooms <= {held, held + 1}
    for arm, some in full.items():
        if len(some) >= EXACTLY_FULL and all(some.values()):
            yield f"the cache of {arm} is filled exactly on each of {len(some)} prompts"


# mlx-lm's caches grow by so many positions; by chance, one prompt in so many fills them.
STEP, EXACTLY_FULL = 256, 6


@law(
    "BYTES_IMPOSSIBLE", QUANT, "rows.memory.layers.arrays arms.cache",
    "keys and values of the same shape are coded in arrays of the same shape",
)  # fmt: skip
def keys_as_values(index: ReportIndex) -> Iterator[str]:
    even = [
        layer for row in index.rows if index.arms.get(row.arm) and index.arms[row.arm].cache == "raw"
        for layer in row.memory.layers
    ]  # fmt: skip
    if not even or any(len(layer.arrays) != 2 or layer.arrays[0] != layer.arrays[1] for layer in even):  # noqa: PLR2004
        return
    for i, row in enumerate(index.rows):
        for j, layer in enumerate(row.memory.layers):
            half = len(layer.arrays) // 2
            if len(layer.arrays) % 2 or layer.arrays[:half] != layer.arrays[half:]:
                yield f"row {i}: the arrays of keys and values differ in layer {j}, and the raw cache's do not"
                return
