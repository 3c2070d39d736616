"""Laws of loops: how often each loop waits for the device, and how long its rounds take."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from bridge.evidence.laws.law import RESTORED, SPEC, TIMED, law
from bridge.evidence.report_index import ReportIndex
from bridge.evidence.rows import Decode
from bridge.evidence.stats import median

# The loop that reads the whole text again for each token.
RECOMPUTING = "engine.bench.recompute"
# A token of it takes about as long as its prefill.
_SHORTER, _LONGER = 0.5, 2.0

# The kind of the cache of a layer that evicts.
RESTORED_CACHE = "RestoredCache"

LAZY = "lazy"
# Loops that wait for the device once a round, and those that wait for the draft before.
ONCE, DRAFT_FIRST = ("lazy", "fused"), ("two-phase", "eager")
# The embeddings of a block go to torch, and the states of its drafts come back; new taps go there too.
EACH_ROUND = 2
# Times of rounds are written with seven digits after the point.
DIGITS = 1e-7


def loops_of(config: Any) -> list[str]:
    """Return the configured loops; older reports have one."""
    found = getattr(config, "loops", None)
    return [str(one) for one in found] if isinstance(found, list | tuple) and found else [LAZY]


def arm_name(drafter: str, rollback: str, loop: str) -> str:
    """Return the name of a candidate."""
    return f"{drafter}/{rollback}" + (f"/{loop}" if loop != LAZY else "")


@law(
    "ROUNDS_CONTRADICT", SPEC, "rows.counters.syncs rows.counters.rounds arms.options.loop",
    "a lazy or fused loop waits for the device once a round; other loops wait again in each round of the draft model",
)  # fmt: skip
def waits_of_the_loop(index: ReportIndex) -> Iterator[str]:
    for i, row in enumerate(index.rows):
        arm = index.arms.get(row.arm)
        loop = arm.options.get("loop") if arm is not None else None
        rounds, syncs = row.counters.get("rounds"), row.counters.get("syncs")
        if (
            arm is None
            or loop is None
            or rounds is None
            or syncs is None
            or getattr(row, "profile", None) is not None
        ):
            continue
        drafted = row.counters.get("rounds_dflash")
        if drafted is None:
            drafted = sum(map(bool, row.drafted or ())) if arm.options.get("lookup") is False else 0
        if loop in ONCE and syncs != rounds:
            yield f"row {i}: a {loop} loop waited {syncs} times in {rounds} rounds"
        elif loop in DRAFT_FIRST and syncs < rounds + drafted:
            yield f"row {i}: a {loop} loop waited {syncs} times in {rounds} rounds, {drafted} of them drafted"
        elif loop not in (*ONCE, *DRAFT_FIRST):
            yield f"row {i}: {str(loop)[:60]!r} is not a known loop"


@law(
    "ROUNDS_CONTRADICT", SPEC, "rows.counters.crossings rows.counters.crossed_bytes arms.options.runtime",
    "a drafter in torch counts what crosses between torch and MLX: embeddings and states in each round that it drafts",
)  # fmt: skip
def crossings_of_hybrids(index: ReportIndex) -> Iterator[str]:
    for i, row in enumerate(index.rows):
        arm = index.arms.get(row.arm)
        hybrid = arm is not None and str(arm.options.get("runtime", "")).startswith("torch")
        crossings, nbytes = row.counters.get("crossings"), row.counters.get("crossed_bytes")
        if not hybrid:
            if crossings or nbytes:
                yield f"row {i}: {row.arm} counts crossings, and does not draft in torch"
        elif crossings is None or nbytes is None:
            yield f"row {i}: {row.arm} drafts in torch, and counts no crossings"
        elif crossings < EACH_ROUND * sum(map(bool, row.drafted or ())) or nbytes < crossings:
            yield f"row {i}: {crossings} crossings of {nbytes} bytes in {len(row.commits or ())} rounds"


@law(
    "ROUNDS_CONTRADICT", SPEC, "rows.round_s rows.commits rows.e2e_s",
    "the times of rounds are as many as the rounds, and fit into the run",
)  # fmt: skip
def times_of_rounds(index: ReportIndex) -> Iterator[str]:
    for i, row in enumerate(index.rows):
        if row.round_s is None:
            continue
        parts = (row.round_s.draft, row.round_s.verify, row.round_s.wait)
        count = len(row.commits or ())
        whole = sum(map(sum, parts))
        if any(len(part) != count for part in parts):
            yield f"row {i}: {count} rounds, and times of {len(parts[0])}"
        elif whole > row.e2e_s + DIGITS * 3 * count:
            yield f"row {i}: rounds of {whole:.3g} s in a run of {row.e2e_s:.3g} s"


@law(
    "TEXT_CONTRADICTS", (*TIMED, *RESTORED), "rows.stop config.fixed_length",
    "with fixed_length every answer stops for its length",
)  # fmt: skip
def answers_of_fixed_length(index: ReportIndex) -> Iterator[str]:
    if getattr(index.report.config, "fixed_length", False) is not True:
        return
    for i, row in enumerate(index.rows):
        if row.stop != "length":
            yield f"row {i}: it stopped by {row.stop}, and fixed_length is configured"


@law(
    "NOT_COVERED", RESTORED, "config.recompute arms.loop arms.role arms.cache",
    "recompute says whether an arm recomputed everything for each token; such an arm is a reference with the raw cache",
)  # fmt: skip
def configured_recomputation(index: ReportIndex) -> Iterator[str]:
    found = [arm for arm in index.all_arms if arm.loop == RECOMPUTING]
    if bool(found) is not (getattr(index.report.config, "recompute", False) is True):
        yield f"recompute is configured as {getattr(index.report.config, 'recompute', False)}, {len(found)} arms do so"
    for arm in found:
        if (arm.role, arm.cache) != ("reference", "raw"):
            yield f"{arm.name} recomputes, and is a {arm.role} with the cache {arm.cache}"


@law(
    "TIMES_UNCLEAR", RESTORED, "rows.prefill_s rows.decode_s rows.decode_tokens arms.loop",
    "each token of a recomputation takes about as long as its prefill",
)  # fmt: skip
def recomputing_takes_a_prefill(index: ReportIndex) -> Iterator[str]:
    for arm in index.all_arms:
        for prompt in index.measured.get(arm.name, {}) if arm.loop == RECOMPUTING else ():
            rows = [row for row in index.decodes(arm.name, prompt) if row.decode_tokens]
            times = median(row.decode_s / row.decode_tokens / row.prefill_s for row in rows)
            if rows and not _SHORTER <= times <= _LONGER:
                yield f"{arm.name} on {prompt}: a token takes {times:.2g} times as long as the prefill"


@law(
    "NOT_COVERED", RESTORED, "config.layers arms.options.layers",
    "arms restore the configured layers: full-attention ones unless sliding is configured",
)  # fmt: skip
def configured_layers(index: ReportIndex) -> Iterator[str]:
    layers = "sliding" if index.restores_sliding else "full attention"
    for arm in index.all_arms:
        if arm.options.get("layers", layers) != layers:
            yield f"{arm.name} restores the layers {str(arm.options['layers'])[:60]!r}; {layers} is configured"


@law(
    "BYTES_IMPOSSIBLE", RESTORED, "config.layers rows.memory.layers.kind",
    "exactly the layers evict that the whole cache shows to be of the configured kind: sliding, or full-attention",
)  # fmt: skip
def evicting_layers(index: ReportIndex) -> Iterator[str]:
    kind = "RotatingKVCache" if index.restores_sliding else "KVCache"
    whole = {
        row.prompt: _kinds(row) for arm in index.arms_of("baseline") for row in index.all_decodes(arm.name)
    }
    told = [arm for arm in index.all_arms if arm.role in ("candidate", "identity", "poison", "evicted")]
    for row in (row for arm in told for row in index.all_decodes(arm.name)):
        base, mine = whole.get(row.prompt, []), _kinds(row)
        wanted = [i for i, one in enumerate(base) if one == kind]
        found = [i for i, one in enumerate(mine) if one == RESTORED_CACHE]
        if (found or index.restores_sliding) and found != wanted:
            yield f"{row.arm} on {row.prompt}: layers {found} evict; {wanted} are those of the kind {kind}"
            return


def _kinds(row: Decode) -> list[str]:
    return [layer.kind for layer in row.memory.layers] if row.memory else []
