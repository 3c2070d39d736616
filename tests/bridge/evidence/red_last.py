# ruff: noqa: E501 - a table: one case a line reads best
"""The last falsehoods about real reports: of each kind of law, and what no law can tell."""

from __future__ import annotations

import random
from typing import Any

from tests.bridge.evidence.falsehoods import (
    ACC,
    BEN,
    CODEC,
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
    machine,
    moved,
    prompt_ids,
    resized,
    rows,
    setting,
    times,
    without,
    without_arm,
    without_prompts,
)
from tests.bridge.evidence.red_counts import LOOKUP
from tests.bridge.evidence.red_more import on_one, whole
from tests.bridge.evidence.red_rest import own_model
from tests.bridge.evidence.reports import copy, digest


def jittered(field: str, share: float) -> Edit:
    """Give every row of a cell its mean time, with a little noise."""

    def edit(made: Report) -> None:
        dice = random.Random(5)
        for row in made["rows"]:
            some = [one[field] for one in rows(made, row["arm"], row["prompt"], warmup=False)]
            row["mean"] = sum(some) / len(some)
        for row in made["rows"]:
            row[field] = row.pop("mean") * (1 + share * (dice.random() - 0.5))
            whole(row)

    return edit


def rounded(row: Report) -> None:
    for field in ("prefill_s", "decode_s"):
        row[field] = float(f"{row[field]:.4g}")
    whole(row)


def lists(change: Any) -> Any:
    """Change the lists of rounds of a row, where it has any."""

    def edit(row: Report) -> None:
        if row.get("commits"):
            change(row)

    return edit


def first_two_merged(row: Report) -> None:
    if len(row["commits"]) > 1:
        one, two = row["commits"][:2]
        row["commits"][:2], row["accepted"][:2] = [one + two], [one + two - 1]
        row["drafted"][:2] = [max(sum(row["drafted"][:2]), one + two - 1)]


def silent_where_wrong(row: Report) -> None:
    row["drafted"] = [d if a else 0 for d, a in zip(row["drafted"], row["accepted"], strict=True)]


def as_accepted(row: Report) -> None:
    row["drafted"] = list(row["accepted"])


def best_first(row: Report) -> None:
    order = sorted(range(len(row["commits"])), key=lambda i: -row["commits"][i])
    for field in ("commits", "drafted", "accepted"):
        row[field] = [row[field][i] for i in order]


