"""Honest reports of every kind, to lie about: completed test reports, and real ones. Together they have all fields.

`HONEST` has them by name. A law can only be tested on a report that holds its fields, so test_laws.py checks that each
field of a law is in one of them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection
from functools import partial
from typing import Any

from bridge.evidence.laws.cells import digest_of
from bridge.evidence.names import LEGACY
from tests.bridge.evidence import reports
from tests.bridge.evidence.falsehoods import RESULTS, real, restated

Report = dict[str, Any]


def _codec(made: Report) -> None:
    made["config"].update(codecs=["affine"], bits=[2], groups=[64], distributions=["gaussian", "t4"])
    made["rows"] = [
        row | {"dim": 64, "rotated": rotated} for rotated in (False, True) for row in made["rows"]
    ]
    made["rows"][-1]["rel_mse"] = 0.152  # a rotation makes heavy tails nearly Gaussian


def _drafting(made: Report) -> None:
    """Name the arm as the engine does, and count a round for the first token too."""
    options = {"block_size": 8, "lookup": False, "adaptive": False}
    made["arms"][2].update(name="dflash/auto", loop="engine.dflash.stream_generate", options=options)
    for one in (*made["rows"], *made["claims"]):
        one.update({"arm": "dflash/auto"} if one["arm"] == "dflash" else {})
    made["config"].update(
        drafters=["dflash"], rollbacks=["auto"], left_out={}, block=8, repeats=reports.REPEATS
    )
    for row in made["rows"]:
        if "commits" in row:
            row.update(commits=[1, *row["commits"]], accepted=[0, *row["accepted"]])
            row["drafted"] = [min(7, 40 - n) for n in (0, *range(1, 40, 4))]
            row["counters"] = {"rounds": 11, "syncs": 11, "rounds_dflash": 11}
    made["models"].append(reports.model("draft"))


def _sweep(made: Report) -> None:
    made["config"].update(repeats=5, contexts=[4096])
    made["rows"] = [row | {"repeat": row["repeat"] + 1} for row in made["rows"]]


def _needles(made: Report) -> None:
    made["config"].update(lengths=[32], depths=[0.3], samples=len(made["prompts"]), caches=["e8v@4.25"])


MORE: dict[str, Callable[[Report], object]] = {
    "kakeya.codec-rd": _codec,
    "kakeya.spec-bench": _drafting,
    "kakeya.acceptance": _drafting,
    "kakeya.native": lambda made: made["config"].update(repeats=reports.REPEATS),
    "kakeya.recall": _needles,
    "kakeya.restored-prefill": _needles,
    "kakeya.verify-l": _sweep,
    "kakeya.kv-quant": lambda made: made["config"].update(tokens=512, caches=["affine@4g64", "e8v@4.25"]),
    "kakeya.parity": lambda made: made["config"].update(blocks=4, block_size=8, max_prompts=4),
    "kakeya.serve-conformance": lambda _: None,
}


def whole(kind: str) -> Report:
    """Return an honest report with all that the engine says of its configuration."""
    made = reports.HONEST[kind]()
    if kind == LEGACY:
        return made
    MORE[kind](made)
    for model in made.get("models", []):
        model["layers"] = 1 if kind == "kakeya.kv-quant" else reports.LAYERS
    made["identity"] |= {"cores": 8, "memory_bytes": 1 << 34, "power": {}}
    start = 0.0
    for i, row in enumerate(made["rows"]):
        row["started_s"] = start + 1e-4 + 1e-7 * (i * i % 97)
        start += row.get("e2e_s", row.get("seconds", 0.0)) + 2e-4
    return reports.restate(made)


def parts_at_a_tie(row: Report, at: int = 17) -> None:
    """Let an answer go on differently behind a token whose logit is as high, but for rounding."""
    plain, other = row["tokens"][at], row["tokens"][at] + 1
    row["tokens"] = [*row["tokens"][:at], other, *(token + 1 for token in row["tokens"][at + 1 :])]
    row["text"] = reports.text_of(row["tokens"])
    row["divergence"] = {
        "index": at, "best": [[plain, 11.5], [other, 11.4999]], "margin": 11.5 - 11.4999, "kind": "tie",
        "rounding": 0.2,
    }  # fmt: skip


def in_torch() -> Report:
    """An honest report of a drafter in torch, with the times of its rounds, that leaves plain answers at a tie."""
    made = whole("kakeya.spec-bench")
    made["config"] |= {"loops": ["lazy"], "fixed_length": True, "max_repeats": reports.REPEATS}
    made["arms"][2]["options"] |= {"runtime": "torch cpu", "loop": "lazy", "embed_scale": 1.0}
    for row in made["rows"]:
        if row["arm"] == "dflash/auto":
            row["counters"] |= {"crossings": 60, "crossed_bytes": 90_000}
            row["round_s"] = {"draft": [0.02] * 11, "verify": [0.05] * 11, "wait": [0.001] * 11}
            if row["prompt"] == made["prompts"][0]["id"]:
                parts_at_a_tie(row)
    return reports.restate(made)


def served_at_a_tie(cache: str = "e8v@4.25") -> Report:
    """An honest report of the server in which one answer parts from the single client's, as rounding explains."""
    made = whole("kakeya.serve-conformance")
    same = [row for row in made["rows"] if (row["cache"], row["form"], row["question"]) == (cache, "free", 0)]
    theirs = [*range(1, 33)]
    for row in same:
        row["tokens"] = digest_of(theirs)
    at, parted = 9, same[-1]
    ours = [*theirs[:at], *range(40, 63)]
    parted |= {"tokens": digest_of(ours), "text": "x and something else"}
    parted["divergence"] = {
        "index": at, "best": [[theirs[at], 11.5], [ours[at], 11.4999]], "kind": "tie", "margin": 11.5 - 11.4999,
        "rounding": 0.2, "ours": ours, "theirs": theirs,
    }  # fmt: skip
    return made


