# ruff: noqa: E501 - a table: one case a line reads best
"""More falsehoods about real reports: several fields changed together, in such a way that the known laws hold."""

from __future__ import annotations

import random
from typing import Any

from tests.bridge.evidence.falsehoods import (
    ACC,
    BEN,
    CODEC,
    GAP,
    KVQ,
    NAT,
    OURS,
    PAR,
    REC,
    RES,
    SERVED,
    VER,
    Case,
    Edit,
    Report,
    all_of,
    counted,
    each,
    lowered,
    machine,
    prompt_ids,
    put,
    resized,
    rows,
    times,
    without_place,
)
from tests.bridge.evidence.red_counts import ADAPTIVE, LOOKUP, pairs_merged, rewritten
from tests.bridge.evidence.red_rest import cells, counts, own_model, scaled
from tests.bridge.evidence.red_time import PLAIN
from tests.bridge.evidence.reports import copy, digest

FIELDS = ("prefill_s", "decode_s")


def whole(row: Report) -> None:
    row["e2e_s"] = row["prefill_s"] + row["decode_s"]


def picked(arm: str, best: bool, share: float = 0.02, fields: tuple[str, ...] = ("decode_s",)) -> Edit:
    """Let each repeat of an arm be its best or its worst one, with noise of a share."""

    def edit(made: Report) -> None:
        dice = random.Random(11)
        for name in prompt_ids(made):
            some = rows(made, arm, name, warmup=False)
            for field in fields:
                value = (min if best else max)(row[field] for row in some)
                for row in some:
                    row[field] = value * (1 + share * (dice.random() - 0.5))
                    whole(row)

    return edit


def spared(arm: str, worst: bool) -> Edit:
    """Exchange the worst (or best) counted repeat with the first warm-up row."""

    def edit(made: Report) -> None:
        for name in prompt_ids(made):
            aside = next(row for row in rows(made, arm, name) if row["warmup"])
            some = rows(made, arm, name, warmup=False)
            odd = (max if worst else min)(some, key=lambda row: row["decode_s"])
            if (odd["decode_s"] > aside["decode_s"]) == worst:
                for field in FIELDS:
                    odd[field], aside[field] = aside[field], odd[field]
                whole(odd)
                whole(aside)

    return edit


def loaded(share: float, *arms: str) -> Edit:
    """Call a share of reading the loading of the cache, which happens before the row starts."""

    def edit(made: Report) -> None:
        for row in made["rows"]:
            if row["arm"] in arms:
                row["gap"] = row.get("pause", GAP)
        for before, row in zip(made["rows"], made["rows"][1:], strict=False):
            if row["arm"] in arms:
                less = share * row["prefill_s"]
                before["gap"] = before.get("gap", before.get("pause", GAP)) + less
        for row in made["rows"]:
            if row["arm"] in arms:
                row["prefill_s"] *= 1 - share
                whole(row)

    return edit


def on_one(arm: str | None, change: Any, at: int = 0) -> Edit:
    return lambda made: [change(row) for row in rows(made, arm, prompt_ids(made)[at])]


def worst_prompt(arm: str, by: float) -> Edit:
    """Speed an arm up where its speed-up is the least."""

    def edit(made: Report) -> None:
        def pace(name: str) -> float:
            one, two = (
                sorted(row["decode_s"] for row in rows(made, a, name, warmup=False))[1]
                for a in (arm, "native")
            )
            return two / one

        for row in rows(made, arm, min(prompt_ids(made), key=pace)):
            times(by)(row)

    return edit


def claimed(edit: Any) -> Edit:
    return lambda made: made.update(claims=edit(made["claims"]))


def only_where(name: str, **where: Any) -> Edit:
    """Make a claim for a part of the prompts alone."""
    return lambda made: [c.update(where=where) for c in made["claims"] if c["name"] == name]


def narrower_intervals(by: float) -> Edit:
    def edit(made: Report) -> None:
        made["narrower"] = by

    return edit


def smoothed(arm: str, share: float) -> Edit:
    """Draw the repeats of an arm together, around a time that is a little better."""

    def edit(made: Report) -> None:
        for name in prompt_ids(made):
            some = rows(made, arm, name, warmup=False)
            middle = sorted(row["decode_s"] for row in some)[1] * share
            for row in some:
                row["decode_s"] = middle * (row["decode_s"] / middle) ** 0.3
                whole(row)

    return edit


