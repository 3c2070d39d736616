"""Experiments and files that the gate does not accept: for each, the code, the mistake and the remedy."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from bridge.gate import check_report, judge, verdict
from bridge.gate.checks import CHECKS, MODULES
from bridge.gate.codes import CODES
from bridge.reports import kinds
from tests.bridge.gate import reports
from tests.bridge.gate.reports import Report, derived
from tests.bridge.gate.test_honest import (
    KIND,
    UNEVEN,
    cell,
    every,
    identity,
    one_prompt,
    other_tokens,
    parted,
    put,
    ranks_part,
    rows,
    timed,
    to_rows,
)

Edit = Callable[[Report], object]


# By words of the message that name the mistake: an honest report of some kind, and an edit of it.
Mistakes = dict[str, tuple[str, Edit]]
# By code: words of the fix that name the remedy, and the mistakes.
Cases = dict[str, tuple[str, Mistakes]]


def first(**fields) -> Edit:
    return lambda report: report["rows"][0].update(fields)


def counted(where: Report, **fields) -> Edit:
    return to_rows(where, lambda row: row["counters"].update(fields))


def uncounted(where: Report, name: str) -> Edit:
    return to_rows(where, lambda row: row["counters"].pop(name))


def without(part: str, key: str, name: object) -> Edit:
    """Return an edit that leaves items of a section out."""
    return lambda report: report.update({part: [item for item in report[part] if item.get(key) != name]})


def without_arm(name: str) -> Edit:
    return lambda report: (without("arms", "name", name)(report), without("rows", "arm", name)(report))


def without_row(i: int) -> Edit:
    return lambda report: report["rows"].pop(i)


def arm(name: str, **fields) -> Edit:
    return lambda report: [item.update(fields) for item in report["arms"] if item["name"] == name]


def again(part: str) -> Edit:
    return lambda report: report[part].append(reports.copy(report[part][0]))


def claims(**fields) -> Edit:
    """Return an edit of the first claim about one arm or pair of arms."""

    def edit(report: Report) -> None:
        next(claim for claim in report["claims"] if "plain" not in claim["name"]).update(fields)

    return edit


def both(*edits: Edit) -> Edit:
    return lambda report: [edit(report) for edit in edits]


def shorter_tokens(report: Report) -> None:
    for row in report["rows"]:
        if row["arm"] == "dflash":
            row["tokens"] = row["tokens"][:-2]
            row |= {
                "decode_tokens": len(row["tokens"]) - 1,
                "divergence": {"index": 39, "best": [[1, 1.0], [2, 1.0]]},
            }


def one_after_the_other(report: Report) -> None:
    report["rows"].sort(key=lambda row: (row.get("arm", ""), row.get("length", 0)))
    timed(lambda _, seconds, __: seconds)(report)


def same_text_twice(report: Report) -> None:
    prompt = reports.copy(report["prompts"][0])
    report["prompts"][1] |= {"text": prompt["text"].replace(" ", "\n  "), "sha256": reports.digest("other")}


def memory_of(arm_name: str, **fields) -> Edit:
    return lambda report: [row["memory"].update(fields) for row in report["rows"] if row["arm"] == arm_name]


def one_layer_more(report: Report) -> None:
    memory = report["rows"][0]["memory"]
    memory["layers"].append(memory["layers"][0])
    memory["cache_bytes"] += memory["layers"][0]["nbytes"]


def finding(name: str) -> Edit:
    """Return an edit that lets a control find every needle."""

    def edit(report: Report) -> None:
        found = {row["prompt"]: row for row in report["rows"] if row["arm"] == "mlx-lm"}
        for row in report["rows"]:
            if row["arm"] == name:
                row |= {key: found[row["prompt"]][key] for key in ("tokens", "text")}

    return edit


def unmoved(name: str) -> Edit:
    """Return an edit after which only sliding layers evict, and a control moves no prediction."""

    def edit(report: Report) -> None:
        report["config"]["layers"] = "sliding"
        for row in report["rows"]:
            moved = 0.0 if row["arm"] == "mlx-lm" else 1e-6 if row["arm"] in (name, "same") else 90.0
            row["prediction"] = {"n_positions": 40, "sum_kl": moved, "same_top": 30}

    return edit


def rounds(**fields) -> Edit:
    return rows({"arm": "dflash"}, **fields)


def without_run(arm_name: str, prompt: str) -> Edit:
    """Return an edit that leaves an arm's rows on a prompt out."""
    return lambda report: report.update(
        rows=[row for row in report["rows"] if (row["arm"], row["prompt"]) != (arm_name, prompt)]
    )


