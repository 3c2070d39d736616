"""Laws of reports of schema 2, as far as their fields allow."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator

from bridge.evidence.laws.law import law
from bridge.evidence.legacy import Legacy
from bridge.evidence.names import LEGACY
from bridge.evidence.rules_bytes import odd_bytes
from bridge.evidence.stats import loops, median

OLD = (LEGACY,)
# How far what one arm takes to read a prompt may lie from what the other takes.
LONGER = 1.5
# Between the rows' seconds and the wall clock's lies what an older harness did beside them.
BESIDE = 2.0
EXACT = 1.005
_DEVICE = re.compile(r"(?:Device\()?(?:cpu|gpu)(?:[:, ]+\d{1,3})?\)?")


@law(
    "TIME_UNACCOUNTED",
    OLD,
    "throughput.tokens_per_second stage_timings",
    "tokens_per_second follows from the samples",
)
def pace_of_the_samples(old: Legacy) -> Iterator[str]:
    for name, rows, samples in old.arms:
        timed = old.throughput.k3_cross_model if name == "k3_cross_model" else old.throughput.oracle_native_ar
        counts = samples.per_sample_decode_tokens
        took = math.fsum(row.prefill + (row.decode_s or 0.0) for row in rows)
        if timed.tokens_per_second and counts and took > 0 and len(counts) == len(rows):
            pace = sum(counts) / took
            if not pace / BESIDE <= timed.tokens_per_second <= pace * EXACT:
                yield f"{name} is said to run at {timed.tokens_per_second:.4g} tokens/s; its samples at {pace:.4g}"


@law("TIME_MISPLACED", OLD, "stage_timings.prefill_s", "prefill takes both arms about equally long")
def equal_prefills(old: Legacy) -> Iterator[str]:
    one, other = ([row.prefill for row in rows if row.prefill] for _, rows, _ in old.arms)
    pure = old.throughput.decode_only.speedup if old.throughput.decode_only else None
    if one and other and pure is not None and pure > 1 and median(one) > LONGER * median(other):
        yield f"prefill took {median(one):.4g} s in the median, and the oracle's {median(other):.4g} s"


@law(
    "RUNS_MISNUMBERED",
    OLD,
    "stage_timings.sample stage_timings.order",
    "each sample ran once, at its own place in the order",
)
def samples_once(old: Legacy) -> Iterator[str]:
    orders = [row.order for _, rows, _ in old.arms for row in rows if row.order is not None]
    if len({*orders}) != len(orders):
        yield "two samples ran at the same place"
    for name, rows, _ in old.arms:
        samples = [getattr(row, "sample", None) for row in rows]
        if None not in samples and samples != [*range(len(samples))]:
            yield f"the samples of {name} are numbered {', '.join(map(str, samples[:8]))}"


@law(
    "NOT_COVERED", OLD, "config.n_samples stage_timings results", "every list of both arms holds all samples"
)
def all_samples(old: Legacy) -> Iterator[str]:
    asked = old.config.get("n_samples")
    for name, rows, samples in old.arms:
        lists = (samples.per_sample_decoded, samples.per_sample_correct, samples.per_sample_decode_tokens)
        counts = {len(found) for found in (rows, *lists) if found}
        if len(counts) > 1:
            yield f"the lists of {name} hold {' and '.join(map(str, sorted(counts)))} samples"
        elif isinstance(asked, int) and rows and counts and counts != {asked}:
            yield f"{name} has {min(counts)} samples; {asked} are configured"


@law(
    "TEXT_CONTRADICTS",
    OLD,
    "results.per_sample_decoded results.per_sample_correct",
    "the same text is equally correct in both arms",
)
def equally_correct(old: Legacy) -> Iterator[str]:
    (_, _, one), (_, _, other) = old.arms
    told = zip(one.per_sample_decoded, other.per_sample_decoded, strict=False)
    judged = zip(one.per_sample_correct, other.per_sample_correct, strict=False)
    for i, ((text, plain), (correct, right)) in enumerate(zip(told, judged, strict=False)):
        if text == plain and correct != right:
            yield f"sample {i} is the oracle's text, and only one of them is said to be correct"
        elif correct and not text.strip():
            yield f"sample {i} is empty, and said to be correct"


@law(
    "CLOCK_IMPLAUSIBLE", OLD, "stage_timings.decode_s", "no two samples took the same time to the last digit"
)
def no_equal_times(old: Legacy) -> Iterator[str]:
    times = [row.decode_s for _, rows, _ in old.arms for row in rows if row.decode_s]
    if len({*times}) != len(times):
        yield "two samples were decoded in the same time to the last digit"


@law(
    "BYTES_IMPOSSIBLE",
    OLD,
    "memory.live",
    "both caches have the same number of layers, and each cache's bytes are the sum of its arrays",
)
def live_layers(old: Legacy) -> Iterator[str]:
    counts = {len(memory.layers) for memory in old.memory.live.values()}
    if len(counts) > 1:
        yield f"caches of {' and '.join(map(str, sorted(counts)))} layers are compared"
    for name, memory in old.memory.live.items():
        odd = odd_bytes(memory)
        if odd:
            yield f"{name}: {odd}"


@law("WORKLOAD_DEGENERATE", OLD, "results.per_sample_decoded", "most plain output does not repeat itself")
def dull_samples(old: Legacy) -> Iterator[str]:
    texts = old.results.oracle.per_sample_decoded
    dull = [text for text in texts if loops(text.split())]
    if old.headline is not None and len(dull) * 5 > len(texts):
        yield f"{len(dull)} of {len(texts)} texts of the oracle repeat themselves"


@law("IDENTITY_DOUBTFUL", OLD, "models", "each role has one model, and no digest is that of nothing")
def older_models(old: Legacy) -> Iterator[str]:
    roles = [model.role for model in old.models]
    if len({*roles}) != len(roles):
        yield "two models have one role"
    for model in old.models:
        if len({*model.weights.partition(":")[2]}) <= len("abcdef"):
            yield f"the digest of {model.id} is of nothing"


@law("IDENTITY_DOUBTFUL", OLD, "identity.device", "the device is one of those that MLX has")
def known_device(old: Legacy) -> Iterator[str]:
    if old.identity is not None and not _DEVICE.fullmatch(old.identity.device):
        yield f"identity.device is {old.identity.device[:60]!r}; cpu and gpu are the devices of MLX"
