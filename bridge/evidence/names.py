"""The names of claims, by subject and by kind of report."""

from __future__ import annotations

from bridge.evidence.parts import Claim

SPEEDUPS = ("decode_speedup", "worst_speedup", "e2e_speedup")
QUOTIENTS = (*SPEEDUPS, "decode_ratio")
TIMED = (*QUOTIENTS, "decode_tok_s")
ACCEPTED = ("accept_length", "accept_rate")
MEMORY = ("cache_bytes", "memory_saving")
RECALLS = ("recall", "recall_delta")
RATES = ("stored_bits_per_value", "rel_mse", "kl", "same_top", "perplexity")
# How far a candidate moves predictions beside a control: the only claim that compares with one.
NEARNESS = "prompt_kl_ratio"
RATIOS = ("rel_mse_ratio", "kl_ratio")
SHARES = ("recall", "identical_outputs", "same_top", "agreement", "accept_rate")
VERIFIED = ("verify_ms", "verify_ratio")
COMPARING = (*QUOTIENTS, *RATIOS, "memory_saving", "recall_delta", "prompt_kl", NEARNESS)
ARMLESS = (*VERIFIED, "agreement")

# What has to be claimed for every candidate if it is claimed for one.
OF_CANDIDATES = ("decode_speedup", "accept_length", "recall", NEARNESS)

LEGACY = "k3_integrated_niah_acceptance_mac"

OF_KIND: dict[str, tuple[str, ...]] = {
    "kakeya.codec-rd": (),
    "kakeya.spec-bench": (*TIMED, *ACCEPTED, *MEMORY, "identical_outputs"),
    "kakeya.acceptance": (*TIMED, *ACCEPTED, *MEMORY, "identical_outputs"),
    "kakeya.native": ("decode_tok_s", "cache_bytes", "recall"),
    "kakeya.recall": (*RECALLS, *MEMORY, "identical_outputs"),
    "kakeya.restored-prefill": (
        *RECALLS,
        *MEMORY,
        "identical_outputs",
        "decode_tok_s",
        "decode_ratio",
        "prompt_kl",
        NEARNESS,
    ),
    "kakeya.verify-l": VERIFIED,
    "kakeya.kv-quant": (*RATES, *RATIOS),
    "kakeya.parity": ("agreement",),
    "kakeya.serve-conformance": (),
}

# Every kind that the gate knows, the older one last.
KINDS = (*OF_KIND, LEGACY)


def missing_in(claim: Claim) -> list[str]:
    """Return the fields that a claim of this name needs and does not have."""
    needs = [] if claim.name in ARMLESS else ["arm"]
    needs += ["against"] if claim.name in COMPARING else []
    lacks = [name for name in needs if getattr(claim, name) is None]
    if claim.name in VERIFIED:
        lacks += [f"where.{name}" for name in ("length", "context") if getattr(claim.where, name) is None]
    return lacks
