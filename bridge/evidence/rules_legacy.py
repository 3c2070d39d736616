"""Rules for reports of schema 2: the rules of that time, and the current ones as far as they apply."""

from __future__ import annotations

import math
from collections.abc import Iterator

from bridge.evidence.claims import quotient
from bridge.evidence.legacy import Legacy, Samples, Stage
from bridge.evidence.report_index import STOCK_LOOP
from bridge.evidence.rule import rule
from bridge.evidence.rules_speed import (
    DECODE_SPREAD,
    DECODE_TOKENS,
    IN_SEQUENCE,
    PREFILL_SPREAD,
    SAMPLES,
    longest_run,
)
from bridge.evidence.stats import median, repeats_at_the_end

_BASELINE = "native_ar_baseline"
_ROUNDING = 0.005


@rule("PROVENANCE_MISSING")
def provenance_missing(old: Legacy) -> Iterator[str]:
    """The report must name its configuration, machine and models."""
    missing = [name for name in ("config", "identity", "models") if not getattr(old, name)]
    if missing:
        yield f"the report does not say: {', '.join(missing)}"


@rule("MISSING_STAGE_TIMINGS")
def missing_stage_timings(old: Legacy) -> Iterator[str]:
    """The report must have a row for each sample."""
    if not old.rows:
        yield "k3_cross_model has no stage_timings"


@rule("MISSING_RESTORATION_FLAG")
def missing_restoration_flag(old: Legacy) -> Iterator[str]:
    """Each row must say whether its sample was restored."""
    if None in old.restored:
        yield f"sample {old.restored.index(None)} does not say restoration_active"


@rule("MIXED_RESTORATION_PATHS")
def mixed_restoration_paths(old: Legacy) -> Iterator[str]:
    """Either all samples were restored, or none."""
    if True in old.restored and False in old.restored:
        yield f"{old.restored.count(True)} samples were restored and {old.restored.count(False)} were not"


@rule("BASELINE_AS_SUT")
def baseline_as_sut(old: Legacy) -> Iterator[str]:
    """A report without restored samples must call itself a baseline."""
    if old.rows and True not in old.restored and old.results.k3_cross_model.system_under_test != _BASELINE:
        yield f"no sample was restored, and system_under_test is not {_BASELINE}"


@rule("BASELINE_RECALL_CLAIM")
def baseline_recall_claim(old: Legacy) -> Iterator[str]:
    """A baseline-only report must not claim recall_cross_model."""
    if old.rows and True not in old.restored and old.gate.recall_cross_model is not None:
        yield f"recall_cross_model is {old.gate.recall_cross_model:g}, and no sample was restored"


@rule("RECALL_SCOPE")
def recall_scope(old: Legacy) -> Iterator[str]:
    """Recall must be claimed only of restored samples."""
    if old.gate.recall_cross_model is not None and not all(old.restored):
        yield "recall_cross_model is claimed of samples that were not restored"


@rule("RECALL_VACUOUS")
def recall_vacuous(old: Legacy) -> Iterator[str]:
    """Recall must be claimed only if the prompts hide a needle."""
    if old.config.get("code_prompts") and old.gate.recall_cross_model is not None:
        yield "recall_cross_model is claimed of prompts without a needle"


@rule("FUSED_NEVER_RAN")
def fused_never_ran(old: Legacy) -> Iterator[str]:
    """A fused run must have run blocks."""
    mode = old.throughput.k3_cross_model.eval_mode or str(old.config.get("eval_mode", ""))
    blocks = sum(row.fused.blocks or 0 for row in old.rows if row.fused)
    if "fused" in mode and not blocks:
        yield f"eval_mode is {mode}, and no block ran"


@rule("SPEEDUP_SELF_COMPARISON")
def speedup_self_comparison(old: Legacy) -> Iterator[str]:
    """A quotient must not compare plain decoding with itself."""
    if old.headline is not None and True not in old.restored:
        yield f"a quotient of {old.headline:g} is claimed of plain decoding over plain decoding"


