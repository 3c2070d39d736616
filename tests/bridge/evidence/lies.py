"""Reports that lie in one way each: what is done to an honest one, and the code that must be given for it.

`Lie.codes` is everything that the gate says. Where more than one code stands there, the first is the lie's own, and the
others follow from it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.bridge.evidence.reports import DEFINITION, END, FIRST_CODE, answer_of, model, text_of
from tests.bridge.evidence.reports import NEEDLES as CODES

Report = dict[str, Any]
Edit = Callable[[Report], object]

SPEC, ACCEPT, NATIVE = "kakeya.spec-bench", "kakeya.acceptance", "kakeya.native"
RECALL, RESTORED = "kakeya.recall", "kakeya.restored-prefill"
VERIFY, QUANT, PARITY, CODEC = "kakeya.verify-l", "kakeya.kv-quant", "kakeya.parity", "kakeya.codec-rd"
OLD = "k3_integrated_niah_acceptance_mac"


@dataclass(frozen=True)
class Lie:
    """`restate`: the claims are taken again after the edit, so that only the edit is wrong. No codes: it is honest."""

    kind: str
    edit: Edit
    codes: tuple[str, ...] = ()
    restate: bool = False


def put(*path: Any, to: Any) -> Edit:
    """Return an edit that replaces the value at a path."""

    def edit(report: Report) -> None:
        inner: Any = report
        for step in path[:-1]:
            inner = inner[step]
        inner[path[-1]] = to

    return edit


def drop(*path: Any) -> Edit:
    def edit(report: Report) -> None:
        inner: Any = report
        for step in path[:-1]:
            inner = inner[step]
        del inner[path[-1]]

    return edit


def each(arm: str | None, change: Callable[[Report], object], prompt: str | None = None) -> Edit:
    """Return an edit of all rows of an arm (on a prompt)."""

    def edit(report: Report) -> None:
        for row in report["rows"]:
            if arm in (None, row.get("arm")) and prompt in (None, row.get("prompt")):
                change(row)

    return edit


def without_rows(arm: str, prompt: str | None = None) -> Edit:
    def edit(report: Report) -> None:
        report["rows"] = [
            row for row in report["rows"] if row["arm"] != arm or prompt not in (None, row["prompt"])
        ]

    return edit


def only_claims(*names: str) -> Edit:
    def edit(report: Report) -> None:
        report["claims"] = [claim for claim in report["claims"] if claim["name"] in names]

    return edit


def without_claims(*names: str) -> Edit:
    def edit(report: Report) -> None:
        report["claims"] = [claim for claim in report["claims"] if claim["name"] not in names]

    return edit


def all_of(*edits: Edit) -> Edit:
    def edit(report: Report) -> None:
        for one in edits:
            one(report)

    return edit


def slower(times: float, field: str = "decode_s") -> Callable[[Report], None]:
    def change(row: Report) -> None:
        row["e2e_s"] += (times - 1) * row[field]
        row[field] *= times

    return change


def on_repeat(repeat: int, change: Callable[[Report], object]) -> Callable[[Report], object]:
    return lambda row: change(row) if row["repeat"] == repeat else None


def says(row: Report, *tokens: int) -> None:
    """Let a row put out other tokens, and their text."""
    row.update(tokens=[*tokens], text=text_of([*tokens]), decode_tokens=len(tokens) - 1)


def answering(first: int) -> Callable[[Report], None]:
    """Let a row's answer begin with another token."""
    return lambda row: says(row, *answer_of(first))


def looping(row: Report, unit: tuple[int, ...] = (7, 7, 3)) -> None:
    """The needle first, and then the same over and over: what a cache that ran ahead puts out."""
    over = list(unit) * 14
    says(row, row["tokens"][0], *(over[:40] if row["stop"] == "length" else [*over, END]))


def shorter(row: Report) -> None:
    slower(8 / row["decode_tokens"])(row)
    says(row, *row["tokens"][:8], END)
    row["stop"] = "eos"
    if "commits" in row:
        row.update(commits=[4] * 2, drafted=[7] * 2, accepted=[3] * 2)


def parted(at: int, token: int, **divergence: Any) -> Callable[[Report], None]:
    """Leave the oracle's tokens at an index."""

    def change(row: Report) -> None:
        plain = row["tokens"][at]
        says(row, *row["tokens"][:at], token, *row["tokens"][at + 1 :])
        if divergence:
            best = [[plain, 11.5], [token, divergence["low"]]]
            row["divergence"] = {"index": divergence["index"], "best": best}

    return change


def scaled_memory(share: float) -> Callable[[Report], None]:
    def change(row: Report) -> None:
        row["memory"]["cache_bytes"] = int(row["memory"]["cache_bytes"] * share)

    return change


def unlisted_layer(row: Report) -> None:
    row["memory"]["cache_bytes"] -= row["memory"]["layers"].pop()["nbytes"]


def widen(memory: Report) -> None:
    memory["cache_bytes"] *= 2
    for layer in memory["layers"]:
        layer["nbytes"] *= 2
        for array in layer["arrays"]:
            array["dtype"] = "float32"


def by_arm(report: Report) -> None:
    report["rows"].sort(key=lambda row: row.get("arm") or row["length"])


def one_clock(report: Report) -> None:
    """One run, written down as three."""
    seen: dict[Any, Report] = {}
    for row in report["rows"]:
        first = seen.setdefault((row["arm"], row["prompt"]), row)
        row.update({name: first[name] for name in ("prefill_s", "decode_s", "e2e_s")})


def second_baseline(report: Report) -> None:
    """A stock arm that is faster than the one which is beaten."""
    report["arms"].append({**report["arms"][0], "name": "mlx-lm compiled", "options": {"compiled": True}})
    rows = []
    for row in report["rows"]:
        rows.append(row)
        if row["arm"] == "mlx-lm":
            rows.append({**row, "arm": "mlx-lm compiled", "decode_s": row["decode_s"] / 1.2})
    report["rows"] = rows


def another_workload(suffix: str, *, declared: bool) -> Edit:
    """Prompts of another task that end as the code prompts do."""

    def edit(report: Report) -> None:
        texts = [p["text"] + suffix for p in report["prompts"]]
        told = report["workloads"]["code"] | ({"shared_suffix": suffix} if declared else {})
        report["workloads"] = {"code": told, "sums": {**told, "task": "maths"}}
        for i, (prompt, text) in enumerate(zip(report["prompts"], texts, strict=True)):
            retell(prompt, text)
            prompt["workload"] = "sums" if i % 2 else "code"

    return edit


def retell(prompt: Report, text: str) -> None:
    prompt["text"], prompt["sha256"] = text, "sha256:" + hashlib.sha256(text.encode()).hexdigest()


def suffixed(suffix: str, declared: str = "") -> Edit:
    def edit(report: Report) -> None:
        for prompt in report["prompts"]:
            retell(prompt, prompt["text"] + suffix)
        report["workloads"]["code"] = report["workloads"]["code"] | {"shared_suffix": declared}

    return edit


def answers(change: Callable[[str], str]) -> Edit:
    """Change what each prompt expects."""

    def edit(report: Report) -> None:
        for prompt in report["prompts"]:
            prompt["expected"] = change(prompt["expected"])

    return edit


def found(row: Report) -> None:
    """Every code of every prompt."""
    says(row, *range(FIRST_CODE, FIRST_CODE + len(CODES)), *answer_of(int(row["prompt"][-1]) + 200))


def width(arm: str, to: int) -> Edit:
    """Let a codec of the shoot-out store other bytes."""

    def change(row: Report) -> None:
        layer = row["memory"]["layers"][0]
        layer["arrays"] = [{"shape": [1, 2, 50, to], "dtype": "bfloat16"} for _ in layer["arrays"]]
        layer["nbytes"] = row["memory"]["cache_bytes"] = 400 * to

    return each(arm, change)


def heads_of_256(report: Report) -> None:
    """Larger heads, of which a Voronoi code stores 4.1875 bits a value."""
    for arm, to in (("raw", 256), ("affine", 72), ("e8", 67)):
        width(arm, to)(report)
    each(None, setting(n_values=51_200))(report)


