"""The table of unchecked fields. docs/build_rules.py writes it into docs/evidence.md.

tests/bridge/evidence/tell.py fails if a change passes that is not listed here, or if something here was needed by none.
"""

from __future__ import annotations

from math import inf

from bridge.evidence.laws.change import Sort
from bridge.evidence.laws.unchecked import Unchecked
from bridge.evidence.names import KINDS, LEGACY


def entry(fields: str, kinds: str, sorts: str, reason: str, **bounds: float) -> Unchecked:
    """Return an entry. Fields, kinds and sorts are separated by spaces; see ``Unchecked``."""
    named = tuple(Sort[name] for name in sorts.split())
    return Unchecked(tuple(fields.split()), _kinds(kinds), named, reason, **bounds)  # type: ignore[arg-type]


def _kinds(words: str) -> tuple[str, ...]:
    new = tuple(kind for kind in KINDS if kind != LEGACY)
    known = {"all": tuple(KINDS), "schema-3": new, "schema-2": (LEGACY,)}
    return tuple(kind for word in words.split() for kind in known.get(word, (f"kakeya.{word}",)))


UNCHECKED = (
    entry(
        "identity.host identity.os identity.chip identity.cores identity.blas.name identity.blas.library "
        "identity.blas.gflops",
        "all", "NUMBER TEXT ABSENT",
        "only the machine itself knows it; the runner's answer names its host",
    ),
    entry(
        "identity.versions.* identity.memory_bytes",
        "all", "NUMBER TEXT ABSENT",
        "only the machine itself knows it; the gate compares memory size and mlx version with the runner's",
    ),
    entry(
        "identity.load identity.power",
        "all", "ORDER COUNT ABSENT",
        "load and power source change from second to second; a busy machine is visible in its times",
    ),
    entry(
        "identity.code.version identity.code.commit identity.code.dirty",
        "all", "TEXT FLAG ABSENT",
        "the runner's answer names the version and the commit",
    ),
    entry(
        "config.seed",
        "schema-3", "NUMBER ABSENT",
        "benchmarks draw nothing at random, and needles are checked against their seed; elsewhere the seed only "
        "changes noise",
    ),
    entry(
        "config.draft config.dtype config.text config.embed_scale config.temperature config.chunk config.store "
        "config.against config.half config.restorer",
        "codec-rd native recall restored-prefill kv-quant parity serve-conformance", "NUMBER TEXT ABSENT",
        "no row shows it; the job's argv binds it if a preset sets the option",
    ),
    entry(
        "config.model models[].id models[].layers models[].stored_dtypes models[].dtype models[].tokenizer "
        "models models[] models[].quantization models[].architecture models[].parameters models[].role "
        "models[].weights models[].config",
        "all", "ANY",
        "the gate knows only the bundled models, which are checked",
    ),
    entry(
        "config.effort",
        "codec-rd", "TEXT ABSENT",
        "the errors at different efforts differ by less than chance; the job's argv binds it",
    ),
    entry(
        "config.block_size config.drafters config.rollbacks config.block config.package",
        "spec-bench acceptance native", "ANY",
        "plain decoding does not depend on it; if nothing was left out, a name may be missing",
    ),
    entry(
        "config.caches config.tokens config.max_prompts config.codecs config.bits config.groups config.q_ranges "
        "config.distributions config.lengths",
        "codec-rd restored-prefill verify-l kv-quant parity serve-conformance", "ANY",
        "another order, or a value above what there was to measure; the job's argv binds it",
    ),
    entry(
        "config.loops config.max_repeats config.repeats config.fixed_length",
        "spec-bench", "ANY",
        "the times of rows decide how many repeats there are, and answers may all reach max_tokens by themselves; "
        "the job's argv binds it",
    ),
    entry(
        "config.max_tokens",
        "recall restored-prefill", "NUMBER",
        "if every answer ends before it, no row shows it; the job's argv binds it",
    ),
    entry(
        "config.source config.prompts config.chat",
        "native kv-quant parity", "ABSENT",
        "nothing else shows the source of prompts; bundled prompts are checked by their digests",
    ),
    entry(
        "config.left_out",
        "native recall verify-l kv-quant", "ABSENT",
        "only the run knows why something was left out; the gate requires a reason for each missing part",
    ),
    entry(
        "config.resumed_rows",
        "acceptance native recall restored-prefill kv-quant parity", "NUMBER ABSENT",
        "if no row says when it started, nothing shows what was resumed",
    ),
    entry(
        "prompts arms prompts[]",
        "spec-bench acceptance native recall restored-prefill kv-quant parity", "SWAP ORDER",
        "no figure depends on the order",
    ),
    entry(
        "rows rows[]",
        "codec-rd spec-bench acceptance native recall restored-prefill verify-l kv-quant "
        "serve-conformance", "SWAP ORDER COUNT",
        "no figure depends on the order, and a warm-up pass may be missing",
    ),
    entry(
        "arms[].loop arms[].oracle arms[].patches arms[] arms[].name arms[].role",
        "spec-bench acceptance native recall restored-prefill kv-quant parity", "ANY",
        "only for arms without claims; baselines, oracles of candidates and drafters are checked",
    ),
    entry(
        "arms[].options arms[].options.loop arms[].options.stored_as "
        "arms[].options.boundary arms[].options.nominal_bits_per_value "
        "arms[].options.dtype arms[].options.raw_layers arms[].options.block_size arms[].options.lookup "
        "arms[].options.rotary_tables arms[].options.products arms[].options.rollback arms[].options.sink "
        "arms[].options.window arms[].options.through arms[].options.version arms[].options.embed_scale",
        "spec-bench acceptance native recall restored-prefill kv-quant parity", "ANY",
        "no claim depends on it, unless a law relates it to rows, to the configuration or to the arm's name",
    ),
    entry(
        "workloads.*.source workloads.*.chat_template workloads.*.shared_prefix",
        "spec-bench acceptance native recall restored-prefill kv-quant parity", "TEXT FLAG",
        "nothing else shows the source of prompts; bundled prompts and needles are checked by their texts",
    ),
    entry(
        "prompts[].n_tokens rows[].tokens rows[].text rows[].stop",
        "spec-bench acceptance native recall restored-prefill parity serve-conformance", "ANY",
        "only the model's tokenizer could check it; the digests in the job's log bind it",
    ),
    entry(
        "rows[].target",
        "parity", "ABSENT",
        "older engines left it out",
    ),
    entry(
        "rows[].repeat",
        "spec-bench acceptance native recall restored-prefill", "NUMBER SWAP",
        "repeats are counted from 0 or from 1",
    ),
    entry(
        "rows[].prefill_s rows[].decode_s seconds rows[].started_s",
        "schema-3", "NUMBER SWAP ABSENT",
        "no claim depends on it alone; within its bounds, every time is plausible",
    ),
    entry(
        "rows[].sequence",
        "verify-l", "ABSENT",
        "without start times, another order of passes is equally possible",
    ),
    entry(
        "rows[].profile",
        "spec-bench acceptance", "SWAP",
        "no claim is about the shares of a profiled run, if they add up to 1",
    ),
    entry(
        "rows[].round_s",
        "spec-bench", "ABSENT",
        "no claim is about the parts of a round, if they fit into the run",
    ),
    entry(
        "rows[].counters rows[].counters.injected_positions rows[].counters.raw_positions "
        "rows[].counters.packed_bytes rows[].counters.codec_failures rows[].counters.evicted_positions "
        "rows[].counters.injected_reads rows[].counters.rounds rows[].counters.syncs rows[].counters.rounds_* "
        "rows[].counters.crossings rows[].counters.crossed_bytes",
        "spec-bench acceptance recall restored-prefill kv-quant serve-conformance", "NUMBER SWAP ABSENT",
        "a counter is checked against the other counters of its row",
    ),
    entry(
        "rows[].counters.proposed rows[].counters.accepted rows[].counters.cached_tokens "
        "rows[].counters.cache_bytes rows[].counters.joint_rounds",
        "serve-conformance", "NUMBER SWAP ABSENT",
        "a law asks whether a feature of the server ran; how much it did, only the run knows",
    ),
    entry(
        "config.drafts config.warm config.clients config.forms",
        "serve-conformance", "ORDER COUNT",
        "another order, or one of them twice; the rows of each cell are counted",
    ),
    entry(
        "rows[].memory.layers[].kind rows[].memory.layers[].arrays rows[].memory.layers[].arrays[].shape "
        "rows[].memory rows[].memory.peak_bytes rows[].memory.layers",
        "spec-bench acceptance native recall restored-prefill kv-quant", "ANY",
        "bytes that no claim is about, or axes of an array with the same product",
    ),
    entry(
        "rows[].nominal rows[].dim rows[].rel_mse_stderr",
        "codec-rd", "ANY",
        "no error depends on it, and an older engine left some of it out",
    ),
    entry(
        "rows[].prediction.same_top",
        "restored-prefill", "NUMBER SWAP",
        "a law bounds it from the controls; what a model predicted, only the run knows",
    ),
    entry(
        "rows[].max_logit_error rows[].margin",
        "parity", "NUMBER SWAP",
        "only the two drafters know what they drafted; the digests in the log bind it",
    ),
    entry(
        "config.n_samples config.seed gate gate.recall_cross_model gate.recall_oracle gate.evidence_violations "
        "memory memory.savings_vs_naive_pct memory.live.k3_cross_model.layers[].kind "
        "memory.live.k3_cross_model.layers[].arrays[].shape memory.live.oracle.layers[].kind "
        "memory.live.oracle.layers[].arrays[].shape throughput.k3_cross_model.decode_loop "
        "throughput.k3_cross_model.eval_mode throughput.k3_cross_model.stage_timings[].sample "
        "throughput.k3_cross_model.stage_timings[].prefill_s throughput.k3_cross_model.stage_timings[].order "
        "throughput.oracle_native_ar.eval_mode throughput.oracle_native_ar.stage_timings[].sample "
        "throughput.oracle_native_ar.stage_timings[].restoration_active "
        "throughput.oracle_native_ar.stage_timings[].prefill_s "
        "throughput.oracle_native_ar.stage_timings[].order",
        "schema-2", "ANY",
        "the older harness recorded no more, and nothing binds its reports to a run",
    ),
    entry(
        "rows[].divergence.margin rows[].divergence.kind rows[].divergence.rounding",
        "spec-bench serve-conformance", "NUMBER ABSENT",
        "the gate judges a divergence by its two logits, and the margin was computed in another order",
    ),
    entry(
        "config.window config.recompute config.layers config.sink",
        "restored-prefill", "TEXT ABSENT",
        "an older engine left it out, or no row shows it; the job's argv binds it",
    ),
    entry(
        "rows[].decode_s rows[].prefill_s rows[].seconds",
        "spec-bench native verify-l", "NUMBER SWAP",
        "other arms bound how fast an arm, a prefill or a pass can be; within these bounds, every time is "
        "plausible", moves=1,
    ),
    entry(
        "rows[].rel_mse",
        "codec-rd", "SMALL",
        "between floor and ceiling, an error depends on the vectors; `kakeya-engine codec rd` draws the same "
        "vectors from a seed on every machine", moves=0.05, within=0.05,
    ),
    entry(
        "rows[].sum_squared_error rows[].sum_squares rows[].sum_kl rows[].same_top rows[].sum_nll",
        "kv-quant", "NUMBER SWAP",
        "the sums of a cache bound one another, and so do those of several caches; a code of two bits is bounded "
        "least", moves=3,
    ),
    entry(
        "rows[].decode_s rows[].seconds",
        "spec-bench native verify-l", "ALIKE",
        "a faster machine, or one with more overhead for each pass, would have measured it; the digests in the "
        "log bind every row", moves=inf,
    ),
    entry(
        "rows[].sum_squares rows[].sum_squared_error rows[].sum_kl rows[].same_top rows[].sum_nll",
        "kv-quant", "NUMBER SWAP ALIKE",
        "of models that are not bundled, nobody knows what a cache does to them; the digests in the log bind "
        "every row", moves=inf, others=True,
    ),
    entry(
        "rows[].prediction.sum_kl",
        "restored-prefill", "NUMBER SWAP",
        "controls bound it from above only; the digests in the log bind every row", moves=inf,
    ),
    entry(
        "throughput.k3_cross_model.tokens_per_second throughput.k3_cross_model.stage_timings[].decode_s "
        "throughput.oracle_native_ar.tokens_per_second throughput.oracle_native_ar.stage_timings[].decode_s",
        "schema-2", "NUMBER",
        "the older harness recorded no more, and nothing binds its reports to a run", moves=inf,
    ),
    entry(
        "rows[].sum_kl rows[].sum_nll",
        "kv-quant", "ALIKE",
        "only the model knows how well it predicts a text; the digests in the log bind every row", moves=inf,
    ),
)  # fmt: skip