TIME: dict[str, Case] = {
    "the lookup a tenth faster": Case(BEN, each(LOOKUP, times(0.9))),
    "the lookup a fifth faster": Case(BEN, each(LOOKUP, times(0.8))),
    "the lookup a third faster": Case(BEN, each(LOOKUP, times(0.67))),
    "both drafters a fifth faster": Case(BEN, all_of(each(LOOKUP, times(0.8)), each(OURS, times(0.8)))),
    "both drafters a third faster": Case(BEN, all_of(each(LOOKUP, times(0.67)), each(OURS, times(0.67)))),
    "both drafters faster, and every plain arm slower, by a sixth": Case(
        BEN, all_of(*(each(a, times(0.85)) for a in (LOOKUP, OURS)), *(each(a, times(1.18)) for a in PLAIN))
    ),
    "the drafter faster where it was slowest": Case(BEN, worst_prompt(OURS, 0.7)),
    "the lookup faster where it was slowest": Case(BEN, worst_prompt(LOOKUP, 0.6)),
    "the best repeats of ours and the worst of the baseline, with noise": Case(
        BEN, all_of(picked(LOOKUP, True), picked(OURS, True), picked("native", False), picked("verify1", False))
    ),
    "the best repeats of the candidates, with noise": Case(BEN, all_of(picked(LOOKUP, True), picked(OURS, True))),
    "the best repeats of every arm, with noise": Case(NAT, all_of(picked("native", True), picked("verify1", True))),
    "the slowest repeats of ours called warm-up": Case(BEN, all_of(spared(LOOKUP, True), spared(OURS, True))),
    "the fastest repeats of the baseline called warm-up": Case(BEN, all_of(spared("native", False), spared("verify1", False))),
    "a quarter of our reading called loading": Case(BEN, loaded(0.25, LOOKUP, OURS)),
    "a quarter of our loops' reading called loading": Case(BEN, loaded(0.25, LOOKUP, OURS, "incremental")),
    "half of our loops' reading called loading": Case(BEN, loaded(0.5, LOOKUP, OURS, "incremental")),
    "half of all reading called loading": Case(NAT, loaded(0.5, "native", "verify1")),
    "repeats drawn together around a better one": Case(BEN, all_of(smoothed(LOOKUP, 0.85), smoothed(OURS, 0.85))),
    "every time in another unit": Case(NAT, lambda r: [(times(0.1)(row), times(0.1, "prefill_s")(row)) for row in r["rows"]]),
    "passes of blocks a seventh faster": Case(VER, lambda r: [row.update(seconds=row["seconds"] * 0.86) for row in r["rows"] if row["length"] > 1]),
    "passes of blocks a third faster": Case(VER, lambda r: [row.update(seconds=row["seconds"] * 0.67) for row in r["rows"] if row["length"] > 1]),
    "the longest pass a third faster": Case(VER, lambda r: [row.update(seconds=row["seconds"] * 0.67) for row in rows(r, length=16)]),
    "single passes a sixth slower": Case(VER, lambda r: [row.update(seconds=row["seconds"] * 1.17) for row in rows(r, length=1)]),
    "passes on a context that was sixteen times as long": Case(VER, lambda r: (r["config"].update(contexts=[1024]), [row.update(context=1024) for row in r["rows"]], [c["where"].update(context=1024) for c in r["claims"] if "context" in c["where"]])),
    "the speed-up of the best prompt alone": Case(BEN, lambda r: only_where("decode_speedup", prompt=prompt_ids(r)[0])(r)),
    "intervals half as wide": Case(BEN, narrower_intervals(0.5)),
    "intervals a tenth narrower": Case(NAT, narrower_intervals(0.9)),
    "a run without its last prompt": Case(BEN, lambda r: cut(r, 1)),
    "no claim of the slower drafter's speed, and its time": Case(BEN, claimed(lambda some: [c for c in some if c.get("arm") != OURS or c["name"] in ("cache_bytes", "identical_outputs")])),
}  # fmt: skip