def control_elsewhere(report: Report) -> None:
    """Let the control run as often as the candidate, on other prompts."""
    for arm_name, numbers in (("e8", (4, 5)), ("noise", (2, 3))):
        for number in numbers:
            without_run(arm_name, f"needle-{number}")(report)


def repeats(number: int) -> Edit:
    return lambda report: report.update(rows=[row for row in report["rows"] if row["repeat"] < number])


INJECTED = {"arm": "e8"}
PACKED = {"arm": "torch/e8v@4.25", "repeat": 1}
CASES: Cases = {
    "OTHER_VERSION": ("measure again", {
        "is 4, not 3": ("spec", put("schema_version", to=4)),
        "is True, not 3": ("spec", put("schema_version", to=True)),
    }),
    "UNKNOWN_KIND": ("docs/evidence.md", {"kakeya.other": ("spec", put("kind", to="kakeya.other"))}),
    "MALFORMED": ("kakeya-engine", {
        "arms: must have at least 1 entry": ("spec", put("arms", to=[])),
        "arms.2.role": ("spec", arm("dflash", role="best")),
        "cannot be judged": ("parity", first(candidate=[1])),
    }),
    "NO_ROWS": ("every measurement", {"rows: must have at least 1 entry": ("spec", put("rows", to=[]))}),
    "TOO_LARGE": ("fewer prompts", {"must have at most 50000": ("rd", lambda r: r.update(rows=r["rows"] * 50_000))}),
    "BAD_ROW": ("", {
        "rows.3.decode_s: is missing": ("spec", lambda report: report["rows"][3].pop("decode_s")),
        "rows.1.rel_mse": ("rd", every("rows", rel_mse=-1)),
    }),
    "PROVENANCE_MISSING": ("name host, chip", {
        "identity: is missing": ("spec", lambda report: report.pop("identity")),
        "config": ("rd", put("config", to={})),
        "whether it was dirty": ("rd", put("identity", "code", "dirty", to=None)),
        "no target": ("spec", without("models", "role", "target")),
        "digest of its tokenizer": ("spec", put("models", 0, "tokenizer", to=None)),
        "a model drafted, and models names no draft": ("spec", without("models", "role", "draft")),
        "names no draft": ("parity", without("models", "role", "draft")),
    }),
    "WRONG_MODEL": ("--model", {
        "the configured model is large, and small was measured": ("spec", put("config", "model", to="large")),
    }),
    "DANGLING_NAME": ("once", {
        "arm mlx-lm is described 2 times": ("spec", again("arms")),
        "prompt needle-0 is described 2 times": ("recall", again("prompts")),
        "arm fast is used": ("spec", first(arm="fast")),
        "arm truth is used": ("spec", arm("dflash", oracle="truth")),
        "prompt x is used": ("parity", first(prompt="x")),
        "workload x is used": ("quant", put("prompts", 0, "workload", to="x")),
    }),
    "ROW_CONTRADICTS": ("count", {
        "row 0: 40 steps take 40 s": ("backends", first(step_s=[1.0] * 40)),
        "row 0: 39 steps take": ("backends", first(step_s=[0.0] * 39)),
        "row 0: the counter live_bytes is 1": ("backends", counted({"arm": "mlx/raw"}, live_bytes=1)),
        "more equal top tokens than positions": (
            "backends", rows(PACKED, prediction={"n_positions": 1, "sum_kl": 0, "same_top": 2}),
        ),
        "a on rank 0, repeat 0: n_tokens is 4, and 3 are": ("ranks", rows({"rank": 0, "prompt": "a"}, n_tokens=4)),
        "a on rank 1, repeat 0: 9 tokens; max_tokens is 8": ("ranks", rows({"rank": 1, "prompt": "a"}, n_tokens=9)),
        "row 0: decode_tokens is 41; the row has 41 tokens": ("spec", first(decode_tokens=40 + 1)),
        "41 tokens were generated": ("spec", put("config", "max_tokens", to=40)),
        "must all be present, or none": ("spec", rounds(drafted=None)),
        "different numbers of rounds": ("spec", rounds(accepted=[3] * 9)),
        "with 3 of 2 drafts accepted": ("spec", rounds(drafted=[2] * 10)),
        "committed 4 tokens, with 2 of 7": ("spec", rounds(accepted=[2] * 10)),
        "rounds committed 48 tokens": ("spec", rounds(commits=[4] * 12, drafted=[7] * 12, accepted=[3] * 12)),
        "it passed with the error": ("solved", rows({"arm": "canonical"}, error="KeyError")),
        "more equal top tokens": ("quant", rows({"arm": "e8"}, same_top=50)),
        "21 of 20 drafts": ("served", counted({"draft": "lookup"}, accepted=21)),
        "max_tokens is 32": ("served", first(n_tokens=33)),
        "not scored on the same values and positions": ("quant", rows({"arm": "e8"}, sum_squares=90.0)),
        "not scored on the same values": ("quant", rows({"arm": "e8"}, n_positions=48)),
        "hold 12800 values of prose-0; n_values is 12801": ("quant", every("rows", n_values=12_801)),
    }),
    "ROW_REPEATED": ("once", {
        "4096 bytes, repeat 0 appears 2 times": ("summed", again("rows")),
        "a on one host, repeat 0 appears 2 times": ("ranks", again("rows")),
        "the row mlx-lm code-0 repeat 0 appears 2 times": ("spec", again("rows")),
        "raw prose-0": ("quant", again("rows")),
        "1 on 4096 repeat 0": ("verify", again("rows")),
        "code-0 block 0": ("parity", again("rows")),
        "none raw False 1 free 0": ("served", again("rows")),
    }),
    "SAME_TREE": ("--against", {
        "are both the tree eeee": ("compare", put("config", "candidate", "tree", to="e" * 40)),
    }),
    "NOT_COVERED": ("measure", {
        "torch/e8v@4.25 has no codes or no prediction on code-0": ("backends", rows(PACKED, codes=None)),
        "torch/e8v@4.25 has no codes or no prediction": ("backends", rows(PACKED, prediction=None)),
        "torch/raw ran 2 times on code-0": (
            "backends", lambda report: report["rows"].remove(report["rows"][17]),
        ),
        "65536 bytes have no repeat 2": ("summed", without_row(-1)),
        "b was not decoded on rank 1 in repeat 0": ("ranks", without_row(-1)),
        "a was not decoded on one host in repeat 0": ("ranks", without_row(0)),
        "one host or rank 0 lists no tokens": ("ranks", rows({"rank": 0, "prompt": "a"}, tokens=None)),
        "10 of 11 rounds were measured": ("compare", put("config", "rounds", to=11)),
        "one-pass ran 2 times on code-3, and others 3 times": ("native", without_row(-2)),
        "no arm ran on code-0": ("spec", without("rows", "prompt", "code-0")),
        "the cache e8v@2 is configured": ("recall", put("config", "caches", to=["e8v@4.25", "e8v@2"])),
        "lookup/trim is configured": (
            "spec", lambda report: report["config"].update(drafters=["lookup"], rollbacks=["trim"]),
        ),
        "6 needles of 32 tokens at 0.3; 7 are configured": ("recall", put("config", "samples", to=7)),
        "16 tokens on 4096": ("verify", put("config", "lengths", to=[1, 2, 4, 8, 16])),
        "not verified equally often": ("verify", without_row(-1)),
        "rows were timed over e8v@2": ("verify", first(cache="e8v@2")),
        "the blocks of code-0 are 0, 2, 3": ("parity", without_row(1)),
        "the blocks of code-0 are none": ("parity", without("rows", "prompt", "code-0")),
        "affine at 2 bits appears 2 times for gaussian": ("rd", again("rows")),
        "gaussian, t4 are configured": ("rd", without_row(-1)),
        "lookup x raw x cold x 1 x free has no answer": ("served", without("rows", "draft", "lookup")),
    }),
    "ROWS_SET_ASIDE": ("count every run", {
        "4 runs of mlx-lm on code-0": ("native", rows({"arm": "mlx-lm"}, warmup=True)),
    }),
    "PROMPT_REPEATED": ("repeat the run instead", {
        "2 prompts have the digest": ("spec", put("prompts", 1, "sha256", to=reports.digest(reports.TEXTS[0]))),
        "differ only in blanks": ("spec", same_text_twice),
    }),
    "TIMES_CONTRADICT": ("the measured times", {
        "row 1 started before the row above": ("spec", every("rows", started_s=0.0)),
        "and the run 0.5 s": ("verify", put("seconds", to=0.5)),
        "and the comparison 0.5 s": ("compare", put("seconds", to=0.5)),
    }),
    "TIME_HIDDEN": ("decode_s", {
        "(row 0, arm mlx-lm, prompt code-0) is neither prefill nor decode time": (
            "spec", lambda report: [row.update(decode_s=row["decode_s"] / 2) for row in report["rows"]],
        ),
    }),
    "NOT_INTERLEAVED": ("alternate", {
        "rows of dflash or mlx-lm ran in a row": ("spec", one_after_the_other),
        "5 passes of one length ran in a row": ("verify", one_after_the_other),
        "row 0 is a run of again in round 0; round 0 and candidate are due": (
            "compare", lambda report: report["rows"].sort(key=lambda row: (row["round"], row["arm"])),
        ),
        "there are 64 runs; 63 are due": ("compare", again("rows")),
    }),
    "PREFILL_SPREAD": ("--max-repeats", {"0.2 to 2 s; the load was 0.1": UNEVEN["prefill beside other programs"][:2]}),
    "DECODE_SPREAD": ("--max-repeats", {
        "tokens a second; the load was 0.1": UNEVEN["a busy machine"][:2],
        "1 tokens on 4096: the middle half of 5 passes": UNEVEN["busy passes"][:2],
    }),
    "BASELINE_MISSING": ("measure a baseline", {
        "no arm has the role baseline": ("spec", without_arm("mlx-lm")),
        "no baseline ran on prose-0": ("quant", without_run("raw", "prose-0")),
    }),
    "BASELINE_NOT_STOCK": ("mlx-lm's own loop", {
        "uses the loop engine.fast": ("native", arm("mlx-lm", loop="engine.fast")),
        "mlx-lm drafts": ("native", rows({"arm": "mlx-lm"}, commits=[4] * 10, drafted=[7] * 10, accepted=[3] * 10)),
    }),
    "BASELINE_PATCHED": ("reinstall mlx-lm", {
        "mlx-lm was changed: generate.py": ("spec", identity(modified=["generate.py"])),
        "raw ran with mx.matmul replaced": ("quant", arm("raw", patches=["mx.matmul"])),
    }),
    "BASELINE_UNSTEADY": ("float32", {
        "torch/raw gives different tokens": (
            "backends", rows({"arm": "torch/raw", "repeat": 2}, tokens=[5] * reports.TOKENS),
        ),
        "mlx-lm gives different tokens for code-0": UNEVEN["plain decoding that is not deterministic"][:2],
    }),
    "ONE_ROW_LOOP_MISSING": ("add the arm verify1", {
        "no arm with the role verify1": ("spec", without_arm("one-pass")),
    }),
    "SELF_COMPARISON": ("", {
        "both drafters are dflash": ("parity", arm("ours", loop="dflash")),
        "one reference and one candidate": ("parity", arm("package", role="candidate")),
    }),
    "CANDIDATE_MISSING": ("run a candidate", {"no arm with the role candidate ran": ("recall", without_arm("e8"))}),
    "NOT_PLAIN": ("bench spec", {"one-pass has the role candidate": ("native", arm("one-pass", role="candidate"))}),
    "NOT_GREEDY": ("temperature 0", {"temperature 0.7": ("spec", put("config", "temperature", to=0.7))}),
    "ORACLE_MISSING": ("name an oracle", {
        "the oracle of torch/raw is None": ("backends", arm("torch/raw", oracle=None)),
        "the oracle of torch/raw is mlx/e8v@4.25": ("backends", arm("torch/raw", oracle="mlx/e8v@4.25")),
        "dflash names no oracle": ("spec", arm("dflash", oracle=None)),
        "mlx-lm, the oracle of dflash, did not run on code-0": ("spec", without_run("mlx-lm", "code-0")),
    }),
    "ORACLE_UNFIT": ("plain decoding", {
        "dflash, the oracle of dflash, drafts": ("spec", arm("dflash", oracle="dflash")),
        "uses the loop engine.one_pass": ("spec", arm("dflash", oracle="one-pass")),
        "its oracle mlx-lm uses raw": ("spec", arm("dflash", cache="e8v@4")),
    }),
    "OUTPUT_DIVERGES": ("fix the loop", {
        "torch/raw on code-0 differs from its oracle mlx/raw at token 4": ("backends", other_tokens("torch/raw")),
        "the logits lie 0.7 apart": ("backends", other_tokens("torch/raw", margin=0.7)),
        "a on rank 0, repeat 0: the tokens differ from one host's": ("ranks", ranks_part()),
        "a on rank 0, repeat 0: at token 1: the logits lie 0.2 apart": ("ranks", ranks_part(margin=0.2)),
        "a on rank 0, repeat 0: the tokens do not part at token 2": ("ranks", ranks_part(index=2, margin=0.0)),
        "a on rank 0, repeat 0: the recorded tokens": ("ranks", ranks_part(ours=[1], margin=0.0)),
        "at token 4: no divergence is recorded": ("spec", other_tokens("dflash")),
        "the recorded divergence is at token 5": ("spec", other_tokens("dflash", index=5)),
        "not one of its two best": (
            "spec", other_tokens("dflash", margin=None, rounding=None, best=[[1, 2.0], [2, 2.0]]),
        ),
        "the logits lie 0.5 apart; a near tie is at most 0.24": ("spec", other_tokens("dflash", margin=0.5)),
        "differs from its oracle": (
            "spec", other_tokens("dflash", margin=None, rounding=None, best=[[0, 1.0], [1, 9.0]]),
        ),
        "at token 39: one of the outputs ends there": ("spec", shorter_tokens),
        "drafted raw on problem-1 differs from its oracle": (
            "solved", rows({"arm": "drafted raw", "prompt": "problem-1"}, tokens=[7] * 41),
        ),
    }),
    "BACKEND_MISSING": ("over both backends", {
        "0 arms with rows have the cache e8v@4.25 and the role candidate": ("backends", without_arm("torch/e8v@4.25")),
        "0 arms with rows have the cache raw and the role reference": ("backends", without_arm("mlx/raw")),
        "1 arms with rows have the cache raw and the role candidate": (
            "backends", without("rows", "arm", "torch/raw"),
        ),
    }),
    "CODES_DIFFER": ("the same bytes", {
        "8 of 16 rows of torch/e8v@4.25 differ from those of mlx/e8v@4.25": (
            "backends", rows(PACKED | {"prompt": "code-0"}, codes=["0" * 16] * 8),
        ),
    }),
    "RECALL_VACUOUS": ("only the prompt holds", {
        "expects 'x'": ("recall", put("prompts", 0, "expected", to="x")),
        "in the text that all prompts share": (
            "recall", put("workloads", "needles", "shared_prefix", to=reports.NEEDLES[0]),
        ),
        "does not hold its answer": ("recall", put("prompts", 0, "expected", to="ELM-0000")),
        "all 6 prompts expect the same answer": ("recall", every("prompts", expected="PINE-4821")),
    }),
    "POISON_MISSING": ("add an arm poison", {
        "the control poison ran on 0 of the candidate's prompts; 5 are needed": ("recall", without_arm("noise")),
        "the control poison ran on 2 of the candidate's prompts; 4 are needed": ("recall", control_elsewhere),
    }),
    "IDENTITY_MISSING": ("add an arm identity", {"the control identity ran on 0": ("recall", without_arm("same"))}),
    "EVICTED_MISSING": ("add an arm evicted", {"the control evicted ran on 0": ("restored", without_arm("nothing"))}),
    "POISON_SURVIVES": ("attention reads", {
        "noise finds 100% of the needles": ("recall", finding("noise")),
        "noise moves predictions by 2.5e-08 nats": ("restored", unmoved("noise")),
    }),
    "EVICTED_SURVIVES": ("longer prompts", {"nothing finds 100% of the needles": ("restored", finding("nothing"))}),
    "IDENTITY_BROKEN": ("fix the injection", {
        "differs from its oracle": ("recall", rows({"arm": "same"}, tokens=[1] * 9)),
        "same names no oracle": ("recall", arm("same", oracle=None)),
        "though its cache is raw": ("quant", rows({"arm": "raw"}, sum_kl=0.1)),
    }),
    "LIVENESS_MISSING": ("count rounds", {
        "dflash do not count rounds": ("spec", rounds(commits=None, drafted=None, accepted=None)),
        "no counter injected_positions": ("recall", uncounted(INJECTED, "injected_positions")),
    }),
    "INJECTION_NEVER_RAN": ("did not run", {
        "torch/e8v@4.25 on code-0 has the counter packed_layers 0": (
            "backends", counted({"arm": "torch/e8v@4.25"}, packed_layers=0),
        ),
        "torch/raw on code-0 has the counter packed_layers 2": (
            "backends", counted({"arm": "torch/raw"}, packed_layers=2),
        ),
        "counter packed_layers None": ("backends", uncounted({"arm": "mlx/raw"}, "packed_layers")),
        "e8 on needle-0 injected no position": ("recall", counted(INJECTED, injected_positions=0)),
        "injected no position": ("restored", counted(INJECTED, injected_positions=0)),
        "none in the logits": ("quant", rows({"arm": "e8"}, sum_kl=0.0)),
        "stored no position": ("quant", rows({"arm": "e8"}, sum_squared_error=0.0, sum_kl=0.0)),
    }),
    "MEMORY_NOT_LIVE": ("in every row", {"a row of mlx-lm on code-0 lists no arrays": ("spec", first(memory=None))}),
    "MEMORY_MISMATCH": ("list every array", {
        "7 bytes, and its layers hold": ("spec", memory_of("dflash", cache_bytes=7)),
        "layer 0 counts 7 bytes": ("quant", lambda report: report["rows"][0]["memory"]["layers"][0].update(nbytes=7)),
        "caches of 2 and 3 layers are compared on code-0": ("spec", one_layer_more),
    }),
    "RATE_IMPOSSIBLE": ("mistake in the rate", {
        "at 2.5 bits; no code errs by less than 0.0312": ("rd", first(rel_mse=0.001, rel_mse_stderr=0.0001)),
    }),
    "SPREAD_IMPOSSIBLE": ("standard error", {"the standard error 0.2 exceeds": ("rd", first(rel_mse_stderr=0.2))}),
    "LIMIT_WRONG": ("stored bits", {"row 0 has the limit 0.01; it is 0.03125": ("rd", first(limit=0.01))}),
    "CELL_DIFFERS": ("near tie", {
        "lookup x raw x cold x 1 x free, question 0: the tokens differ": (
            "served", rows(cell("lookup"), tokens=reports.digest("x")),
        ),
        "text differs": ("served", rows(cell("lookup"), text="x")),
        "stop differs": ("served", rows(cell(warm=True), stop="stop")),
        "do not match the digests": ("served", parted(ours=[1, 2])),
        "do not part at token 2": ("served", parted(index=2)),
        "the logits lie 0.2 apart": ("served", parted(margin=0.2)),
    }),
    "RANKS_DIFFER": ("same versions", {
        "row 0: rank 1 received 6 to 5, not 6": ("summed", first(most=[6.0, 5.0, 6.0])),
        "row 0: rank 2 received 0 to 6, not 6": ("summed", first(least=[6.0, 6.0, 0.0])),
        "row 0 is not about 3 ranks": ("summed", first(rank_s=[0.1, 0.1])),
        "a on rank 1, repeat 0: the tokens are not those of rank 0": (
            "ranks", rows({"rank": 1, "prompt": "a"}, digest=reports.digest("x")),
        ),
        "b on one host, repeat 0: the digest is not that of the tokens": (
            "ranks", rows({"rank": None, "prompt": "b"}, tokens=[4, 5, 7]),
        ),
    }),
    "CONTROL_FAILS": ("sandbox", {
        "canonical on problem-1 fails": ("solved", rows({"arm": "canonical", "prompt": "problem-1"}, passed=False)),
        "empty on problem-2 passes": ("solved", rows({"arm": "empty", "prompt": "problem-2"}, passed=True, error=None)),
        "no arm with the role poison ran on problem-0": ("solved", without_arm("empty")),
    }),
    "RESULT_UNSTEADY": ("idle machine", {
        "problem-0 passed in one arm": ("solved", rows({"arm": "plain raw"}, passed=False)),
    }),
    "FEATURE_NEVER_RAN": ("did without it", {
        "fell back: no memory": ("served", first(fallback="no memory")),
        "proposed 0 drafts": ("served", counted({"draft": "lookup"}, proposed=0, accepted=0)),
        "with and without reused blocks": ("served", counted({"warm": True}, cached_tokens=0)),
        "counts 1 answers at once": ("served", counted({"clients": 2}, together=1)),
        "the raw cache takes 4096": ("served", counted({"cache": "e8v@4.25"}, cache_bytes=4096)),
    }),
}  # fmt: skip


