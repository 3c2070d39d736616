"""Claims are derived by one function, and as they were derived when the real reports were written."""

from __future__ import annotations

import json
import math
import statistics

import pytest

from bridge.reports import kinds
from bridge.reports.claims import derive_claims
from tests.bridge.gate import reports

# Claims that reports lack which are older than they.
NEWER = {"prompt_kl_ratio", "plain_speedup", "worst_plain_speedup"}


@pytest.mark.parametrize("name", reports.REAL_NAMES)
def test_the_claims_of_a_real_report_are_derived_byte_for_byte(name):
    report = reports.real(name)
    known = {claim["name"] for claim in report["claims"]}

    derived = [
        claim for claim in derive_claims(report) if claim["name"] in known or claim["name"] not in NEWER
    ]

    assert json.dumps(derived) == json.dumps(report["claims"])


@pytest.mark.parametrize("kind", kinds.COMMANDS)
def test_every_kind_derives_claims_that_a_file_can_hold(kind):
    report = reports.BUILDERS[kind]()
    claims = derive_claims(report)

    assert bool(claims) is (kind not in (kinds.CODEC_RD, kinds.SERVE, kinds.ALL_REDUCE, kinds.DISTRIBUTED))
    assert json.loads(json.dumps(claims, allow_nan=False)) == reports.copy(report)["claims"]


def claim(report, name, arm=None, against=None, where=None):
    """Return the value of a claim."""
    (found,) = [
        claim for claim in report["claims"]
        if (claim["name"], claim.get("arm"), claim.get("against")) == (name, arm, against)
        and claim.get("where", {}) == (where or {})
    ]  # fmt: skip
    return found["value"]


def rates(report, arm):
    """Return the median tokens a second of an arm on each prompt."""
    by_prompt = {}
    for row in report["rows"]:
        if row["arm"] == arm:
            by_prompt.setdefault(row["prompt"], []).append(row["decode_tokens"] / row["decode_s"])
    return [statistics.median(values) for values in by_prompt.values()]


def test_rates_and_speedups_are_what_their_definitions_say():
    report = reports.spec_bench()
    ratios = [a / b for a, b in zip(rates(report, "dflash"), rates(report, "mlx-lm"), strict=True)]

    assert claim(report, "decode_tok_s", "dflash") == pytest.approx(
        statistics.median(rates(report, "dflash"))
    )
    assert claim(report, "decode_speedup", "dflash", "mlx-lm") == pytest.approx(statistics.median(ratios))
    assert claim(report, "worst_speedup", "dflash", "mlx-lm") == pytest.approx(min(ratios))
    assert claim(report, "accept_length", "dflash") == 4
    assert claim(report, "accept_rate", "dflash") == pytest.approx(3 / 7)
    assert claim(report, "identical_outputs", "dflash") == 1
    assert claim(report, "cache_bytes", "dflash") == report["rows"][0]["memory"]["cache_bytes"]


def test_figures_of_needles_are_what_their_definitions_say():
    report = reports.recall()

    assert claim(report, "recall", "e8") == 1
    assert claim(report, "recall", "noise") == 0
    assert claim(report, "recall_delta", "noise", "mlx-lm") == -1
    assert claim(report, "identical_outputs", "same") == 1


def test_figures_of_codecs_and_passes_are_what_their_definitions_say():
    quant, passes, drafts = reports.kv_quant(), reports.verify_l(), reports.parity()
    e8 = [row for row in quant["rows"] if row["arm"] == "e8"]
    seconds = {
        length: statistics.median(row["seconds"] for row in passes["rows"] if row["length"] == length)
        for length in (1, 8)
    }

    assert claim(quant, "rel_mse", "e8") == pytest.approx(2.7 / 303)
    assert claim(quant, "kl", "e8") == pytest.approx(0.6 / 147)
    assert claim(quant, "same_top", "e8") == pytest.approx(47 / 49)
    assert claim(quant, "perplexity", "e8") == pytest.approx(
        math.exp(sum(row["sum_nll"] for row in e8) / 147)
    )
    assert claim(quant, "stored_bits_per_value", "e8") == pytest.approx(8 * 4 * 50 * 35 / 12_800)
    where = {"length": 8, "context": 4096}
    assert claim(passes, "verify_ms", where=where) == pytest.approx(1000 * seconds[8])
    assert claim(passes, "verify_ratio", where=where) == pytest.approx(seconds[8] / seconds[1])
    assert claim(drafts, "agreement") == 1


def test_answers_that_repeat_themselves_claim_no_speed():
    report = reports.spec_bench()
    for row in report["rows"]:
        row["tokens"] = [7] * reports.TOKENS

    names = {claim["name"] for claim in derive_claims(report)}

    assert names == {"cache_bytes", "identical_outputs"}


@pytest.mark.parametrize("repeats", [1, 2])
def test_few_repeats_claim_no_speed(repeats):
    report = reports.spec_bench()
    report["rows"] = [row for row in report["rows"] if row["repeat"] < repeats]

    names = {claim["name"] for claim in derive_claims(report)}

    assert not names & {"decode_tok_s", "decode_speedup", "plain_speedup"}
    assert "accept_length" in names
