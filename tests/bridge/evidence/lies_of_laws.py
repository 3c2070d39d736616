"""Lies that keep to every rule of single fields, and break a law of the run: one for each law at least."""

from __future__ import annotations

import copy
import random

from bridge.evidence.laws.loops import RECOMPUTING
from tests.bridge.evidence.lies import (
    ACCEPT,
    CODEC,
    CROSS,
    NATIVE,
    OLD,
    ORACLE,
    PARITY,
    QUANT,
    RECALL,
    RESTORED,
    SPEC,
    VERIFY,
    Edit,
    Lie,
    Report,
    all_of,
    beside,
    drop,
    each,
    looping,
    on_repeat,
    only_claims,
    parted,
    put,
    retell,
    says,
    setting,
    slower,
    smaller_cache,
    stages,
    width,
    without_rows,
)
from tests.bridge.evidence.reports import END, REPEATS, digest, model
from tests.bridge.evidence.whole import parts_at_a_tie


def prefills(*seconds: float) -> Edit:
    """Return an edit that gives the repeats of the candidate and of the baseline these prefills, in turn."""

    def change(row: Report) -> None:
        at = {"dflash": 0, "mlx-lm": REPEATS}.get(row["arm"])
        if at is not None:
            wanted = seconds[at + row["repeat"]] * (1 + len(row["text"]) / 1e5)
            row["e2e_s"] += wanted - row["prefill_s"]
            row["prefill_s"] = wanted

    return each(None, change)


def rounds(**lists: list[int]) -> Edit:
    return each("dflash", setting(**lists))


def fixed(**more: object) -> Edit:
    return put("arms", 2, "options", to={"adaptive": False, "lookup": False, **more})


def scaled(drafter: str, scale: float | None) -> Edit:
    """Return an edit that adds an arm of a drafter that reads embeddings times a factor."""
    told = {"lookup": False, "adaptive": False} | ({} if scale is None else {"embed_scale": scale})
    like = {"name": f"{drafter}/x", "loop": "engine.dflash.stream_generate", "options": told}
    return lambda r: r["arms"].append(r["arms"][2] | like)


def follow(report: Report, accepted: int = 0) -> None:
    """Let each row tell the target's tokens: none of the drafts is accepted, but said to be in the first block."""
    for prompt in {row["prompt"]: None for row in report["rows"]}:
        rows = [row for row in report["rows"] if row["prompt"] == prompt]
        text = range(700, 700 + len(rows) + len(rows[0]["reference"]))
        for at, row in enumerate(rows):
            row["target"] = [*text[at : at + len(row["reference"])]]
    first = report["rows"][0]
    first["target"][:accepted] = first["reference"][:accepted]


def text(report: Report, place: int, said: str) -> None:
    report["rows"][place]["text"] = said


def tie(row: Report) -> None:
    """Explain that the baseline is left where it itself parts from its other repeats."""
    row["divergence"] = {"index": 17, "best": [[5, 11.5], [row["tokens"][17], 11.4]]}


def certain(report: Report) -> None:
    for row in report["rows"]:
        row["sum_nll"] = 0.0


def raw(rel_mse: float) -> Edit:
    """Return an edit that adds a row of vectors that were only stored in bfloat16."""

    def edit(report: Report) -> None:
        about = {"codec": "raw", "bits": 16, "group": 0, "stored_bits_per_value": 16.0, "limit": 2.0**-32}
        row = report["rows"][0] | about | {"rel_mse": rel_mse, "rel_mse_stderr": rel_mse / 40}
        report["rows"].append(row)

    return edit


def called(kind: str) -> Edit:
    """Return an edit that leaves the oracle at a tie, and calls it something."""

    def edit(report: Report) -> None:
        for row in report["rows"]:
            if row["arm"] == "dflash" and row["prompt"] == report["prompts"][0]["id"]:
                parts_at_a_tie(row)
                row["divergence"]["kind"] = kind

    return edit