# Changed after the claims were derived.
def changed_by(change: float, noise: float = 0.02) -> Edit:
    """Return an edit that replaces the rows by those of another change."""
    other = reports.compare(change, noise)
    return lambda report: report.update(rows=other["rows"], seconds=other["seconds"])


def uneven_null_arm(report: Report) -> None:
    for row in report["rows"]:
        row["value"] *= 1.5 if row["arm"] == "again" else 1.0
    report["seconds"] = 100.0


CLAIMED: Cases = {
    "WITHIN_NOISE": ("claim none", {
        "regression is claimed: candidate over baseline 0.99": ("compare", changed_by(1.0)),
        "regression is claimed: candidate over baseline 1.09": ("compare", changed_by(1.1, noise=0.2)),
        ", baseline over itself 1.49": ("compare", uneven_null_arm),
    }),
    "MALFORMED": ("", {"claims.2.value": ("spec", claims(value=None))}),
    "SELF_COMPARISON": ("compare others", {
        "the arms one-pass and mlx-lm are the same system": (
            "spec",
            both(arm("one-pass", role="baseline", loop=kinds.STOCK_LOOP), claims(arm="one-pass", against="mlx-lm")),
        ),
        "mlx-lm and mlx-lm are the same": ("spec", claims(against="mlx-lm")),
    }),
    "CLAIM_NOT_FROM_ROWS": ("derive the claims", {
        "is claimed as 1e+09; the rows give": ("spec", claims(value=1e9)),
        "has the interval [0.9, 1.0]": ("recall", claims(interval=[0.9, 1.0])),
        "has the interval None": ("recall", claims(interval=None)),
        "has another definition": ("quant", claims(definition="the best of all prompts")),
        "energy of mlx-lm is claimed": ("spec", claims(name="energy")),
        "verify_ms is claimed, and": ("verify", claims(where={"length": 1})),
    }),
    "DANGLING_NAME": ("", {"arm fast is used": ("spec", claims(arm="fast"))}),
    "NOT_GREEDY": ("", {"temperature 1": ("native", put("config", "temperature", to=1.0))}),
}  # fmt: skip

