# ruff: noqa: E501 - a table: one case a line reads best
"""More falsehoods about real reports: rounds that were merged, arrays that were cut, texts and needles that were changed."""

from __future__ import annotations

from typing import Any

from bridge.evidence.laws.vocabulary import _vocabulary
from tests.bridge.evidence.falsehoods import (
    ACC,
    BEN,
    KVQ,
    NAT,
    OURS,
    PAR,
    REC,
    RES,
    Case,
    Edit,
    Report,
    as_oracle,
    counted,
    counting,
    each,
    prompt_ids,
    put,
    resized,
    retold,
    rows,
    without_prompts,
)
from tests.bridge.evidence.reports import copy, digest

LOOKUP, ADAPTIVE = "lookup/auto", "adaptive/auto"


def in_blocks_of(size: int) -> Any:
    """Write a row's tokens down as committed in whole blocks."""

    def change(row: Report) -> None:
        if not row.get("commits"):
            return
        left, most, done = sum(row["commits"]), len(row["tokens"]), len(row["tokens"]) - sum(row["commits"])
        lists: list[list[int]] = [[], [], []]
        while left > 0:
            room = min(size, most - done) - 1
            commit = min(room + 1, left)
            for some, value in zip(lists, (commit, room, commit - 1), strict=True):
                some.append(value)
            left, done = left - commit, done + commit
        row["commits"], row["drafted"], row["accepted"] = lists
        recount(row)

    return change


def recount(row: Report) -> None:
    """Let the counters of a row follow its lists."""
    counters, count = row["counters"], len(row["commits"])
    none = row["drafted"].count(0)
    counters.update(rounds=count)
    if "syncs" in counters:
        counters["syncs"] = count
    told = [name for name in counters if name.startswith("rounds_")]
    main = next((name for name in told if name != "rounds_none"), "rounds_dflash")
    for name in told:
        del counters[name]
    counters[main] = count - none
    if none:
        counters["rounds_none"] = none


def pairs_merged(row: Report) -> None:
    """Write two rounds down as one wherever both fit into a block of eight."""
    if not row.get("commits"):
        return
    most, done = len(row["tokens"]), len(row["tokens"]) - sum(row["commits"])
    made: list[int] = []
    for commit in row["commits"]:
        if made and made[-1] + commit <= 8 and len(made) % 2:
            made[-1] += commit
        else:
            made.append(commit)
    drafted = []
    for commit in made:
        drafted.append(max(min(8, most - done) - 1, commit - 1))
        done += commit
    row["commits"], row["drafted"], row["accepted"] = made, drafted, [c - 1 for c in made]
    recount(row)


def proposing(less: int) -> Any:
    """Let rounds propose fewer drafts that were refused."""

    def change(row: Report) -> None:
        if row.get("drafted"):
            row["drafted"] = [max(a, d - less) for d, a in zip(row["drafted"], row["accepted"], strict=True)]
            retold(row)

    return change


def as_another_drafter(made: Report) -> None:
    """Call the lookup's rows the draft model's, and the other way round."""
    swap = {OURS: LOOKUP, LOOKUP: OURS}
    for row in made["rows"]:
        row["arm"] = swap.get(row["arm"], row["arm"])
        if row["arm"] in swap:
            counters = row["counters"]
            for one, other in (("rounds_lookup", "rounds_dflash"), ("rounds_dflash", "rounds_lookup")):
                if one in counters:
                    counters[other] = counters.pop(one)
                    break


ROUNDS: dict[str, Case] = {
    "a drafter that is right in every block": Case(ACC, each(OURS, in_blocks_of(8))),
    "a lookup that is right in every block": Case(ACC, each(LOOKUP, in_blocks_of(8))),
    "an adaptive drafter that is right in every block": Case(ACC, each(ADAPTIVE, in_blocks_of(8))),
    "a drafter that is right in half of its blocks": Case(ACC, each(OURS, in_blocks_of(4))),
    "rounds of the drafter merged by two": Case(ACC, each(OURS, pairs_merged)),
    "rounds of the lookup merged by two": Case(ACC, each(LOOKUP, pairs_merged)),
    "rounds of the adaptive drafter merged by two": Case(ACC, each(ADAPTIVE, pairs_merged)),
    "rounds of every drafter merged by two": Case(ACC, each(None, lambda row: pairs_merged(row) if "/" in row["arm"] else None)),
    "fewer drafts proposed by the draft model": Case(ACC, each(OURS, proposing(3))),
    "fewer drafts proposed by the lookup": Case(ACC, each(LOOKUP, proposing(2))),
    "fewer drafts proposed by the adaptive drafter": Case(ACC, each(ADAPTIVE, proposing(7))),
    "two drafters in each other's places": Case(ACC, as_another_drafter),
    "a plain loop that accepts drafts": Case(ACC, each("incremental", in_blocks_of(2))),
    "drafters without their idle rounds": Case(ACC, each(ADAPTIVE, lambda row: row["counters"].pop("rounds_none", None))),
    "rounds of the lookup merged where its time is claimed": Case(BEN, each(LOOKUP, in_blocks_of(8))),
    "rounds of the drafter merged where its time is claimed": Case(BEN, each(OURS, pairs_merged)),
}  # fmt: skip