TIME = {
    "a pass over one token in a tenth of its time": Lie(
        VERIFY, each(None, lambda row: row.update(seconds=row["seconds"] * (0.1 if row["length"] == 1 else 1))),
        ("CLOCK_IMPLAUSIBLE",), restate=True,
    ),
    "prefill that wanders": Lie(
        SPEC, prefills(0.19, 0.45, 0.5, 0.2, 0.21, 0.46), ("TIMES_UNCLEAR",), restate=True
    ),
    "a baseline that is slower two times of three": Lie(
        SPEC, each("mlx-lm", lambda row: row["repeat"] and slower(1.7)(row)), ("TIMES_UNCLEAR",), restate=True
    ),
    "single passes that are slower three times of five": Lie(
        VERIFY,
        each(None, lambda r: r.update(seconds=r["seconds"] * (2.5 if r["length"] == 1 and r["repeat"] > 1 else 1))),
        ("TIMES_UNCLEAR", "DECODE_SPREAD"), restate=True,
    ),
    "every time made smaller": Lie(SPEC, put("seconds", to=600.0), ("TIME_UNACCOUNTED",)),
    "hidden time beside decoding": Lie(
        SPEC, each("dflash", lambda row: row.update(e2e_s=row["e2e_s"] + 0.03, decode_s=row["decode_s"] - 0.01)),
        ("TIME_HIDDEN",), restate=True,
    ),
    "time that no claim is about": Lie(
        RECALL, each("noise", lambda row: row.update(e2e_s=row["e2e_s"] + 0.2)), ("TIME_HIDDEN",), restate=True
    ),
    "one pass a token in no time": Lie(
        SPEC, each("one-pass", lambda row: row.update(e2e_s=row["prefill_s"], decode_s=0.0)), ("CLOCK_IMPLAUSIBLE",),
        restate=True,
    ),
    "times of a stop-watch": Lie(
        VERIFY, each(None, lambda row: row.update(seconds=round(row["seconds"], 4))), ("CLOCK_IMPLAUSIBLE",),
        restate=True,
    ),
    "rows that ran at once": Lie(SPEC, each(None, setting(started_s=0.0)), ("CLOCK_IMPLAUSIBLE",)),
    "a start that is not told": Lie(
        SPEC, put("rows", 0, "started_s", to=0.0), ("CLOCK_IMPLAUSIBLE",)
    ),
    "five repeats, of which three are told": Lie(SPEC, put("config", "repeats", to=5), ("RUNS_MISNUMBERED",)),
    "repeats that went on though their times were close": Lie(
        SPEC, all_of(put("config", "repeats", to=2), put("config", "max_repeats", to=9)), ("RUNS_MISNUMBERED",)
    ),
    "repeats with a gap": Lie(
        SPEC, each("dflash", on_repeat(2, setting(repeat=3))), ("RUNS_MISNUMBERED",)
    ),
    "repeats from the fifth on": Lie(
        SPEC, each(None, lambda row: row.update(repeat=row["repeat"] + 5)), ("RUNS_MISNUMBERED",)
    ),
}  # fmt: skip

