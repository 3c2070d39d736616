"""Writes the tables of claims, and of codes with their checks, in docs/evidence.md from the programs: `make docs`."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from bridge.gate.checks import CHECKS
from bridge.gate.checks.form import ON_PROMPTS
from bridge.gate.codes import CODES, Code
from bridge.reports import kinds
from bridge.reports.claims import backends, decoding, quant, recall, shares, verify

# The statistic of each claim, as reports define it.
DEFINITIONS = {
    **decoding.DEFINITIONS,
    "recall": recall.RECALL,
    "recall_delta": recall.DELTA,
    "prompt_kl": recall.PREDICTION,
    "prompt_kl_ratio": recall.PREDICTION_RATIO,
    **verify.DEFINITIONS,
    **quant.DEFINITIONS,
    "rel_mse_ratio": quant.RATIO.format("rel_mse"),
    "kl_ratio": quant.RATIO.format("kl"),
    "agreement": shares.AGREEMENT,
    "pass_at_1": shares.SOLVED,
    "same_answers": backends.SAME_ANSWERS,
    "equal_codes": backends.EQUAL_CODES,
    "cache_share": backends.CACHE_SHARE,
    "step_ms": backends.STEP_MS,
    "processor_ms": backends.PROCESSOR_MS,
    "processor_ratio": backends.PROCESSOR_RATIO,
    "peak_bytes": backends.PEAK,
}

# What a claim says in plain words, if its definition does not say it already.
MEANINGS = {
    "plain_speedup": "speed over the fastest plain loop of the report",
    "decode_speedup": "speed over stock mlx-lm",
    "e2e_speedup": "speed over stock mlx-lm, prefill included",
    "accept_length": "tokens a round, also called tau",
    "prompt_kl": "how far predictions move",
    "same_answers": "as `identical_outputs`, but with another arm",
    "equal_codes": "share of equal rows of codes for the same vectors",
    "cache_share": "bytes of a cache over two for each value",
    "peak_bytes": "most memory of the process",
}

# Groups of kinds, the larger ones first; docs/evidence.md defines them.
GROUPS = {
    "all": tuple(kinds.COMMANDS),
    "on prompts": ON_PROMPTS,
    "decoded": kinds.DECODED,
    "timed": kinds.TIMED,
    "speculative": kinds.SPECULATIVE,
    "needles": kinds.NEEDLES,
}

# Claims whose statistic is that of another claim.
SHORT = {
    "worst_plain_speedup": "`plain_speedup` on the worst prompt",
    "worst_speedup": "`decode_speedup` on the worst prompt",
}

HEADS = {
    "claims": "| claim | meaning |\n|---|---|\n",
    "checks": "| code | verdict | what must hold (in which kinds) |\n|---|---|---|\n",
    "codes": "| code | verdict | meaning |\n|---|---|---|\n",
}


def main() -> None:
    page = Path(__file__).with_name("evidence.md")
    text = page.read_text(encoding="utf-8")
    for name, rows in tables().items():
        begin, end = f"<!-- {name}: begin -->\n", f"<!-- {name}: end -->"
        before, after = text.split(begin)[0], text.split(end)[1]
        text = before + begin + HEADS[name] + "".join(rows) + end + after
    page.write_text(text, encoding="utf-8")


def tables() -> dict[str, list[str]]:
    return {
        "claims": [claim_row(name, definition) for name, definition in DEFINITIONS.items()],
        "checks": [row for code in CODES.values() if (row := check_row(code))],
        "codes": [
            f"| `{code.code}` | {code.effect} | {code.why} |\n"
            for code in CODES.values()
            if not check_row(code)
        ],
    }


def claim_row(name: str, definition: str) -> str:
    return f"| `{name}` | {SHORT.get(name) or MEANINGS.get(name) or definition} |\n"


def check_row(code: Code) -> str:
    """Return what must hold, or nothing if the code has no check."""
    checks = [each for each in CHECKS if each.code == code.code]
    what = "; ".join(f"{statement(each.statement)} ({kinds_in(each.kinds)})" for each in checks)
    return f"| `{code.code}` | {code.effect} | {what} |\n" if checks else ""


def statement(text: str) -> str:
    """Return what must hold, without the final period."""
    plain = text.replace("``", "`").removesuffix(".")
    plain = plain[0].lower() + plain[1:]
    return re.sub(r":func:`bridge\.reports\.claims\.(\w+)`", r"`\1`", plain)


def kinds_in(names: Iterable[str]) -> str:
    """Return kinds in words, by their groups if all of a group are there."""
    rest, words = [*names], []
    for group, members in GROUPS.items():
        if set(members) <= set(rest):
            words.append(group)
            rest = [name for name in rest if name not in members]
    return ", ".join([*words, *(name.removeprefix("kakeya.") for name in rest)])


if __name__ == "__main__":
    main()