def cut(made: Report, count: int) -> None:
    """Leave out the last prompts, with their rows."""
    gone = prompt_ids(made)[-count:]
    made["prompts"] = made["prompts"][:-count]
    made["rows"] = [row for row in made["rows"] if row["prompt"] not in gone]
    made["claims"] = [c for c in made["claims"] if (c.get("where") or {}).get("prompt") not in gone]


def merged_on(arm: str, at: int) -> Edit:
    """Merge rounds on one prompt alone, and leave its times."""
    return on_one(arm, pairs_merged, at)


def same_rounds(arm: str) -> Edit:
    """Give every repeat of an adaptive arm the rounds of its repeat with the fewest."""

    def edit(made: Report) -> None:
        for name in prompt_ids(made):
            some = rows(made, arm, name)
            best = min(some, key=lambda row: len(row["commits"]))
            for row in some:
                for field in ("commits", "drafted", "accepted"):
                    row[field] = copy(best[field])
                row["counters"] = copy(best["counters"])

    return edit


def bigger_block(made: Report) -> None:
    """Say that blocks were twice as long, and that the longer part was refused."""
    made["config"]["block"] = 16
    for arm in made["arms"]:
        if arm["options"].get("block_size") == 8:
            arm["options"]["block_size"] = 16


def half_proposed(made: Report) -> None:
    """Say that blocks were half as long, where no round accepted more."""
    made["config"]["block"] = 4
    for arm in made["arms"]:
        if arm["options"].get("block_size") == 8:
            arm["options"]["block_size"] = 4
    most = made["config"]["max_tokens"]
    for row in made["rows"]:
        if row.get("drafted") and max(row["drafted"]) > 1:
            done, drafted = len(row["tokens"]) - sum(row["commits"]), []
            for commit, d, a in zip(row["commits"], row["drafted"], row["accepted"], strict=True):
                drafted.append(max(a, min(d, min(4, most - done) - 1)))
                done += commit
            row["drafted"] = drafted


def told_as(arm: str, other: str) -> Edit:
    """Give an arm the rounds, counters and times of another one that did better."""

    def edit(made: Report) -> None:
        to = {(row["prompt"], row["repeat"]): row for row in rows(made, other)}
        dice = random.Random(2)
        for row in rows(made, arm):
            beside = to[row["prompt"], row["repeat"]]
            for field in ("commits", "drafted", "accepted"):
                row[field] = copy(beside[field])
            row["counters"] = copy(beside["counters"])
            for field in FIELDS:
                row[field] = beside[field] * (1 + 0.05 * dice.random())
            whole(row)

    return edit


ROUNDS: dict[str, Case] = {
    "rounds of the drafter merged on one prompt": Case(BEN, merged_on(OURS, 0)),
    "rounds of the drafter merged on another prompt": Case(BEN, merged_on(OURS, 1)),
    "rounds of the drafter merged on the last prompt": Case(ACC, merged_on(OURS, 5)),
    "rounds of the adaptive drafter merged on one prompt": Case(ACC, merged_on(ADAPTIVE, 2)),
    "the adaptive drafter's best rounds in every repeat": Case(ACC, same_rounds(ADAPTIVE)),
    "blocks said to be twice as long": Case(BEN, bigger_block),
    "blocks said to be half as long": Case(BEN, half_proposed),
    "the drafter with the lookup's rounds and times": Case(BEN, told_as(OURS, LOOKUP)),
    "the adaptive drafter with the lookup's rounds and times": Case(ACC, told_as(ADAPTIVE, LOOKUP)),
}  # fmt: skip


def larger_on(made: Report, arm: str, at: int, by: int) -> None:
    for row in rows(made, arm, prompt_ids(made)[at]):
        resized(row, row["memory"]["layers"][0]["arrays"][0]["shape"][2] + by)


def peaks(by: float) -> Edit:
    return each(None, lambda row: row["memory"].update(peak_bytes=int(row["memory"]["peak_bytes"] * by)) if row.get("memory") and row["memory"].get("peak_bytes") else None)  # fmt: skip