ROUNDS = {
    "a tie that is called a fault": Lie(SPEC, called("fault"), ("ROUNDS_CONTRADICT",), restate=True),
    "a divergence of no kind": Lie(SPEC, called("luck"), ("ROUNDS_CONTRADICT",), restate=True),
    "a round cut short in the middle": Lie(
        SPEC, rounds(commits=[3] + [4] * 9 + [1], drafted=[7] * 11, accepted=[3] * 10 + [0]), ("ROUNDS_CONTRADICT",),
        restate=True,
    ),
    "a last round of nothing": Lie(
        SPEC, rounds(commits=[4] * 10 + [0], drafted=[7] * 11, accepted=[3] * 11), ("ROUNDS_CONTRADICT",), restate=True
    ),
    "more drafts than a block holds": Lie(SPEC, rounds(drafted=[9] * 10), ("ROUNDS_CONTRADICT",), restate=True),
    "drafts that were refused, and are not told": Lie(
        SPEC, all_of(fixed(block_size=8), rounds(drafted=[3] * 10)), ("ROUNDS_CONTRADICT",), restate=True
    ),
    "rounds that are counted twice": Lie(
        SPEC, each("dflash", setting(counters={"rounds": 20})), ("ROUNDS_CONTRADICT",)
    ),
    "our loop without its counters": Lie(
        SPEC, put("arms", 2, "loop", to="engine.dflash.stream_generate"), ("ROUNDS_CONTRADICT",)
    ),
    "rounds of no drafter": Lie(
        SPEC, each("dflash", setting(counters={"rounds": 10, "rounds_lookup": 4})), ("ROUNDS_CONTRADICT",)
    ),
    "rounds of a drafter that the arm has not": Lie(
        SPEC, all_of(fixed(), each("dflash", setting(counters={"rounds": 10, "rounds_lookup": 10}))),
        ("ROUNDS_CONTRADICT",),
    ),
    "fewer waits than rounds": Lie(
        SPEC, each("dflash", setting(counters={"rounds": 10, "syncs": 5})), ("ROUNDS_CONTRADICT",)
    ),
    "rounds without drafts that had some": Lie(
        SPEC, each("dflash", setting(counters={"rounds": 10, "rounds_none": 10})), ("ROUNDS_CONTRADICT",)
    ),
    "one repeat with better rounds": Lie(
        SPEC, all_of(fixed(), each("dflash", on_repeat(1, setting(drafted=[4] * 10)))), ("ROUNDS_CONTRADICT",),
        restate=True,
    ),
    "a lazy loop that waited twice a round": Lie(
        SPEC, all_of(fixed(loop="lazy"), each("dflash", setting(counters={"rounds": 10, "syncs": 20}))),
        ("ROUNDS_CONTRADICT",),
    ),
    "an eager loop that never waited for its drafts": Lie(
        SPEC, all_of(fixed(loop="eager"), each("dflash", setting(counters={"rounds": 10, "syncs": 10}))),
        ("ROUNDS_CONTRADICT",),
    ),
    "a drafter in torch that crosses nothing": Lie(
        SPEC,
        all_of(
            fixed(runtime="torch cpu"),
            each("dflash", setting(counters={"rounds": 10, "crossings": 0, "crossed_bytes": 0})),
        ),
        ("ROUNDS_CONTRADICT",),
    ),
    "crossings without torch": Lie(
        SPEC, each("dflash", setting(counters={"rounds": 10, "crossings": 30, "crossed_bytes": 9000})),
        ("ROUNDS_CONTRADICT",),
    ),
    "a drafter in torch without its crossings": Lie(
        SPEC, all_of(fixed(runtime="torch cpu"), each("dflash", setting(counters={"rounds": 10}))),
        ("ROUNDS_CONTRADICT",),
    ),
    "a loop that nobody knows": Lie(
        SPEC, all_of(fixed(loop="magic"), each("dflash", setting(counters={"rounds": 10, "syncs": 10}))),
        ("ROUNDS_CONTRADICT",),
    ),
    "rounds that take longer than the run": Lie(
        SPEC, each("dflash", setting(round_s={"draft": [9.0] * 10, "verify": [0.1] * 10, "wait": [0.1] * 10})),
        ("ROUNDS_CONTRADICT",),
    ),
    "times of half the rounds": Lie(
        SPEC, each("dflash", setting(round_s={name: [1e-4] * 5 for name in ("draft", "verify", "wait")})),
        ("ROUNDS_CONTRADICT",),
    ),
    "answers of fixed length that end": Lie(
        SPEC, all_of(put("config", "fixed_length", to=True), each("mlx-lm", setting(stop="stop"))),
        ("TEXT_CONTRADICTS",),
    ),
}  # fmt: skip

