# ruff: noqa: E501 - a table: one case a line reads best
"""More falsehoods about real reports: quality, codes on vectors, who measured what, words, and the server's matrix."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from tests.bridge.evidence.falsehoods import (
    ACC,
    BEN,
    CODEC,
    KVQ,
    NAT,
    PAR,
    REC,
    SERVED,
    VER,
    Case,
    Edit,
    Report,
    better,
    each,
    known,
    lowered,
    machine,
    prompt_ids,
    put,
    rows,
    shifted,
)
from tests.bridge.evidence.reports import digest

OURS = ("e8v@4.25", "e8v@6.25")


def family(by: float, *arms: str) -> Edit:
    return lambda made: [better(arm, by)(made) for arm in arms]


def every_cache(by: float, **fields: float) -> Edit:
    """Change the figures of every cache but the raw one alike."""

    def edit(made: Report) -> None:
        arms = {row["arm"] for row in made["rows"]} - {"raw"}
        for arm in sorted(arms):
            (shifted(arm, **fields) if fields else better(arm, by))(made)

    return edit


def all_nll(by: float) -> Edit:
    """A lower perplexity for every cache, the raw one too."""

    def edit(made: Report) -> None:
        plain = {row["prompt"]: row["sum_nll"] for row in rows(made, "raw")}
        for row in made["rows"]:
            row["sum_nll"] += (by - 1) * plain[row["prompt"]]

    return edit


def no_change(arm: str) -> Edit:
    return lambda made: [row.update(same_top=row["n_positions"]) for row in rows(made, arm)]


def raised(arm: str) -> Edit:
    """Half of the changed tokens are said to be the same."""
    return lambda made: [
        row.update(same_top=row["n_positions"] - (row["n_positions"] - row["same_top"]) // 3) for row in rows(made, arm)
    ]  # fmt: skip


def of(distribution: str, codec: str, by: float) -> Edit:
    return lowered(codec, by, distribution=distribution)


def relabelled(one: str, other: str) -> Edit:
    """Let two distributions change their names."""
    swap = {one: other, other: one}
    return lambda made: [
        row.update(distribution=swap.get(row["distribution"], row["distribution"])) for row in made["rows"]
    ]


def narrowed(by: float) -> Edit:
    return each(None, lambda row: row.update(rel_mse_stderr=row["rel_mse_stderr"] * by))


def codes(change: Callable[[Report], object], name: str) -> Edit:
    return lambda made: [change(row) for row in made["rows"] if row["codec"].startswith(name)]


def fewer_bits(by: float) -> Callable[[Report], object]:
    def change(row: Report) -> None:
        row["stored_bits_per_value"] -= by
        row["limit"] = 2.0 ** (-2 * row["stored_bits_per_value"])

    return change


QUALITY: dict[str, Case] = {
    "our caches err a quarter less": Case(KVQ, family(0.75, *OURS)),
    "our cache errs a fifth less": Case(KVQ, better("e8v@4.25", 0.8)),
    "our finer cache errs a fifth less": Case(KVQ, better("e8v@6.25", 0.78)),
    "every cache errs half as much": Case(KVQ, every_cache(0.5)),
    "every affine cache errs by half more": Case(KVQ, family(1.5, "affine@4g64", "affine@8g64")),
    "the lattice errs a third more": Case(KVQ, better("e8@q38", 1.35)),
    "our cache diverges by a third less": Case(KVQ, shifted("e8v@4.25", sum_kl=0.66)),
    "our cache diverges half as much, and changes fewer tokens": Case(KVQ, lambda r: (shifted("e8v@4.25", sum_kl=0.5)(r), raised("e8v@4.25")(r))),
    "every cache diverges half as much": Case(KVQ, every_cache(1.0, sum_kl=0.5)),
    "every cache diverges a tenth as much": Case(KVQ, every_cache(1.0, sum_kl=0.1)),
    "a third of the changed tokens": Case(KVQ, raised("e8v@4.25")),
    "no token changed": Case(KVQ, no_change("e8v@4.25")),
    "a lower perplexity of every cache": Case(KVQ, all_nll(0.9)),
    "half of the perplexity of every cache": Case(KVQ, all_nll(0.6)),
    "a perplexity below that of the raw cache": Case(KVQ, lambda r: [row.update(sum_nll=row["sum_nll"] * 0.99) for row in rows(r, "e8v@4.25")]),
    "the raw cache's perplexity raised": Case(KVQ, shifted("raw", sum_nll=1.01)),
    "larger squares for one cache": Case(KVQ, shifted("e8v@4.25", sum_squares=1.5)),
    "larger squares for every cache": Case(KVQ, each(None, lambda row: row.update(sum_squares=row["sum_squares"] * 2))),
    "more values for every cache": Case(KVQ, each(None, lambda row: row.update(n_values=row["n_values"] * 2))),
    "fewer positions scored": Case(KVQ, each("e8v@4.25", lambda row: row.update(n_positions=row["n_positions"] - 50, same_top=row["same_top"] - 50))),
    "the worst text's error averaged away": Case(KVQ, lambda r: [row.update(sum_squared_error=row["sum_squared_error"] * 0.65) for row in rows(r, "e8v@4.25", prompt_ids(r)[1])]),
    "affine codes err a fifth more on outliers": Case(CODEC, of("outliers", "affine", 1.4)),
    "affine codes err three times as much on outliers": Case(CODEC, of("outliers", "affine", 3.0)),
    "affine codes err a fifth more on heavy tails": Case(CODEC, of("t4", "affine", 1.6)),
    "lattices err a quarter more on heavy tails": Case(CODEC, lambda r: (of("t4", "d4", 1.3)(r), of("t4", "e8", 1.3)(r))),
    "lattices err twice as much on outliers": Case(CODEC, lambda r: (of("outliers", "d4", 2.0)(r), of("outliers", "e8", 2.0)(r))),
    "Voronoi codes err a tenth less on Gaussian vectors": Case(CODEC, of("gaussian", "voronoi", 0.9)),
    "Voronoi codes err a sixth less on heavy tails": Case(CODEC, of("t4", "voronoi", 0.82)),
    "heavy tails and outliers in each other's places": Case(CODEC, relabelled("t4", "outliers")),
    "Gaussian vectors and outliers in each other's places": Case(CODEC, relabelled("gaussian", "outliers")),
    "errors that hardly spread": Case(CODEC, narrowed(0.1)),
    "errors that spread a third as much": Case(CODEC, narrowed(0.33)),
    "Voronoi codes of fewer bits": Case(CODEC, codes(fewer_bits(0.2), "voronoi")),
    "affine codes of more bits": Case(CODEC, codes(fewer_bits(-0.3), "affine")),
    "Voronoi codes on vectors of another size": Case(CODEC, lambda r: (r["config"].update(dim=256), [row.update(dim=256) for row in r["rows"] if "dim" in row])),
    "affine codes called rotated": Case(CODEC, lambda r: [row.update(rotated=not row["rotated"]) for row in r["rows"] if row["codec"] == "affine" and row.get("rotated") is not None]),
    "groups in each other's places": Case(CODEC, lambda r: [row.update(group={64: 128, 128: 64}[row["group"]]) for row in r["rows"] if row.get("group")]),
}  # fmt: skip


def of_model(role: str, **fields: Any) -> Edit:
    return lambda made: [model.update(fields) for model in made["models"] if model["role"] == role]


def roles_swapped(made: Report) -> None:
    for model in made["models"]:
        model["role"] = {"target": "draft", "draft": "target"}.get(model["role"], model["role"])


def hybrid_draft(made: Report) -> None:
    """The hybrid's drafter beside the small target, under its own digests."""
    for model in made["models"]:
        if model["role"] == "draft":
            model.update(known("draft", "tiny-hybrid"), id="tiny-hybrid")


