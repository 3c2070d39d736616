"""Rules about stored bytes and error: live arrays, all stored bits, comparisons at equal rates."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from functools import partial

from bridge.evidence.claims import stored_bits
from bridge.evidence.floors import LARGEST, floor_of
from bridge.evidence.names import MEMORY, RATIOS
from bridge.evidence.parts import Claim
from bridge.evidence.report_index import ReportIndex, where_of
from bridge.evidence.rows import Buffer, Decode, Memory, QuantRow
from bridge.evidence.rule import rule

# Equal enough to be compared, in stored bits a value.
EQUAL_BITS = 0.05

_SIZES = {"bool": 1, "float16": 2, "bfloat16": 2, "float32": 4}
RAW = "raw"

# Of keys and values: batch, heads, positions, head size.
_RANK = 4


@rule("MEMORY_NOT_LIVE")
def memory_not_live(index: ReportIndex) -> Iterator[str]:
    """If a claim is about bytes, every row of its arms must list the live arrays."""
    for claim in index.named(*MEMORY):
        for arm in filter(None, (claim.arm, claim.against)):
            rows = [row for prompt in index.common(claim) for row in index.decodes(arm, prompt)]
            if any(row.memory is None for row in rows):
                yield f"{claim.name}: a row of {arm} lists no arrays"


@rule("MEMORY_CLAIM_MISMATCH")
def memory_claim_mismatch(index: ReportIndex) -> Iterator[str]:
    """Bytes must equal the sum of the listed arrays, and compared caches must have equally many layers."""
    for i, row in enumerate(index.rows):
        odd = odd_bytes(row.memory) if row.memory else None
        odd = odd or (_too_few(index, row) if isinstance(row, Decode) else None)
        if odd:
            yield f"row {i}: {odd}"
    for claim in index.named("memory_saving"):
        layers = index.once(
            ("layers", claim.arm, claim.against, where_of(claim)), partial(_layers, index, claim)
        )
        if len(layers) > 1:
            yield f"memory_saving: caches of {' and '.join(map(str, sorted(layers)))} layers are compared"
        if _is_inflated(index, claim):
            yield f"memory_saving: {claim.against} keeps float32, and the model is of half that width"


def _layers(index: ReportIndex, claim: Claim) -> set[int]:
    """Return how many layers the caches of a claim's arms have."""
    return {
        len(row.memory.layers)
        for arm in (claim.arm, claim.against)
        for prompt in index.common(claim)
        for row in index.decodes(arm, prompt)
        if row.memory
    }


def _is_inflated(index: ReportIndex, claim: Claim) -> bool:
    """Return whether what is saved over keeps wider numbers than the model computes with."""
    if index.mixes_widths or not any(
        model.role == "target" and model.dtype in ("float16", "bfloat16") for model in index.report.models
    ):
        return False

    def wide() -> bool:
        held = [row.memory for prompt in index.common(claim) for row in index.decodes(claim.against, prompt)]
        layers = [layer for memory in held if memory for layer in memory.layers]
        return any(array.dtype == "float32" for layer in layers for array in layer.arrays)

    return index.once(("wide", claim.arm, claim.against, where_of(claim)), wide)


def _too_few(index: ReportIndex, row: Decode) -> str | None:
    """Return in which layer a row's cache cannot hold the positions that it was given, where that can be known.

    The raw cache of the same prompt shows heads and sizes: of a layer that keeps every position there, each cache has
    to store them all, in the bits of its format. What evicts on purpose is another kind of report.
    """
    arm, prompt = index.arms.get(row.arm), index.prompts.get(row.prompt)
    if index.report.kind == "kakeya.restored-prefill" or arm is None or prompt is None or row.memory is None:
        return None
    raw = next(
        (
            other.memory.layers for base in index.arms_of("baseline") if base.cache == RAW
            for other in index.decodes(base.name, row.prompt) if other.memory
        ), [],
    )  # fmt: skip
    positions = prompt.n_tokens + len(row.tokens) - 1
    if len(raw) != len(row.memory.layers):
        return None
    for i, (layer, whole) in enumerate(zip(row.memory.layers, raw, strict=True)):
        least = sum(_least_bytes(array, arm.cache, positions) for array in whole.arrays)
        if layer.nbytes < least:
            return (
                f"layer {i} has {layer.nbytes} bytes; {positions} positions take {least:.0f} in {arm.cache}"
            )
    return None


def _least_bytes(array: Buffer, cache: str, positions: int) -> float:
    """Return the least bytes of so many positions of keys or values; 0 of an array that does not keep them all."""
    if len(array.shape) != _RANK or array.shape[2] < positions:
        return 0.0
    dim = array.shape[3]
    bits = 8 * _size(array.dtype) if cache == RAW else floor_of(cache, dim) or 0.0
    return array.shape[0] * array.shape[1] * positions * dim * bits / 8


def odd_bytes(memory: Memory) -> str | None:
    """Return where the bytes of a cache differ from the sum of its arrays; None if they agree."""
    for i, layer in enumerate(memory.layers):
        held = sum(map(buffer_bytes, layer.arrays))
        if held != layer.nbytes:
            return f"layer {i} counts {layer.nbytes} bytes, and its arrays hold {held}"
    total = sum(layer.nbytes for layer in memory.layers)
    return f"{memory.cache_bytes} bytes, and its layers hold {total}" if total != memory.cache_bytes else None