COVERAGE = {
    "a configuration that names nothing": Lie(SPEC, drop("config", "repeats"), ("PROVENANCE_MISSING",)),
    "noise on five prompts of six": Lie(RECALL, without_rows("noise", "needle-0"), ("NOT_COVERED",)),
    "one pass a token on three prompts of four": Lie(
        SPEC, without_rows("one-pass", "code-3"), ("ORACLE_UNCHECKED", "NOT_COVERED"), restate=True
    ),
    "an arm that ran where it was fast": Lie(
        SPEC,
        all_of(
            beside("dflash", "dflash too", lambda row: row.update(prefill_s=row["prefill_s"] + 1e-3), role="reference"),
            without_rows("dflash too", "code-2"),
        ),
        ("NOT_COVERED", "CLOCK_IMPLAUSIBLE"), restate=True,
    ),
    "a prompt on which nothing ran": Lie(
        ACCEPT, all_of(*(without_rows(arm, "code-3") for arm in ("mlx-lm", "one-pass", "dflash"))), ("NOT_COVERED",),
        restate=True,
    ),
    "half of the prompts for an acceptance": Lie(
        ACCEPT, all_of(*(without_rows("dflash", f"code-{i}") for i in range(2))), ("NOT_COVERED",), restate=True
    ),
    "half of the prompts for a divergence": Lie(
        QUANT, all_of(only_claims("kl"), without_rows("e8", "prose-1")), ("NOT_COVERED",), restate=True
    ),
    "a cache that is not scored where it errs": Lie(
        QUANT, all_of(only_claims("kl"), without_rows("affine", "prose-1")), ("NOT_COVERED",), restate=True
    ),
    "a drafter that lost": Lie(
        SPEC,
        lambda r: r["config"].update(drafters=["dflash", "lookup"], rollbacks=["auto"], left_out={"dflash/auto": ""}),
        ("NOT_COVERED",),
    ),
    "a cache that lost": Lie(RECALL, put("config", "caches", to=["e8v@4.25", "affine@4g64"]), ("NOT_COVERED",)),
    "needles that were not found left out": Lie(
        RECALL, lambda r: r["config"].update(lengths=[32], depths=[0.3], samples=7), ("NOT_COVERED",)
    ),
    "needles that were added": Lie(
        RECALL, lambda r: (r["config"].update(lengths=[32], depths=[0.3], samples=5),
                           r["prompts"][0].update(length=31)), ("NOT_COVERED",),
    ),
    "a length that was dear": Lie(VERIFY, put("config", "lengths", to=[1, 2, 4, 8, 16]), ("NOT_COVERED",)),
    "a length that is not configured": Lie(VERIFY, put("config", "lengths", to=[1, 2, 4]), ("NOT_COVERED",)),
    "a context that was dear": Lie(VERIFY, put("config", "contexts", to=[4096, 8192]), ("NOT_COVERED",)),
    "fewer blocks than were drafted": Lie(PARITY, put("config", "blocks", to=5), ("NOT_COVERED",)),
    "blocks with a gap": Lie(PARITY, lambda r: r["rows"].pop(1), ("NOT_COVERED",), restate=True),
    "drafts cut at both sides": Lie(PARITY, put("config", "block_size", to=16), ("NOT_COVERED",)),
    "more prompts than are configured": Lie(PARITY, put("config", "max_prompts", to=2), ("NOT_COVERED",)),
    "more vectors than there were": Lie(CODEC, put("config", "n_vectors", to=4096), ("NOT_COVERED",)),
    "a distribution that was hard": Lie(
        CODEC, put("config", "distributions", to=["gaussian", "t4", "outliers"]), ("NOT_COVERED",)
    ),
    "codes that were given one distribution": Lie(
        CODEC,
        lambda r: (r["config"].update(distributions=["gaussian", "t4"]), r["rows"][1].update(group=32, rel_mse=0.1,
                   stored_bits_per_value=3.0, limit=2**-6.0)),
        ("NOT_COVERED",),
    ),
    "a code that lost": Lie(CODEC, put("config", "codecs", to=["affine", "voronoi"]), ("NOT_COVERED",)),
    "a baseline that says something else each time": Lie(
        NATIVE,
        all_of(each("mlx-lm", on_repeat(1, parted(17, 5)), "code-1"), each("one-pass", on_repeat(1, tie), "code-1")),
        ("BASELINE_UNSTEADY",), restate=True,
    ),
    "a baseline that is not one pass a token": Lie(
        SPEC, each("one-pass", parted(17, 5), "code-1"), ("BASELINE_UNSTEADY",), restate=True
    ),
    "a slowed stock loop, called a ratio": Lie(
        SPEC,
        all_of(
            only_claims("decode_speedup"), put("claims", 0, "name", to="decode_ratio"),
            put("arms", 0, "role", to="reference"), each("mlx-lm", slower(1.5)),
        ),
        ("SLOW_ORACLE",), restate=True,
    ),
}  # fmt: skip


def as_raw(row: Report) -> None:
    arrays = [{"shape": [1, 2, 100, 64], "dtype": "bfloat16"}] * 2
    layer = {"kind": "KVCache", "nbytes": 51_200, "arrays": arrays}
    row["memory"].update(layers=[layer, layer], cache_bytes=102_400)


def taller(row: Report) -> None:
    smaller_cache(9000)(row)


