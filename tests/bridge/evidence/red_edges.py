# ruff: noqa: E501 - a table: one case a line reads best
"""Falsehoods at the edges of the laws: several fields at once, within tolerances, and where a law looks away."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any

from tests.bridge.evidence import red_sliding
from tests.bridge.evidence.falsehoods import (
    ACC,
    APPLE,
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
    each,
    faster,
    jitter,
    machine,
    moved,
    prompt_ids,
    resized,
    rows,
    times,
    without_arm,
)
from tests.bridge.evidence.red_counts import LOOKUP
from tests.bridge.evidence.red_last import AFFINE, E8, arrays, config
from tests.bridge.evidence.red_more import picked, whole
from tests.bridge.evidence.red_rest import own_model
from tests.bridge.evidence.reports import copy, digest


def arm(name: str, /, **fields: Any) -> Edit:
    """Change what an arm is said to be."""

    def edit(made: Report) -> None:
        for one in made["arms"]:
            if one["name"] == name:
                one.update(fields)

    return edit


def options(name: str | None = None, /, **fields: Any) -> Edit:
    """Change the options of one arm, or of every candidate. An option that is set to None is removed."""

    def edit(made: Report) -> None:
        for one in made["arms"]:
            if one["name"] == name or (name is None and one["role"] == "candidate"):
                one["options"] |= fields
                for field in [field for field, value in fields.items() if value is None]:
                    del one["options"][field]

    return edit


def called(names: dict[str, str], *fields: str) -> Edit:
    """Change names wherever they stand: of arms, their oracles, rows and claims, or the given fields alone."""

    def edit(made: Report) -> None:
        told = fields or ("name", "arm", "against", "oracle")
        for some in ("arms", "rows", "claims"):
            for one in made[some]:
                for field in told:
                    if one.get(field) in names and not (some == "claims" and field == "name"):
                        one[field] = names[one[field]]

    return edit


def claimed(name: str, one: str, other: str | None = None, **fields: Any) -> Edit:
    """Claim something that was not claimed."""

    def edit(made: Report) -> None:
        made_claim = {
            "name": name, "arm": one, "value": 0.0, "definition": "as docs/evidence.md defines it", "where": {}, **fields,
        }  # fmt: skip
        made["claims"].append(made_claim | ({"against": other} if other else {}))

    return edit


def scaled(**fields: float) -> Callable[[Report], object]:
    """Scale figures of a row."""
    return lambda row: row.update({name: row[name] * by for name, by in fields.items()})


CODES = ("affine@8g64", "affine@4g64", "d4@q38", "e8@q38", "e8v@6.25", "e8v@4.25")


def codes(**fields: float) -> Edit:
    """Scale figures of every code that is compared."""
    return all_of(*(each(name, scaled(**fields)) for name in CODES))


def changed_less(row: Report) -> None:
    """As many changed tokens as a divergence has that was scaled."""
    row["same_top"] = row["n_positions"] - round((row["n_positions"] - row["same_top"]) * 0.7)


def middle_prompt(by: float) -> Edit:
    """Speed the drafter up on the prompt that is the median."""

    def pace(made: Report, name: str) -> float:
        one, other = (
            sorted(row["decode_s"] for row in rows(made, a, name, warmup=False))[1]
            for a in (LOOKUP, "native")
        )
        return other / one

    def edit(made: Report) -> None:
        order = sorted(prompt_ids(made), key=lambda name: pace(made, name))
        for row in rows(made, LOOKUP, order[len(order) // 2]):
            times(by)(row)

    return edit


def paused(name: str, share: float) -> Edit:
    """Book a share of decoding as a pause after the row."""

    def edit(made: Report) -> None:
        for row in rows(made, name):
            row["gap"] = row.get("pause", 0.003) + share * row["decode_s"]
            times(1 - share)(row)

    return edit


def last_round_whole(row: Report) -> None:
    """Let the last round accept all that it proposed."""
    if row.get("commits"):
        row["accepted"][-1] = row["drafted"][-1]
        row["commits"][-1] = row["drafted"][-1] + 1


def hidden(share: float) -> Callable[[Report], object]:
    """Count a share of decoding nowhere."""
    return lambda row: row.update(decode_s=row["decode_s"] * (1 - share))


def answers_of(one: str, other: str) -> Edit:
    """Let an arm answer as another one."""

    def edit(made: Report) -> None:
        for row in rows(made, one):
            found = next(r for r in rows(made, other, row["prompt"]) if not r.get("warmup"))
            for field in ("tokens", "text", "stop", "decode_tokens"):
                row[field] = copy(found[field])
            row.pop("divergence", None)

    return edit


def merged_pairs(row: Report) -> None:
    """Two rounds of the drafter for one, as far as the block has room, in lists and counters alike."""
    fields = ("commits", "drafted", "accepted")
    if not row.get("commits"):
        return
    made: list[tuple[int, int, int]] = []
    for c, d, a in zip(*(row[field] for field in fields), strict=True):
        last = made[-1] if made else None
        if last and last[0] + c <= 8 and last[1] == 7:
            made[-1] = (last[0] + c, 7, last[0] + c - 1)
        else:
            made.append((c, d, a))
    for i, field in enumerate(fields):
        row[field] = [one[i] for one in made]
    for name in row["counters"]:
        if name in ("rounds", "syncs", "rounds_dflash"):
            row["counters"][name] = len(made)


def adaptive_as(other: str) -> Edit:
    """Give the adaptive drafter the rounds, times and tokens of another drafter."""

    def edit(made: Report) -> None:
        for row, like in zip(rows(made, "adaptive/auto"), rows(made, other), strict=True):
            for field in (
                "tokens",
                "text",
                "stop",
                "decode_tokens",
                "commits",
                "drafted",
                "accepted",
                "counters",
            ):
                row[field] = copy(like[field])

    return edit


def only_right_drafts(row: Report) -> None:
    row["drafted"] = list(row["accepted"])
    none = row["drafted"].count(0)
    left = len(row["drafted"]) - none
    row["counters"] = {name: n for name, n in row["counters"].items() if not name.startswith("rounds_")}
    row["counters"] |= {"rounds_lookup": left, "rounds_none": none}


def another_size(dim: int, by: float) -> Edit:
    """Vectors of another size, with the bits that they take, and smaller errors of Voronoi codes."""

    def edit(made: Report) -> None:
        made["config"]["dim"] = dim
        for row in made["rows"]:
            row["dim"] = dim
            if row["codec"] == "voronoi":
                row["stored_bits_per_value"] = row["bits"] + (16 + 8 * math.ceil(dim / 64)) / dim
                row["rel_mse"] *= by
            elif row["codec"].lower()[:2] in ("d4", "e8"):
                row["stored_bits_per_value"] += 32 / dim - 32 / 128
            row["limit"] = 2.0 ** (-2 * row["stored_bits_per_value"])
        made["rows"] = [
            row for row in made["rows"]
            if (row["codec"] != "affine" or dim % row["group"] == 0)
            and (row["codec"].lower()[:2] not in ("d4", "e8") or not dim & (dim - 1))
        ]  # fmt: skip

    return edit


def of(codec: str, *distributions: str, **fields: float) -> Edit:
    """Scale figures of a family of codes on drawn vectors."""
    return lambda made: [
        scaled(**fields)(row) for row in made["rows"]
        if row["codec"].lower().startswith(codec) and (not distributions or row["distribution"] in distributions)
    ]  # fmt: skip


def context(length: int) -> Edit:
    """The same passes over a longer context."""

    def edit(made: Report) -> None:
        made["config"]["contexts"] = [length]
        for one in (*made["rows"], *(claim["where"] for claim in made["claims"])):
            one["context"] = length

    return edit


def over_cache(name: str) -> Edit:
    def edit(made: Report) -> None:
        made["config"].update(cache=name, caches=[name])
        for row in made["rows"]:
            row["cache"] = name

    return edit


def large_model(name: str, parameters: int | None) -> Edit:
    """The small model under the name of a large one."""

    def edit(made: Report) -> None:
        own_model(made)
        made["config"]["model"] = name
        target = made["models"][0]
        target.update(id=name, parameters=parameters)
        if parameters is None:
            for field in ("parameters", "architecture", "layers", "stored_dtypes"):
                target.pop(field, None)

    return edit


def more_clients(count: int) -> Edit:
    """Pass off the answers to two clients as answers to more clients, with the questions repeated under new numbers."""

    def edit(made: Report) -> None:
        made["config"]["clients"] = [1, count]
        more = []
        for row in made["rows"]:
            if row["clients"] == 2:
                row["clients"] = count
                row["counters"]["together"] = count
            several = row["clients"] == count
            oracle = row["draft"] == "none" and not row["warm"] and row["clients"] == 1
            more += (
                [copy(row) | {"question": row["question"] + 2 * n} for n in range(1, count // 2)]
                if several or oracle
                else []
            )
        made["rows"] += more

    return edit


def drafted_by(name: str) -> Edit:
    def edit(made: Report) -> None:
        made["config"]["drafts"] = ["none", name]
        for row in made["rows"]:
            row["draft"] = name if row["draft"] == "lookup" else row["draft"]

    return edit


def served(**fields: float) -> Edit:
    """Scale counters of answers that were drafted."""
    return lambda made: [
        row["counters"].update({name: int(row["counters"][name] * by) for name, by in fields.items()})
        for row in made["rows"] if row["draft"] != "none"
    ]  # fmt: skip


def agreed(made: Report) -> None:
    """The candidate drafts what the reference drafts, everywhere."""
    for row in made["rows"]:
        row["candidate"] = list(row["reference"])
        row.pop("margin", None)


def nearer(by: float) -> Edit:
    def edit(made: Report) -> None:
        for row in made["rows"]:
            row["max_logit_error"] *= by
            if row.get("margin") is not None:
                row["margin"] *= by

    return edit


def words_of_the_prompt(made: Report) -> None:
    """Call a word of a prompt that comes again in its answer a needle, in prompts of our own."""
    for workload in made["workloads"].values():
        workload.update(task="recall", source="our-own.jsonl")
    made["config"]["prompts"] = "our-own.jsonl"
    for prompt in made["prompts"]:
        text = f"# {prompt['id']}\n{prompt['text']}"
        answer = rows(made, "native", prompt["id"])[0]["text"]
        words = [
            word
            for word in answer.replace("(", " ").replace(")", " ").replace(":", " ").split()
            if len(word) > 5
        ]
        held = next(word for word in words if f" {word}" in text and word.isalnum())
        prompt.update(text=text, sha256=digest(text), expected=held)


def picked_everywhere(made: Report) -> None:
    """The best repeat of the drafter three times, and the worst of every plain loop, each with noise."""
    picked(LOOKUP, True)(made)
    for name in ("native", "verify1", "incremental"):
        picked(name, False)(made)


def selected(keep: int) -> Edit:
    """Of more repeats than are configured, those that flatter: of the drafter the fastest, of plain loops the slowest."""

    def edit(made: Report) -> None:
        dice = random.Random(4)
        for name in prompt_ids(made):
            for one in ("native", "verify1", "incremental", LOOKUP):
                some = sorted(rows(made, one, name, warmup=False), key=lambda row: row["decode_s"])
                ends = some[:keep] if one == LOOKUP else some[-keep:]
                for row in some:
                    like = dice.choice(ends)
                    row["decode_s"] = like["decode_s"] * (1 + 0.01 * dice.random())
                    whole(row)

    return edit


def reference_faster(made: Report) -> None:
    """A drafter that is no candidate any more, and whose rounds take less than a token."""
    arm(OURS, role="reference")(made)
    each(OURS, times(0.6))(made)


def other_loop(name: str, by: float) -> Edit:
    """A drafter in a loop of another name, which is faster."""

    def edit(made: Report) -> None:
        for one in made["arms"]:
            if one["role"] == "candidate":
                one["loop"] = name
        for one in (OURS, LOOKUP):
            each(one, times(by))(made)

    return edit


def ticking(made: Report) -> None:
    """A clock that makes 24 million ticks a second."""
    for row in made["rows"]:
        for field in ("prefill_s", "decode_s", "seconds"):
            if field in row:
                row[field] = round(row[field] * 24e6) / 24e6
        if "e2e_s" in row:
            whole(row)


def without_caches(*names: str) -> Edit:
    """Fewer caches, configured so."""

    def edit(made: Report) -> None:
        for name in names:
            without_arm(name)(made)
        made["config"]["caches"] = [name for name in made["config"]["caches"] if name not in names]

    return edit


def effort(by: float) -> Edit:
    """A cache of another effort of the encoder."""
    name = "e8v@4.25:best"

    def edit(made: Report) -> None:
        called({E8: name})(made)
        arm(name, cache=name)(made)
        made["config"]["caches"] = [name if one == E8 else one for one in made["config"]["caches"]]
        each(name, scaled(sum_squared_error=by))(made)

    return edit


def named(name: str, **fields: Any) -> Edit:
    """A model of our own of that name, on a machine of that kind."""

    def edit(made: Report) -> None:
        own_model(made)
        made["config"]["model"] = name
        made["models"][0].update(id=name)
        made["identity"].update(fields)

    return edit


def on_a_gpu(name: str, parameters: int) -> Edit:
    """A large model on a graphics processor, with room for its weights."""

    def edit(made: Report) -> None:
        large_model(name, parameters)(made)
        APPLE(made)
        for row in made["rows"]:
            if "peak_bytes" in row["memory"]:
                row["memory"]["peak_bytes"] += 4 * parameters

    return edit


TIME: dict[str, Case] = {
    "a little of each tolerance of time": Case(BEN, all_of(each("native", times(1.05)), each("verify1", times(1.02)), each(LOOKUP, times(0.96)), each(LOOKUP, hidden(0.025)))),
    "the best repeats of the drafter and the worst of plain loops": Case(BEN, picked_everywhere),
    "repeats selected from more than are told": Case(BEN, selected(1)),
    "a drafter as a reference, with rounds shorter than a token": Case(BEN, reference_faster),
    "drafters in a loop of another name, twice as fast": Case(BEN, other_loop("engine.dflash.generate", 0.55)),
    "drafters in a part of the loop, a third faster": Case(ACC, other_loop("engine.dflash.stream_generate.fast", 0.66)),
    "a lookup in another runtime reads longer": Case(BEN, all_of(options(LOOKUP, runtime="mlx"), each(LOOKUP, moved(0.14)))),
    "decoding in pauses of a resumed run": Case(BEN, all_of(paused(LOOKUP, 0.3), lambda r: config(resumed_rows=len(r["rows"]) - 1)(r))),
    "more resumed rows than ran before": Case(BEN, all_of(each("native", times(1.3)), each("verify1", times(1.3)), lambda r: config(resumed_rows=len(r["rows"]))(r))),
    "the median prompt alone faster": Case(BEN, middle_prompt(0.7)),
    "a fortieth of every drafter's decoding counted nowhere": Case(BEN, all_of(each(LOOKUP, hidden(0.028)), each(OURS, hidden(0.028)))),
    "time hidden behind a long prefill": Case(BEN, each(LOOKUP, lambda row: row.update(prefill_s=80 * row["decode_s"], e2e_s=81.05 * row["decode_s"]))),
    "a tenth of every decoding counted nowhere": Case(NAT, each(None, hidden(0.09))),
    "a faster prefill of one drafter, a slower one of the baseline": Case(BEN, all_of(each(LOOKUP, times(0.8, "prefill_s")), each("native", times(1.2, "prefill_s")))),
    "a third of decoding counted as the pause before the row": Case(NAT, lambda r: [row.update(gap=row.get("pause", 0.003) + 0.3 * row["decode_s"]) or times(0.7)(row) for row in rows(r, "native")]),
    "decoding as prefill in the restored arms": Case(RES, each("restored e8v@4.25", moved(0.5))),
    "a token as slow as a longer pass allows": Case(VER, each(None, scaled(seconds=1.18), length=1)),
    "longer passes as fast as a token": Case(VER, all_of(each(None, scaled(seconds=0.97), length=2), each(None, scaled(seconds=0.73), length=4), each(None, scaled(seconds=0.57), length=8), each(None, scaled(seconds=0.45), length=16))),
    "passes over a context of 65,536 tokens": Case(VER, context(65536)),
    "passes over codes that were passes over the raw cache": Case(VER, over_cache("e8v@4.25")),
    "passes over a cache of no known format": Case(VER, over_cache("e1v@0.25")),
    "a speed-up over the reference": Case(BEN, claimed("decode_ratio", LOOKUP, "verify1", interval=[0.0, 0.0])),
}  # fmt: skip
ROUNDS: dict[str, Case] = {
    "the last round accepts all that it proposed": Case(ACC, each(OURS, last_round_whole)),
    "the last rounds of all drafters accept all": Case(ACC, all_of(*(each(one, last_round_whole) for one in (OURS, LOOKUP, "adaptive/auto")))),
    "two rounds of the drafter for one": Case(ACC, each(OURS, merged_pairs)),
    "adaptive drafts as good as the lookup's": Case(ACC, adaptive_as(LOOKUP)),
    "an adaptive drafter that proposes only what is right": Case(ACC, each("adaptive/auto", only_right_drafts)),
    "both drafters called by each other's names": Case(BEN, called({OURS: LOOKUP, LOOKUP: OURS})),
    "the drafter called the adaptive one": Case(ACC, called({OURS: "adaptive/auto", "adaptive/auto": OURS})),
    "names of both drafters exchanged in rows": Case(ACC, called({OURS: LOOKUP, LOOKUP: OURS}, "arm")),
    "no drafter of a model, with a reason": Case(ACC, all_of(without_arm(OURS), lambda r: r["config"]["left_out"].update({OURS: "the drafter has another vocabulary"}))),
    "another block of drafts": Case(ACC, all_of(options(block_size=16), config(block=16))),
}  # fmt: skip
BYTES: dict[str, Case] = {
    "room for twice as many positions in the raw caches alone": Case(REC, all_of(own_model, *(each(one, lambda row: resized(row, 2048)) for one in ("raw",)))),
    "room for twice as many positions in all but the codes": Case(REC, all_of(own_model, *(each(one, lambda row: resized(row, 2 * row["memory"]["layers"][0]["arrays"][0]["shape"][2])) for one in ("raw", "identity", "poison", "d4@q38", "e8@q38")))),
    "codes in the name of other codes": Case(KVQ, called({E8: AFFINE, AFFINE: E8})),
    "six bits in the name of four": Case(KVQ, called({E8: "e8v@6.25", "e8v@6.25": E8})),
    "a name that only looks like another": Case(KVQ, called({"e8v@6.25": "e8v@4.25 "})),
    "a code called by what it is not": Case(KVQ, called({AFFINE: "raw 4 bits"})),
    "half of the layers raw, of layers that are not there": Case(KVQ, all_of(options(raw_layers=[99]), codes(sum_squared_error=0.7, sum_kl=0.7))),
    "raw layers at both ends configured, and none told": Case(KVQ, all_of(config(boundary=1), options(boundary=1, raw_layers=None), codes(sum_squared_error=0.82, sum_kl=0.82))),
    "a saving over a lattice that is stored raw": Case(REC, claimed("memory_saving", E8, "d4@q38")),
    "recall of noise compared": Case(REC, claimed("recall_delta", E8, "poison")),
    "a cache of half precision under a model of half precision": Case(NAT, all_of(own_model, lambda r: r["models"][0].update(dtype="float16"), each(None, arrays(lambda a: a.update(dtype="float16"))))),
    "a quantized target": Case(NAT, all_of(own_model, lambda r: r["models"][0].update(quantization="affine@4g64"))),
}  # fmt: skip
QUALITY: dict[str, Case] = {
    "a finer effort with smaller errors": Case(KVQ, effort(0.8)),
    "a fiftieth of each bound of quality": Case(KVQ, all_of(each(E8, scaled(sum_squared_error=0.945, sum_kl=0.75)), each(AFFINE, scaled(sum_squared_error=1.02, sum_kl=1.2)))),
    "our code diverges less, with fewer changed tokens": Case(KVQ, all_of(each(E8, scaled(sum_kl=0.72)), each(E8, changed_less))),
    "a comparison with noise": Case(KVQ, claimed("kl_ratio", E8, "poison")),
    "a comparison with a coarser store": Case(KVQ, claimed("rel_mse_ratio", E8, "identity")),
    "a perplexity between the raw cache's and the code's": Case(KVQ, lambda r: [row.update(sum_nll=rows(r, "raw", row["prompt"])[0]["sum_nll"] - 0.01) for row in rows(r, E8)]),
    "errors within inflated standard errors": Case(CODEC, of("voronoi", rel_mse=0.8, rel_mse_stderr=2.5)),
    "affine codes that err more within inflated standard errors": Case(CODEC, of("affine", rel_mse=1.25, rel_mse_stderr=2.0)),
    "a better effort that errs a sixth less": Case(CODEC, all_of(config(effort="best"), of("voronoi", rel_mse=0.83))),
    "vectors of 96 values, with smaller errors": Case(CODEC, another_size(96, 0.8)),
    "vectors of 112 values, with smaller errors": Case(CODEC, another_size(112, 0.85)),
    "drawn vectors called captured ones": Case(CODEC, lambda r: (r["config"].update(model="tiny", text="text.txt"), [row.update(distribution={"gaussian": "keys 1", "t4": "keys 2", "outliers": "values 1"}[row["distribution"]]) for row in r["rows"]], of("voronoi", rel_mse=0.8)(r))),
    "lattices that err more on heavy tails": Case(CODEC, of("e8", "t4", "outliers", rel_mse=1.25)),
    "four times as many vectors": Case(CODEC, lambda r: (r["config"].update(n_vectors=256), [row.update(n_vectors=256) for row in r["rows"]])),
    "logits that are fifty times as near": Case(PAR, nearer(0.02)),
    "drafts that agree everywhere": Case(PAR, agreed),
    "drafts of half precision in the other half": Case(PAR, lambda r: (r["config"].update(half="float16"), [a.update(loop="engine.dflash float16", options={"dtype": "float16"}) for a in r["arms"] if a["role"] == "candidate"])),
}  # fmt: skip
RECALL: dict[str, Case] = {
    "the learned restorer answers as the raw cache": Case(RES, answers_of("restored learned", "raw")),
    "the coarse code answers as the raw cache": Case(RES, answers_of("restored e8v@2.25", "raw")),
    "the shuffled control answers as noise does": Case(RES, answers_of("shuffled", "evicted")),
    "words of the prompt as needles": Case(NAT, all_of(words_of_the_prompt, claimed("recall", "native", interval=[0.0, 1.0]))),
    "restored codes called by each other's names": Case(RES, called({"restored e8v@4.25": "restored e8v@2.25", "restored e8v@2.25": "restored e8v@4.25"})),
    "the evicted control called identity": Case(RES, called({"evicted": "identity", "identity": "evicted"})),
    "the learned restorer called a control": Case(RES, arm("restored learned", role="reference")),
    "a window of twice the size": Case(RES, config(window=128)),
}  # fmt: skip
IDENTITY: dict[str, Case] = {
    "the small model called a large one, of no told size": Case(BEN, large_model("Qwen/Qwen3-8B", None)),
    "the small model called a large one, of its size": Case(BEN, large_model("Qwen/Qwen3-8B", 8_190_735_360)),
    "passes of the small model called a large one's": Case(VER, large_model("meta-llama/Llama-3.3-70B-Instruct", 70_553_706_496)),
    "codes on the small model called a large one's": Case(KVQ, large_model("Qwen/Qwen3-8B", 8_190_735_360)),
    "needles in a model that looks like the bundled one": Case(REC, lambda r: (own_model(r), r["models"][0].update(id="tin\u0443"), r["config"].update(model="tin\u0443"))),
    "a model of an invisible name": Case(NAT, lambda r: (own_model(r), r["models"][0].update(id="tiny\u200b"))),
    "a chip that writes backwards": Case(NAT, lambda r: r["identity"].update(chip="AMD EPYC \u202e4M elppA")),
    "a model on two lines": Case(NAT, lambda r: (own_model(r), r["models"][0].update(id="our-model\nQwen/Qwen3-8B"))),
    "a machine on two lines": Case(NAT, lambda r: r["identity"].update(chip="AMD EPYC\r\nverdict: ACCEPTED")),
    "another runtime of the drafter": Case(BEN, options(OURS, runtime="torch 2.9 on cuda")),
    "a number of cores as a float": Case(NAT, lambda r: r["identity"].update(cores=2.0)),
    "times as whole numbers": Case(NAT, each(None, lambda row: row.update(prefill_s=1, decode_s=1, e2e_s=2))),
    "a bench of a run that was not told": Case(BEN, lambda r: (r["config"].update(resumed_rows=-1), each(LOOKUP, times(0.9))(r))),
}  # fmt: skip
SERVE: dict[str, Case] = {
    "eight clients that were two": Case(SERVED, more_clients(8)),
    "a lookup called the draft model": Case(SERVED, drafted_by("dflash")),
    "twice as many accepted drafts": Case(SERVED, served(accepted=2)),
    "half of the proposed drafts": Case(SERVED, served(proposed=0.5)),
    "four times as much of a prompt kept": Case(SERVED, lambda r: [row["counters"].update(cached_tokens=4 * row["counters"].get("cached_tokens", 0)) for row in r["rows"]]),
    "caches of another code": Case(SERVED, lambda r: (r["config"].update(cache="affine@4g64", caches=["raw", "affine@4g64"]), [row.update(cache="affine@4g64") for row in r["rows"] if row["cache"] != "raw"])),
    "fewer joint rounds than answers": Case(SERVED, lambda r: [row["counters"].update(joint_rounds=1) for row in r["rows"] if row["clients"] > 1]),
}  # fmt: skip
EDGES: dict[str, Case] = {
    **TIME,
    **ROUNDS,
    **BYTES,
    **QUALITY,
    **RECALL,
    **IDENTITY,
    **SERVE,
    **red_sliding.SLIDING,
}


TWINS: dict[str, Case] = {
    **{f"{name}, by a clock of ticks": Case(name, ticking) for name in (BEN, NAT, VER, REC)},
    **{f"{name}, on a quiet machine": Case(name, jitter(0.003, seed=2)) for name in (ACC, NAT, RES)},
    **{f"{name}, fifty times as slow": Case(name, all_of(faster(0.02), jitter(0.05, seed=6))) for name in (BEN, REC)},
    "vectors of 96 values": Case(CODEC, another_size(96, 0.975)),
    "vectors of 80 values": Case(CODEC, another_size(80, 0.94)),
    "a better effort on every vector": Case(CODEC, all_of(config(effort="best"), of("voronoi", rel_mse=0.96))),
    "all codes two per cent worse": Case(CODEC, all_of(*(of(name, rel_mse=1.02) for name in ("voronoi", "affine", "e8", "d4")))),
    "a cache of a better effort": Case(KVQ, effort(0.96)),
    "affine caches alone": Case(KVQ, without_caches("d4@q38", "e8@q38", "e8v@6.25", E8)),
    "a model of a name in another script": Case(NAT, named("/\u043c\u043e\u0434\u0435\u043b\u0438/\u65e5\u672c\u8a9emodel-v2", host="j\u00fcrgens-mac")),
    "a chip of several marks": Case(BEN, machine(chip="Intel(R) Xeon(R) Platinum 8488C \u2122")),
    "passes over an affine cache": Case(VER, over_cache("affine@4g64")),
    "a large model on a graphics processor": Case(NAT, on_a_gpu("Qwen/Qwen3-8B", 8_190_735_360)),
    "a mixture of experts": Case(VER, large_model("Qwen/Qwen3-30B-A3B", 30_532_122_624)),
    "drafts in float16": Case(PAR, all_of(nearer(0.1), lambda r: (r["config"].update(half="float16"), [a.update(loop="engine.dflash float16", options={"dtype": "float16"}) for a in r["arms"] if a["role"] == "candidate"]))),
    "an older engine's resumed rows": Case(BEN, lambda r: r["config"].pop("resumed_rows", None)),
    "more memory and cores": Case(KVQ, machine(cores=96, memory_bytes=1 << 40)),
    **red_sliding.TWINS,
}  # fmt: skip

BEYOND: dict[str, str] = {
    "the best repeats of the drafter and the worst of plain loops": "each repeat is plausible; the digests in the log bind the rows",
    "repeats selected from more than are told": "each repeat is plausible; the digests in the log bind the rows",
    "more resumed rows than ran before": "our own loop may be 1.4 times as fast on a small model",
    "the median prompt alone faster": "prompts may differ by so much",
    "decoding as prefill in the restored arms": "no claim is about time",
    "a token as slow as a longer pass allows": "a pass over one token may take a fifth longer",
    "longer passes as fast as a token": "longer passes may be free where memory decides",
    "passes over a context of 65,536 tokens": "no row shows the context; the job's argv binds it",
    "passes over codes that were passes over the raw cache": "no row shows the cache; the job's argv binds it",
    "adaptive drafts as good as the lookup's": "only the run knows its rounds",
    "an adaptive drafter that proposes only what is right": "only the run knows its rounds",
    "a saving over a lattice that is stored raw": "both caches hold so many bytes",
    "a cache of half precision under a model of half precision": "the gate knows only the bundled models",
    "a quantized target": "the gate knows only the bundled models",
    "a fiftieth of each bound of quality": "divergences differ by so much between codes of one error",
    "our code diverges less, with fewer changed tokens": "divergences differ by so much between codes of one error",
    "a perplexity between the raw cache's and the code's": "codes may change it so little by chance",
    "affine codes that err more within inflated standard errors": "within chance, for so few vectors",
    "a better effort that errs a sixth less": "within chance, for so few vectors",
    "drawn vectors called captured ones": "only the model knows its vectors",
    "lattices that err more on heavy tails": "within chance, for so few vectors",
    "logits that are fifty times as near": "only the two drafters know their logits",
    "drafts that agree everywhere": "only the two drafters know what they drafted",
    "drafts of half precision in the other half": "only the two drafters know their logits",
    "words of the prompt as needles": "any word may be a needle in prompts of our own",
    "codes on the small model called a large one's": "the gate knows only the bundled models",
    "eight clients that were two": "a small model may answer all questions alike",
    "twice as many accepted drafts": "only the server knows its rounds",
    "half of the proposed drafts": "only the server knows its rounds",
    "fewer joint rounds than answers": "only the server knows its rounds",
    **red_sliding.BEYOND,
}