def own_model(made: Report) -> None:
    """The small model under a name and digests of its own, with the bundled tokenizer."""
    for model in made["models"]:
        model.update(id="our-model", weights=digest(model["role"]), config=digest("c" + model["role"]))
    made["config"]["model"] = "our-model"


MAC = {"os": "macOS 15.1 (Darwin 24.1.0 arm64)", "chip": "Apple M4"}

IDENTITY: dict[str, Case] = {
    "a Mac with a server's processor": Case(BEN, machine(os=MAC["os"])),
    "a graphics processor under Linux with a processor's chip": Case(BEN, machine(device="gpu")),
    "an Intel machine of Apple's chip": Case(BEN, machine(os="macOS 15.1 (Darwin 24.1.0 x86_64)", chip="Apple M4")),
    "more memory than any machine": Case(BEN, machine(memory_bytes=1 << 60)),
    "more arithmetic than any machine": Case(BEN, lambda r: r["identity"]["blas"].update(gflops=1e7)),
    "no arithmetic at all": Case(NAT, lambda r: r["identity"]["blas"].update(gflops=-1.0)),
    "a load below nothing": Case(NAT, machine(load=[-1.0, 0.1, 0.1])),
    "stock decoding by no mlx-lm": Case(NAT, lambda r: r["identity"]["versions"].update(mlx_lm="not installed")),
    "stock decoding by an unnamed mlx-lm": Case(BEN, lambda r: r["identity"]["versions"].pop("mlx_lm")),
    "a processor of no cores": Case(BEN, machine(cores=0)),
    "a battery of more than all": Case(NAT, machine(power={"plugged": True, "percent": 340})),
    "a code of no version": Case(NAT, lambda r: (r["identity"]["code"].update(version="best"), r["identity"]["versions"].update(kakeya_bridge="best"))),
    "target and drafter in each other's places": Case(ACC, roles_swapped),
    "the hybrid's drafter beside the small target": Case(ACC, hybrid_draft),
    "a drafter of another architecture": Case(ACC, of_model("draft", architecture="LlamaForCausalLM")),
    "a drafter of more layers": Case(ACC, of_model("draft", layers=6)),
    "a drafter of no parameters": Case(ACC, of_model("draft", parameters=1000)),
    "a model in half precision": Case(BEN, of_model("target", dtype="float16")),
    "a model in half precision, of needles": Case(REC, of_model("target", dtype="bfloat16")),
    "a model in half precision, of passes": Case(VER, of_model("target", quantization="4 bits, group 64")),
    "another tokenizer": Case(NAT, of_model("target", tokenizer=digest("another"))),
    "the chat model's tokenizer": Case(NAT, of_model("target", tokenizer=known("target", "tiny-chat")["tokenizer"])),
    "another configuration of the model": Case(VER, of_model("target", config=digest("another"))),
    "a drafter under the target's digest": Case(ACC, lambda r: [m.update(weights=r["models"][0]["weights"]) for m in r["models"]]),
    "no drafter": Case(ACC, lambda r: r.update(models=[m for m in r["models"] if m["role"] != "draft"])),
    "no drafter in a comparison of drafters": Case(PAR, lambda r: r.update(models=[m for m in r["models"] if m["role"] != "draft"])),
    "bundled prompts as maths": Case(ACC, lambda r: [w.update(task="maths") for w in r["workloads"].values()]),
    "bundled prompts as chat": Case(NAT, lambda r: [w.update(task="chat", chat_template=True) for w in r["workloads"].values()] and r["config"].update(chat=True)),
    "needles as prose": Case(REC, lambda r: [w.update(task="prose") for w in r["workloads"].values()]),
    "bundled texts as recall": Case(KVQ, lambda r: [w.update(task="recall") for w in r["workloads"].values()]),
    "functions under the name of code": Case(ACC, lambda r: [w.update(task="prose") for n, w in r["workloads"].items() if n == "functions"]),
    "another seed of vectors": Case(CODEC, put("config", "effort", to="best")),
    "a definition with a little more": Case(BEN, lambda r: r["claims"][1].update(definition=r["claims"][1]["definition"] + ", best of many")),
    "the definition of another claim": Case(BEN, lambda r: [c.update(definition="decode_tokens / decode_s, the best") for c in r["claims"] if c["name"] == "decode_tok_s"]),
    "a worst prompt that is the middle one": Case(BEN, lambda r: [c.update(name="decode_speedup") for c in r["claims"] if c["name"] == "worst_speedup"]),
    "a speed in another unit": Case(BEN, lambda r: [c.update(unit="tokens/ms") for c in r["claims"] if c["name"] == "decode_tok_s"]),
    "an arm called by another drafter's name": Case(ACC, lambda r: [a.update(name="lookup2/auto") for a in r["arms"] if a["name"] == "lookup/auto"] and [row.update(arm="lookup2/auto") for row in rows(r, "lookup/auto")] and [c.update(arm="lookup2/auto") for c in r["claims"] if c.get("arm") == "lookup/auto"]),
    "a cache called ours": Case(KVQ, lambda r: [a.update(cache="e8v@4.25") for a in r["arms"] if a["cache"] == "affine@4g64"]),
    "caches in each other's places": Case(KVQ, lambda r: [a.update(cache={"e8v@4.25": "affine@4g64", "affine@4g64": "e8v@4.25"}.get(a["cache"], a["cache"])) for a in r["arms"]]),
}  # fmt: skip


