"""The kinds of report that the gate knows, for what only names them: the rules themselves are slow to import."""

from __future__ import annotations

# As `bridge.evidence.names.KINDS` has them, which a test compares.
KINDS = (
    "kakeya.codec-rd",
    "kakeya.spec-bench",
    "kakeya.acceptance",
    "kakeya.native",
    "kakeya.recall",
    "kakeya.restored-prefill",
    "kakeya.verify-l",
    "kakeya.kv-quant",
    "kakeya.parity",
    "kakeya.serve-conformance",
    "k3_integrated_niah_acceptance_mac",
)
