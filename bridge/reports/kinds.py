"""The list of report kinds, with the ``kakeya-engine`` command that writes each, and the names of arms and loops."""

CODEC_RD = "kakeya.codec-rd"
SPEC_BENCH = "kakeya.spec-bench"
ACCEPTANCE = "kakeya.acceptance"
NATIVE = "kakeya.native"
RECALL = "kakeya.recall"
RESTORED = "kakeya.restored-prefill"
VERIFY_L = "kakeya.verify-l"
KV_QUANT = "kakeya.kv-quant"
PARITY = "kakeya.parity"
SERVE = "kakeya.serve-conformance"
SOLUTIONS = "kakeya.pass-at-1"
TORCH_PARITY = "kakeya.torch-parity"
ALL_REDUCE = "kakeya.all-reduce"
DISTRIBUTED = "kakeya.distributed"

# Command of kakeya-engine by the kind of report that it writes.
COMMANDS: dict[str, tuple[str, str]] = {
    CODEC_RD: ("codec", "rd"),
    SPEC_BENCH: ("bench", "spec"),
    ACCEPTANCE: ("eval", "acceptance"),
    NATIVE: ("bench", "native"),
    RECALL: ("eval", "recall"),
    RESTORED: ("eval", "restored-prefill"),
    VERIFY_L: ("bench", "verify-l"),
    KV_QUANT: ("eval", "kv-quant"),
    PARITY: ("eval", "parity"),
    SERVE: ("eval", "serve-conformance"),
    SOLUTIONS: ("eval", "pass-at-1"),
    TORCH_PARITY: ("bench", "torch-parity"),
    ALL_REDUCE: ("bench", "all-reduce"),
    DISTRIBUTED: ("bench", "distributed"),
}

# Two trees of the requester's code, timed in turn by the runner itself (`kakeya run --against`).
COMPARE = "kakeya.compare"

# Reports of the earlier system, in its own schema.
LEGACY = "k3_integrated_niah_acceptance_mac"

KINDS = (*COMMANDS, COMPARE, LEGACY)

SPECULATIVE = (SPEC_BENCH, ACCEPTANCE)
TIMED = (*SPECULATIVE, NATIVE)
NEEDLES = (RECALL, RESTORED)
DECODED = (*TIMED, *NEEDLES)

# mlx-lm's own decoding loop: the baseline of speed-ups.
STOCK_LOOP = "mlx_lm.generate_step"
RAW = "raw"