def part_of(name: str, arms: Collection[str], prompts: Collection[str], **config: Any) -> Report:
    """A published report of which only some arms and prompts are kept, as if no others had been asked for."""
    made: Report = json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))
    made["config"] |= config
    made["arms"] = [arm for arm in made["arms"] if arm["name"] in arms]
    made["prompts"] = [prompt for prompt in made["prompts"] if prompt["id"] in prompts]
    made["rows"] = [row for row in made["rows"] if row["arm"] in arms and row["prompt"] in prompts]
    where = {
        "length": {p.get("length") for p in made["prompts"]},
        "depth": {p.get("depth") for p in made["prompts"]},
    }
    made["claims"] = [
        one for one in made["claims"]
        if {one["arm"], one.get("against", one["arm"])} <= {*arms}
        and all(value in where.get(key, ()) for key, value in one["where"].items())
    ]  # fmt: skip
    for i, row in enumerate(made["rows"]):
        row["pause"] = 1e-3 + 1e-6 * (i * i % 97)
    return restated(made)


def with_targets() -> Report:
    """A published report of parity that also says which tokens the target gave, as newer ones do."""
    made: Report = json.loads((RESULTS / "parity-package-tiny.json").read_text(encoding="utf-8"))
    for row in made["rows"]:
        row["target"] = row["reference"]
    return made


def predicting() -> Report:
    """An honest report of restored prompts that says how far predictions are from those with the whole cache."""
    made = whole("kakeya.restored-prefill")
    made["config"] |= {"window": 8, "recompute": False, "layers": "full"}
    tokens = {prompt["id"]: prompt["n_tokens"] for prompt in made["prompts"]}
    far = {"mlx-lm": 0.0, "same": 0.0, "e8": 0.01, "noise": 2.0, "nothing": 1.5}
    for i, row in enumerate(made["rows"]):
        count = tokens[row["prompt"]] - 2 * made["config"]["window"]
        missed = int(far[row["arm"]])
        row["prediction"] = {
            "n_positions": count, "sum_kl": far[row["arm"]] * count * (1 + i / 99), "same_top": count - missed,
        }  # fmt: skip
    made["claims"].append(reports.claim("prompt_kl", "e8", "mlx-lm"))
    return reports.restate(made)


def caches() -> Report:
    """A published report of caches, one of them of a published lattice with its nominal bits."""
    kept = ["affine@4g64", "e8v@4.25", "e8@q10"]
    prompts = ("ring-buffer", "table-layout", "priority-queue")
    return part_of("kv-quant-tiny", ("raw", "identity", "poison", *kept), prompts, caches=kept, max_prompts=3)


# The real ones that hold all fields of their kind in the fewest rows.
REAL = (
    "codec_rd", "bench", "acceptance", "native", "recall_float16", "restored", "verify_l", "kv_quant_float16", "parity",
    "served",
)  # fmt: skip

HONEST: dict[str, Callable[[], Report]] = {
    **{kind.removeprefix("kakeya."): partial(whole, kind) for kind in reports.HONEST},
    "spec-bench in torch": in_torch,
    "restored-prefill with predictions": predicting,
    "serve-conformance at a tie": served_at_a_tie,
    "published kv-quant": caches,
    "published parity": with_targets,
    **{f"real {name}": partial(real, name) for name in REAL},
}

# Judging these takes long. Of each, every so manieth lie is told; of the smaller one of the same kind, all are.
EVERY = {
    "real bench": 5, "real acceptance": 11, "real restored": 5, "real recall_float16": 3, "real kv_quant_float16": 3,
    "published kv-quant": 3,
}  # fmt: skip
