"""Claims about decoding: rates, speed-ups, acceptance, equal tokens and bytes. Warm-up rows never count."""

import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from bridge.reports.counted import CountedRows, decode_rate
from bridge.reports.repetition import repeating_arms

Row = Mapping[str, Any]

# The least numbers of rows, repeats and tokens for claims about time: see docs/evidence.md.
LEAST_ROWS, LEAST_REPEATS, LEAST_TOKENS = 5, 3, 32

# Claims that come first in a report.
LEADING = ("plain_speedup", "worst_plain_speedup")
_PAIRED = (
    "the median over repeats of the quotient of the arm's decode_tokens / decode_s and that of the fastest plain loop "
    "in the same repeat; plain loops: stock mlx-lm, and over the arm's cache those that draft nothing; the fastest: by "
    "its median on the prompt"
)
DEFINITIONS = {
    "plain_speedup": f"median over prompts of {_PAIRED}",
    "worst_plain_speedup": f"the least over prompts of {_PAIRED}",
    "decode_tok_s": "median over prompts of the median over repeats of decode_tokens / decode_s",
    "decode_speedup": "median over prompts of the quotient of both arms' medians over repeats of decode_tokens "
    "/ decode_s",
    "worst_speedup": "the least over prompts of the quotient of both arms' medians over repeats of "
    "decode_tokens / decode_s",
    "decode_ratio": "median over prompts of the quotient of both arms' medians over repeats of decode_tokens / "
    "decode_s; the other arm is no stock baseline",
    "e2e_speedup": "median over prompts of the quotient of both arms' medians over repeats of all tokens / e2e_s",
    "accept_length": "tokens committed over rounds of the loop, the target's own token of each round counted, "
    "rounds without drafts too",
    "accept_rate": "drafts accepted over drafts proposed",
    "identical_outputs": "share of prompts on which every repeat gives the oracle's tokens",
    "cache_bytes": "the most bytes that the arrays of a row's caches held after its last token, filled or not",
}


def e2e_rate(row: Row) -> float:
    """Return the tokens per second over the whole answer, prefill included."""
    return float(len(row["tokens"]) / row["e2e_s"])


def tau(rows: Sequence[Row]) -> float:
    """Return committed tokens per round, including the target's own token."""
    commits = [commit for row in rows for commit in row.get("commits") or ()]
    return sum(commits) / len(commits) if commits else 0.0


def acceptance_rate(rows: Sequence[Row]) -> float | None:
    """Return drafts accepted over drafts proposed; None if none was proposed."""
    drafted = sum(sum(row.get("drafted") or ()) for row in rows)
    return sum(sum(row.get("accepted") or ()) for row in rows) / drafted if drafted else None