def narrowed(index: int, axis: int, by: int) -> Any:
    """Take so much off an axis of one array of every layer that has that many."""

    def change(row: Report) -> None:
        for layer in row["memory"]["layers"]:
            if len(layer["arrays"]) > index:
                layer["arrays"][index]["shape"][axis] -= by
        counted(row)

    return change


def without_array(index: int) -> Any:
    def change(row: Report) -> None:
        for layer in row["memory"]["layers"]:
            if len(layer["arrays"]) > 1:
                layer["arrays"].pop(index)
        counted(row)

    return change


def without_layer(*places: int) -> Any:
    def change(row: Report) -> None:
        row["memory"]["layers"] = [one for i, one in enumerate(row["memory"]["layers"]) if i not in places]
        counted(row)

    return change


def emptied(*places: int) -> Any:
    """Let layers hold nothing."""

    def change(row: Report) -> None:
        for i in places:
            row["memory"]["layers"][i]["arrays"] = []
        counted(row)

    return change


def to_size(made: Report, arm: str) -> None:
    """Count only the positions that an arm's cache fills; those of the others stay rooms."""
    tokens = {p["id"]: p["n_tokens"] for p in made["prompts"]}
    for row in rows(made, arm):
        resized(row, tokens[row["prompt"]] + len(row["tokens"]) - 1)


def peak(by: float) -> Any:
    return lambda row: row["memory"].update(peak_bytes=int(row["memory"]["peak_bytes"] * by))


def least_peak(row: Report) -> None:
    """A peak that is the model and nothing else."""
    row["memory"]["peak_bytes"] = 5248256 * 4 + 1


def half(row: Report) -> None:
    for layer in row["memory"]["layers"]:
        for array in layer["arrays"]:
            array["dtype"] = "float16"
    counted(row)