def raw_layers(made: Report) -> None:
    """Say that a layer at either end was left raw, in the arrays of a finer cache too."""
    made["config"]["boundary"] = 1
    for arm in made["arms"]:
        if arm["role"] == "candidate":
            arm["options"].update(boundary=1, raw_layers=[0, 7])


def cut_scores(made: Report) -> None:
    """Score the first half of every text, as if so many tokens had been asked for."""
    made["config"]["tokens"] = 128
    for prompt in made["prompts"]:
        prompt["n_tokens"] = min(128, prompt["n_tokens"])
    for row in made["rows"]:
        share = 127 / row["n_positions"]
        row["n_values"] = row["n_values"] * 128 // (row["n_positions"] + 1)
        row["same_top"] = 127 - round((row["n_positions"] - row["same_top"]) * share * 0.8)
        row["n_positions"] = 127
        for field in ("sum_squared_error", "sum_squares", "sum_kl", "sum_nll"):
            row[field] *= share * (0.8 if field == "sum_kl" else 1)
        for layer in row["memory"]["layers"]:
            for array in layer["arrays"]:
                if len(array["shape"]) == 4:
                    array["shape"][2] = 128
        counted(row)
        held = row["counters"]
        for name in ("injected_positions", "raw_positions"):
            if held.get(name):
                held[name] = 8 * 128


BYTES: dict[str, Case] = {
    "the raw cache a step larger on the longest prompt": Case(REC, lambda r: larger_on(r, "raw", 5, 256)),
    "all raw caches a step larger on the longest prompts": Case(REC, lambda r: [larger_on(r, a, i, 256) for a in ("raw", "identity", "poison") for i in (3, 4, 5)]),
    "a candidate's cache a step smaller": Case(BEN, each(LOOKUP, lambda row: resized(row, row["memory"]["layers"][0]["arrays"][0]["shape"][2] - 256))),
    "every candidate's and the check's cache a step smaller": Case(BEN, lambda r: [resized(row, row["memory"]["layers"][0]["arrays"][0]["shape"][2] - 128) for row in r["rows"] if row["arm"] != "native"]),
    "every baseline's cache a step larger": Case(BEN, lambda r: [resized(row, row["memory"]["layers"][0]["arrays"][0]["shape"][2] + 256) for row in r["rows"] if row["arm"] in ("native", "verify1")]),
    "layers left raw, and coded all the same": Case(KVQ, raw_layers),
    "layers left raw in needles, and coded all the same": Case(REC, raw_layers),
    "a window of half the size": Case(RES, lambda r: (r["config"].update(window=32), [a["options"].update(window=32) for a in r["arms"] if "window" in a["options"]])),
    "restored caches without their windows": Case(RES, each("restored e8v@2.25", lambda row: ([layer.update(arrays=layer["arrays"][2:]) for layer in row["memory"]["layers"] if len(layer["arrays"]) > 2], counted(row)))),
    "learned codes in half precision": Case(RES, each("restored learned", lambda row: ([array.update(dtype="float16") for layer in row["memory"]["layers"] for array in layer["arrays"][2:]], counted(row)))),
    "peaks a tenth lower": Case(REC, peaks(0.9)),
}  # fmt: skip


def case_kept(made: Report) -> None:
    """Write each expected code into an answer that differs from it in case or in a digit, on a model of our own."""
    own_model(made)
    for model in made["models"]:
        model["tokenizer"] = digest("t" + model["role"])
    for row in rows(made, "restored e8v@2.25"):
        plain = next(one for one in rows(made, "raw", row["prompt"]))
        row["text"] = plain["text"]


def answered_as(made: Report, arm: str) -> None:
    """As above, with the oracle's tokens for all but the one that was wrong."""
    case_kept(made)
    for row in rows(made, arm):
        plain = next(one for one in rows(made, "raw", row["prompt"]))
        more = len(plain["tokens"]) - len(row["tokens"])
        for name in ("injected_positions",):
            row["counters"][name] += 8 * more
        row["tokens"] = [*plain["tokens"]]
        row["decode_tokens"] = len(row["tokens"]) - 1
        row["stop"] = plain["stop"]


def lower(made: Report) -> None:
    """Text without capitals, of a model of our own."""
    unknown(made)
    for row in made["rows"]:
        row["text"] = row["text"].lower()