BYTES = {
    "layers that the model has not": Lie(SPEC, put("models", 0, "layers", to=1), ("BYTES_IMPOSSIBLE",)),
    "layers of the model left out everywhere": Lie(SPEC, put("models", 0, "layers", to=4), ("BYTES_IMPOSSIBLE",)),
    "arrays of three dimensions": Lie(
        SPEC,
        each("dflash", lambda row: [a["shape"].pop(0) for layer in row["memory"]["layers"] for a in layer["arrays"]]),
        ("BYTES_IMPOSSIBLE",),
    ),
    "one layer of one row": Lie(
        SPEC, each("one-pass", lambda row: row["memory"].update(
            layers=row["memory"]["layers"][:1], cache_bytes=row["memory"]["layers"][0]["nbytes"])),
        ("BYTES_IMPOSSIBLE",),
    ),
    "a baseline with room for nobody": Lie(
        SPEC, each("mlx-lm", taller), ("BYTES_IMPOSSIBLE",), restate=True
    ),
    "a codec that is the raw cache": Lie(
        RECALL, each("e8", as_raw), ("BYTES_IMPOSSIBLE", "INJECTION_NEVER_RAN"), restate=True
    ),
    "a peak below what is held": Lie(
        SPEC, each("dflash", lambda row: row["memory"].update(peak_bytes=1000)), ("BYTES_IMPOSSIBLE",)
    ),
    "a baseline that grows in one repeat": Lie(
        SPEC, each("mlx-lm", on_repeat(1, smaller_cache(500))), ("BYTES_IMPOSSIBLE",), restate=True
    ),
    "a codec that failed": Lie(
        RECALL, each("e8", lambda row: row["counters"].update(codec_failures=3)), ("BYTES_IMPOSSIBLE",)
    ),
    "more codes than bytes": Lie(
        RECALL, each("e8", lambda row: row["counters"].update(packed_bytes=10**6)), ("BYTES_IMPOSSIBLE",)
    ),
    "positions that did not go in": Lie(
        RECALL, each("e8", lambda row: row["counters"].update(raw_positions=50)), ("BYTES_IMPOSSIBLE",)
    ),
    "a rival that stores more than its name": Lie(
        QUANT, width("affine", 24), ("BYTES_IMPOSSIBLE",), restate=True
    ),
    "positions that are not scored": Lie(
        QUANT, all_of(each(None, setting(n_positions=48)), each("raw", setting(same_top=48))), ("BYTES_IMPOSSIBLE",),
        restate=True,
    ),
    "arrays of half of the text": Lie(
        QUANT, all_of(lambda r: [p.update(n_tokens=60) for p in r["prompts"]], each(None, setting(n_positions=59)),
                      each("raw", setting(same_top=59))), ("BYTES_IMPOSSIBLE",), restate=True,
    ),
}  # fmt: skip

TEXT = {
    "longer answers than are told": Lie(SPEC, put("config", "max_tokens", to=64), ("TEXT_CONTRADICTS",)),
    "an answer that goes on after its end": Lie(
        RECALL, each("noise", lambda row: says(row, *row["tokens"][:4], END, *row["tokens"][4:])), ("TEXT_CONTRADICTS",)
    ),
    "an end that was cut": Lie(
        RECALL, all_of(put("config", "max_tokens", to=9), each("noise", setting(stop="length"))), ("TEXT_CONTRADICTS",)
    ),
    "other tokens under the oracle's text": Lie(
        RECALL, each("noise", lambda row: row.update(text=" w3 w4"), None), ("TEXT_CONTRADICTS",)
    ),
    "a code that the tokens do not hold": Lie(
        RECALL,
        each("e8", lambda row: (says(row, *row["tokens"][:6], 9, 8, END), row.update(text=" the code is OAK-1177")),
             "needle-1"),
        ("TEXT_CONTRADICTS",), restate=True,
    ),
    "the oracle's words from other tokens": Lie(
        RECALL, lambda r: text(r, 3, r["rows"][0]["text"][:40] + " and more"), ("TEXT_CONTRADICTS",)
    ),
    "a novel from nine tokens": Lie(
        RECALL, lambda r: text(r, 3, " ".join(map(str, range(2000)))), ("TEXT_CONTRADICTS",)
    ),
    "nothing from forty tokens": Lie(
        SPEC, each(None, lambda row: row.update(text="w"), "code-1"), ("TEXT_CONTRADICTS",)
    ),
    "a loop that is in the text alone": Lie(RECALL, lambda r: text(r, 3, " a b" * 14), ("TEXT_CONTRADICTS",)),
    "a loop in the middle": Lie(
        SPEC,
        each(None, lambda row: (looping(row), says(row, *row["tokens"][:37], 900, 901, 902, 903))),
        ("WORKLOAD_DEGENERATE",), restate=True,
    ),
    "drafts that part without a margin": Lie(
        PARITY, lambda r: (r["rows"][0].update(max_logit_error=0.1), r["rows"][0]["candidate"].__setitem__(3, 1001)),
        ("TEXT_CONTRADICTS",), restate=True,
    ),
    "more drafts accepted than the blocks went on": Lie(
        PARITY, lambda r: follow(r, accepted=2), ("TEXT_CONTRADICTS",)
    ),
    "a target that says less than was drafted": Lie(
        PARITY, lambda r: (follow(r), r["rows"][0]["target"].pop()), ("TEXT_CONTRADICTS",)
    ),
    "drafts that agree by copying": Lie(
        PARITY, lambda r: r["rows"][0].update(max_logit_error=0.1, margin=0.05), ("TEXT_CONTRADICTS",)
    ),
    "drafts that part at no tie": Lie(
        PARITY,
        lambda r: (
            r["rows"][0].update(max_logit_error=0.1, margin=3.0), r["rows"][0]["candidate"].__setitem__(3, 1001),
        ),
        ("TEXT_CONTRADICTS",), restate=True,
    ),
}  # fmt: skip