def cells(change: Callable[[Report], object], **where: Any) -> Edit:
    return lambda made: [
        change(row) for row in made["rows"] if all(row[name] == value for name, value in where.items())
    ]


def setting(**fields: Any) -> Callable[[Report], object]:
    return lambda row: row.update(fields)


def counts(**fields: int) -> Callable[[Report], object]:
    return lambda row: row["counters"].update(fields)


def scaled(name: str, by: float) -> Callable[[Report], object]:
    return lambda row: row["counters"].update({name: int(row["counters"][name] * by)})


def axis_without(name: str, listed: str, value: Any) -> Edit:
    """Leave a value of an axis out, and configure it less."""

    def edit(made: Report) -> None:
        made["rows"] = [row for row in made["rows"] if row[name] != value]
        made["config"][listed].remove(value)

    return edit


def other_answers(made: Report) -> None:
    """Every answer is another one, alike in all cells."""
    for row in made["rows"]:
        row["text"] = row["text"].replace("e", "o")


def jittered(made: Report) -> None:
    dice = random.Random(3)
    for row in made["rows"]:
        if row["cache"] != "raw":
            row["counters"]["cache_bytes"] = max(1, int(row["counters"]["cache_bytes"] * 0.2 * dice.random()))


SERVE: dict[str, Case] = {
    "a packed cache a tenth as large": Case(SERVED, lambda r: [scaled("cache_bytes", 0.1)(row) for row in r["rows"] if row["cache"] != "raw"]),
    "packed caches of any size": Case(SERVED, jittered),
    "the raw cache ten times as large": Case(SERVED, cells(scaled("cache_bytes", 10), cache="raw")),
    "every draft accepted": Case(SERVED, lambda r: [row["counters"].update(accepted=row["counters"]["proposed"]) for row in r["rows"]]),
    "drafts accepted beyond the rounds": Case(SERVED, lambda r: [row["counters"].update(accepted=row["n_tokens"], proposed=row["n_tokens"] * 2, rounds=1) for row in r["rows"] if row["draft"] != "none"]),
    "one round for every answer": Case(SERVED, lambda r: [row["counters"].update(rounds=1) for row in r["rows"] if row["draft"] != "none"]),
    "a prompt that was kept, in one token": Case(SERVED, cells(counts(cached_tokens=1), warm=True)),
    "a prompt that was kept, in more tokens than there are": Case(SERVED, cells(counts(cached_tokens=10**6), warm=True)),
    "drafts and caches without several clients": Case(SERVED, axis_without("clients", "clients", 2)),
    "no warm cells": Case(SERVED, axis_without("warm", "warm", True)),
    "answers of other letters": Case(SERVED, other_answers),
    "answers half as long": Case(SERVED, lambda r: [row.update(n_tokens=max(1, row["n_tokens"] // 2)) for row in r["rows"]]),
    "answers of many tokens for few letters": Case(SERVED, cells(setting(n_tokens=24), form="json_schema")),
    "every answer stopped by itself": Case(SERVED, cells(setting(stop="stop"))),
    "every answer stopped for its length": Case(SERVED, cells(setting(stop="length"))),
    "empty answers": Case(SERVED, cells(setting(text="", n_tokens=1, stop="stop", tokens=digest("0")), form="free")),
    "all questions answered alike": Case(SERVED, lambda r: [row.update(text=r["rows"][0]["text"], tokens=r["rows"][0]["tokens"], n_tokens=r["rows"][0]["n_tokens"], stop=r["rows"][0]["stop"]) for row in r["rows"] if row["form"] == r["rows"][0]["form"]]),
    "joint rounds of a single client": Case(SERVED, cells(counts(joint_rounds=5), clients=1)),
    "more joint rounds than rounds": Case(SERVED, lambda r: [row["counters"].update(joint_rounds=row["counters"]["rounds"] + 50) for row in r["rows"] if row["clients"] > 1]),
    "a fallback that is not told": Case(SERVED, lambda r: [row["counters"].update(proposed=1, accepted=0) for row in r["rows"] if row["draft"] != "none"]),
    "another draft model": Case(SERVED, lambda r: [m.update(weights=digest("w")) for m in r["models"] if m["role"] == "draft"]),
}  # fmt: skip


def unbundled(change: Edit) -> Edit:
    """Change the report of a model of which nothing is known."""
    return lambda made: (own_model(made), change(made))


QUALITY["an affine cache that errs half more, on a model of our own"] = Case(
    KVQ, unbundled(better("affine@8g64", 1.6))
)
QUALITY["one text on which our cache errs less, on a model of our own"] = Case(
    KVQ,
    unbundled(
        lambda r: [
            row.update(sum_squared_error=row["sum_squared_error"] * 0.62)
            for row in rows(r, "e8v@4.25", prompt_ids(r)[1])
        ]
    ),
)