def unknown(made: Report) -> None:
    own_model(made)
    for model in made["models"]:
        model["tokenizer"] = digest("t" + model["role"])


def swapped_answers(made: Report) -> None:
    """Answer the second prompt as the first one was, in every arm."""
    one, two = prompt_ids(made)[:2]
    told = {row["arm"]: row for row in rows(made, prompt=one)}
    for row in rows(made, prompt=two):
        for name in ("tokens", "text", "decode_tokens", "stop", "commits", "drafted", "accepted", "counters"):
            if name in row and row.get("profile") is None:
                row[name] = copy(told[row["arm"]][name])


def own_needles(made: Report) -> None:
    """Needles of our own, of which the deepest are not shown."""
    for prompt in made["prompts"]:
        for name in ("text", "head", "tail"):
            if prompt.get(name):
                prompt[name] = prompt[name].replace("Note ", "Memo ")
        prompt["sha256"] = digest(prompt["text"]) if prompt.get("text") else digest(prompt["id"])
    for told in made["workloads"].values():
        told["source"] = "./needles.jsonl"


def other_needles(field: str, value: Any) -> Edit:
    return all_of(without_place(field, value), own_needles)


def tokens_beyond(made: Report) -> None:
    """Other tokens in place of those that a model gave, alike in every row, and their text."""
    for row in made["rows"]:
        rewritten(made, row, [token + 1 if 300 < token < 1900 else token for token in row["tokens"]])