QUALITY = {
    "texts that are certain": Lie(QUANT, certain, ("QUALITY_IMPOSSIBLE",), restate=True),
    "raw vectors that hardly err": Lie(CODEC, raw(1e-6), ("QUALITY_IMPOSSIBLE",)),
    "a perplexity below the raw cache's": Lie(
        QUANT, each("e8", setting(sum_nll=50.0)), ("QUALITY_IMPOSSIBLE",), restate=True
    ),
    "a divergence that changes everything": Lie(
        QUANT, each("e8", setting(same_top=10)), ("QUALITY_IMPOSSIBLE",), restate=True
    ),
    "an error that diverges nowhere": Lie(
        QUANT, each("e8", setting(sum_kl=0.002)), ("QUALITY_IMPOSSIBLE",), restate=True
    ),
    "an error below the lattice's own": Lie(
        QUANT, each("e8", setting(sum_squared_error=0.09, sum_kl=0.02)), ("QUALITY_IMPOSSIBLE",), restate=True
    ),
    "more bits that err more": Lie(
        CODEC,
        lambda r: r["rows"].extend(
            row.update(distribution=f"keys {i}")
            or row | {"bits": 3, "stored_bits_per_value": 3.5, "limit": 2**-7.0, "rel_mse": 0.3}
            for i, row in enumerate(r["rows"][:2])
        ),
        ("QUALITY_IMPOSSIBLE",),
    ),
    "errors that are all the same": Lie(CODEC, put("rows", 0, "rel_mse_stderr", to=1e-6), ("QUALITY_IMPOSSIBLE",)),
    "a code that stores more than its format": Lie(
        CODEC, lambda r: r["rows"][0].update(stored_bits_per_value=3.0, limit=2**-6.0), ("QUALITY_IMPOSSIBLE",)
    ),
    "nearly all, told as all": Lie(
        PARITY, all_of(put("rows", 3, "candidate", 2, to=1001), put("claims", 0, "value", to=1.0)),
        ("CLAIM_NOT_FROM_ROWS",),
    ),
}  # fmt: skip

IDENTITY = {
    "a small model called tiny": Lie(SPEC, put("models", 0, "id", to="tiny"), ("IDENTITY_DOUBTFUL",)),
    "two targets": Lie(
        SPEC, lambda r: r["models"].append(model("target", weights=digest("others"))), ("IDENTITY_DOUBTFUL",)
    ),
    "a drafter that is the target": Lie(
        SPEC, lambda r: r["models"].append(model("draft", weights=r["models"][0]["weights"])), ("IDENTITY_DOUBTFUL",)
    ),
    "weights of nothing": Lie(SPEC, put("models", 0, "weights", to="sha256:" + "a" * 64), ("IDENTITY_DOUBTFUL",)),
    "weights that are the tokenizer": Lie(
        SPEC, lambda r: r["models"][0].update(weights=r["models"][0]["tokenizer"]), ("IDENTITY_DOUBTFUL",)
    ),
    **{
        f"a machine whose {field} is {value!r}": Lie(CODEC, put("identity", field, to=value), ("IDENTITY_DOUBTFUL",))
        for field, value in (
            ("os", " "), ("chip", "unknown"), ("host", " "), ("versions", {"numpy": "2"}), ("memory_bytes", 7),
        )
    },
    "a version of nothing": Lie(CODEC, put("identity", "code", "version", to="-"), ("IDENTITY_DOUBTFUL",)),
    "a day that was none": Lie(CODEC, put("created_at", to="2026-02-31T12:00:00Z"), ("IDENTITY_DOUBTFUL",)),
    "a day to come": Lie(CODEC, put("created_at", to="2099-01-01T12:00:00Z"), ("IDENTITY_DOUBTFUL",)),
    "another model than was asked for": Lie(SPEC, put("config", "model", to="tiny"), ("IDENTITY_DOUBTFUL",)),
    "one prompt with a full stop more": Lie(
        SPEC, lambda r: retell(r["prompts"][1], r["prompts"][0]["text"] + "!"), ("PROMPT_REPEATED",)
    ),
    "one prompt with a letter that is not seen": Lie(
        SPEC, lambda r: retell(r["prompts"][1], r["prompts"][0]["text"] + "\u200b"), ("PROMPT_REPEATED",)
    ),
    "prompts that do not come with the engine": Lie(
        SPEC, put("workloads", "code", "source", to="bundled"), ("IDENTITY_DOUBTFUL",)
    ),
}  # fmt: skip