@rule("SPEEDUP_SAMPLES")
def speedup_samples(old: Legacy) -> Iterator[str]:
    """Each arm must have at least five samples."""
    for name, rows, _ in old.arms:
        if old.headline is not None and len(rows) < SAMPLES:
            yield f"{name} has {len(rows)} rows; {SAMPLES} are the least"


@rule("SPEEDUP_DECODE_TOKENS")
def speedup_decode_tokens(old: Legacy) -> Iterator[str]:
    """Each arm must decode at least 32 tokens in the median."""
    for name, _, samples in old.arms:
        middle = median(samples.per_sample_decode_tokens)
        if old.headline is not None and not middle >= DECODE_TOKENS:
            yield f"{name} decoded {middle:g} tokens in the median; {DECODE_TOKENS} are the least"


@rule("SPEEDUP_DECODE_ONLY_MISSING")
def speedup_decode_only_missing(old: Legacy) -> Iterator[str]:
    """A quotient that includes prefill must come with the quotient of decoding alone."""
    pure = old.throughput.decode_only
    if old.headline is not None and (pure is None or pure.speedup is None):
        yield "cross_model_speedup_vs_oracle_ar stands without decode_only.speedup"


@rule("SPEEDUP_SCOPE_MISMATCH")
def speedup_scope_mismatch(old: Legacy) -> Iterator[str]:
    """The times of both arms must cover the same stages."""
    one, other = old.throughput.k3_cross_model.timing_scope, old.throughput.oracle_native_ar.timing_scope
    if old.headline is not None and one != other:
        yield f"timing_scope is {one} and {other}"


@rule("SPEEDUP_ORACLE_LOOP")
def speedup_oracle_loop(old: Legacy) -> Iterator[str]:
    """The oracle must be decoded by the stock loop."""
    loop = old.throughput.oracle_native_ar.decode_loop
    if old.headline is not None and loop not in (STOCK_LOOP, STOCK_LOOP.rpartition(".")[2]):
        yield f"the oracle's decode_loop is {loop}"


@rule("SPEEDUP_PREFILL_VARIANCE")
def speedup_prefill_variance(old: Legacy) -> Iterator[str]:
    """Prefill must take about equally long in all samples of an arm."""
    for name, rows, _ in old.arms:
        times = [row.prefill for row in rows if row.prefill]
        if old.headline is not None and len(times) > 1 and max(times) > PREFILL_SPREAD * min(times):
            yield f"prefill of {name} took {min(times):g} to {max(times):g} s"


@rule("DECODE_SPREAD")
def decode_spread(old: Legacy) -> Iterator[str]:
    """Plain decoding must be about equally fast in all samples."""
    _, rows, samples = old.arms[1]
    rates = _rates(rows, samples)
    if old.headline is not None and rates and max(rates) > DECODE_SPREAD * min(rates):
        yield f"the oracle decoded at {min(rates):.3g} to {max(rates):.3g} tokens a second"


@rule("NOT_INTERLEAVED")
def not_interleaved(old: Legacy) -> Iterator[str]:
    """The arms must take turns, and each row must say when it ran."""
    if old.headline is None:
        return
    turns = [(row.order, name) for name, rows, _ in old.arms for row in rows]
    if any(order is None for order, _ in turns):
        yield "nothing says in which order the arms ran"
    elif longest_run([name for _, name in sorted(turns, key=_place)]) > IN_SEQUENCE:
        yield "the arms ran one after the other"


def _place(turn: tuple[int | None, str]) -> int:
    """Return the place of a sample in the run."""
    return turn[0] or 0


@rule("OUTPUT_DIVERGES")
def output_diverges(old: Legacy) -> Iterator[str]:
    """Greedy text must equal the oracle's, unless the cache was compressed."""
    one, other = (samples.per_sample_decoded for _, _, samples in old.arms)
    if old.config.get("compress_full_attn") or True not in old.restored:
        return
    if not one or len(one) != len(other):
        yield f"{len(one)} texts stand beside {len(other)} of the oracle"
    for i, (text, plain) in enumerate(zip(one, other, strict=False)):
        if text != plain:
            yield f"sample {i} is not the oracle's text, and nothing explains where they part"