BYTES: dict[str, Case] = {
    "a candidate's rooms cut to what they hold": Case(BEN, lambda r: to_size(r, OURS)),
    "every candidate's rooms cut to what they hold": Case(ACC, lambda r: [to_size(r, a) for a in (OURS, LOOKUP, ADAPTIVE)]),
    "a packed cache's rooms cut to what they hold": Case(REC, lambda r: to_size(r, "e8v@4.25")),
    "an affine cache's rooms cut to what they hold": Case(REC, lambda r: to_size(r, "affine@4g64")),
    "a candidate that keeps half precision": Case(BEN, each(OURS, half)),
    "a candidate of seven layers": Case(BEN, each(OURS, without_layer(7))),
    "a packed cache of seven layers": Case(REC, each("e8v@4.25", without_layer(0))),
    "a packed cache whose last layers hold nothing": Case(REC, each("e8v@4.25", emptied(6, 7))),
    "a candidate whose last layer holds nothing": Case(BEN, each(OURS, emptied(7))),
    "packed values left out": Case(REC, each("e8v@4.25", without_array(1))),
    "affine biases left out": Case(REC, each("affine@4g64", without_array(2))),
    "affine scales narrowed": Case(REC, each("affine@4g64", narrowed(1, 3, 1))),
    "affine scores without biases": Case(KVQ, each("affine@4g64", without_array(2))),
    "Voronoi scores of seven layers": Case(KVQ, each("e8v@4.25", without_layer(3))),
    "Voronoi scores of fewer positions": Case(KVQ, each("e8v@4.25", narrowed(0, 2, 20))),
    "lattice scores a word narrower": Case(KVQ, each("e8@q38", narrowed(0, -1, 1))),
    "restored codes of fewer positions": Case(RES, each("restored e8v@4.25", narrowed(2, 2, 100))),
    "learned codes of fewer positions": Case(RES, each("restored learned", narrowed(2, 1, 300))),
    "learned codes of fewer values": Case(RES, each("restored learned", narrowed(2, 2, 48))),
    "the raw cache's peak twice as high": Case(REC, each("raw", peak(3.0))),
    "a packed cache's peak at the model's size": Case(REC, each("e8v@4.25", least_peak)),
    "every peak at the model's size": Case(BEN, each(None, least_peak)),
    "the raw cache twice as large": Case(REC, each("raw", lambda row: resized(row, 2 * row["memory"]["layers"][0]["arrays"][0]["shape"][2]))),
    "every raw cache a step larger": Case(REC, lambda r: [resized(row, row["memory"]["layers"][0]["arrays"][0]["shape"][2] + 256) for row in r["rows"] if row["arm"] in ("raw", "identity", "poison")]),
    "a codec that counts half of what it took": Case(REC, each("e8v@4.25", lambda row: row["counters"].update(packed_bytes=row["counters"]["packed_bytes"] // 2))),
    "a codec that failed, unsaid": Case(REC, each("e8v@4.25", counting(codec_failures=3))),
}  # fmt: skip


def words(made: Report) -> Any:
    target = next(model for model in made["models"] if model["role"] == "target")
    found = _vocabulary(target["tokenizer"])
    assert found is not None
    return found


def rewritten(made: Report, row: Report, tokens: list[int]) -> None:
    """Give a row other tokens, and their text."""
    known = words(made)
    row["tokens"] = tokens
    row["decode_tokens"] = len(tokens) - 1
    bare = [known.pieces[token] for token in tokens if token not in known.special]
    row["text"] = b"".join(bare).decode("utf-8", "replace")


def same_answer(made: Report) -> None:
    """Every prompt is answered as the first one is, by every arm."""
    first = prompt_ids(made)[0]
    told = {row["arm"]: row for row in rows(made, prompt=first)}
    for row in made["rows"]:
        for name in ("tokens", "text", "decode_tokens", "stop", "commits", "drafted", "accepted"):
            if name in told[row["arm"]]:
                row[name] = copy(told[row["arm"]][name])
        if "commits" in row:
            row["counters"] = copy(told[row["arm"]]["counters"])


def same_answers_of_needles(made: Report) -> None:
    same_answer(made)


def no_answer(made: Report) -> None:
    """Every arm ends at once."""
    for row in made["rows"]:
        rewritten(made, row, [0])
        row.update(stop="eos", decode_tokens=0)


def one_token_else(at: int) -> Edit:
    """Change one token of every row of every prompt, and its text."""

    def edit(made: Report) -> None:
        for row in made["rows"]:
            tokens = [*row["tokens"]]
            if len(tokens) > at:
                tokens[at] = 300 + tokens[at] % 200
            rewritten(made, row, tokens)

    return edit


def answered(arm: str, base: str) -> Edit:
    """Give an arm the baseline's answers, with counters that fit them."""

    def edit(made: Report) -> None:
        before = {id(row): len(row["tokens"]) for row in rows(made, arm)}
        as_oracle(arm, base)(made)
        for row in rows(made, arm):
            more = len(row["tokens"]) - before[id(row)]
            layers = len(row["memory"]["layers"])
            counters = row["counters"]
            for name in ("injected_positions", "evicted_positions"):
                if counters.get(name):
                    counters[name] += layers * more

    return edit


def looped(made: Report) -> None:
    """Every answer is one line over and over, with a number that counts."""
    for row in made["rows"]:
        first = row["tokens"][:6]
        tokens = (first * 20)[: len(row["tokens"])]
        rewritten(made, row, tokens)


def nearly_looped(made: Report) -> None:
    for row in made["rows"]:
        first = row["tokens"][:3]
        tokens = [*(first * 20)[: len(row["tokens"]) - 1], row["tokens"][-1]]
        rewritten(made, row, tokens)


def counted_tokens(by: float) -> Edit:
    return lambda made: [p.update(n_tokens=int(p["n_tokens"] * by)) for p in made["prompts"]]


def easier_prompt(made: Report) -> None:
    """Write another text in a prompt's place, under its name."""
    prompt = made["prompts"][1]
    prompt["text"] = "def add(a, b):\n    return a + b\n\n\n" * 20
    prompt["sha256"] = digest(prompt["text"])


def cut_prompts(made: Report) -> None:
    for prompt in made["prompts"]:
        prompt["text"] = prompt["text"][: len(prompt["text"]) // 2]
        prompt["sha256"] = digest(prompt["text"])
        prompt["n_tokens"] //= 2


def deeper(made: Report) -> None:
    """Say that needles stood elsewhere, everywhere."""
    swap = dict(zip(made["config"]["depths"], [0.2, 0.6, 0.95], strict=False))
    made["config"]["depths"] = [swap[depth] for depth in made["config"]["depths"]]
    for prompt in made["prompts"]:
        length, _, n = prompt["id"].split("/")
        old, prompt["depth"] = prompt["id"], swap[prompt["depth"]]
        prompt["id"] = f"{length}/{prompt['depth']:g}/{n}"
        for row in rows(made, prompt=old):
            row["prompt"] = prompt["id"]
    for claim in made["claims"]:
        if claim.get("where", {}).get("depth") in swap:
            claim["where"]["depth"] = swap[claim["where"]["depth"]]


def longer(made: Report) -> None:
    """Say that prompts were twice as long, everywhere, and that each has as many tokens as that takes."""
    made["config"]["lengths"] = [2 * n for n in made["config"]["lengths"]]
    for prompt in made["prompts"]:
        _, depth, n = prompt["id"].split("/")
        old = prompt["id"]
        prompt.update(length=2 * prompt["length"], n_tokens=2 * prompt["n_tokens"] - 60)
        prompt["id"] = f"{prompt['length']}/{depth}/{n}"
        for row in rows(made, prompt=old):
            row["prompt"] = prompt["id"]
    for claim in made["claims"]:
        if "length" in claim.get("where", {}):
            claim["where"]["length"] *= 2


TEXT: dict[str, Case] = {
    "every prompt answered alike": Case(NAT, same_answer),
    "every prompt answered alike by every drafter": Case(ACC, same_answer),
    "every needle answered alike": Case(REC, same_answers_of_needles),
    "no answer at all": Case(NAT, no_answer),
    "no answer by any drafter": Case(ACC, no_answer),
    "one token changed in every answer, with its text": Case(NAT, one_token_else(0)),
    "answers that go round": Case(NAT, looped),
    "answers that nearly go round": Case(NAT, nearly_looped),
    "answers that stopped for no reason": Case(NAT, each(None, lambda row: row.update(stop="stop"))),
    "answers that ended without their end": Case(NAT, each(None, lambda row: row.update(stop="eos"))),
    "answers of no text": Case(NAT, each(None, lambda row: row.update(text=""))),
    "answers of the restored cache that are the oracle's, counted": Case(RES, answered("restored e8v@2.25", "raw")),
    "what was learned answers as the oracle, counted": Case(RES, answered("restored learned", "raw")),
    "noise that is overcome": Case(REC, answered("poison", "raw")),
    "eviction that is overcome": Case(RES, answered("evicted", "raw")),
    "prompts of more tokens": Case(NAT, counted_tokens(1.3)),
    "prompts of fewer tokens than pieces can make": Case(NAT, counted_tokens(0.1)),
    "prompts of a quarter fewer tokens": Case(ACC, counted_tokens(0.75)),
    "drafts on prompts of more tokens": Case(PAR, counted_tokens(1.5)),
    "an easier prompt under a prompt's name": Case(ACC, easier_prompt),
    "half of every prompt": Case(NAT, cut_prompts),
    "needles at other depths": Case(REC, deeper),
    "needles at other depths, restored": Case(RES, deeper),
    "needles in prompts of twice the length": Case(REC, longer),
    "needles whose prompts were shorter": Case(REC, lambda r: [p.update(n_tokens=p["n_tokens"] - 100) for p in r["prompts"]]),
    "a needle left out, and one sample fewer": Case(REC, lambda r: without_prompts(prompt_ids(r)[2])(r)),
    "a recall that takes any case": Case(REC, lambda r: [p.update(expected=p["expected"].lower()) for p in r["prompts"]]),
    "a recall of the prefix alone": Case(RES, lambda r: [p.update(expected=p["expected"].split("-")[0]) for p in r["prompts"]]),
    "a recall of the first digits": Case(RES, lambda r: [p.update(expected=p["expected"][:-2]) for p in r["prompts"]]),
    "all drafts the same on both sides": Case(PAR, lambda r: [row.update(candidate=[*row["reference"]]) or row.pop("margin", None) for row in r["rows"]] and [row.update(max_logit_error=0.0) for row in r["rows"]]),
    "drafts of one block copied to all": Case(PAR, lambda r: [row.update(reference=[*r["rows"][0]["reference"]], candidate=[*r["rows"][0]["candidate"]]) for row in r["rows"]] and [row.pop("margin", None) for row in r["rows"]]),
    "errors of logits a hundred times smaller": Case(PAR, lambda r: [row.update(max_logit_error=row["max_logit_error"] / 100) for row in r["rows"]]),
    "errors of logits that are all the same": Case(PAR, lambda r: [row.update(max_logit_error=0.1) for row in r["rows"]] and [row.pop("margin", None) for row in r["rows"] if row["reference"] == row["candidate"]]),
    "a temperature that was not zero": Case(ACC, put("config", "temperature", to=0.7)),
    "more tokens allowed than decoded": Case(NAT, put("config", "max_tokens", to=400)),
}  # fmt: skip