FEW: Cases = {
    "NO_DIFFERENCE": ("raise compare.rounds", {"candidate over baseline 0.99": ("compare", changed_by(1.0))}),
    "NULL_ARM_DIFFERS": ("processor time", {"the baseline against itself: 1.49": ("compare", uneven_null_arm)}),
    "NOTHING_CLAIMED": ("option that the message names", {
        "one repeat, three are needed (--repeats 3)": ("spec", repeats(1)),
        "three runs of each arm, five are needed (more prompts: --max-prompts, or --repeats 5)": ("spec", one_prompt),
        "mlx-lm repeats itself on 4 of 4 prompts": ("native", every("rows", tokens=[7] * 41)),
        "3 passes of a length; 5 are needed (--repeats)": ("verify", repeats(3)),
    }),
    "SLOW_BASELINE": ("plain_speedup", {
        "the baseline mlx-lm is only 0.5": ("spec", timed(lambda _, s, row: s * (1 + (row["arm"] == "mlx-lm")))),
    }),
    "DRAFTED_NOTHING": ("for lookup, choose prompts", {
        "dflash drafted nothing in 12 of 12 runs": (
            "spec", rounds(commits=[1] * 40, drafted=[0] * 40, accepted=[0] * 40),
        ),
    }),
    "OUTPUT_LOOPS": ("store more bits", {
        "e8 repeats itself on 6 prompts, such as needle-0": (
            "recall", rows({"arm": "e8"}, tokens=[9] * 30, decode_tokens=29),
        ),
    }),
    "COLD_START": ("leave a first run", {
        "no run is marked as warm-up": ("spec", without_row(-1)),
    }),
    "ANSWERS_CUT": ("let answers go on longer", {
        "6 answers of e8 that miss their needle were cut off after 64 tokens": (
            "recall", rows({"arm": "e8"}, text="It is", stop="length"),
        ),
    }),
    "LOW_POWER": ("plug the machine in", {
        "ran on battery (9 %)": ("spec", identity(power={"plugged": False, "percent": 9})),
        "low-power mode": ("restored", identity(power={"low_power": True})),
    }),
}  # fmt: skip


