"""Laws of fields: a report contains only fields that the gate knows."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

from pydantic import BaseModel

from bridge.evidence.floors import floor_of
from bridge.evidence.laws.law import (
    ALL,
    CODEC,
    DECODED,
    FOUND,
    MODELLED,
    PARITY,
    PROMPTED,
    QUANT,
    SPEC,
    SWEEP,
    law,
)
from bridge.evidence.parts import Arm, Code, Identity, Model
from bridge.evidence.report_index import ReportIndex
from bridge.evidence.rows import CellRow

# What stands beside the fields of bridge/evidence/parts.py and kinds.py, by the section that it stands in.
MODEL = {"architecture", "layers", "parameters", "stored_dtypes"}
# Of rows of a kind.
ROW: dict[str, set[str]] = {
    **{kind: {"profile"} for kind in DECODED},
    **{kind: {"sequence"} for kind in SWEEP},
    **{kind: {"margin"} for kind in PARITY},
    **{kind: {"nominal"} for kind in CODEC},
    **{kind: {"repeat"} for kind in QUANT},
}
DIVERGENCE = {"kind", "margin", "rounding"}
PROFILE = {"draft_share", "verify_share", "overhead_share"}

# Of configurations.
_RESUMED = {"resumed_rows", "model", "seed", "dtype", "left_out"}
_SPEC = {
    *(
        "temperature",
        "prompts",
        "chat",
        "drafters",
        "rollbacks",
        "loops",
        "fixed_length",
        "torch_device",
        "content_channel",
        "cache",
        "block",
        "block_size",
        "max_tokens",
        "repeats",
        "max_repeats",
    ),
    "package",
}
_NEEDLES = {*("caches", "lengths", "depths", "samples", "max_tokens", "chat", "chunk", "temperature")}
CONFIG: dict[str, set[str]] = {
    **dict.fromkeys((*SPEC, "kakeya.native"), _SPEC | _RESUMED),
    "kakeya.recall": _NEEDLES | _RESUMED | {"boundary"},
    "kakeya.restored-prefill": _NEEDLES | _RESUMED | {
        *("sink", "window", "restorer", "repeats", "max_repeats", "fixed_length", "recompute", "layers")
    },
    "kakeya.verify-l": _RESUMED | {"repeats", "caches", "lengths", "contexts", "cache"},
    "kakeya.kv-quant": _RESUMED | {"caches", "tokens", "store", "boundary", "source", "max_prompts"},
    "kakeya.parity": _RESUMED
    | {*("max_prompts", "block_size", "against", "half", "prompts", "blocks", "draft", "embed_scale")},
    "kakeya.serve-conformance": _RESUMED | {"drafts", "cache", "caches", "warm", "clients", "forms", "max_tokens"},
    "kakeya.codec-rd": {
        *("dim", "n_vectors", "seed", "codecs", "bits", "groups", "q_ranges", "effort", "distributions"),
        *("model", "text"),
    },
}  # fmt: skip
# Of arms.
OPTIONS = {
    *("through", "block_size", "lookup", "adaptive", "rollback", "loop", "rotary_tables", "compiled"),
    *("boundary", "raw_layers", "runtime", "embed_scale", "early_layers", "products"),
    *("positions", "stored_as", "nominal_bits_per_value", "version", "dtype", "sink", "window", "layers"),
}  # fmt: skip
# Of counters, besides the rounds of each drafter.
COUNTERS = {
    *(
        "rounds",
        "syncs",
        "crossings",
        "crossed_bytes",
        "injected_positions",
        "raw_positions",
        "packed_bytes",
        "codec_failures",
        "evicted_positions",
    ),
    "injected_reads",
}
# Of answers of the server.
SERVED_COUNTERS = {
    "rounds",
    "proposed",
    "accepted",
    "cached_tokens",
    "cache_bytes",
    "together",
    "joint_rounds",
}
_ROUNDS = re.compile(r"rounds_[a-z]{1,20}")


def _unknown(place: str, held: Iterable[str], known: set[str]) -> Iterator[str]:
    odd = sorted({*held} - known)
    if odd:
        yield f"{place} has a field {odd[0][:60]!r}, which the gate does not know"


def _extra(part: BaseModel) -> Iterable[str]:
    return part.model_extra or ()


@law(
    "STRAY_FIELD", ALL, "identity config",
    "the gate knows every field of identity and configuration",
)  # fmt: skip
def known_fields_of_the_run(index: ReportIndex) -> Iterator[str]:
    identity: Identity = index.report.identity
    code: Code = identity.code
    yield from _unknown("identity", _extra(identity), set())
    yield from _unknown("identity.code", _extra(code), set())
    config = index.report.config
    held = {*config} if isinstance(config, dict) else {*_extra(config)}
    yield from _unknown("config", held, CONFIG[str(index.report.kind)])


@law(
    "STRAY_FIELD", MODELLED, "models",
    "the gate knows every field of models",
)  # fmt: skip
def known_fields_of_models(index: ReportIndex) -> Iterator[str]:
    models: list[Model] = index.report.models
    for model in models:
        yield from _unknown(f"the model {model.id}", _extra(model), MODEL)


@law(
    "STRAY_FIELD", PROMPTED, "arms prompts workloads",
    "the gate knows every field of arms, prompts and workloads",
)  # fmt: skip
def known_fields_of_what_is_compared(index: ReportIndex) -> Iterator[str]:
    for arm in index.all_arms:
        yield from _unknown(f"the arm {arm.name}", _extra(arm), set())
        yield from _unknown(f"the arm {arm.name}", _options(arm), OPTIONS)
    for prompt in index.all_prompts:
        yield from _unknown(f"the prompt {prompt.id}", _extra(prompt), set())
    for name, told in index.workloads.items():
        yield from _unknown(f"the workload {name}", _extra(told), set())


def _options(arm: Arm) -> Iterable[str]:
    return arm.options


@law(
    "STRAY_FIELD", ALL, "rows rows.counters rows.profile rows.divergence rows.prediction rows.memory rows.round_s",
    "the gate knows every field of rows",
)  # fmt: skip
def known_fields_of_rows(index: ReportIndex) -> Iterator[str]:
    told: set[str] = set()
    known = ROW.get(str(index.report.kind), set())
    for i, row in enumerate(index.rows):
        found = [*_unknown("a row", _extra(row), known), *_inner(row)]
        for odd in found:
            if odd not in told:
                told.add(odd)
                yield f"row {i}: {odd}"


def _inner(row: Any) -> Iterator[str]:
    counters = [name for name in getattr(row, "counters", ()) if not _ROUNDS.fullmatch(name)]
    yield from _unknown("counters", counters, SERVED_COUNTERS if isinstance(row, CellRow) else COUNTERS)
    profile = getattr(row, "profile", None)
    yield from _unknown("profile", profile if isinstance(profile, dict) else (), PROFILE)
    divergence, memory = getattr(row, "divergence", None), getattr(row, "memory", None)
    yield from _unknown("divergence", _extra(divergence) if divergence else (), DIVERGENCE)
    prediction = getattr(row, "prediction", None)
    yield from _unknown("prediction", _extra(prediction) if prediction else (), set())
    times = getattr(row, "round_s", None)
    yield from _unknown("round_s", _extra(times) if times else (), set())
    if memory:
        yield from _unknown("memory", _extra(memory), set())
        for layer in memory.layers:
            yield from _unknown("a layer", _extra(layer), set())
            for array in layer.arrays:
                yield from _unknown("an array", _extra(array), set())


@law(
    "MEANING_UNKNOWN", (*FOUND, *QUANT), "arms.name arms.cache arms.role",
    "a candidate whose name contains a cache is named exactly after its own cache; a scored cache has no other name",
)  # fmt: skip
def caches_are_names(index: ReportIndex) -> Iterator[str]:
    scored = index.report.kind in QUANT
    for arm in index.arms_of("candidate"):
        named = "@" in arm.name or (scored and not arm.cache.startswith(arm.name))
        if named and arm.name not in (arm.cache, f"restored {arm.cache}"):
            yield f"{arm.name} keeps {arm.cache}"


_PATCH = re.compile(r"[a-z_][a-z0-9_]*(?:\.[A-Za-z_][A-Za-z0-9_]*)+|[a-z]")
POSITIONS = ("before the question",)
# Beside MLX, drafters run in torch, on one of its devices.
_RUNTIME = re.compile(r"torch [a-z]{1,20}(?::\d{1,3})?")


@law(
    "MEANING_UNKNOWN", PROMPTED, "arms.patches arms.options",
    "patches are dotted names, and options have known values",
)  # fmt: skip
def options_and_patches(index: ReportIndex) -> Iterator[str]:
    for arm in index.all_arms:
        odd = [patch for patch in arm.patches if not _PATCH.fullmatch(patch)]
        if odd:
            yield f"{arm.name} is patched in {odd[0][:60]!r}, which is not a dotted name"
        if arm.options.get("positions", POSITIONS[0]) not in POSITIONS:
            yield f"{arm.name} works at {str(arm.options['positions'])[:60]!r}"
        runtime = arm.options.get("runtime", "torch cpu")
        if not (isinstance(runtime, str) and _RUNTIME.fullmatch(runtime)):
            yield f"{arm.name} runs in {str(runtime)[:60]!r}"
        if arm.options.get("through", "mlx_lm.stream_generate") != "mlx_lm.stream_generate":
            yield f"{arm.name} goes through {str(arm.options['through'])[:60]!r}"


@law(
    "MEANING_UNKNOWN", QUANT, "arms.options.nominal_bits_per_value arms.cache rows.memory.layers.arrays",
    "nominal_bits_per_value follows from the published formula",
)  # fmt: skip
def nominal_bits(index: ReportIndex) -> Iterator[str]:
    dims = {
        array.shape[-1] for arm in index.arms_of("baseline") for prompt in index.measured.get(arm.name, {})
        for row in index.quants(arm.name, prompt) for layer in row.memory.layers for array in layer.arrays
    }  # fmt: skip
    for arm in index.all_arms:
        told = arm.options.get("nominal_bits_per_value")
        floors = [floor for floor in (floor_of(arm.cache, dim) for dim in dims) if floor is not None]
        if isinstance(told, int | float) and floors and not min(floors) - 1e-9 <= told <= max(floors) + 1e-9:
            yield f"the formula of {arm.name} is said to give {told:g} bits; it gives {max(floors):g}"