def left_raw(*declared: int, counted: tuple[int, ...] = (0,)) -> Edit:
    """Let a cache leave layers as they are, and say so of some; `counted` are those whose arrays show it."""

    def change(row: Report) -> None:
        row["counters"] = {"injected_positions": row["counters"]["injected_positions"] // 2}
        for i in counted:
            arrays = [{"shape": [1, 2, 100, 64], "dtype": "bfloat16"}] * 2
            layer = {"kind": "KVCache", "nbytes": 51_200, "arrays": arrays}
            row["memory"]["cache_bytes"] += 51_200 - row["memory"]["layers"][i]["nbytes"]
            row["memory"]["layers"][i] = layer

    return all_of(each("e8", change), put("arms", 1, "options", to={"raw_layers": [*declared]}))


def doubled(row: Report) -> None:
    row["counters"]["injected_positions"] *= 2


def setting(**fields: Any) -> Callable[[Report], None]:
    return lambda row: row.update(fields)


def idle(row: Report) -> None:
    row.update(commits=[1] * 40, drafted=[0] * 40, accepted=[0] * 40)


def one_draft(row: Report) -> None:
    """A single draft, so that it can be said that drafts were made."""
    row.update(commits=[2] + [1] * 38, drafted=[1] + [0] * 38, accepted=[1] + [0] * 38)


def only_prompt(report: Report) -> None:
    report["prompts"] = report["prompts"][:1]
    report["rows"] = [row for row in report["rows"] if row["prompt"] == report["prompts"][0]["id"]]


def beside(arm: str, name: str, change: Callable[[Report], object], **about: Any) -> Edit:
    """Return an edit that adds an arm like another one, with rows of its own."""

    def edit(report: Report) -> None:
        report["arms"].append(
            {**next(one for one in report["arms"] if one["name"] == arm), "name": name, **about}
        )
        rows = []
        for row in report["rows"]:
            rows.append(row)
            if row["arm"] == arm:
                rows.append({**row, "arm": name, "e2e_s": row["e2e_s"] + 0.001})
                change(rows[-1])
        report["rows"] = rows

    return edit


def idle_arm(report: Report) -> None:
    """An arm that is described, and ran nowhere."""
    report["arms"].append({**report["arms"][0], "name": "idle", "role": "reference"})


def fewer(repeats: int) -> Edit:
    """Return an edit that leaves so many repeats, and says so."""

    def edit(report: Report) -> None:
        report["config"]["repeats"] = repeats
        report["rows"] = [row for row in report["rows"] if row["repeat"] < repeats]

    return edit


def claimed(arm: str, name: str) -> Edit:
    return lambda r: [claim.update(arm=name) for claim in r["claims"] if claim.get("arm") == arm]


def claimed_of(**where: Any) -> Edit:
    return lambda r: [claim.update(where=where) for claim in r["claims"]]


def moved_to_prefill(row: Report) -> None:
    row["prefill_s"] += 0.45
    row["decode_s"] -= 0.45


def smaller_cache(positions: int) -> Callable[[Report], None]:
    """Keep fewer positions, all of them listed as they are."""

    def change(row: Report) -> None:
        memory = row["memory"]
        for layer in memory["layers"]:
            layer["nbytes"] = layer["nbytes"] * positions // layer["arrays"][0]["shape"][2]
            for array in layer["arrays"]:
                array["shape"][2] = positions
        memory["cache_bytes"] = sum(layer["nbytes"] for layer in memory["layers"])

    return change


def rings(row: Report) -> None:
    """Call a row's caches rings, which keep the last positions alone."""
    for layer in row["memory"]["layers"]:
        layer["kind"] = "RotatingKVCache"


# The published lattice in place of the Voronoi code.
Q38 = all_of(put("arms", 2, "cache", to="e8@q38"), put("config", "caches", to=["affine@4g64", "e8@q38"]))
# As the published lattices do at their usual range.
ERRS_LESS = each("e8", setting(sum_squared_error=0.09, sum_kl=0.03, same_top=48))


def three_warm(report: Report) -> None:
    row = report["rows"][2]
    report["rows"][:0] = [
        {
            **row,
            "warmup": True,
            "repeat": i,
            "prefill_s": 0.3 + i / 7,
            "decode_s": 2.1 + i / 3,
            "e2e_s": 2.40003 + i / 7 + i / 3,
        }
        for i in range(3)
    ]


CLAIM = {
    "name": "decode_speedup",
    "arm": "dflash",
    "against": "mlx-lm",
    "value": 2.0,
    "definition": DEFINITION,
}

REPORTS = {
    "another kind": Lie(CODEC, put("kind", to="kakeya.bench"), ("UNKNOWN_KIND",)),
    "no kind": Lie(CODEC, drop("kind"), ("UNKNOWN_KIND",)),
    "a kind that is a list": Lie(CODEC, put("kind", to=["kakeya.codec-rd"]), ("UNKNOWN_KIND",)),
    "an older schema": Lie(CODEC, put("schema_version", to=2), ("UNKNOWN_SCHEMA",)),
    "a later schema": Lie(CODEC, put("schema_version", to=4), ("UNKNOWN_SCHEMA",)),
    "a schema as text": Lie(CODEC, put("schema_version", to="3"), ("UNKNOWN_SCHEMA",)),
    "true as a schema": Lie(OLD, put("schema_version", to=True), ("LEGACY_SCHEMA",)),
    "no schema": Lie(CODEC, drop("schema_version"), ("UNKNOWN_SCHEMA",)),
    "a headline beside the claims": Lie(SPEC, put("speedup", to=2.58), ("STRAY_FIELD",)),
    "a claim without a definition": Lie(SPEC, put("claims", 0, "definition", to=""), ("MALFORMED",)),
    "a claim of what is no field": Lie(SPEC, put("claims", 0, "where", to={"lucky": True}), ("MALFORMED",)),
    **{
        f"no {name}": Lie(CODEC, drop("identity", name), ("PROVENANCE_MISSING",))
        for name in ("host", "os", "chip", "device", "versions", "blas", "code", "load", "modified")
    },
    **{
        f"an empty {name}": Lie(CODEC, put("identity", name, to=""), ("PROVENANCE_MISSING",))
        for name in ("host", "os", "chip", "device", "versions", "blas", "code")
    },
    "no digest of the code": Lie(CODEC, drop("identity", "code", "digest"), ("PROVENANCE_MISSING",)),
    "a commit, dirty or not": Lie(CODEC, put("identity", "code", "commit", to="a" * 40), ("PROVENANCE_MISSING",)),
    "no identity": Lie(CODEC, drop("identity"), ("PROVENANCE_MISSING",)),
    "no config": Lie(CODEC, drop("config"), ("PROVENANCE_MISSING",)),
    "no seed": Lie(SPEC, drop("config", "seed"), ("PROVENANCE_MISSING",)),
    "no time": Lie(CODEC, drop("created_at"), ("PROVENANCE_MISSING",)),
    "no digest of the weights": Lie(SPEC, drop("models", 0, "weights"), ("PROVENANCE_MISSING",)),
    "no digest of the tokenizer": Lie(SPEC, drop("models", 0, "tokenizer"), ("PROVENANCE_MISSING",)),
    "drafters without the weights of the draft": Lie(
        PARITY, lambda r: r["models"].pop(), ("PROVENANCE_MISSING",)
    ),
    "drafts of a model that is not named": Lie(
        SPEC, each("dflash", setting(counters={"rounds_dflash": 10})), ("PROVENANCE_MISSING",)
    ),
    "a draft without its target": Lie(VERIFY, put("models", 0, "role", to="draft"), ("PROVENANCE_MISSING",)),
    "no rows": Lie(CODEC, drop("rows"), ("NO_ROWS",)),
    "an empty list of rows": Lie(CODEC, put("rows", to=[]), ("NO_ROWS",)),
    "rows as an object": Lie(CODEC, put("rows", to={}), ("NO_ROWS",)),
    "a row that is no object": Lie(CODEC, put("rows", 0, to=7), ("BAD_ROW",)),
    "a time that is none": Lie(SPEC, put("rows", 0, "prefill_s", to=0.0), ("BAD_ROW",)),
    "rows of an arm that is not described": Lie(
        NATIVE, put("rows", 0, "arm", to="another"), ("DANGLING_NAME", "SINGLE_RUN"), restate=True
    ),
    "a workload that is not described": Lie(SPEC, put("prompts", 0, "workload", to="another"), ("DANGLING_NAME",)),
    "a prompt that is not described": Lie(PARITY, drop("prompts", 0), ("DANGLING_NAME",)),
    "an arm that is described twice": Lie(
        SPEC, lambda r: r["arms"].append(r["arms"][1] | {"patches": []}), ("DANGLING_NAME",)
    ),
    "an arm claimed of that did not run": Lie(SPEC, put("claims", 3, "against", to="mlx"), ("DANGLING_NAME",)),
}  # fmt: skip

ROWS = {
    "tokens that were not put out": Lie(
        SPEC, each("dflash", setting(decode_tokens=80)), ("ROW_CONTRADICTS",), restate=True
    ),
    "prefill that is left out of the whole": Lie(
        SPEC, each("dflash", lambda row: row.update(e2e_s=row["decode_s"])), ("ROW_CONTRADICTS",), restate=True
    ),
    "more tokens than were allowed": Lie(SPEC, put("config", "max_tokens", to=40), ("ROW_CONTRADICTS",)),
    "more drafts accepted than proposed": Lie(
        SPEC, each("dflash", setting(accepted=[8] * 10)), ("ROW_CONTRADICTS",), restate=True
    ),
    "rounds that commit less than was put out": Lie(
        SPEC, each("dflash", setting(commits=[3] * 10)), ("ROW_CONTRADICTS",), restate=True
    ),
    "rounds that commit more than was accepted": Lie(
        SPEC, each("dflash", setting(accepted=[2] * 10)), ("ROW_CONTRADICTS",), restate=True
    ),
    "rounds that are counted in part": Lie(
        SPEC, all_of(each("one-pass", setting(commits=[1])), only_claims()), ("ROW_CONTRADICTS",)
    ),
    "rounds that are not counted alike": Lie(
        SPEC, each("dflash", setting(drafted=[7] * 9)), ("ROW_CONTRADICTS",), restate=True
    ),
    "rows that took longer than the run": Lie(SPEC, put("seconds", to=5.0), ("ROW_CONTRADICTS",)),
    "passes that took longer than the run": Lie(VERIFY, put("seconds", to=0.5), ("ROW_CONTRADICTS",)),
    "noise whose text alone is other": Lie(
        RECALL,
        lambda r: [noise.update(tokens=plain["tokens"], decode_tokens=8)
                   for plain, noise in zip(r["rows"][::4], r["rows"][3::4], strict=True)],
        ("ROW_CONTRADICTS",),
    ),
    "a code measured twice": Lie(
        CODEC, lambda r: r["rows"].append(r["rows"][0] | {"rel_mse": 0.15}), ("ROW_REPEATED",)
    ),
    "slow runs called warm-up": Lie(
        SPEC,
        three_warm, ("ROWS_SET_ASIDE",), restate=True,
    ),
    "a codec measured on louder values": Lie(
        QUANT, each("e8", lambda row: row.update(sum_squares=2 * row["sum_squares"])), ("ROW_CONTRADICTS",),
        restate=True,
    ),
    "more equal tokens than there were": Lie(
        QUANT, each("e8", setting(same_top=51)), ("ROW_CONTRADICTS",), restate=True
    ),
    "codecs that stand for other values": Lie(
        QUANT, each("e8", setting(n_values=12_900)), ("ROW_CONTRADICTS", "RATE_OMITS_SIDE_INFORMATION"), restate=True
    ),
    "drafts that are cut where they differ": Lie(
        PARITY, put("rows", 0, "candidate", to=[]),
        ("ROW_CONTRADICTS",), restate=True,
    ),
    "one run written down as three": Lie(SPEC, one_clock, ("ROW_REPEATED",), restate=True),
    "a row that stands there twice": Lie(
        ACCEPT, lambda r: r["rows"].append(r["rows"][-1] | {"prefill_s": 0.21, "e2e_s": 9.0}), ("ROW_REPEATED",)
    ),
    "a codec scored twice": Lie(QUANT, lambda r: r["rows"].append(r["rows"][-3]), ("ROW_REPEATED",), restate=True),
    "a draft that stands there twice": Lie(PARITY, lambda r: r["rows"].append(r["rows"][-1]), ("ROW_REPEATED",)),
    "a pass that stands there twice": Lie(
        VERIFY, lambda r: r["rows"].append(r["rows"][-1] | {"seconds": 0.1431}), ("ROW_REPEATED",), restate=True
    ),
    "blocks of one cache beside single tokens of another": Lie(
        VERIFY, each(None, lambda row: row["length"] == 1 and row.update(cache="e8@q38")), ("ROW_CONTRADICTS",)
    ),
    "passes over a cache that is not named": Lie(VERIFY, each(None, drop("cache")), ("BAD_ROW",)),
    "values that the raw cache does not hold": Lie(
        QUANT, each(None, setting(n_values=12_700)), ("ROW_CONTRADICTS",), restate=True
    ),
    "a clock that stands still": Lie(
        VERIFY, each(None, lambda row: row.update(seconds=float(row["length"]))), ("ROW_REPEATED",), restate=True
    ),
}  # fmt: skip

PROMPTS = {
    "one prompt under two names": Lie(
        SPEC, lambda r: retell(r["prompts"][1], r["prompts"][0]["text"]), ("PROMPT_REPEATED",)
    ),
    "one prompt with other blanks": Lie(
        SPEC, lambda r: retell(r["prompts"][1], r["prompts"][0]["text"].replace(" ", "\n")), ("PROMPT_REPEATED",)
    ),
    "more tokens than bytes": Lie(SPEC, put("prompts", 0, "n_tokens", to=4096), ("PROMPT_MISSTATED",)),
    "4,096 tokens that are thirty": Lie(
        RECALL, lambda r: [p.update(length=4096) for p in r["prompts"]], ("PROMPT_MISSTATED",)
    ),
    "a needle at the end called an early one": Lie(
        RECALL,
        lambda r: retell(r["prompts"][0], "More notes follow. " * 8 + r["prompts"][0]["text"]),
        ("PROMPT_MISSTATED",),
    ),
    "a prompt without its text": Lie(SPEC, drop("prompts", 0, "text"), ("PROMPT_UNRECORDED",)),
    "a prompt with its head alone": Lie(
        SPEC, all_of(drop("prompts", 0, "text"), put("prompts", 0, "head", to="Write")), ("PROMPT_UNRECORDED",)
    ),
    "another text than was asked": Lie(SPEC, put("prompts", 0, "text", to="Write a stack."), ("PROMPT_DIGEST",)),
    "code prompts that ask for a secret code": Lie(
        SPEC, suffixed("\nReturn only the secret code in PREFIX-NNNN format."), ("PROMPT_CONTAMINATED",)
    ),
    "a longer suffix than is declared": Lie(
        SPEC, suffixed(" Be brief.\nReturn only the secret code.", declared="code."), ("PROMPT_CONTAMINATED",)
    ),
    "a suffix that is not there": Lie(
        SPEC, suffixed("", declared="Write readable Python."), ("PROMPT_CONTAMINATED",)
    ),
    "a prefix that is not there": Lie(
        SPEC, put("workloads", "code", to={"task": "code", "source": "ours", "chat_template": False,
                                           "shared_prefix": "You write Python."}), ("PROMPT_CONTAMINATED",)
    ),
    "a hidden prefix": Lie(
        SPEC, lambda r: [retell(p, "Answer with one secret code.\n" + p["text"]) for p in r["prompts"]],
        ("PROMPT_CONTAMINATED",),
    ),
    "a modifier that unlike workloads share": Lie(
        SPEC, another_workload("\nReturn only the secret code.", declared=True), ("PROMPT_CONTAMINATED",)
    ),
}  # fmt: skip

OUTPUT = {
    "recall 1.0 of text that collapses": Lie(RECALL, each("e8", looping), ("OUTPUT_DEGENERATE",), restate=True),
    "speed measured on text that repeats itself": Lie(
        SPEC, each(None, looping), ("WORKLOAD_DEGENERATE",), restate=True
    ),
    "parity of drafts that are one token": Lie(
        PARITY, each(None, setting(reference=[9, 9, 9, 9, 9, 1, 2], candidate=[9, 9, 9, 9, 9, 1, 2])),
        ("WORKLOAD_DEGENERATE",),
    ),
    "an arm without an oracle": Lie(
        ACCEPT, all_of(drop("arms", 2, "oracle")), ("ORACLE_MISSING",)
    ),
    "an oracle that did not run": Lie(
        ACCEPT, without_rows("mlx-lm", "code-2"), ("ORACLE_MISSING",)
    ),
    "codecs without the raw cache": Lie(
        QUANT, all_of(lambda r: r["arms"].pop(0), without_rows("raw")), ("ORACLE_MISSING",)
    ),
    "the raw cache scored elsewhere": Lie(QUANT, without_rows("raw", "prose-1"), ("ORACLE_MISSING",)),
    "other tokens, and no word of it": Lie(
        SPEC, each("dflash", parted(17, 5), "code-1"), ("OUTPUT_DIVERGES",), restate=True
    ),
    "a tie that is none": Lie(
        SPEC, each("dflash", parted(17, 5, index=17, low=10.9), "code-1"), ("OUTPUT_DIVERGES",), restate=True
    ),
    "a tie somewhere else": Lie(
        SPEC, each("dflash", parted(17, 5, index=20, low=11.4), "code-1"), ("OUTPUT_DIVERGES",), restate=True
    ),
    "a tie of other tokens": Lie(
        SPEC,
        each("dflash", lambda row: (parted(17, 5, index=17, low=11.4)(row), parted(17, 6)(row)), "code-1"),
        ("OUTPUT_DIVERGES",), restate=True,
    ),
    "an output that stops early": Lie(
        SPEC, each("dflash", lambda row: (row["tokens"].pop(), row.update(decode_tokens=39)), "code-1"),
        ("OUTPUT_DIVERGES",), restate=True,
    ),
    "an output that stops early, explained": Lie(
        SPEC,
        each("dflash", lambda row: (
            row["tokens"].pop(),
            row.update(decode_tokens=39, divergence={"index": 40, "best": [[1, 2.0], [2, 2.0]]}),
        ), "code-1"),
        ("OUTPUT_DIVERGES",), restate=True,
    ),
    "an arm that is its own oracle": Lie(
        SPEC, all_of(put("arms", 2, "oracle", to="dflash"), each("dflash", parted(17, 5))), ("ORACLE_UNFIT",)
    ),
    "an oracle that drafts too": Lie(
        SPEC, all_of(each("one-pass", setting(commits=[4] * 10, drafted=[7] * 10, accepted=[3] * 10)),
                     put("arms", 2, "oracle", to="one-pass")),
        ("ORACLE_UNFIT",),
    ),
    "an oracle of our own making": Lie(SPEC, put("arms", 2, "oracle", to="one-pass"), ("ORACLE_UNFIT",)),
    "other tokens of a reference that is said to be faster": Lie(
        SPEC, all_of(beside("dflash", "dflash too", parted(17, 5), role="reference"), claimed("dflash", "dflash too")),
        ("OUTPUT_DIVERGES",), restate=True,
    ),
    "an oracle with another cache": Lie(SPEC, put("arms", 2, "cache", to="e8v@4.25"), ("ORACLE_UNFIT",)),
    "speed at a temperature": Lie(SPEC, put("config", "temperature", to=0.7), ("NOT_GREEDY",)),
}  # fmt: skip

SPEED = {
    "an arm and itself": Lie(
        SPEC, put("arms", 2, "loop", to="mlx_lm.generate_step"), ("SPEEDUP_SELF_COMPARISON",)
    ),
    "one implementation against itself": Lie(
        PARITY, put("arms", 1, "loop", to="dflash"),
        ("SPEEDUP_SELF_COMPARISON",),
    ),
    "two candidates and no reference": Lie(
        PARITY, put("arms", 0, "role", to="candidate"), ("SPEEDUP_SELF_COMPARISON",)
    ),
    "three rows": Lie(
        SPEC, all_of(only_prompt, claimed_of(prompt="code-0")), ("SPEEDUP_SAMPLES",), restate=True
    ),
    "three passes": Lie(
        VERIFY, fewer(3), ("SPEEDUP_SAMPLES",),
        restate=True,
    ),
    "one prompt for a workload": Lie(
        RECALL, all_of(only_claims("recall_delta"), only_prompt, put("config", "samples", to=1)), ("SINGLE_PROMPT",),
        restate=True,
    ),
    "the workload on which it wins": Lie(
        SPEC, all_of(another_workload(" (in Python)", declared=True), claimed_of(workload="code")), ("CHERRY_PICKED",),
        restate=True,
    ),
    "faster than its rounds": Lie(SPEC, each("dflash", one_draft), ("SPEEDUP_IMPOSSIBLE",), restate=True),
    "decoding that is hidden in prefill": Lie(
        SPEC, each("dflash", moved_to_prefill), ("TIME_MISPLACED",), restate=True
    ),
    "a faster stock loop called a reference": Lie(
        SPEC, all_of(second_baseline, put("arms", 3, "role", to="reference")), ("SLOW_ORACLE",), restate=True
    ),
    "a baseline at half its pace": Lie(NATIVE, each("mlx-lm", slower(2)), ("SLOW_ORACLE",), restate=True),
    "single passes at a quarter of their pace": Lie(
        NATIVE, each("one-pass", slower(4)), ("CLOCK_IMPLAUSIBLE",), restate=True
    ),
    "single tokens that are held back": Lie(
        VERIFY, each(None, lambda row: row.update(seconds=row["seconds"] * (3 if row["length"] == 1 else 1))),
        ("SLOW_ORACLE",), restate=True,
    ),
    "two repeats": Lie(
        SPEC, fewer(2), ("SINGLE_RUN",), restate=True
    ),
    "eight tokens": Lie(SPEC, each(None, shorter), ("SPEEDUP_DECODE_TOKENS",), restate=True),
    "only the quotient with prefill": Lie(
        SPEC, without_claims("decode_speedup"), ("SPEEDUP_DECODE_ONLY_MISSING",)
    ),
    "the hard prompt left out": Lie(
        SPEC, without_rows("dflash", "code-3"), ("SPEEDUP_SCOPE_MISMATCH",), restate=True
    ),
    "a baseline that is evaluated token by token": Lie(
        SPEC, put("arms", 0, "loop", to="engine.per_token_eval"), ("SPEEDUP_ORACLE_LOOP", "ORACLE_UNFIT")
    ),
    "a slow package instead of the baseline": Lie(
        SPEC, put("arms", 0, "role", to="reference"), ("SPEEDUP_ORACLE_LOOP",)
    ),
    "a baseline with a cache that slows it": Lie(
        SPEC, lambda r: [arm.update(cache="e8v@4.25") for arm in r["arms"]], ("SPEEDUP_ORACLE_LOOP",)
    ),
    "drafting that is timed nowhere": Lie(
        SPEC, each("dflash", lambda row: row.update(decode_s=row["decode_s"] / 2)), ("TIME_HIDDEN",), restate=True
    ),
    "a quotient of times without its spread": Lie(SPEC, drop("claims", 0, "interval"), ("INTERVAL_MISSING",)),
    "prefill four times as long": Lie(
        SPEC, each("mlx-lm", on_repeat(1, slower(4.1, "prefill_s"))), ("SPEEDUP_PREFILL_VARIANCE",), restate=True
    ),
    "identical decoding three times as long": Lie(
        SPEC, each("mlx-lm", on_repeat(1, slower(3.8))), ("DECODE_SPREAD",), restate=True
    ),
    "two of five passes three times as long": Lie(
        VERIFY, all_of(*(put("rows", row, "seconds", to=0.3 + row / 1e3) for row in (5, 13))), ("DECODE_SPREAD",),
        restate=True,
    ),
    "one arm after the other": Lie(SPEC, by_arm, ("NOT_INTERLEAVED",)),
    "one length after the other": Lie(VERIFY, by_arm, ("NOT_INTERLEAVED",)),
    "a baseline with a patched attention": Lie(
        SPEC, put("arms", 0, "patches", to=["mlx_lm.models.base.scaled_dot_product_attention"]), ("PATCHED_ORACLE",)
    ),
    "a library that was changed": Lie(
        VERIFY, put("identity", "modified", to=["mlx_lm/generate.py"]),
        ("PATCHED_ORACLE",),
    ),
    "2.18 times a slow oracle": Lie(SPEC, all_of(each("dflash", slower(25 / 11)), each("mlx-lm", slower(25 / 10.18))),
                                    ("SLOW_ORACLE",), restate=True),
    "a faster baseline passed over": Lie(SPEC, second_baseline, ("SLOW_ORACLE",), restate=True),
    "a baseline that nothing checks": Lie(SPEC, without_rows("one-pass"), ("ORACLE_UNCHECKED",), restate=True),
    "speculation that is not counted": Lie(
        SPEC,
        all_of(
            each("dflash", lambda row: [row.pop(name) for name in ("commits", "drafted", "accepted")]),
            without_claims("accept_length", "accept_rate"),
        ),
        ("LIVENESS_MISSING",),
    ),
    "acceptance of an arm that does not draft": Lie(
        SPEC, put("claims", 6, "arm", to="mlx-lm"), ("LIVENESS_MISSING", "CLAIM_NOT_FROM_ROWS")
    ),
    "plain decoding under another name": Lie(
        SPEC,
        all_of(
            each("dflash", setting(commits=[1] * 40, drafted=[0] * 40, accepted=[0] * 40)),
            without_claims("accept_length", "accept_rate"),
        ),
        ("FUSED_NEVER_RAN",),
    ),
    "nothing but baselines": Lie(SPEC, put("arms", 2, "role", to="reference"), ("BASELINE_AS_SUT",)),
    "a candidate in a native report": Lie(NATIVE, put("arms", 1, "role", to="candidate"), ("BASELINE_AS_SUT",)),
}  # fmt: skip

BYTES = {
    "bytes of a formula": Lie(
        SPEC, each("dflash", lambda row: row.pop("memory")), ("MEMORY_NOT_LIVE", "CLAIM_NOT_FROM_ROWS")
    ),
    "89.8 % of bytes that are there": Lie(
        SPEC, each("dflash", scaled_memory(0.102)), ("MEMORY_CLAIM_MISMATCH",), restate=True
    ),
    "a saving over numbers twice as wide as the model's": Lie(
        SPEC,
        all_of(
            put("models", 0, "dtype", to="bfloat16"),
            each("mlx-lm", lambda row: widen(row["memory"])),
        ),
        ("MEMORY_CLAIM_MISMATCH",), restate=True,
    ),
    "a layer that is not listed": Lie(SPEC, each("dflash", unlisted_layer), ("MEMORY_CLAIM_MISMATCH",), restate=True),
    "half of the positions": Lie(SPEC, each("dflash", smaller_cache(20)), ("MEMORY_CLAIM_MISMATCH",), restate=True),
    "positions in fewer bits than the codec's": Lie(
        RECALL, each("e8", smaller_cache(10)), ("MEMORY_CLAIM_MISMATCH",), restate=True
    ),
    "a codec that errs nowhere": Lie(
        QUANT, each("e8", setting(sum_squared_error=0.0)), ("INJECTION_NEVER_RAN",), restate=True
    ),
    "arrays that hold more than is counted": Lie(
        QUANT, each("e8", lambda row: row["memory"]["layers"][0]["arrays"].append({"shape": [64], "dtype": "uint8"})),
        ("MEMORY_CLAIM_MISMATCH",),
    ),
    "a shoot-out without scales and biases": Lie(
        QUANT, width("affine", 16),
        ("RATE_OMITS_SIDE_INFORMATION", "EQUAL_Q_NOT_EQUAL_RATE"), restate=True,
    ),
    "bits below what the codec's name says": Lie(
        QUANT, width("e8", 16),
        ("RATE_OMITS_SIDE_INFORMATION",), restate=True,
    ),
    "bits of larger heads than there are": Lie(QUANT, width("e8", 17), ("RATE_OMITS_SIDE_INFORMATION",), restate=True),
    "too few bits behind another name of the codec": Lie(
        QUANT, all_of(width("e8", 17), put("arms", 2, "cache", to="e8v@4.25:fast")), ("RATE_OMITS_SIDE_INFORMATION",),
        restate=True,
    ),
    "a lattice below its points": Lie(
        QUANT,
        all_of(width("e8", 26), Q38, without_claims("rel_mse_ratio", "kl_ratio")),
        ("RATE_OMITS_SIDE_INFORMATION",), restate=True,
    ),
    "a codec that nobody knows": Lie(
        QUANT, all_of(width("e8", 4), put("arms", 2, "cache", to="miracle@1")), ("RATE_OMITS_SIDE_INFORMATION",),
        restate=True,
    ),
    "equal Q sold as equal rate": Lie(
        QUANT, all_of(width("e8", 28), Q38, ERRS_LESS), ("EQUAL_Q_NOT_EQUAL_RATE",),
        restate=True,
    ),
    "a raw cache that errs": Lie(
        QUANT, each("raw", setting(sum_squared_error=0.1)), ("IDENTITY_BROKEN",), restate=True
    ),
    "an error that nothing reads": Lie(
        QUANT, each("affine", setting(sum_kl=0.0)),
        ("INJECTION_NEVER_RAN", "CLAIM_NOT_FROM_ROWS"),
    ),
}  # fmt: skip

CODECS = {
    "an error as text": Lie(CODEC, put("rows", 0, "rel_mse", to="0.1"), ("BAD_ROW",)),
    "a negative error": Lie(CODEC, put("rows", 0, "rel_mse", to=-0.1), ("BAD_ROW",)),
    "true as an error": Lie(CODEC, put("rows", 0, "rel_mse", to=True), ("BAD_ROW",)),
    "an error beyond all measure": Lie(CODEC, put("rows", 0, "rel_mse", to=10**400), ("BAD_ROW",)),
    "an error that is no number": Lie(CODEC, put("rows", 0, "rel_mse", to=float("nan")), ("BAD_ROW",)),
    "an infinite rate": Lie(CODEC, put("rows", 0, "stored_bits_per_value", to=float("inf")), ("BAD_ROW",)),
    "affine without bits": Lie(CODEC, put("rows", 0, "bits", to=None), ("BAD_ROW",)),
    "affine with a group of none": Lie(CODEC, put("rows", 0, "group", to=0), ("BAD_ROW",)),
    "less error than is possible": Lie(
        CODEC,
        lambda r: r["rows"][0].update(rel_mse=0.001, rel_mse_stderr=0.0001),
        ("RATE_IMPOSSIBLE", "QUALITY_IMPOSSIBLE"),
    ),
    "a spread that hides it": Lie(
        CODEC, lambda r: r["rows"][0].update(rel_mse=0.001, rel_mse_stderr=0.5), ("SPREAD_IMPOSSIBLE",)
    ),
    "a spread wider than the mean": Lie(CODEC, put("rows", 0, "rel_mse_stderr", to=0.2), ("SPREAD_IMPOSSIBLE",)),
    "a mean of nothing": Lie(CODEC, put("rows", 0, "n_vectors", to=0), ("SPREAD_IMPOSSIBLE",)),
    "bits without scale and bias": Lie(
        CODEC, lambda r: r["rows"][0].update(stored_bits_per_value=2.0, limit=2**-4.0), ("RATE_OMITS_SIDE_INFORMATION",)
    ),
    "Voronoi without its bits": Lie(CODEC, lambda r: r["rows"][0].update(codec="voronoi", bits=None), ("BAD_ROW",)),
    "Voronoi without its scale": Lie(
        CODEC, lambda r: r["rows"][0].update(codec="voronoi", dim=64, stored_bits_per_value=2.25, limit=2**-4.5),
        ("RATE_OMITS_SIDE_INFORMATION",),
    ),
    "a lattice without its two halves": Lie(
        CODEC, lambda r: r["rows"][0].update(codec="e8 Q1", dim=64, stored_bits_per_value=1.625, limit=2**-3.25),
        ("RATE_OMITS_SIDE_INFORMATION",),
    ),
    "half precision for nothing": Lie(
        CODEC, lambda r: r["rows"][0].update(codec="raw", stored_bits_per_value=8.0, limit=2**-16.0),
        ("RATE_OMITS_SIDE_INFORMATION",),
    ),
    "a code that nobody knows": Lie(
        CODEC, lambda r: r["rows"][1].update(codec="miracle", stored_bits_per_value=1.0, limit=2**-2.0),
        ("RATE_OMITS_SIDE_INFORMATION",),
    ),
    "a limit that makes it look better": Lie(CODEC, put("rows", 0, "limit", to=0.15), ("LIMIT_WRONG",)),
    "a claim of what has no name": Lie(CODEC, put("claims", to=[CLAIM]), ("UNNAMED_CLAIM",)),
}  # fmt: skip

NEEDLES = {
    "answers that anything holds": Lie(RECALL, answers(lambda code: code[:2]), ("RECALL_VACUOUS",), restate=True),
    "code prompts without an answer": Lie(
        RECALL, all_of(answers(lambda _: ""), only_claims("recall")), ("RECALL_VACUOUS", "CLAIM_NOT_FROM_ROWS")
    ),
    "an answer that the question gives away": Lie(
        RECALL, all_of(put("prompts", 0, "expected", to="secret code"), put("rows", 1, "text", to="the secret code"),
                       put("rows", 0, "text", to="a secret code"), put("rows", 2, "text", to="a secret code")),
        ("RECALL_VACUOUS",), restate=True,
    ),
    "an answer that stands nowhere": Lie(
        RECALL, all_of(put("prompts", 0, "expected", to="FIR-1111"), put("rows", 1, "text", to="FIR-1111"),
                       put("rows", 0, "text", to="FIR-1111"), put("rows", 2, "text", to="FIR-1111")),
        ("RECALL_VACUOUS",), restate=True,
    ),
    "the same answer to all": Lie(
        RECALL,
        all_of(
            lambda r: [retell(p, p["text"].replace(p["expected"], "PINE-4821")) for p in r["prompts"]],
            answers(lambda _: "PINE-4821"),
            *(each(arm, setting(text="PINE-4821")) for arm in ("e8", "mlx-lm", "same")),
        ),
        ("RECALL_VACUOUS",), restate=True,
    ),
    "an answer that lists every code": Lie(RECALL, each("e8", found), ("RECALL_VACUOUS",), restate=True),
    "the native cache called a reference": Lie(
        RECALL,
        all_of(beside("e8", "e8 too", setting(counters={"injected_positions": 0}), role="reference"),
               claimed("e8", "e8 too")),
        ("INJECTION_NEVER_RAN",), restate=True,
    ),
    "the needle that was not found left out": Lie(
        RECALL, all_of(without_claims("recall_delta", "memory_saving"), without_rows("e8", "needle-0")),
        ("RECALL_SCOPE", "NOT_COVERED"), restate=True,
    ),
    "five of six without an interval": Lie(RECALL, drop("claims", 0, "interval"), ("INTERVAL_MISSING",)),
    "an interval that is too narrow": Lie(
        RECALL, put("claims", 0, "interval", to=[0.9, 1.0]),
        ("CLAIM_NOT_FROM_ROWS",),
    ),
    "no noise": Lie(RECALL, without_rows("noise"), ("POISON_MISSING",)),
    "noise on one prompt": Lie(
        RECALL, lambda r: [without_rows("noise", f"needle-{i}")(r) for i in range(5)], ("POISON_MISSING",)
    ),
    "noise that changes nothing": Lie(RECALL, each("noise", found), ("POISON_SURVIVES",)),
    "no identity": Lie(RECALL, without_rows("same"), ("IDENTITY_MISSING",)),
    "an identity that is none": Lie(RECALL, each("same", parted(3, 5), "needle-2"), ("IDENTITY_BROKEN",)),
    "an identity without an oracle": Lie(RECALL, drop("arms", 2, "oracle"), ("IDENTITY_BROKEN",)),
    "a model that needs nothing put back": Lie(RESTORED, each("nothing", found), ("EVICTED_SURVIVES",)),
    "nobody looked whether it does": Lie(RESTORED, without_rows("nothing"), ("EVICTED_MISSING",)),
    "an injection that is not counted": Lie(RECALL, each("e8", drop("counters")), ("LIVENESS_MISSING",)),
    "an injection that never ran": Lie(
        RESTORED, each("e8", setting(counters={"injected_positions": 0})), ("INJECTION_NEVER_RAN",)
    ),
    "one position in place, for show": Lie(
        RECALL, each("e8", setting(counters={"injected_positions": 1})), ("INJECTION_NEVER_RAN",)
    ),
    "half of the layers left raw, and no word of it": Lie(RECALL, left_raw(), ("INJECTION_NEVER_RAN",), restate=True),
    "layers left raw, and positions counted for them": Lie(
        RECALL, all_of(left_raw(), each("e8", doubled)),
        ("INJECTION_NEVER_RAN",), restate=True,
    ),
    "more layers said to be raw than there are": Lie(
        RECALL, left_raw(0, 1), ("INJECTION_NEVER_RAN",), restate=True
    ),
    "layers said to be raw that are not": Lie(
        RECALL, left_raw(0, counted=()), ("INJECTION_NEVER_RAN",), restate=True
    ),
    "all layers left raw, and told": Lie(
        RECALL,
        all_of(left_raw(0, 1, counted=(0, 1)), each("e8", setting(counters={"injected_positions": 0}))),
        ("INJECTION_NEVER_RAN",), restate=True,
    ),
    "raw layers that no array shows": Lie(
        RECALL,
        all_of(left_raw(0), each("e8", drop("memory")), without_claims("memory_saving")),
        ("INJECTION_NEVER_RAN",), restate=True,
    ),
    "the native cache called restored": Lie(
        RESTORED,
        all_of(put("arms", 1, "cache", to="raw"), each("e8", setting(counters={"injected_positions": 0}))),
        ("INJECTION_NEVER_RAN",),
    ),
}  # fmt: skip

CLAIMS = {
    "a statistic of no name": Lie(
        SPEC, put("claims", 0, "name", to="vibes"),
        ("UNNAMED_CLAIM", "SPEEDUP_DECODE_ONLY_MISSING"),
    ),
    "a speed-up of a native report": Lie(
        NATIVE, lambda r: r["claims"].append({**CLAIM, "arm": "one-pass", "interval": [1, 3]}), ("UNNAMED_CLAIM",)
    ),
    "a quotient over nothing": Lie(SPEC, drop("claims", 1, "against"), ("CLAIM_INCOMPLETE",)),
    "an arm that is not named": Lie(SPEC, drop("claims", 5, "arm"), ("CLAIM_INCOMPLETE",)),
    "agreement without an interval": Lie(PARITY, drop("claims", 0, "interval"), ("INTERVAL_MISSING",)),
    "a cost of no length": Lie(VERIFY, drop("claims", 0, "where", "length"), ("CLAIM_INCOMPLETE",)),
    "more than the rows give": Lie(SPEC, put("claims", 0, "value", to=2.58), ("CLAIM_NOT_FROM_ROWS",)),
    "an interval where none is defined": Lie(
        SPEC, put("claims", 5, "interval", to=[3.0, 5.0]),
        ("CLAIM_NOT_FROM_ROWS",),
    ),
    "speed of an arm that did not run": Lie(
        SPEC, all_of(idle_arm, lambda r: r["claims"].append({**CLAIM, "name": "decode_tok_s", "arm": "idle"})),
        ("CLAIM_NOT_FROM_ROWS",),
    ),
    "recall of an arm that did not run": Lie(
        RECALL, all_of(idle_arm, lambda r: r["claims"].append(r["claims"][0] | {"arm": "idle"})),
        ("RECALL_SCOPE", "CLAIM_NOT_FROM_ROWS"),
    ),
    "a claim of prompts that are none": Lie(
        SPEC, put("claims", 5, "where", to={"length": 9}), ("CLAIM_NOT_FROM_ROWS",)
    ),
    "a cost that was not measured": Lie(
        VERIFY, put("claims", 0, "where", to={"length": 16, "context": 4096}),
        ("CLAIM_NOT_FROM_ROWS",),
    ),
    "perfect agreement": Lie(PARITY, put("rows", 3, "candidate", 2, to=1001), ("CLAIM_NOT_FROM_ROWS",)),
    "a perplexity beyond a float": Lie(QUANT, each("e8", setting(sum_nll=1e14)), ("CLAIM_NOT_FROM_ROWS",)),
}  # fmt: skip


def stages(arm: str, change: Callable[[Report], object]) -> Edit:
    """Return an edit of an older report's samples."""
    return lambda report: [change(row) for row in report["throughput"][arm]["stage_timings"]]


CROSS, ORACLE = "k3_cross_model", "oracle_native_ar"
UNRESTORED = stages(CROSS, setting(restoration_active=False))
CALLED_BASELINE = put("results", CROSS, "system_under_test", to="native_ar_baseline")
NO_SPEEDUP = put("throughput", "decode_only", to=None)
NO_E2E = put("throughput", "cross_model_speedup_vs_oracle_ar", to=None)
NO_RECALL = put("gate", "recall_cross_model", to=None)
NO_HEADLINE = all_of(NO_SPEEDUP, NO_E2E)


def slow_oracle_decode(report: Report) -> None:
    """Identical work in 2.8 to 10.7 s, as in the run whose own gate found nothing."""
    for row, seconds in zip(
        report["throughput"][ORACLE]["stage_timings"], (2.8, 6.29, 4.4, 10.7, 6.4), strict=True
    ):
        row["decode_s"] = seconds


def few(n: int) -> Edit:
    def edit(report: Report) -> None:
        for arm, other in ((CROSS, CROSS), (ORACLE, "oracle")):
            report["throughput"][arm]["stage_timings"] = report["throughput"][arm]["stage_timings"][:n]
            samples = report["results"][other]
            report["results"][other] = {name: values[:n] for name, values in samples.items()}

    return edit


def counted(n: int) -> Edit:
    return lambda r: [r["results"][arm].update(per_sample_decode_tokens=[n] * 5) for arm in (CROSS, "oracle")]


def one_text(text: str) -> Edit:
    return lambda r: [r["results"][arm]["per_sample_decoded"].__setitem__(0, text) for arm in (CROSS,)]


def never_ran(report: Report) -> None:
    """The first fused report: eight tokens, no block, plain decoding on both sides, 2.584 times as fast."""
    all_of(UNRESTORED, counted(8), few(5))(report)
    times = report["throughput"]
    times[CROSS].update(
        tokens_per_second=0.2217, eval_mode="free_gen_fused_specdecode", timing_scope="decode"
    )
    times[ORACLE].update(tokens_per_second=0.0858, decode_loop="per_token_eval")
    times["decode_only"] = None
    times["cross_model_speedup_vs_oracle_ar"] = 2.584
    for row, seconds in zip(times[ORACLE]["stage_timings"], (35.3, 60.0, 90.0, 120.0, 146.3), strict=True):
        row["prefill_s"] = seconds


LEGACY = {
    "a report that was never checked": Lie(OLD, put("schema_version", to=1), ("LEGACY_SCHEMA",)),
    "a version that is left out": Lie(OLD, drop("schema_version"), ("LEGACY_SCHEMA",)),
    "a version as text": Lie(OLD, put("schema_version", to="2"), ("LEGACY_SCHEMA",)),
    "a version to come": Lie(OLD, put("schema_version", to=3), ("UNKNOWN_SCHEMA",)),
    "an older report without identity": Lie(OLD, drop("identity"), ("PROVENANCE_MISSING",)),
    "no samples": Lie(
        OLD,
        all_of(stages(CROSS, drop("order")), put("throughput", CROSS, "stage_timings", to=[]), NO_HEADLINE, NO_RECALL),
        ("MISSING_STAGE_TIMINGS",),
    ),
    "a sample that says nothing of its path": Lie(
        OLD, all_of(lambda r: r["throughput"][CROSS]["stage_timings"][2].pop("restoration_active"), NO_RECALL),
        ("MISSING_RESTORATION_FLAG",),
    ),
    "two systems in one report": Lie(
        OLD, all_of(lambda r: r["throughput"][CROSS]["stage_timings"][2].update(restoration_active=False), NO_RECALL),
        ("MIXED_RESTORATION_PATHS",),
    ),
    "a baseline that is not called one": Lie(OLD, all_of(UNRESTORED, NO_HEADLINE, NO_RECALL), ("BASELINE_AS_SUT",)),
    "the oracle's recall, by construction": Lie(
        OLD, all_of(UNRESTORED, CALLED_BASELINE, NO_HEADLINE), ("BASELINE_RECALL_CLAIM", "RECALL_SCOPE")
    ),
    "recall of samples that were not restored": Lie(
        OLD, all_of(lambda r: r["throughput"][CROSS]["stage_timings"][2].update(restoration_active=False)),
        ("RECALL_SCOPE", "MIXED_RESTORATION_PATHS"),
    ),
    "recall 1.0 of code": Lie(OLD, put("config", "code_prompts", to=True), ("RECALL_VACUOUS",)),
    "a fused run without a block": Lie(
        OLD, put("throughput", CROSS, "eval_mode", to="free_gen_fused_specdecode"), ("FUSED_NEVER_RAN",)
    ),
    "a quotient of a baseline and itself": Lie(
        OLD, all_of(UNRESTORED, CALLED_BASELINE, NO_RECALL), ("SPEEDUP_SELF_COMPARISON",)
    ),
    "two samples": Lie(OLD, few(2), ("SPEEDUP_SAMPLES",), restate=True),
    "seven tokens": Lie(OLD, counted(7), ("SPEEDUP_DECODE_TOKENS",), restate=True),
    "tokens that are not counted": Lie(
        OLD, lambda r: [r["results"][arm].pop("per_sample_decode_tokens") for arm in (CROSS, "oracle")],
        ("SPEEDUP_DECODE_TOKENS", "CLAIM_NOT_FROM_ROWS"),
    ),
    "the whole without the decoding": Lie(OLD, NO_SPEEDUP, ("SPEEDUP_DECODE_ONLY_MISSING",)),
    "unlike spans": Lie(OLD, put("throughput", CROSS, "timing_scope", to="decode"), ("SPEEDUP_SCOPE_MISMATCH",)),
    "an oracle evaluated token by token": Lie(
        OLD, put("throughput", ORACLE, "decode_loop", to="per_token_eval"), ("SPEEDUP_ORACLE_LOOP",)
    ),
    "prefill of 35 to 146 s": Lie(
        OLD, lambda r: r["throughput"][ORACLE]["stage_timings"][3].update(prefill_s=146.3),
        ("SPEEDUP_PREFILL_VARIANCE",)
    ),
    "2.183 against an oracle of 2.8 to 10.7 s": Lie(OLD, slow_oracle_decode, ("DECODE_SPREAD",), restate=True),
    "no order of runs": Lie(OLD, stages(CROSS, drop("order")), ("NOT_INTERLEAVED",)),
    "the arms one after the other": Lie(
        OLD, stages(ORACLE, lambda row: row.update(order=100 + row["order"])), ("NOT_INTERLEAVED",)
    ),
    "text that is not the oracle's": Lie(OLD, one_text(" PINE-4821. And more."), ("OUTPUT_DIVERGES",)),
    "texts that are left out": Lie(OLD, put("results", CROSS, "per_sample_decoded", to=[]), ("OUTPUT_DIVERGES",)),
    "recall 1.0 of 9999": Lie(
        OLD, all_of(put("config", "compress_full_attn", to=True), one_text(" PINE-4821" + " is" * 40)),
        ("OUTPUT_DEGENERATE",),
    ),
    "a formula that is not the run's": Lie(
        OLD, put("memory", "s5", "formula_matches_run", to=None), ("MEMORY_CLAIM_MISMATCH",)
    ),
    "89.8 % by a formula": Lie(
        OLD, lambda r: r["memory"].update(savings_vs_naive_pct=89.8, live={}), ("MEMORY_NOT_LIVE",)
    ),
    "89.8 % where the arrays give 75": Lie(OLD, put("memory", "savings_vs_naive_pct", to=89.8), ("MEMORY_NOT_LIVE",)),
    "a recall of its own": Lie(OLD, put("gate", "recall_cross_model", to=0.8), ("CLAIM_NOT_FROM_ROWS",)),
    "2.584 of a fused run that never ran": Lie(
        OLD, never_ran,
        (
            "SPEEDUP_SELF_COMPARISON", "BASELINE_AS_SUT", "BASELINE_RECALL_CLAIM", "RECALL_SCOPE", "FUSED_NEVER_RAN",
            "SPEEDUP_DECODE_TOKENS", "SPEEDUP_DECODE_ONLY_MISSING", "SPEEDUP_SCOPE_MISMATCH", "SPEEDUP_ORACLE_LOOP",
            "SPEEDUP_PREFILL_VARIANCE",
        ),
    ),
}  # fmt: skip

LIES: dict[str, Lie] = {
    **REPORTS, **ROWS, **PROMPTS, **OUTPUT, **SPEED, **BYTES, **CODECS, **NEEDLES, **CLAIMS, **LEGACY,
}  # fmt: skip


# What laws say of a lie besides its own code.
ALSO: dict[str, tuple[str, ...]] = {
    "a candidate that keeps who knows what": ("NOT_COVERED",),
    "rows of an arm that is not described": ("NOT_COVERED", "RUNS_MISNUMBERED",),
    "more tokens than were allowed": ("TEXT_CONTRADICTS",),
    "more drafts accepted than proposed": ("ROUNDS_CONTRADICT",),
    "rounds that commit less than was put out": ("ROUNDS_CONTRADICT",),
    "rounds that commit more than was accepted": ("ROUNDS_CONTRADICT",),
    "noise whose text alone is other": ("TEXT_CONTRADICTS",),
    "more equal tokens than there were": ("QUALITY_IMPOSSIBLE",),
    "one run written down as three": ("CLOCK_IMPLAUSIBLE",),
    "a row that stands there twice": ("CLOCK_IMPLAUSIBLE", "NOT_COVERED", "RUNS_MISNUMBERED", "TIME_HIDDEN",),
    "a draft that stands there twice": ("CLAIM_NOT_FROM_ROWS", "NOT_COVERED",),
    "arrays that hold more than is counted": ("BYTES_IMPOSSIBLE",),
    "one pass a token in no time": ("TIME_MISPLACED",),
    "a pass that stands there twice": ("NOT_COVERED", "RUNS_MISNUMBERED",),
    "values that the raw cache does not hold": ("BYTES_IMPOSSIBLE",),
    "a clock that stands still": ("CLOCK_IMPLAUSIBLE",),
    "more tokens than bytes": ("BYTES_IMPOSSIBLE",),
    "4,096 tokens that are thirty": ("NOT_COVERED",),
    "an oracle that did not run": ("NOT_COVERED",),
    "codecs without the raw cache": ("BYTES_IMPOSSIBLE",),
    "the raw cache scored elsewhere": ("BYTES_IMPOSSIBLE", "NOT_COVERED",),
    "an output that stops early": ("TEXT_CONTRADICTS",),
    "an output that stops early, explained": ("TEXT_CONTRADICTS",),
    "other tokens of a reference that is said to be faster": ("CLOCK_IMPLAUSIBLE",),
    "a faster stock loop called a reference": ("CLOCK_IMPLAUSIBLE", "TIME_HIDDEN",),
    "the hard prompt left out": ("NOT_COVERED",),
    "a faster baseline passed over": ("CLOCK_IMPLAUSIBLE", "TIME_HIDDEN",),
    "a candidate in a native report": ("ORACLE_UNCHECKED",),
    "bytes of a formula": ("BYTES_IMPOSSIBLE",),
    "a saving over numbers twice as wide as the model's": ("BYTES_IMPOSSIBLE",),
    "a layer that is not listed": ("BYTES_IMPOSSIBLE",),
    "half of the positions": ("BYTES_IMPOSSIBLE",),
    "positions in fewer bits than the codec's": ("BYTES_IMPOSSIBLE",),
    "too few bits behind another name of the codec": ("NOT_COVERED",),
    "a lattice below its points": ("QUALITY_IMPOSSIBLE",),
    "a codec that nobody knows": ("MEANING_UNKNOWN", "NOT_COVERED",),
    "an error that nothing reads": ("QUALITY_IMPOSSIBLE",),
    "affine with a group of none": ("QUALITY_IMPOSSIBLE",),
    "a spread that hides it": ("QUALITY_IMPOSSIBLE",),
    "a mean of nothing": ("NOT_COVERED", "QUALITY_IMPOSSIBLE"),
    "Voronoi without its bits": ("QUALITY_IMPOSSIBLE",),
    "Voronoi without its scale": ("QUALITY_IMPOSSIBLE",),
    "half precision for nothing": ("QUALITY_IMPOSSIBLE",),
    "an answer that the question gives away": ("ROW_CONTRADICTS", "TEXT_CONTRADICTS",),
    "the same answer to all": ("TEXT_CONTRADICTS",),
    "the native cache called a reference": ("CLOCK_IMPLAUSIBLE", "MEANING_UNKNOWN"),
    "noise on one prompt": ("NOT_COVERED",),
    "all layers left raw, and told": ("BYTES_IMPOSSIBLE",),
    "the native cache called restored": ("BYTES_IMPOSSIBLE", "NOT_COVERED",),
    "speed of an arm that did not run": ("NOT_COVERED",),
    "a perplexity beyond a float": ("QUALITY_IMPOSSIBLE",),
    "two samples": ("NOT_COVERED",),
    "seven tokens": ("TIME_UNACCOUNTED",),
    "prefill of 35 to 146 s": ("TIME_UNACCOUNTED",),
    "2.183 against an oracle of 2.8 to 10.7 s": ("TIME_UNACCOUNTED",),
}  # fmt: skip


def warm(report: Report) -> None:
    """A first run of each arm, which counts nowhere."""
    report["rows"][:0] = [
        {**row, "warmup": True, "prefill_s": 0.6173 + i, "decode_s": 5.0831 + i, "e2e_s": 5.7004 + 2 * i}
        for i, row in enumerate(report["rows"][:3])
    ]


def first_and_profiled(report: Report) -> None:
    """A first run of the candidate, and a last one in which drafting and verifying were told apart."""
    row = report["rows"][2]
    first = {"warmup": True, "prefill_s": 0.3171, "decode_s": 1.9301, "e2e_s": 2.2472}
    last = {"warmup": True, "repeat": 9, "prefill_s": 0.2573, "decode_s": 1.7101, "e2e_s": 1.9674}
    report["rows"][:0] = [row | first]
    report["rows"].append(row | last | {"profile": {"draft_share": 0.4}})


def long_prompt(report: Report) -> None:
    prompt = report["prompts"][0]
    prompt.update(head=prompt["text"][:1000], tail=prompt["text"][-1000:])
    del prompt["text"]


def five_repeats(report: Report) -> None:
    """One prompt, often enough, and said to be one."""
    report["config"]["repeats"] = 5
    report["prompts"] = report["prompts"][:1]
    without_claims("memory_saving", "cache_bytes")(report)
    report["rows"] = [
        {
            **row,
            "repeat": repeat,
            "prefill_s": row["prefill_s"] + s / 131,
            "decode_s": s * row["decode_s"],
            "e2e_s": row["e2e_s"] + s / 131 + (s - 1) * row["decode_s"],
        }
        for repeat, s in enumerate((1, 1.01, 1.02, 0.99, 0.98))
        for row in report["rows"][:3]
    ]
    for claim in report["claims"]:
        claim["where"] = {"prompt": "code-0"}


TWINS: dict[str, Lie] = {
    "a tie, recorded where the tokens part": Lie(
        SPEC, each("dflash", parted(17, 5, index=17, low=11.4), "code-1"), restate=True
    ),
    "a loss, told": Lie(SPEC, each("dflash", slower(2.06)), restate=True),
    "a baseline within a tenth of one pass a token": Lie(SPEC, each("mlx-lm", slower(1.12)), restate=True),
    "a library in a deep folder with a blank": Lie(
        SPEC, put("identity", "blas", "library", to=f"/home/a user/{'deep/' * 60}lib/libscipy_openblas-1.so.2")
    ),
    "one pass of five three times as long": Lie(VERIFY, put("rows", 5, "seconds", to=0.3012), restate=True),
    "a quotient over a package, called that": Lie(
        SPEC,
        all_of(put("arms", 0, "role", to="reference"), without_claims("worst_speedup", "e2e_speedup"),
               put("claims", 0, "name", to="decode_ratio")),
    ),
    "a quotient over plain decoding of the same packed cache": Lie(
        SPEC,
        all_of(lambda r: [arm.update(cache="e8v@4.25") for arm in r["arms"]],
               without_claims("worst_speedup", "e2e_speedup"), put("claims", 0, "name", to="decode_ratio")),
    ),
    "a first run and a profiled one set aside": Lie(
        SPEC,
        first_and_profiled,
        restate=True,
    ),
    "one prompt, called one": Lie(SPEC, five_repeats, restate=True),
    "warm-up rows": Lie(SPEC, warm, restate=True),
    "a prompt that no draft fits": Lie(
        SPEC, all_of(each("dflash", idle, "code-2"), each("dflash", slower(1.9), "code-2")), restate=True
    ),
    "plain decoding but for one draft, and as fast": Lie(
        SPEC, all_of(each("dflash", one_draft), each("dflash", slower(1.9))), restate=True
    ),
    "drafts of a model that is named": Lie(
        SPEC,
        all_of(each("dflash", setting(counters={"rounds_dflash": 10})),
               lambda r: r["models"].append(model("draft"))),
    ),
    "a workload beside all of them": Lie(
        SPEC,
        all_of(another_workload(" (in Python)", declared=True),
               lambda r: r["claims"].extend([claim | {"where": {"workload": "code"}} for claim in r["claims"]])),
        restate=True,
    ),
    "a cache that reads prompts slowly, and decodes slowly too": Lie(
        SPEC, all_of(each("dflash", slower(4, "prefill_s")), each("dflash", slower(2.2))), restate=True
    ),
    "a prompt of few bytes in a long template": Lie(
        SPEC, all_of(put("prompts", 0, "n_tokens", to=200), put("workloads", "code", to={
            "task": "code", "source": "ours", "chat_template": True})),
    ),
    "rows of a run that was interrupted": Lie(
        SPEC, all_of(put("seconds", to=5.0), put("config", "resumed_rows", to=34))
    ),
    "rings of fewer positions than were read": Lie(
        SPEC, all_of(each("dflash", smaller_cache(20)), each("mlx-lm", smaller_cache(30)), each(
            "one-pass", smaller_cache(30)), each(None, rings)), restate=True,
    ),
    "passes that warm up": Lie(
        VERIFY,
        lambda r: r["rows"].__setitem__(
            slice(0, 0), [row | {"warmup": True, "seconds": 0.9173 + row["length"]} for row in r["rows"][:4]]
        ),
    ),
    "single tokens as slow as two": Lie(
        VERIFY, each(None, lambda row: row.update(seconds=row["seconds"] * (1.9 if row["length"] == 1 else 1))),
        restate=True,
    ),
    "a last round that reaches beyond the stop": Lie(SPEC, each("dflash", setting(
        commits=[4] * 10 + [3], drafted=[7] * 11, accepted=[3] * 11)), restate=True),
    "one prompt of six on which the model repeats itself": Lie(RECALL, each(None, looping, "needle-1")),
    "a dirty tree, told": Lie(SPEC, lambda r: r["identity"]["code"].update(commit="a" * 40, dirty=True)),
    "head and tail of a long prompt": Lie(SPEC, long_prompt),
    "a suffix that is declared": Lie(SPEC, suffixed("\nWrite readable Python.", declared="\nWrite readable Python.")),
    "two tasks that end alike by a bracket": Lie(SPEC, another_workload(" (in Python)", declared=True)),
    "a sampled run that claims bytes alone": Lie(
        SPEC, all_of(put("config", "temperature", to=0.7), only_claims("cache_bytes"))
    ),
    "a report that claims nothing": Lie(SPEC, only_claims()),
    "five of six, with the interval": Lie(RECALL, each("e8", answering(300), "needle-3"), restate=True),
    "noise that leaves one of six": Lie(
        RECALL, each("noise", answering(FIRST_CODE), "needle-0")
    ),
    "an identity that parts at a tie": Lie(
        RECALL, each("same", parted(3, 5, index=3, low=11.5), "needle-2")
    ),
    "the lattice at the bits it stores": Lie(
        QUANT,
        all_of(
            width("e8", 28), Q38, without_claims("rel_mse_ratio", "kl_ratio"),
            ERRS_LESS,
        ),
        restate=True,
    ),
    "a Voronoi code of larger heads, which stores less": Lie(QUANT, heads_of_256, restate=True),
    "one layer of two left raw, and told": Lie(RECALL, left_raw(0), restate=True),
    "a codec of fewer bits that errs more": Lie(
        QUANT,
        all_of(width("e8", 28), Q38, only_claims("rel_mse_ratio"), ERRS_LESS,
               put("claims", 0, "arm", to="affine"), put("claims", 0, "against", to="e8")),
        restate=True,
    ),
    "drafts of which some differ": Lie(PARITY, put("rows", 3, "candidate", 2, to=1001), restate=True),
    "less error than Gaussian data allow, on others": Lie(
        CODEC, lambda r: r["rows"][0].update(distribution="keys 64", rel_mse=0.001, rel_mse_stderr=0.0001)
    ),
    "a codec with one scale a vector": Lie(
        CODEC, all_of(put("config", "dim", to=128), each(
            None, setting(codec="voronoi", dim=128, stored_bits_per_value=2.25, limit=2**-4.5, rel_mse=0.083,
                          rel_mse_stderr=0.0013))),
    ),
    "the published formula's bits": Lie(
        CODEC, each(None, setting(codec="e8 Q1", dim=64, stored_bits_per_value=2.125, limit=2**-4.25))
    ),
    "half precision": Lie(
        CODEC, each(None, setting(
            codec="raw", stored_bits_per_value=16.0, limit=2**-32.0, rel_mse=2.9e-6, rel_mse_stderr=1e-8))
    ),
    "an older report without a quotient": Lie(OLD, all_of(NO_HEADLINE, stages(CROSS, drop("order")))),
    "a baseline, called one": Lie(OLD, all_of(UNRESTORED, CALLED_BASELINE, NO_HEADLINE, NO_RECALL)),
    "a compressed cache that says other words": Lie(
        OLD, all_of(put("config", "compress_full_attn", to=True), one_text(" PINE-4821. And more."))
    ),
    "the native window's 75 %": Lie(OLD, put("memory", "savings_vs_naive_pct", to=75.0)),
}  # fmt: skip