MEANING = {
    "a speed that is said to be another": Lie(
        SPEC, put("claims", 0, "definition", to="median over all runs, twice as fast as plain decoding"),
        ("MEANING_UNKNOWN",),
    ),
    "a distribution of its own": Lie(CODEC, put("rows", 0, "distribution", to="easy"), ("MEANING_UNKNOWN",)),
    "a cache of its own": Lie(
        SPEC, each("dflash", lambda row: row["memory"]["layers"][0].update(kind="magic")), ("MEANING_UNKNOWN",)
    ),
    "a loop of its own": Lie(PARITY, put("arms", 1, "loop", to="mlx_lm.faster"), ("MEANING_UNKNOWN",)),
    "a candidate that keeps who knows what": Lie(
        RECALL, all_of(put("arms", 1, "cache", to="miracle@1"), put("config", "caches", to=[])), ("MEANING_UNKNOWN",),
        restate=True,
    ),
    "a lookup called a draft model": Lie(
        SPEC,
        lambda r: r["arms"].append(r["arms"][2] | {
            "name": "dflash/x", "loop": "engine.dflash.stream_generate", "options": {"lookup": True, "adaptive": False},
        }),
        ("MEANING_UNKNOWN",),
    ),
    "the same scaling called another": Lie(
        SPEC, all_of(*(scaled(drafter, 1.0) for drafter in ("dflash", "rescaled"))), ("MEANING_UNKNOWN",)
    ),
    "another scaling that is not told": Lie(
        SPEC, all_of(scaled("dflash", 1.0), scaled("rescaled", None)), ("MEANING_UNKNOWN",)
    ),
    "two scalings under one name": Lie(
        SPEC, all_of(scaled("dflash", 1.0), scaled("torch", 8.0)), ("MEANING_UNKNOWN",)
    ),
    "one pass a token called the baseline": Lie(
        NATIVE, put("arms", 0, "loop", to="engine.one_pass"), ("MEANING_UNKNOWN",)
    ),
    "a stock loop called one pass a token": Lie(
        SPEC, put("arms", 1, "loop", to="mlx_lm.generate_step"), ("MEANING_UNKNOWN",)
    ),
    "half of a code": Lie(
        RECALL, lambda r: [p.update(expected=p["expected"][:-2]) for p in r["prompts"]], ("RECALL_VACUOUS",)
    ),
    "noise called a candidate": Lie(
        SPEC, lambda r: r["arms"].append(r["arms"][2] | {"name": "poison", "role": "reference"}), ("MEANING_UNKNOWN",)
    ),
}  # fmt: skip


def longer_prefill(report: Report) -> None:
    """Half of the decoding, booked as prefill."""
    for row in report["throughput"][CROSS]["stage_timings"]:
        row["prefill_s"] *= 1.8
        row["decode_s"] /= 2


def one_layer(report: Report) -> None:
    live = report["memory"]["live"]["oracle"]
    live["cache_bytes"] -= live["layers"].pop()["nbytes"]
    report["memory"]["savings_vs_naive_pct"] = 50.0


def dull(report: Report) -> None:
    for arm in (CROSS, "oracle"):
        report["results"][arm]["per_sample_decoded"][:2] = [" is it" * 30, " no it" * 30]


OLDER = {
    "a recall of the baseline that its samples do not give": Lie(
        OLD, put("gate", "recall_oracle", to=0.5), ("CLAIM_NOT_FROM_ROWS",)
    ),
    "an older device that is none": Lie(OLD, put("identity", "device", to="warp drive"), ("IDENTITY_DOUBTFUL",)),
    "an older run whose decoding is prefill": Lie(
        OLD, longer_prefill, ("TIME_MISPLACED", "TIME_UNACCOUNTED"), restate=True
    ),
    "two samples at one place": Lie(
        OLD, put("throughput", CROSS, "stage_timings", 1, "order", to=0), ("RUNS_MISNUMBERED",)
    ),
    "samples with a gap": Lie(
        OLD, put("throughput", CROSS, "stage_timings", 1, "sample", to=7), ("RUNS_MISNUMBERED",)
    ),
    "samples that are not told": Lie(OLD, put("config", "n_samples", to=9), ("NOT_COVERED",)),
    "a text that is correct here alone": Lie(
        OLD, put("results", "oracle", "per_sample_correct", to=[False] + [True] * 4),
        ("TEXT_CONTRADICTS", "CLAIM_NOT_FROM_ROWS"),
    ),
    "an older clock that stands still": Lie(
        OLD, stages(ORACLE, lambda row: row.update(decode_s=2.81)), ("CLOCK_IMPLAUSIBLE",), restate=True
    ),
    "an older cache without a layer": Lie(OLD, one_layer, ("BYTES_IMPOSSIBLE",), restate=True),
    "older texts that repeat themselves": Lie(OLD, dull, ("WORKLOAD_DEGENERATE",)),
    "an older target twice": Lie(OLD, lambda r: r["models"].append(model("target", weights=digest("x"))),
                                 ("IDENTITY_DOUBTFUL",)),
    "older weights of nothing": Lie(OLD, put("models", 0, "weights", to="sha256:" + "ab" * 32), ("IDENTITY_DOUBTFUL",)),
}  # fmt: skip