def fewer_waits(row: Report) -> None:
    row["counters"]["syncs"] = max(1, row["counters"].get("syncs", 1) // 2)


def by_lookup(row: Report) -> None:
    row["counters"]["rounds_lookup"] = row["counters"].pop("rounds_dflash", 0)


def config(**fields: Any) -> Edit:
    return lambda made: made["config"].update(fields)


def claims_but(*names: str, **about: Any) -> Edit:
    """Leave claims out."""

    def edit(made: Report) -> None:
        made["claims"] = [
            c for c in made["claims"]
            if c["name"] not in names and not (about and all((c.get("where") or {}).get(k, c.get(k)) == v for k, v in about.items()))
        ]  # fmt: skip

    return edit


def arrays(change: Any) -> Any:
    """Change each array of a row's caches, and count its bytes anew."""

    def edit(row: Report) -> None:
        for layer in row["memory"]["layers"]:
            for array in layer["arrays"]:
                change(array)
        counted(row)

    return edit


def without_last_array(row: Report) -> None:
    for layer in row["memory"]["layers"]:
        if len(layer["arrays"]) > 2:
            layer["arrays"].pop()
    counted(row)


def without_last_layer(row: Report) -> None:
    row["memory"]["layers"].pop()
    counted(row)


def smaller(axis: int, by: int = 2) -> Any:
    def change(array: Report) -> None:
        if len(array["shape"]) == 4:
            array["shape"][axis] = max(1, array["shape"][axis] // by)

    return change


def scaled(field: str, by: float) -> Any:
    return lambda row: row.update({field: row[field] * by})


def of(codec: str, field: str, by: float) -> Edit:
    return lambda made: [
        row.update({field: row[field] * by}) for row in made["rows"] if row["codec"].startswith(codec)
    ]


def exchanged(field: str, one: str, other: str) -> Edit:
    def edit(made: Report) -> None:
        for name in prompt_ids(made):
            (a,), (b,) = rows(made, one, name), rows(made, other, name)
            a[field], b[field] = b[field], a[field]

    return edit


def model(at: int, **fields: Any) -> Edit:
    return lambda made: made["models"][at].update(fields)


def half_of_prompts(made: Report) -> None:
    without_prompts(*prompt_ids(made)[1::2])(made)


E8, AFFINE = "e8v@4.25", "affine@4g64"

TIME: dict[str, Case] = {
    "the last repeat of the lookup much faster": Case(BEN, each(LOOKUP, times(0.6), repeat=3)),
    "a fortieth of decoding booked as prefill": Case(BEN, each(LOOKUP, moved(1 / 40))),
    "the baseline reads one prompt three times as long": Case(BEN, on_one("native", times(3, "prefill_s"))),
    "every prefill its mean": Case(BEN, jittered("prefill_s", 2e-6)),
    "every decoding its mean": Case(NAT, jittered("decode_s", 2e-6)),
    "a run of three times its rows": Case(
        NAT, lambda r: (r.update({"keep times": True}), r.update(seconds=r["seconds"] * 3 + 20))
    ),
    "rows that start before others end": Case(
        NAT,
        lambda r: (
            r.update({"keep times": True}),
            [row.update(started_s=row["started_s"] * 0.7) for row in r["rows"]],
        ),
    ),
    "a pass over one token twice as slow": Case(VER, each(None, scaled("seconds", 2.0), length=1)),
    "a pass over sixteen tokens three times as fast": Case(
        VER, each(None, scaled("seconds", 1 / 3), length=16)
    ),
    "all plain arms twice as slow": Case(
        BEN, all_of(*(each(a, times(2.0)) for a in ("native", "verify1", "incremental")))
    ),
    "times of four digits": Case(NAT, each(None, rounded)),
    "the drafter twice as fast on one workload": Case(
        ACC, lambda r: [times(0.5)(row) for row in rows(r, OURS) if row["prompt"].startswith("functions")]
    ),
    "the baseline three times as slow as the check": Case(BEN, each("native", times(3.0))),
}
ROUNDS: dict[str, Case] = {
    "the last round left out": Case(
        BEN, each(OURS, lists(lambda row: [row[f].pop() for f in ("commits", "drafted", "accepted")]))
    ),
    "the first two rounds merged": Case(BEN, each(OURS, lists(first_two_merged))),
    "no drafts where none was right": Case(BEN, each(OURS, lists(silent_where_wrong))),
    "only right drafts proposed": Case(ACC, each(OURS, lists(as_accepted))),
    "only right drafts of a lookup proposed": Case(ACC, each(LOOKUP, lists(as_accepted))),
    "the best rounds first": Case(BEN, each(OURS, lists(best_first))),
    "half of the rounds counted": Case(
        BEN, each(OURS, lambda row: row["counters"].update(rounds=row["counters"]["rounds"] // 2))
    ),
    "half of the waits": Case(BEN, each(LOOKUP, fewer_waits)),
    "rounds of the draft model booked as lookups": Case(BEN, each(OURS, by_lookup)),
    "plain decoding that drafts": Case(
        BEN,
        each(
            "incremental",
            lists(
                lambda row: row.update(accepted=[1] * len(row["commits"]), drafted=[1] * len(row["commits"]))
            ),
        ),
    ),
    "one draft more accepted in each round": Case(
        ACC, each(OURS, lists(lambda row: row.update(accepted=[a + 1 for a in row["accepted"]])))
    ),
    "one token more committed in each round": Case(
        ACC, each(LOOKUP, lists(lambda row: row.update(commits=[c + 1 for c in row["commits"]])))
    ),
}
COVERAGE: dict[str, Case] = {
    "no repeat but two": Case(BEN, all_of(without("repeat", 3), config(repeats=2))),
    "no warm-up at all": Case(NAT, lambda r: r.update(rows=[row for row in r["rows"] if not row["warmup"]])),
    "half of the needles": Case(REC, half_of_prompts),
    "half of the restored needles": Case(RES, half_of_prompts),
    "passes over sixteen tokens left out": Case(VER, without("length", 16)),
    "a cache that was not scored on a text": Case(
        KVQ,
        lambda r: r.update(
            rows=[row for row in r["rows"] if (row["arm"], row["prompt"]) != (E8, prompt_ids(r)[0])]
        ),
    ),
    "one text of three": Case(KVQ, lambda r: without_prompts(*prompt_ids(r)[1:])(r)),
    "the last block of every prompt left out": Case(PAR, without("block", 3)),
    "no check beside plain decoding": Case(NAT, without_arm("verify1")),
    "no noise in place of keys": Case(REC, without_arm("poison")),
    "no outliers among the vectors": Case(CODEC, without("distribution", "outliers")),
    "no crowd of clients": Case(SERVED, without("clients", 2)),
    "the slower drafter not claimed": Case(BEN, claims_but(arm=OURS)),
}
BYTES: dict[str, Case] = {
    "codes of half the size": Case(KVQ, each(E8, arrays(smaller(3)))),
    "half of the heads": Case(REC, each(E8, arrays(smaller(1)))),
    "no scales": Case(KVQ, each(AFFINE, without_last_array)),
    "one layer fewer everywhere": Case(REC, each(None, without_last_layer)),
    "one layer fewer in the codes": Case(KVQ, each(E8, without_last_layer)),
    "raw keys of half the width": Case(NAT, each(None, arrays(lambda a: a.update(dtype="float16")))),
    "raw keys of twice the room": Case(REC, each("raw", lambda row: resized(row, 4 * 1024))),
    "codes with room for half of the text": Case(REC, each(E8, arrays(smaller(2)))),
    "a peak below the cache": Case(NAT, each(None, lambda row: row["memory"].update(peak_bytes=1))),
    "bytes that no array holds": Case(
        NAT, each("native", lambda row: row["memory"].update(cache_bytes=row["memory"]["cache_bytes"] // 2))
    ),
    "twice as many values in as many bytes": Case(KVQ, each(E8, scaled("n_values", 2))),
    "a cache kind of no library": Case(
        KVQ, each(E8, lambda row: [layer.update(kind="free memory") for layer in row["memory"]["layers"]])
    ),
}
QUALITY: dict[str, Case] = {
    "a third less divergence of one cache": Case(KVQ, each(E8, scaled("sum_kl", 0.5))),
    "more divergence of the other cache": Case(KVQ, each(AFFINE, scaled("sum_kl", 2.0))),
    "a fifth less error of one cache": Case(KVQ, each(E8, scaled("sum_squared_error", 0.8))),
    "half more error of the other cache": Case(KVQ, each(AFFINE, scaled("sum_squared_error", 1.5))),
    "half more error of a finer cache, on a model of our own": Case(
        KVQ, all_of(own_model, each("e8v@6.25", scaled("sum_squared_error", 1.5)))
    ),
    "errors of two caches exchanged": Case(KVQ, exchanged("sum_squared_error", E8, AFFINE)),
    "no token changed by noise": Case(
        KVQ, each("poison", lambda row: row.update(same_top=row["n_positions"]))
    ),
    "noise that hardly diverges": Case(KVQ, each("poison", scaled("sum_kl", 1e-4))),
    "half of -ln p of one cache": Case(KVQ, each(E8, scaled("sum_nll", 0.5))),
    "a Voronoi code that errs a fifth less": Case(CODEC, of("voronoi", "rel_mse", 0.8)),
    "an affine code that errs twice as much": Case(CODEC, of("affine", "rel_mse", 2.0)),
    "standard errors of a tenth": Case(CODEC, of("voronoi", "rel_mse_stderr", 0.1)),
    "logits that differ nowhere": Case(PAR, each(None, setting(max_logit_error=0.0))),
}
IDENTITY: dict[str, Case] = {
    "a chip of Apple's under Linux": Case(BEN, machine(chip="Apple M5 Max")),
    "no host": Case(NAT, machine(host=" ")),
    "a device of no kind": Case(NAT, machine(device="tpu")),
    "a code of no digest": Case(NAT, lambda r: r["identity"]["code"].update(digest="sha256:" + "0" * 64)),
    "the small model called a large one": Case(NAT, model(0, id="Qwen/Qwen3-8B")),
    "the digest of another tokenizer": Case(NAT, model(0, tokenizer=digest("another"))),
    "other weights under the bundled name": Case(ACC, model(0, weights=digest("another"))),
    "the configuration of the drafter": Case(
        ACC, lambda r: r["models"][0].update(config=r["models"][1]["config"])
    ),
    "more parameters": Case(NAT, model(0, parameters=8_000_000_000)),
    "another type": Case(NAT, model(0, dtype="bfloat16")),
    "a library of no version": Case(NAT, lambda r: r["identity"]["versions"].update(mlx="fast")),
    "a run of the next century": Case(NAT, lambda r: r.update(created_at="2126-01-01T00:00:00Z")),
    "the drafter of nobody": Case(
        ACC, lambda r: r.update(models=[m for m in r["models"] if m["role"] != "draft"])
    ),
    "a model twice": Case(NAT, lambda r: r["models"].append(copy(r["models"][0]))),
}
LAST: dict[str, Case] = {**TIME, **ROUNDS, **COVERAGE, **BYTES, **QUALITY, **IDENTITY}

BEYOND: dict[str, str] = {
    "the last repeat of the lookup much faster": "one repeat of three moves the median little",
    "a fortieth of decoding booked as prefill": "within the bound of prefills",
    "the drafter twice as fast on one workload": "its rounds still take longer than a token",
    "no warm-up at all": "a warm-up run counts nowhere",
    "no token changed by noise": "no claim is about the control",
    "noise that hardly diverges": "no claim is about the control",
}