@rule("OUTPUT_DEGENERATE")
def output_degenerate(old: Legacy) -> Iterator[str]:
    """No text may end in a loop that the oracle's text does not end in."""
    one, other = (samples.per_sample_decoded for _, _, samples in old.arms)
    for i, text in enumerate(one):
        plain = other[i] if i < len(other) else ""
        if repeats_at_the_end(text.rstrip()) and not repeats_at_the_end(plain.rstrip()):
            yield f"sample {i} ends in {text[-40:]!r}"


@rule("MEMORY_CLAIM_MISMATCH")
def memory_claim_mismatch(old: Legacy) -> Iterator[str]:
    """If a saving is claimed, the formula must describe the run."""
    if old.memory.savings_vs_naive_pct is not None and not (
        old.memory.s5 and old.memory.s5.formula_matches_run
    ):
        yield "savings_vs_naive_pct is claimed, and formula_matches_run is not true"


@rule("MEMORY_NOT_LIVE")
def memory_not_live(old: Legacy) -> Iterator[str]:
    """If a saving is claimed, it must be that of live arrays."""
    saved = old.memory.savings_vs_naive_pct
    if saved is None:
        return
    one, other = old.memory.live.get("k3_cross_model"), old.memory.live.get("oracle")
    if one is None or other is None:
        yield f"{saved:g} % are a formula's; no array was counted"
        return
    found = 100 * (1 - quotient(one.cache_bytes, other.cache_bytes))
    if not abs(saved - found) <= _ROUNDING * abs(found) + 0.05:
        yield f"savings_vs_naive_pct is {saved:g}; the arrays give {found:.4g}"


@rule("CLAIM_NOT_FROM_ROWS")
def claim_not_from_rows(old: Legacy) -> Iterator[str]:
    """Quotients and recall must follow from the samples."""
    throughput, (cross, oracle) = old.throughput, old.arms
    one, other = throughput.k3_cross_model.tokens_per_second, throughput.oracle_native_ar.tokens_per_second
    rates = [median(_rates(rows, samples)) for _, rows, samples in (cross, oracle)]
    correct, plain = old.results.k3_cross_model.per_sample_correct, old.results.oracle.per_sample_correct
    pure = throughput.decode_only.speedup if throughput.decode_only else None
    recomputed = (
        ("cross_model_speedup_vs_oracle_ar", throughput.cross_model_speedup_vs_oracle_ar, _over(one, other)),
        ("decode_only.speedup", pure, quotient(*rates)),
        ("recall_cross_model", old.gate.recall_cross_model, quotient(sum(correct), len(correct))),
        ("recall_oracle", old.gate.recall_oracle, quotient(sum(plain), len(plain))),
    )
    for name, given, found in recomputed:
        if given is not None and not abs(given - found) <= _ROUNDING * abs(found):
            yield f"{name} is {given:g}; the samples give {found:.4g}"


def _over(one: float | None, other: float | None) -> float:
    return quotient(one, other) if one is not None and other else math.nan


def _rates(rows: list[Stage], samples: Samples) -> list[float]:
    """Return decoded tokens a second of each sample; nothing if they are not known of all."""
    counts = samples.per_sample_decode_tokens
    known = bool(rows) and len(rows) == len(counts) and all(row.decode_s for row in rows)
    return [n / (row.decode_s or math.nan) for n, row in zip(counts, rows, strict=True)] if known else []


RULES = (
    provenance_missing, missing_stage_timings, missing_restoration_flag, mixed_restoration_paths, baseline_as_sut,
    baseline_recall_claim, recall_scope, recall_vacuous, fused_never_ran, speedup_self_comparison, speedup_samples,
    speedup_decode_tokens, speedup_decode_only_missing, speedup_scope_mismatch, speedup_oracle_loop,
    speedup_prefill_variance, decode_spread, not_interleaved, output_diverges, output_degenerate,
    memory_claim_mismatch, memory_not_live, claim_not_from_rows,
)  # fmt: skip
