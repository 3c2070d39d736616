"""Why a report claims nothing about speed, with the option that helps."""

import statistics
from collections.abc import Iterator, Mapping
from typing import Any

from bridge.reports import kinds
from bridge.reports.claims.decoding import LEAST_REPEATS, LEAST_ROWS, LEAST_TOKENS, is_enough
from bridge.reports.counted import CountedRows
from bridge.reports.repetition import repeating_arms

_WORDS = ("no", "one", "two", "three", "four", "five")


def why_no_speed(report: Mapping[str, Any]) -> Iterator[str]:
    """Yield a sentence if an arm has too few rows to claim its speed, or if answers repeat themselves."""
    table = CountedRows(report["rows"])
    few = next((arm for arm in table.by_arm if not is_enough(table, arm)), None)
    if few is not None:
        yield f"nothing is claimed about speed: {_reason(table, few, report)}"
    groups: dict[str, set[str]] = {"all prompts": {prompt["id"] for prompt in report["prompts"]}}
    for prompt in report["prompts"]:
        groups.setdefault(prompt["workload"], set()).add(prompt["id"])
    for name, members in groups.items():
        looping = repeating_arms(row for row in report["rows"] if row["prompt"] in members)
        for arm, (some, every) in list(looping.items())[:1]:
            yield f"{name}: no speed or acceptance is claimed, since {arm} repeats itself on {some} of {every} prompts"


def _reason(table: CountedRows[Mapping[str, Any]], arm: str, report: Mapping[str, Any]) -> str:
    rows, most = table.of(arm), report["config"]["max_tokens"]
    # The command for plain decoding has no such option.
    is_native = report.get("kind") == kinds.NATIVE
    longer = (
        "--prompts with longer answers" if is_native else "--fixed-length decodes past the end of answers"
    )
    repeats = min(map(len, table.by_arm[arm].values()))
    tokens = statistics.median(row["decode_tokens"] for row in rows)
    if repeats < LEAST_REPEATS:
        return f"{_count(repeats, 'repeat')}, {_needed(LEAST_REPEATS)} (--repeats {LEAST_REPEATS})"
    if len(rows) < LEAST_ROWS:
        runs = _count(len(rows), "run")
        return f"{runs} of each arm, {_needed(LEAST_ROWS)} (more prompts: --max-prompts, or --repeats {LEAST_ROWS})"
    if most > 1 and min(row["decode_tokens"] for row in rows) == 0:
        return f"an answer of {arm} has one token ({longer})"
    remedy = f"--max-tokens {2 * LEAST_TOKENS}" if most <= LEAST_TOKENS else longer
    return f"half of the answers have at most {tokens:g} tokens after the first, {_needed(LEAST_TOKENS)} ({remedy})"


def _count(number: int, noun: str) -> str:
    word = _WORDS[number] if number < len(_WORDS) else str(number)
    return f"{word} {noun}" + ("" if number == 1 else "s")


def _needed(number: int) -> str:
    return f"{_WORDS[number] if number < len(_WORDS) else number} are needed"
