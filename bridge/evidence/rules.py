"""The rules for each kind of report."""

from __future__ import annotations

from bridge.evidence import rules_bytes as stored
from bridge.evidence import rules_codec as codec
from bridge.evidence import rules_legacy as legacy
from bridge.evidence import rules_output as output
from bridge.evidence import rules_recall as recall
from bridge.evidence import rules_report as report
from bridge.evidence import rules_restored as restored
from bridge.evidence import rules_speed as speed
from bridge.evidence import rules_sweep as sweep
from bridge.evidence.laws import laws_of
from bridge.evidence.names import LEGACY
from bridge.evidence.rule import Rule

_WHOLE: tuple[Rule, ...] = (
    report.provenance_missing, report.dangling_name, report.unnamed_claim, report.claim_incomplete,
    report.claim_not_from_rows,
)  # fmt: skip
_PROMPTED: tuple[Rule, ...] = (
    *_WHOLE, report.prompt_unrecorded, report.prompt_digest, report.prompt_misstated, report.prompt_repeated,
    report.prompt_contaminated, report.single_prompt, report.cherry_picked, report.claimed_of_every_candidate,
    output.row_contradicts, output.row_repeated,
)  # fmt: skip
_DECODED: tuple[Rule, ...] = (
    *_PROMPTED, output.rows_set_aside, speed.baseline_as_sut, speed.patched_oracle, speed.speedup_scope_mismatch,
    speed.speedup_self_comparison, stored.memory_not_live, stored.memory_claim_mismatch,
)  # fmt: skip
_TIMED: tuple[Rule, ...] = (
    speed.speedup_samples, speed.single_run, speed.speedup_decode_tokens, speed.speedup_prefill_variance,
    speed.decode_spread, speed.time_hidden, output.workload_degenerate,
)  # fmt: skip
_SPECULATIVE: tuple[Rule, ...] = (
    *_DECODED, *_TIMED, speed.speedup_decode_only_missing, speed.speedup_oracle_loop, speed.not_interleaved,
    speed.speedup_impossible, speed.times_unclear,
    speed.slow_oracle, speed.oracle_unchecked, speed.not_greedy, speed.liveness_missing, speed.fused_never_ran,
    output.oracle_missing, output.oracle_unfit, output.output_diverges, output.output_degenerate,
    report.interval_missing,
)  # fmt: skip
_FOUND: tuple[Rule, ...] = (
    *_DECODED, output.output_degenerate, report.interval_missing, recall.row_contradicts, recall.recall_vacuous,
    recall.recall_scope,
    recall.poison_missing, recall.poison_survives, recall.identity_missing, recall.identity_broken,
    recall.liveness_missing, recall.injection_never_ran,
)  # fmt: skip

_SEEN: dict[str, tuple[Rule, ...]] = {
    "kakeya.codec-rd": (
        *_WHOLE, codec.bad_row, codec.row_repeated, codec.spread_impossible, codec.rate_impossible,
        codec.rate_omits_side_information, codec.limit_wrong,
    ),
    "kakeya.spec-bench": _SPECULATIVE,
    "kakeya.acceptance": _SPECULATIVE,
    "kakeya.native": (
        *_DECODED, *_TIMED, speed.slow_oracle, speed.times_unclear, report.interval_missing, recall.recall_vacuous,
        recall.recall_scope,
    ),
    "kakeya.recall": _FOUND,
    "kakeya.restored-prefill": (
        *_FOUND, *_TIMED, speed.not_interleaved, recall.evicted_missing, recall.evicted_survives,
        restored.nearness_to_every_control,
    ),
    "kakeya.verify-l": (
        *_WHOLE, speed.patched_oracle, sweep.row_contradicts, output.row_repeated, sweep.row_repeated,
        sweep.speedup_samples, sweep.slow_oracle, sweep.times_unclear, sweep.decode_spread, sweep.not_interleaved,
    ),
    "kakeya.kv-quant": (
        *_PROMPTED, speed.baseline_as_sut, speed.patched_oracle, speed.speedup_scope_mismatch,
        speed.speedup_self_comparison, stored.oracle_missing, stored.identity_broken, stored.injection_never_ran,
        stored.row_contradicts, stored.memory_claim_mismatch, stored.rate_omits_side_information,
        stored.equal_q_not_equal_rate,
    ),
    "kakeya.parity": (*_PROMPTED, report.interval_missing, sweep.speedup_self_comparison, sweep.workload_degenerate),
    "kakeya.serve-conformance": _WHOLE,
    LEGACY: legacy.RULES,
}  # fmt: skip

RULES: dict[str, tuple[Rule, ...]] = {kind: (*rules, *laws_of(kind)) for kind, rules in _SEEN.items()}
