"""Checks of the comparison of both backends: each cache ran over both, with equal codes, and tokens where promised."""

import math
from collections.abc import Iterator

from bridge.gate.checks.outputs import diverging
from bridge.gate.index import ReportIndex, check
from bridge.reports.cache_spec import parse
from bridge.reports.claims.backends import SPREAD, equal_codes
from bridge.reports.claims.decoding import LEAST_REPEATS, LEAST_TOKENS
from bridge.reports.counted import CountedRows
from bridge.reports.kinds import RAW, TORCH_PARITY
from bridge.reports.parts import Arm

ROLES = ("reference", "candidate")
# Of these codecs, both backends write the same bytes for equal vectors.
EXACT = "e8v"
# How far the sum of a row's steps may be from the time of all of them: steps are written in whole microseconds.
_ROUNDED = 1e-6
_COUNTER, _BYTES = "packed_layers", "live_bytes"


@check("BACKEND_MISSING", TORCH_PARITY)
def both_backends_ran(index: ReportIndex) -> Iterator[str]:
    """Each cache ran over MLX (the role reference) and over torch (the role candidate), the raw one among them."""
    for cache in dict.fromkeys((RAW, *(arm.cache for arm in index.all_arms))):
        for role in ROLES:
            arms = [arm for arm in index.arms_of(role) if arm.cache == cache]
            if len(arms) != 1 or not index.rows_of(arms[0].name):
                yield f"{len(arms)} arms with rows have the cache {cache} and the role {role}; one is needed"


@check("ORACLE_MISSING", TORCH_PARITY)
def raw_arm_has_an_oracle(index: ReportIndex) -> Iterator[str]:
    """The oracle of torch over the raw cache is MLX over the raw cache."""
    for arm in index.arms_of("candidate"):
        oracle = index.arms.get(arm.oracle or "")
        if arm.cache == RAW and (oracle is None or (oracle.role, oracle.cache) != ("reference", RAW)):
            yield f"the oracle of {arm.name} is {arm.oracle}; the reference over the raw cache is needed"


@check("OUTPUT_DIVERGES", TORCH_PARITY)
def raw_tokens_are_equal(index: ReportIndex) -> Iterator[str]:
    """Over the raw cache, torch's greedy tokens are MLX's, or part from them at a near tie."""
    for arm in index.arms_of("candidate"):
        if arm.cache == RAW:
            yield from diverging(index, arm)


@check("CODES_DIFFER", TORCH_PARITY)
def equal_vectors_get_equal_codes(index: ReportIndex) -> Iterator[str]:
    """Both backends write equal Voronoi codes for equal vectors."""
    table = CountedRows(index.data["rows"])
    for ours, theirs in _pairs(index):
        if {side.family for side in parse(ours.cache).sides} <= {EXACT, RAW}:
            equal = equal_codes(table, ours.name, theirs.name)
            if not all(equal):
                count = f"{len(equal) - sum(equal)} of {len(equal)}"
                yield f"{count} rows of {ours.name} differ from those of {theirs.name}"


@check("NOT_COVERED", TORCH_PARITY)
def codes_and_predictions_are_there(index: ReportIndex) -> Iterator[str]:
    """Packed arms have codes and predictions on each prompt."""
    for arm in index.all_arms:
        for prompt in index.prompts if arm.cache != RAW else ():
            rows = index.rows_of(arm.name, prompt)
            if not any(row.codes for row in rows) or not any(row.prediction for row in rows):
                yield f"{arm.name} has no codes or no prediction on {prompt}"


@check("INJECTION_NEVER_RAN", TORCH_PARITY)
def packed_arms_pack(index: ReportIndex) -> Iterator[str]:
    """Packed arms count packed layers in each row, raw arms none."""
    for arm in index.all_arms:
        for row in index.rows_of(arm.name):
            packed = row.counters.get(_COUNTER)
            if packed is None or (packed > 0) == (arm.cache == RAW):
                yield f"{arm.name} on {row.prompt} has the counter {_COUNTER} {packed}"
                break


@check("ROW_CONTRADICTS", TORCH_PARITY)
def steps_and_bytes_add_up(index: ReportIndex) -> Iterator[str]:
    """A row's steps sum to its decoding time, and its live bytes are those of its arrays."""
    for i, row in enumerate(index.rows):
        steps, slack = sum(row.step_s), _ROUNDED * (1 + len(row.step_s))
        if len(row.step_s) != row.decode_tokens or not math.isclose(steps, row.decode_s, abs_tol=slack):
            yield f"row {i}: {len(row.step_s)} steps take {steps:.4g} s, and {row.decode_tokens} {row.decode_s:.4g} s"
        if row.memory is None or row.counters.get(_BYTES) != row.memory.cache_bytes:
            yield f"row {i}: the counter {_BYTES} is {row.counters.get(_BYTES)}, and its arrays hold another number"
        if row.prediction is not None and row.prediction.same_top > row.prediction.n_positions:
            yield f"row {i}: more equal top tokens than positions"


@check("BASELINE_UNSTEADY", TORCH_PARITY)
def arms_repeat_themselves(index: ReportIndex) -> Iterator[str]:
    """Each arm repeats a prompt's tokens."""
    for name, prompts in index.counted.by_arm.items():
        for prompt, rows in prompts.items():
            if len({tuple(row.tokens) for row in rows}) > 1:
                yield f"{name} gives different tokens for {prompt} from run to run"


@check("NOTHING_CLAIMED", TORCH_PARITY)
def wall_time_is_claimed(index: ReportIndex) -> Iterator[str]:
    """Enough was timed, on a machine idle enough, for claims about wall time."""
    if not any(claim.name == "decode_tok_s" for claim in index.claims):
        least = f"{LEAST_REPEATS} repeats (--repeats), {LEAST_TOKENS} tokens (--max-tokens) and equal runs"
        yield f"nothing is claimed about wall time, which needs {least} that differ by a factor of {SPREAD:g} at most"


def _pairs(index: ReportIndex) -> Iterator[tuple[Arm, Arm]]:
    for ours in index.arms_of("candidate"):
        for theirs in index.arms_of("reference"):
            if ours.cache == theirs.cache != RAW:
                yield ours, theirs