def edited(kind: str, edit: Edit) -> Report:
    report = KIND[kind]()
    edit(report)
    return report


def each(cases: Cases) -> list:
    """Return the cases with a name each."""
    return [
        pytest.param(code, remedy, mistake, kind, edit, id=f"{code}: {mistake}")
        for code, (remedy, mistakes) in cases.items() for mistake, (kind, edit) in mistakes.items()
    ]  # fmt: skip


def with_claims(report: Report) -> Report:
    try:
        return derived(report)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
        return report


def judge_edited(report: Report, code: str, remedy: str, mistake: str) -> None:
    found = check_report(report)

    faults = [fault for fault in found if fault.code == code and mistake in fault.message]
    assert faults, [(fault.code, fault.message) for fault in found]
    assert remedy in faults[0].mend
    assert verdict(faults) == CODES[code].effect
    assert verdict(found) in ("REJECTED", verdict(faults))


@pytest.mark.parametrize(("code", "remedy", "mistake", "kind", "edit"), each(CASES))
def test_a_mistake_is_named_with_its_remedy(code, remedy, mistake, kind, edit):
    judge_edited(with_claims(edited(kind, edit)), code, remedy, mistake)


@pytest.mark.parametrize(("code", "remedy", "mistake", "kind", "edit"), each(CLAIMED))
def test_a_claim_that_the_rows_do_not_give_is_named(code, remedy, mistake, kind, edit):
    judge_edited(edited(kind, edit), code, remedy, mistake)