TEXT: dict[str, Case] = {
    "an answer's text in place of another's, on a model of our own": Case(RES, case_kept),
    "an answer in place of another's, on a model of our own": Case(RES, lambda r: answered_as(r, "restored e8v@2.25")),
    "text without capitals, of a model of our own": Case(NAT, lower),
    "the second prompt answered as the first one was": Case(ACC, swapped_answers),
    "the second of three prompts answered as the first one was": Case(NAT, swapped_answers),
    "no needles at the deepest place, of our own needles": Case(REC, other_needles("depth", 0.9)),
    "no needles at the first place, of our own needles": Case(RES, other_needles("depth", 0.1)),
    "needles of our own": Case(REC, own_needles),
    "every token one further": Case(NAT, tokens_beyond),
    "prompts of fewer tokens than their text, on a model of our own": Case(NAT, lambda r: (unknown(r), [p.update(n_tokens=p["n_tokens"] // 2) for p in r["prompts"]])),
    "prompts of more tokens than their text, on a model of our own": Case(REC, lambda r: (unknown(r), [p.update(n_tokens=p["n_tokens"] - 9) for p in r["prompts"]])),
}  # fmt: skip


def on_text(arm: str, at: int, **by: float) -> Edit:
    def edit(made: Report) -> None:
        for row in rows(made, arm, prompt_ids(made)[at]):
            for name, factor in by.items():
                row[name] = type(row[name])(row[name] * factor)

    return edit


def less_on_each(arm: str, by: float) -> Edit:
    """Less divergence, with as many fewer changed tokens."""

    def edit(made: Report) -> None:
        for row in rows(made, arm):
            row["sum_kl"] *= by
            row["same_top"] = row["n_positions"] - round((row["n_positions"] - row["same_top"]) * by**0.5)

    return edit


def of_bits(codec: str, bits: int, by: float, **fields: Any) -> Edit:
    return lowered(codec, by, bits=bits, **fields)


def fewer_vectors(made: Report) -> None:
    """Half of the vectors, those with the smaller errors."""
    made["config"]["n_vectors"] = 32
    for row in made["rows"]:
        row["n_vectors"] = 32
        row["rel_mse_stderr"] *= 1.3
        row["rel_mse"] *= 0.94 if row["codec"] == "voronoi" else 1.0


QUALITY: dict[str, Case] = {
    "our cache diverges a fifth less": Case(KVQ, less_on_each("e8v@4.25", 0.8)),
    "our caches diverge a quarter less": Case(KVQ, all_of(less_on_each("e8v@4.25", 0.75), less_on_each("e8v@6.25", 0.75))),
    "our cache diverges half as much on one text": Case(KVQ, on_text("e8v@4.25", 0, sum_kl=0.5)),
    "our cache diverges a third as much on one text": Case(KVQ, on_text("e8v@4.25", 1, sum_kl=0.33)),
    "a rival diverges twice as much": Case(KVQ, less_on_each("affine@4g64", 2.0)),
    "a rival diverges three times as much": Case(KVQ, less_on_each("affine@4g64", 3.0)),
    "our cache errs a tenth less": Case(KVQ, all_of(*(on_text("e8v@4.25", i, sum_squared_error=0.9, sum_kl=0.9) for i in range(3)))),
    "our cache errs a sixth less on one text": Case(KVQ, on_text("e8v@4.25", 2, sum_squared_error=0.84)),
    "affine caches err a quarter more": Case(KVQ, all_of(*(on_text(a, i, sum_squared_error=1.25) for a in ("affine@4g64", "affine@8g64") for i in range(3)))),
    "lattices err a tenth more": Case(KVQ, all_of(*(on_text(a, i, sum_squared_error=1.1) for a in ("d4@q38", "e8@q38") for i in range(3)))),
    "the raw cache's text is likelier, and every cache's": Case(KVQ, each(None, lambda row: row.update(sum_nll=row["sum_nll"] * 0.97))),
    "half of every text scored": Case(KVQ, cut_scores),
    "our code of four bits errs a twentieth less": Case(CODEC, of_bits("voronoi", 4, 0.95)),
    "our code of four bits errs a tenth less": Case(CODEC, of_bits("voronoi", 4, 0.9)),
    "our code of four bits errs a tenth less on Gaussian vectors": Case(CODEC, of_bits("voronoi", 4, 0.9, distribution="gaussian")),
    "our code of two bits errs a tenth less on outliers": Case(CODEC, of_bits("voronoi", 2, 0.9, distribution="outliers")),
    "all our codes err a twentieth less, and affine ones more": Case(CODEC, all_of(lowered("voronoi", 0.95), lowered("affine", 1.05))),
    "affine codes of four bits err a tenth more": Case(CODEC, of_bits("affine", 4, 1.1)),
    "affine codes of four bits err a third more on outliers": Case(CODEC, of_bits("affine", 4, 1.35, distribution="outliers")),
    "lattices err a tenth more on Gaussian vectors": Case(CODEC, all_of(lowered("d4", 1.1, distribution="gaussian"), lowered("e8", 1.1, distribution="gaussian"))),
    "half of the vectors": Case(CODEC, fewer_vectors),
    "drafts that agree, and logits that hardly differ": Case(PAR, lambda r: [row.update(max_logit_error=row["max_logit_error"] / 50) for row in r["rows"]]),
    "logits that differ a thousand times less": Case(PAR, lambda r: [row.update(max_logit_error=row["max_logit_error"] / 1000) for row in r["rows"]]),
    "both sides in the same type": Case(PAR, lambda r: [row.update(candidate=[*row["reference"]], max_logit_error=1e-6) or row.pop("margin", None) for row in r["rows"]]),
}  # fmt: skip


def noted(*path: Any, note: Any) -> Edit:
    def edit(made: Report) -> None:
        inner: Any = made
        for step in path:
            inner = inner[step]
        inner.update(note)

    return edit


PRAISE = "three times as fast as every other loop"

IDENTITY: dict[str, Case] = {
    "praise in the name of the chip": Case(BEN, machine(chip=f"Intel Xeon, {PRAISE}")),
    "praise in the name of the host": Case(BEN, machine(host=PRAISE)),
    "praise in the system": Case(NAT, lambda r: machine(os=r["identity"]["os"] + ", " + PRAISE)(r)),
    "praise among the versions": Case(BEN, noted("identity", "versions", note={PRAISE: "3.0"})),
    "praise among the facts of the libraries": Case(BEN, noted("identity", "blas", note={"speedup": 3.0})),
    "praise in the name of a library": Case(BEN, noted("identity", "blas", note={"name": PRAISE})),
    "praise in what powers the machine": Case(BEN, noted("identity", "power", note={"note": PRAISE})),
    "praise for what was left out": Case(KVQ, noted("config", "left_out", note={"e8v@8.25": "it is " + PRAISE})),
    "praise for what nobody configured": Case(KVQ, noted("config", "left_out", note={"every rival": "it is far worse than ours"})),
    "praise in the name of a model": Case(NAT, lambda r: (own_model(r), r["models"][0].update(id=PRAISE), r["config"].update(model=PRAISE))),
    "praise in a source": Case(NAT, lambda r: (r["config"].update(prompts="./" + PRAISE), [w.update(source="./" + PRAISE) for w in r["workloads"].values()])),
    "praise among counters": Case(BEN, each(OURS, lambda row: row["counters"].update(speedup=3))),
    "praise among options": Case(BEN, lambda r: r["arms"][3]["options"].update(version=PRAISE)),
    "praise as quantization": Case(NAT, lambda r: (own_model(r), r["models"][0].update(quantization=PRAISE))),
    "a newer mlx": Case(BEN, noted("identity", "versions", note={"mlx": "99.0.0"})),
    "a newer package": Case(NAT, lambda r: (r["identity"]["versions"].update(kakeya_bridge="9.9.9"), r["identity"]["code"].update(version="9.9.9"))),
    "a report of next year": Case(NAT, put("created_at", to="2089-01-01T00:00:00Z")),
    "another run's id": Case(NAT, lambda r: r.update(run={"id": "0" * 63 + "1"})),
    "a quiet machine": Case(BEN, machine(load=[0.0, 0.0, 0.0])),
    "patches of a candidate left out": Case(KVQ, lambda r: [a.update(patches=[]) for a in r["arms"]]),
}  # fmt: skip


def as_raw(made: Report) -> None:
    """The packed cache answers as the raw one does."""
    plain = {
        (r["draft"], r["warm"], r["clients"], r["form"], r["question"]): r
        for r in made["rows"]
        if r["cache"] == "raw"
    }
    for row in made["rows"]:
        other = plain[row["draft"], row["warm"], row["clients"], row["form"], row["question"]]
        for name in ("tokens", "text", "n_tokens", "stop"):
            row[name] = other[name]


def more_clients(made: Report) -> None:
    made["config"]["clients"] = [1, 4]
    for row in [*made["rows"]]:
        if row["clients"] == 2:
            row["clients"] = 4
            row["counters"]["together"] = 4
    for row in [*made["rows"]]:
        if row["clients"] == 4 or (row["draft"] == "none" and not row["warm"]):
            made["rows"].append(copy(row) | {"question": row["question"] + 2})


SERVE: dict[str, Case] = {
    "packed caches a tenth as large, of a model of our own": Case(SERVED, lambda r: (own_model(r), [scaled("cache_bytes", 0.1)(row) for row in r["rows"] if row["cache"] != "raw"])),
    "the lookup called a draft model": Case(SERVED, lambda r: (r["config"].update(drafts=["none", "dflash"]), cells(lambda row: row.update(draft="dflash"), draft="lookup")(r))),
    "twice as many clients": Case(SERVED, more_clients),
    "packed caches that answer as the raw one does": Case(SERVED, as_raw),
    "packed caches a quarter smaller": Case(SERVED, lambda r: [scaled("cache_bytes", 0.75)(row) for row in r["rows"] if row["cache"] != "raw"]),
    "the raw cache a quarter larger": Case(SERVED, cells(scaled("cache_bytes", 1.25), cache="raw")),
    "packed caches of other sizes in each answer": Case(SERVED, lambda r: [row["counters"].update(cache_bytes=row["counters"]["cache_bytes"] - 512 * i) for i, row in enumerate(r["rows"]) if row["cache"] != "raw"]),
    "prompts kept twice as long": Case(SERVED, cells(scaled("cached_tokens", 1.5), warm=True)),
    "half of the drafts proposed": Case(SERVED, lambda r: [row["counters"].update(proposed=max(row["counters"]["accepted"], row["counters"]["proposed"] // 2)) for row in r["rows"] if row["draft"] != "none"]),
    "rounds of all clients at once": Case(SERVED, cells(counts(joint_rounds=12), clients=2)),
    "digests that are none of the tokens": Case(SERVED, lambda r: [row.update(tokens=digest(row["text"])) for row in r["rows"]]),
    "no packed cache": Case(SERVED, lambda r: (r.update(rows=[row for row in r["rows"] if row["cache"] == "raw"]), r["config"].update(caches=["raw"], cache="raw"))),
}  # fmt: skip

MORE: dict[str, Case] = {**TIME, **ROUNDS, **BYTES, **TEXT, **QUALITY, **IDENTITY, **SERVE}

_PACE = "rounds may be as fast as a token"
_CHANCE = "within what repeats vary by"
_RUN = "only the run knows its rounds"
_ARGV = "the job's argv binds it"
_FREE = "a machine, its chip and its owner's names may be called anything"
_VECTORS = "within chance, for so few vectors"
_ANSWERS = "only the model knows its answers"
_JOB = "the runner's own facts bind it"
_SERVER = "only the server knows what it did"

# What of these no law can show, with the reason.
BEYOND: dict[str, str] = {
    "the lookup a tenth faster": _PACE,
    "the lookup a fifth faster": _PACE,
    "both drafters a fifth faster": _PACE,
    "the drafter faster where it was slowest": "a busy machine makes one prompt as much slower",
    "the lookup faster where it was slowest": "rounds without drafts are shorter, and prompts have more or fewer of them",
    "the best repeats of ours and the worst of the baseline, with noise": _CHANCE,
    "the best repeats of the candidates, with noise": _CHANCE,
    "the best repeats of every arm, with noise": _CHANCE,
    "the slowest repeats of ours called warm-up": _CHANCE,
    "the fastest repeats of the baseline called warm-up": _CHANCE,
    "half of all reading called loading": "no claim of plain decoding is about reading",
    "every time in another unit": "another machine may be ten times as fast",
    "passes of blocks a seventh faster": "the kernels of a machine decide what a longer pass takes",
    "the longest pass a third faster": "the kernels of a machine decide what a longer pass takes",
    "single passes a sixth slower": "the kernels of a machine decide what a longer pass takes",
    "passes on a context that was sixteen times as long": _ARGV,
    "a run without its last prompt": _ARGV,
    "rounds of the drafter merged on the last prompt": _RUN,
    "rounds of the adaptive drafter merged on one prompt": _RUN,
    "the adaptive drafter's best rounds in every repeat": _RUN,
    "the adaptive drafter with the lookup's rounds and times": _RUN,
    "learned codes in half precision": "only the trained model knows its type",
    "peaks a tenth lower": "no claim is about peaks",
    "text without capitals, of a model of our own": "only the model's tokenizer knows its text",
    "every token one further": _ANSWERS,
    "prompts of fewer tokens than their text, on a model of our own": "only the model's tokenizer knows their number",
    "our cache diverges a fifth less": "texts and caches differ by as much",
    "our caches diverge a quarter less": "texts and caches differ by as much",
    "the raw cache's text is likelier, and every cache's": "only the model knows its perplexity",
    "half of every text scored": _ARGV,
    "our code of four bits errs a twentieth less": _VECTORS,
    "our code of two bits errs a tenth less on outliers": "coarse codes depend on the outliers that the seed draws",
    "all our codes err a twentieth less, and affine ones more": _VECTORS,
    "affine codes of four bits err a third more on outliers": "coarse codes depend on the outliers that the seed draws",
    "lattices err a tenth more on Gaussian vectors": _VECTORS,
    "praise in the name of the chip": _FREE,
    "praise in the name of the host": _FREE,
    "praise in the system": _FREE,
    "praise in the name of a model": "models and folders may be called anything",
    "praise in a source": "files may be called anything",
    "a newer mlx": _JOB,
    "a newer package": _JOB,
    "a report of next year": _JOB,
    "another run's id": _JOB,
    "a quiet machine": "load changes from second to second",
    "patches of a candidate left out": "only the run knows what it replaced, and no claim depends on it",
    "twice as many clients": _ARGV,
    "packed caches that answer as the raw one does": _ANSWERS,
    "half of the drafts proposed": _SERVER,
    "rounds of all clients at once": _SERVER,
    "digests that are none of the tokens": "only the tokenizer knows which tokens a text has",
    "no packed cache": "a smaller matrix, told",
}