def buffer_bytes(array: Buffer) -> int:
    """Return the bytes of an array."""
    return math.prod(array.shape) * _size(array.dtype)


def _size(dtype: str) -> int:
    return _SIZES.get(dtype) or int(re.sub(r"\D", "", dtype)) // 8


@rule("RATE_OMITS_SIDE_INFORMATION")
def rate_omits_side_information(index: ReportIndex) -> Iterator[str]:
    """A codec must store at least the bits of its format, scales and biases included."""
    for arm in index.all_arms:
        if arm.cache != RAW and floor_of(arm.cache) is None:
            yield f"the arm {arm.name} uses the cache {arm.cache}, whose format the gate does not know"
            continue
        for prompt in index.measured.get(arm.name, {}):
            bits, least = stored_bits(index, arm.name, [prompt]), _least(index, arm.cache, prompt)
            if bits < least - 1e-6:
                yield f"{arm.name} counts {bits:.4g} bits a value on {prompt}; {arm.cache} takes at least {least:.4g}"


def _least(index: ReportIndex, cache: str, prompt: str) -> float:
    """Return the least bits a value that a cache stores of what the raw cache holds of a prompt."""
    arrays = [array for row in _raw(index, prompt) for layer in row.memory.layers for array in layer.arrays]
    sizes = [math.prod(array.shape) for array in arrays]
    dims = [array.shape[-1] if array.shape else LARGEST for array in arrays]
    floors = [floor_of(cache, dim) or 0.0 for dim in dims]
    whole = sum(size * floor for size, floor in zip(sizes, floors, strict=True))
    return whole / sum(sizes) if arrays else floor_of(cache) or 0.0


def _raw(index: ReportIndex, prompt: str) -> list[QuantRow]:
    """Return what the raw cache was found to hold of a prompt."""
    return [
        row for arm in index.arms_of("baseline") if arm.cache == RAW for row in index.quants(arm.name, prompt)
    ]


@rule("EQUAL_Q_NOT_EQUAL_RATE")
def equal_q_not_equal_rate(index: ReportIndex) -> Iterator[str]:
    """An arm that is claimed to err less must not store more bits."""
    for claim in index.named(*RATIOS):
        prompts = index.common(claim)
        one, other = (stored_bits(index, arm, prompts) for arm in (claim.arm, claim.against))
        if one > other + EQUAL_BITS:
            yield f"{claim.name}: {claim.arm} stores {one:.4g} bits a value, and {claim.against} only {other:.4g}"


@rule("ORACLE_MISSING")
def oracle_missing(index: ReportIndex) -> Iterator[str]:
    """The raw cache must have been scored on every prompt, to compare with."""
    raw = [arm.name for arm in index.arms_of("baseline") if arm.cache == RAW]
    if not raw:
        yield "no baseline keeps the raw cache"
    for prompt in index.prompts:
        if raw and not any(index.quants(name, prompt) for name in raw):
            yield f"the raw cache was not scored on {prompt}"


@rule("IDENTITY_BROKEN")
def identity_broken(index: ReportIndex) -> Iterator[str]:
    """The raw cache must have no error."""
    for arm, row in _scored(index, "baseline", "identity"):
        if row.sum_squared_error > 0 or row.sum_kl > 0 or row.same_top != row.n_positions:
            yield f"{arm} on {row.prompt} has an error, though its cache is raw"


@rule("INJECTION_NEVER_RAN")
def injection_never_ran(index: ReportIndex) -> Iterator[str]:
    """An error in keys and values must change the logits, and every codec must make an error."""
    for arm, row in _scored(index, "candidate", "reference", "poison"):
        if row.sum_squared_error > 0 and row.sum_kl == 0:
            yield f"{arm} on {row.prompt} has an error in keys and values, and none in the logits"
        if row.sum_squared_error == 0 and index.arms[arm].cache != RAW:
            yield f"{arm} on {row.prompt} has no error: its codec did not run"


@rule("ROW_CONTRADICTS")
def row_contradicts(index: ReportIndex) -> Iterator[str]:
    """All arms must be scored on the same values and positions of a prompt."""
    for prompt in index.prompts:
        rows = [row for arm in index.measured for row in index.quants(arm, prompt)]
        squares = [row.sum_squares for row in rows]
        counts = {(row.n_values, row.n_positions) for row in rows}
        if len(counts) > 1 or (rows and max(squares) > min(squares) * (1 + 1e-5)):
            yield f"the arms were not scored on the same values and positions of {prompt}"
        for row in _raw(index, prompt):
            held = sum(math.prod(array.shape) for layer in row.memory.layers for array in layer.arrays)
            if held != row.n_values:
                yield f"the arrays of the raw cache hold {held} values of {prompt}; n_values is {row.n_values}"


def _scored(index: ReportIndex, *roles: str) -> Iterator[tuple[str, QuantRow]]:
    for arm in index.arms_of(*roles):
        for prompt in index.measured.get(arm.name, {}):
            for row in index.quants(arm.name, prompt):
                yield arm.name, row