@pytest.mark.parametrize(("code", "remedy", "mistake", "kind", "edit"), each(FEW))
def test_a_finding_is_a_note_that_names_its_remedy(code, remedy, mistake, kind, edit):
    report, run = reports.vouched(with_claims(edited(kind, edit)))

    judged = judge({"report.json": json.dumps(report).encode()}, run=run)

    assert [note for note in judged.notes if code in note and mistake in note], judged
    assert remedy in CODES[code].fix
    assert code not in {fault.code for fault in judged.violations}


def older(edit: Edit = Report.copy) -> bytes:
    report = reports.legacy()
    edit(report)
    return json.dumps(report).encode()


def of(report: Report) -> bytes:
    return json.dumps(report).encode()


PARITY = of(reports.parity())
SAMPLES = ("throughput", "k3_cross_model", "stage_timings")
# By code and words of the message: the files, the wanted kinds, and words of the fix.
FILES = {
    ("UNREADABLE", "cut off after 1 bytes"): (b"{", None, "kakeya-engine"),
    ("TOO_LARGE", "larger than"): (b" " * (64 << 20) + b"{}", None, "fewer prompts"),
    ("NO_REPORT", "no report of kind kakeya.native"): (PARITY, [kinds.PARITY, kinds.NATIVE], "in the job"),
    ("NO_REPORT", "2 reports of kind kakeya.parity are due"): (PARITY, [kinds.PARITY] * 2, "in the job"),
    ("WRONG_KIND", "'kakeya.parity', not kakeya.native"): (PARITY, [kinds.NATIVE], "preset"),
    ("NO_RUN", "no run vouches for this file"): (PARITY, None, "kakeya measure"),
    # The earlier system
    ("OLDER_REPORT", "nothing about its machine"): (older(), None, "measure again"),
    ("OTHER_VERSION", "is 1, not 2"): (older(put("schema_version", to=1)), None, "measure again"),
    ("ROW_CONTRADICTS", "2 samples were restored and 1 were not"): (
        older(put(*SAMPLES, 0, "restoration_active", to=False)), None, "",
    ),
    ("SELF_COMPARISON", "no sample was restored"): (older(put(*SAMPLES, to=[])), None, ""),
    ("CLAIM_NOT_FROM_ROWS", "recall_oracle is 0.9; the samples give 0.6667"): (
        older(put("gate", "recall_oracle", to=0.9)), None, "",
    ),
    ("CLAIM_NOT_FROM_ROWS", "decode_only.speedup"): (
        older(put("results", "oracle", "per_sample_decode_tokens", to=[])), None, "",
    ),
    ("OUTPUT_LOOPS", "sample 0 repeats itself"): (
        older(put("results", "k3_cross_model", "per_sample_decoded", 0, to="ab " * 40)), None, "store more bits",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("code", "mistake"), FILES)
def test_a_file_that_is_not_accepted_says_why(code, mistake):
    data, wanted, remedy = FILES[code, mistake]

    judged = judge({"a.json": data}, kinds=wanted)

    found = [fault.message for fault in judged.violations if fault.code == code]
    found += [note for note in judged.notes if f": {code}: " in note]
    assert [message for message in found if mistake in message], judged
    assert remedy in CODES[code].fix
    assert judged.verdict == ("REJECTED" if CODES[code].effect == "REJECTED" else "INCOMPLETE")


def test_a_run_that_leaves_no_report_is_incomplete():
    judged = judge({"a.txt": b"{}"})

    assert judged.verdict == "INCOMPLETE"
    assert [(fault.code, fault.message) for fault in judged.violations] == [
        ("NO_REPORT", "the preset promises a report and the run left none")
    ]


# Codes about runs, which test_binding.py and test_run_file.py show, and about time, which test_odd_values.py does.
ELSEWHERE = {
    "LEFT_OUT", "OTHER_SIGNER", "BAD_RUN", "NOT_THIS_RUN", "OTHER_TIME", "EDITED", "RUN_UNNAMED", "JUDGED_TOO_LONG",
    # About kinds that a preset declares: test_own_kinds.py.
    "KIND_NOT_DECLARED", "SCHEMA_MISMATCH", "CLAIM_MISSING", "NOT_A_NUMBER", "TOO_FEW_SAMPLES", "RATIO_BY_ZERO",
    "CLAIM_NOT_FROM_SAMPLES", "CHECKED",
}  # fmt: skip


def test_every_code_has_a_case():
    cases = {*CASES, *CLAIMED, *FEW} | {code for code, _ in FILES}

    assert cases | ELSEWHERE == set(CODES)


def test_checks_are_few_and_described():
    names = [
        (module.__name__, each.name) for module in MODULES for each in CHECKS if each in vars(module).values()
    ]

    assert len(CHECKS) <= 120
    assert len(names) == len(set(names)) == len(CHECKS)
    assert all(check.statement.endswith(".") and check.kinds for check in CHECKS)
    assert {check.code for check in CHECKS} <= set(CODES)
    assert all(
        code.why and code.fix and code.effect in ("REJECTED", "INCOMPLETE", "NOTE") for code in CODES.values()
    )