def speculation_claims(report: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the claims that the rows of a benchmark allow; claims about time only if enough was timed.

    With several workloads, there are also claims about each one if there are claims about all together. Nothing is
    claimed about the speed or acceptance of text that repeats itself (``bridge.reports.repetition``).
    Without ``prompts``, all rows are of one workload.
    """
    rows, arms = report["rows"], report["arms"]
    claims = _of_rows(rows, arms, {})
    workloads: dict[str, set[str]] = {}
    for prompt in report.get("prompts", ()):
        workloads.setdefault(prompt["workload"], set()).add(prompt["id"])
    subjects = {_subject(claim) for claim in claims}
    for workload, members in workloads.items() if len(workloads) > 1 else ():
        some = _of_rows([row for row in rows if row["prompt"] in members], arms, {"workload": workload})
        claims += [claim for claim in some if _subject(claim) in subjects]
    return sorted(claims, key=lambda claim: claim["name"] not in LEADING)


def native_claims(report: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the claims about plain decoding alone: its rate and its bytes."""
    return [claim for claim in speculation_claims(report) if claim["name"] in ("decode_tok_s", "cache_bytes")]


def _subject(claim: Mapping[str, Any]) -> tuple[str, str, str | None]:
    return claim["name"], claim["arm"], claim.get("against")


def _of_rows(
    rows: Sequence[Row], arms: Sequence[Mapping[str, Any]], where: dict[str, str]
) -> list[dict[str, Any]]:
    table = CountedRows(rows)
    prompts = {row["prompt"] for row in rows}
    where = where | ({"prompt": next(iter(prompts))} if len(prompts) == 1 else {})
    is_guessable = bool(repeating_arms(rows))
    plain = [] if is_guessable else plain_speedups(table, arms)
    claims: list[dict[str, Any]] = []
    for arm in arms:
        claims += _of_arm(table, arm)
        if not is_guessable:
            claims += _drafted(table, arm)
            claims += [claim for claim in plain if claim["arm"] == arm["name"]]
            claims += _timed(table, arm, arms)
    return [claim | {"where": where} for claim in claims] if where else claims


def plain_speedups(table: CountedRows[Row], arms: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the claims of candidates' speed over the fastest plain loop, if both and a baseline ran often enough."""
    timed = [arm for arm in arms if is_enough(table, arm["name"])]
    if not any(arm["role"] == "baseline" for arm in timed):
        return []
    claims = []
    for name, prompts in paired_speedups(table, timed).items():
        values = [statistics.median(ratios.values()) for ratios in prompts.values()]
        claims.append(median_claim("plain_speedup", values, arm=name))
        claims.append(_claim("worst_plain_speedup", min(values), arm=name))
    return claims


def paired_speedups(
    table: CountedRows[Row], arms: Sequence[Mapping[str, Any]]
) -> dict[str, dict[str, dict[int, float]]]:
    """Return each candidate's speed relative to the fastest plain loop, by prompt and repeat.

    Plain loops are the stock baseline, one forward pass per token (``verify1``), and references that draft nothing over
    the candidate's cache. The fastest one on a prompt is the one with the greatest median rate over its repeats.
    """
    rates = {
        arm: {
            prompt: {row["repeat"]: rate for row in some if (rate := decode_rate(row))}
            for prompt, some in prompts.items()
        }
        for arm, prompts in table.by_arm.items()
    }
    speedups: dict[str, dict[str, dict[int, float]]] = {}
    for arm in arms:
        if arm["role"] != "candidate" or arm["name"] not in rates:
            continue
        plain = [other["name"] for other in arms if _is_plain(table, other, arm.get("cache"))]
        prompts: dict[str, dict[int, float]] = {}
        for prompt, ours in rates[arm["name"]].items():
            ran = [some for name in plain if (some := rates[name].get(prompt))]
            theirs = max(ran, key=lambda some: statistics.median(some.values()), default={})
            ratios = {repeat: rate / theirs[repeat] for repeat, rate in ours.items() if theirs.get(repeat)}
            prompts |= {prompt: ratios} if ratios else {}
        speedups |= {arm["name"]: prompts} if prompts else {}
    return speedups


def _is_plain(table: CountedRows[Row], arm: Mapping[str, Any], cache: str | None) -> bool:
    """Return whether an arm decodes without drafts, as stock mlx-lm does or over a candidate's cache."""
    if arm["name"] not in table.by_arm or arm["role"] in ("baseline", "verify1"):
        return arm["name"] in table.by_arm
    drafts = any(sum(row.get("drafted") or ()) for row in table.of(arm["name"]))
    return arm["role"] == "reference" and arm.get("cache") == cache and not drafts


def _of_arm(table: CountedRows[Row], arm: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    name = arm["name"]
    nbytes = [row["memory"]["cache_bytes"] for row in table.of(name) if row.get("memory")]
    if nbytes:
        yield _claim("cache_bytes", max(nbytes), arm=name)
    same = table.identical(name, arm["oracle"]) if arm.get("oracle") is not None else []
    if same:
        yield _claim("identical_outputs", sum(same) / len(same), arm=name)


def _drafted(table: CountedRows[Row], arm: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    name, rows = arm["name"], table.of(arm["name"])
    if any(row.get("commits") for row in rows):  # not if every answer ended with its first token
        yield _claim("accept_length", tau(rows), arm=name)
        rate = acceptance_rate(rows)
        if rate is not None:
            yield _claim("accept_rate", rate, arm=name)


def _timed(
    table: CountedRows[Row], arm: Mapping[str, Any], arms: Sequence[Mapping[str, Any]]
) -> Iterator[dict[str, Any]]:
    name = arm["name"]
    if not is_enough(table, name):
        return
    yield median_claim("decode_tok_s", list(table.medians(name).values()), arm=name)
    for other in arms if arm["role"] == "candidate" else ():
        ratios = table.ratios(name, other["name"]) if is_enough(table, other["name"]) else []
        if not ratios:
            continue
        both = {"arm": name, "against": other["name"]}
        if other["role"] == "baseline":
            yield median_claim("decode_speedup", ratios, **both)
            yield _claim("worst_speedup", min(ratios), **both)
            yield median_claim("e2e_speedup", table.ratios(name, other["name"], e2e_rate), **both)
        elif other["role"] == "reference" or _is_other_loop(arm, other):
            yield median_claim("decode_ratio", ratios, **both)


def _is_other_loop(arm: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Return whether one arm computes a round as one graph, and the other one makes the same drafts in another loop."""
    names = ("block_size", "lookup", "adaptive", "rollback")
    mine, theirs = (side.get("options") or {} for side in (arm, other))
    same = all(mine.get(name) == theirs.get(name) for name in names)
    loops = [options.get("loop", "lazy") for options in (mine, theirs)]
    return same and other["role"] == "candidate" and loops[0] == "fused" != loops[1]


def is_enough(table: CountedRows[Row], arm: str) -> bool:
    """Return whether an arm ran often and long enough for a claim about time."""
    rows = table.of(arm)
    repeats = min(map(len, table.by_arm.get(arm, {}).values()), default=0)
    decoded = [row["decode_tokens"] for row in rows]
    return (
        len(rows) >= LEAST_ROWS
        and repeats >= LEAST_REPEATS
        and statistics.median(decoded) >= LEAST_TOKENS
        and None not in map(decode_rate, rows)
    )


def median_claim(name: str, values: Sequence[float], **about: str) -> dict[str, Any]:
    """Return a claim of a median over prompts; its interval is the least and the greatest prompt."""
    return _claim(name, statistics.median(values), **about) | {"interval": [min(values), max(values)]}


def _claim(name: str, value: float, **about: str) -> dict[str, Any]:
    return {"name": name, "value": value, **about, "definition": DEFINITIONS[name]}


def loop_crossovers(
    claims: Sequence[Mapping[str, Any]], contexts: Mapping[str, int]
) -> dict[tuple[str, str], int | None]:
    """Return for each arm with a fused graph, and each other loop, the context from which on the fused graph is slower.

    None means that it is not slower at the longest context. ``contexts`` has the prompt length of each workload.
    """
    ratios: dict[tuple[str, str], dict[int, float]] = {}
    for claim in claims:
        at = contexts.get(claim.get("where", {}).get("workload", ""))
        arms = claim.get("arm", ""), claim.get("against", "")
        if claim["name"] == "decode_ratio" and at and arms[0].endswith("/fused") and "/" in arms[1]:
            ratios.setdefault(arms, {})[at] = claim["value"]
    least: dict[tuple[str, str], int | None] = {}
    for pair, by_context in ratios.items():
        won = max((at for at, ratio in by_context.items() if ratio >= 1), default=0)
        least[pair] = min((at for at in by_context if at > won), default=None)
    return least