def recomputing(times: float = 1.0, **about: str) -> Edit:
    """Return an edit that adds a recomputation, a token of which takes ``times`` prefills."""

    def edit(report: Report) -> None:
        base = next(arm for arm in report["arms"] if arm["role"] == "baseline")
        told = {"name": "recompute", "role": "reference", "loop": RECOMPUTING, "oracle": base["name"]}
        report["arms"].append(base | told | about)
        dice = random.Random(1)
        for row in [copy.deepcopy(row) for row in report["rows"] if row["arm"] == base["name"]]:
            row["prefill_s"] *= dice.uniform(0.95, 1.05)
            took = times * row["prefill_s"] * row["decode_tokens"] * dice.uniform(0.9, 1.1)
            row.update(arm="recompute", decode_s=took, e2e_s=row["prefill_s"] + took)
            report["rows"].append(row)
        report["config"]["recompute"] = True
        report["seconds"] = 1e5

    return edit


def predicting(change: Edit = lambda _: None, *, repeats: int = 1) -> Edit:
    """Return an edit that compares predictions in each row, and then changes the report."""

    def edit(report: Report) -> None:
        moving = [arm["name"] for arm in report["arms"] if arm["role"] not in ("baseline", "identity")]
        window = 8
        if report["kind"] == RESTORED:
            report["config"]["window"] = window
        tokens = {prompt["id"]: prompt["n_tokens"] for prompt in report["prompts"]}
        dice = random.Random(2)
        first = report["rows"]
        report["seconds"] *= 1.1 * repeats
        report["rows"] = [
            row
            | {name: row[name] * dice.uniform(1, 1.05) for name in ("prefill_s", "decode_s")}
            | {"repeat": repeat}
            for repeat in range(repeats)
            for row in copy.deepcopy(first)
        ]
        for row in report["rows"]:
            count = tokens[row["prompt"]] - 2 * window
            exact = row["arm"] not in moving
            row["e2e_s"] = row["prefill_s"] + row["decode_s"]
            row["prediction"] = {
                "n_positions": count,
                "sum_kl": 0.0 if exact else 0.01 * (1 + 3 * moving.index(row["arm"])) * count,
                "same_top": count,
            }
        change(report)

    return edit


def predicted(arm: str | None, repeat: int = 0, **about: float) -> Edit:
    return each(arm, lambda row: row["prediction"].update(about) if row["repeat"] == repeat else None)


PACE = {
    "predictions at fewer positions": Lie(
        RESTORED, predicting(predicted("e8", n_positions=9, same_top=9)), ("QUALITY_IMPOSSIBLE",)
    ),
    "a whole cache that differs from itself": Lie(
        RESTORED, predicting(predicted("mlx-lm", sum_kl=0.5)), ("QUALITY_IMPOSSIBLE",)
    ),
    "a repeat that predicts otherwise": Lie(
        RESTORED, predicting(predicted("e8", 1, sum_kl=0.01), repeats=2), ("QUALITY_IMPOSSIBLE",)
    ),
    "predictions of prompts that nobody restored": Lie(RECALL, predicting(), ("STRAY_FIELD",)),
    "a recomputation that was not one": Lie(RESTORED, recomputing(9.0), ("TIMES_UNCLEAR",), restate=True),
    "a recomputation that did not run": Lie(RESTORED, put("config", "recompute", to=True), ("NOT_COVERED",)),
    "other layers restored than were asked for": Lie(
        RESTORED, put("arms", 1, "options", to={"layers": "sliding"}), ("NOT_COVERED",)
    ),
}


LAW_LIES: dict[str, Lie] = {
    **TIME, **ROUNDS, **COVERAGE, **BYTES, **TEXT, **QUALITY, **IDENTITY, **MEANING, **OLDER, **PACE,
}  # fmt: skip
