# ruff: noqa: E501 - a table: one case a line reads best
"""Twenty more falsehoods about a comparison of drafters and about needles, put together so that the rows agree."""

from __future__ import annotations

from tests.bridge.evidence.falsehoods import (
    BEN,
    OURS,
    REC,
    Case,
    Edit,
    Report,
    counted,
    each,
    prompt_ids,
    resized,
    rows,
    times,
)
from tests.bridge.evidence.red_counts import LOOKUP
from tests.bridge.evidence.red_last import E8, arrays, config
from tests.bridge.evidence.red_more import whole
from tests.bridge.evidence.reports import copy

TIMES, ROUNDS = ("prefill_s", "decode_s"), ("commits", "drafted", "accepted", "counters")


def took(row: Report) -> float:
    return float(row["decode_s"])


def levelled(arm: str, *, fast: bool) -> Edit:
    """Let the one repeat that says least for a claim take what the best one took, and a little more."""

    def edit(made: Report) -> None:
        for name in prompt_ids(made):
            some = sorted(rows(made, arm, name, warmup=False), key=took)
            one, other = (some[-1], some[0]) if fast else (some[0], some[-1])
            one["decode_s"] = took(other) * 1.0013
            whole(one)

    return edit


def exchanged_times(one: str, other: str) -> Edit:
    def edit(made: Report) -> None:
        for a, b in zip(rows(made, one), rows(made, other), strict=True):
            for field in TIMES:
                a[field], b[field] = b[field], a[field]
            whole(a)
            whole(b)

    return edit


def slowest_as_warmup(made: Report) -> None:
    for name in prompt_ids(made):
        some = rows(made, LOOKUP, name)
        worst, warm = max(some, key=took), next(row for row in some if row["warmup"])
        for field in TIMES:
            worst[field], warm[field] = warm[field], worst[field]
        whole(worst)
        whole(warm)


def cut(row: Report, count: int) -> None:
    """Cut an answer off after so many tokens."""
    share = (count - 1) / row["decode_tokens"]
    row.update(tokens=row["tokens"][:count], decode_tokens=count - 1, decode_s=row["decode_s"] * share)
    row["text"] = row["text"][: int(len(row["text"]) * share)]
    while row.get("commits") and sum(row["commits"]) > count:
        for field in ROUNDS[:3]:
            row[field].pop()
    whole(row)


def rounds_of_the_best(made: Report) -> None:
    best = max(rows(made, OURS), key=lambda row: sum(row["commits"]) / len(row["commits"]))
    for row in rows(made, OURS):
        row.update({field: copy(best[field]) for field in ROUNDS})


def stepped(by: int) -> object:
    """Change the room of a row's caches by so many positions."""
    return lambda row: resized(row, row["memory"]["layers"][0]["arrays"][0]["shape"][2] + by)


def twice_as_long(made: Report) -> None:
    """Call every prompt twice as long, with room and counts for it."""
    made["config"]["lengths"] = [2 * n for n in made["config"]["lengths"]]
    for prompt in made["prompts"]:
        prompt.update(n_tokens=2 * prompt["n_tokens"], length=2 * prompt["length"])
        prompt["id"] = prompt["id"].replace("1024/", "2048/").replace("512/", "1024/")
    for row in made["rows"]:
        row["prompt"] = row["prompt"].replace("1024/", "2048/").replace("512/", "1024/")
        positions = row["memory"]["layers"][0]["arrays"][0]["shape"][2]
        resized(row, 2 * positions)
        row["counters"] = {name: 2 * count for name, count in row["counters"].items()}


def with_raw_ends(made: Report) -> None:
    """Keep the first and the last layer of a coded cache raw, and say nothing of it."""
    for row in rows(made, E8):
        whole_cache = rows(made, "raw", row["prompt"])[0]["memory"]["layers"]
        for at in (0, -1):
            row["memory"]["layers"][at] = copy(whole_cache[at])
        counted(row)


def one_length(made: Report) -> None:
    kept = [prompt for prompt in made["prompts"] if prompt["length"] == made["config"]["lengths"][0]]
    names = [prompt["id"] for prompt in kept]
    made.update(prompts=kept, rows=[row for row in made["rows"] if row["prompt"] in names])
    made["config"]["lengths"] = made["config"]["lengths"][:1]


def shorter_codes(made: Report) -> None:
    """Expect less of each code than was hidden."""
    for prompt in made["prompts"]:
        prompt["expected"] = prompt["expected"][:-2]


def poison_of(arm: str) -> Edit:
    """Give the control another needle's answer, as if noise had made it say that."""

    def edit(made: Report) -> None:
        names = prompt_ids(made)
        for name, other in zip(names, [*names[1:], names[0]], strict=True):
            (row,), (wrong,) = rows(made, arm, name), rows(made, "raw", other)
            row.update(tokens=list(wrong["tokens"]), text=wrong["text"], decode_tokens=wrong["decode_tokens"])

    return edit


TWENTY: dict[str, Case] = {
    "the slowest repeat of the lookup as fast as its fastest": Case(BEN, levelled(LOOKUP, fast=True)),
    "the fastest repeat of the baseline as slow as its slowest": Case(BEN, levelled("native", fast=False)),
    "times of both drafters exchanged": Case(BEN, exchanged_times(OURS, LOOKUP)),
    "the slowest repeat called the warm-up": Case(BEN, slowest_as_warmup),
    "answers of the lookup cut off": Case(BEN, each(LOOKUP, lambda row: cut(row, 33))),
    "all answers to one prompt cut off": Case(BEN, lambda r: [cut(row, 33) for row in rows(r, prompt=prompt_ids(r)[0])]),
    "rounds of the best prompt for every prompt": Case(BEN, rounds_of_the_best),
    "room for 256 positions fewer in the lookup's cache": Case(BEN, each(LOOKUP, stepped(-256))),
    "room for 256 positions more in the baseline's cache": Case(BEN, each("native", stepped(256))),
    "a quarter of the lookup's prefill left out": Case(BEN, each(LOOKUP, times(0.75, "prefill_s"))),
    "prompts of twice as many tokens": Case(REC, twice_as_long),
    "room for 256 positions fewer in the codes": Case(REC, each(E8, arrays(lambda a: a["shape"].__setitem__(2, a["shape"][2] - 256)))),
    "raw layers at both ends of the codes": Case(REC, with_raw_ends),
    "needles of one length alone": Case(REC, one_length),
    "five samples of each needle": Case(REC, config(samples=5)),
    "needles of another seed": Case(REC, config(seed=7)),
    "shorter codes expected": Case(REC, shorter_codes),
    "chunks of another size": Case(REC, config(chunk=64)),
    "answers of at most twelve tokens": Case(REC, config(max_tokens=12)),
    "noise that answers as another prompt": Case(REC, poison_of("poison")),
}  # fmt: skip

BEYOND: dict[str, str] = {
    "the slowest repeat of the lookup as fast as its fastest": "one repeat of three moves the median little",
    "the fastest repeat of the baseline as slow as its slowest": "one repeat of three moves the median little",
    "the slowest repeat called the warm-up": "a warm-up may take as long as any repeat, and the median hardly moves",
    "rounds of the best prompt for every prompt": "only the draft model knows what it drafted",
    "a quarter of the lookup's prefill left out": "within the bound of prefills",
    "chunks of another size": "no row shows it, and no claim depends on it",
}
