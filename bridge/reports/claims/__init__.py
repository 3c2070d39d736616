"""Claims: named statistics of a report's rows, derived by one function.

The engine prints the claims of ``derive_claims`` and writes them into the report; the gate derives them again.
docs/evidence.md defines each claim.
"""

from collections.abc import Callable, Mapping
from typing import Any

from bridge.reports import kinds
from bridge.reports.claims import backends, compare, decoding, quant, recall, shares, verify

Claims = list[dict[str, Any]]

_OF_KIND: dict[str, Callable[[Mapping[str, Any]], Claims]] = {
    kinds.SPEC_BENCH: decoding.speculation_claims,
    kinds.ACCEPTANCE: decoding.speculation_claims,
    kinds.NATIVE: decoding.native_claims,
    kinds.RECALL: recall.needle_claims,
    kinds.RESTORED: recall.needle_claims,
    kinds.KV_QUANT: quant.quant_claims,
    kinds.VERIFY_L: verify.verify_claims,
    kinds.PARITY: shares.parity_claims,
    kinds.SOLUTIONS: shares.pass_at_1_claims,
    kinds.TORCH_PARITY: backends.backend_claims,
    kinds.COMPARE: compare.compare_claims,
}


def derive_claims(report: Mapping[str, Any]) -> Claims:
    """Return the claims that a report's rows allow, in the order in which the engine writes them.

    Args:
        report: a valid report as parsed JSON. Only ``kind``, ``config``, ``prompts``, ``arms`` and ``rows`` are used.
    """
    derive = _OF_KIND.get(report["kind"])
    return derive(report) if derive else []
