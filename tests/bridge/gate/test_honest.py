"""Honest runs on other machines, models and luck: each is accepted with its run, none is rejected."""

from __future__ import annotations

import gc
import json
import resource
import time
import tracemalloc
from collections.abc import Callable
from dataclasses import replace

import pytest

from bridge.gate import NO_RUN, check_report, judge, verdict
from bridge.reports import digests, kinds
from tests.bridge.gate import reports
from tests.bridge.gate.reports import Report, derived, digest

Edit = Callable[[Report], object]
KIND = {
    "spec": reports.spec_bench, "native": reports.native, "recall": reports.recall, "rd": reports.codec_rd,
    "restored": reports.restored_prefill, "verify": reports.verify_l, "quant": reports.kv_quant,
    "parity": reports.parity, "backends": reports.torch_parity, "served": reports.serve_conformance,
    "summed": reports.all_reduce, "ranks": reports.distributed,
    "solved": reports.pass_at_1, "compare": lambda: reports.compare(1.1),
}  # fmt: skip


def put(*path, to) -> Edit:
    """Return an edit that sets one value."""

    def edit(report: Report) -> None:
        for step in path[:-1]:
            report = report[step]
        report[path[-1]] = to

    return edit


def layers_once(report: Report) -> None:
    """Write the layers of each cache, which are equal, as one with their number."""
    for row in report["rows"]:
        layers = row["memory"]["layers"]
        row["memory"]["layers"] = [{**layers[0], "count": len(layers)}]


def identity(**fields) -> Edit:
    return lambda report: report["identity"].update(fields)


def every(part: str, **fields) -> Edit:
    return lambda report: [item.update(reports.copy(fields)) for item in report[part]]


def arms(role: str, **fields) -> Edit:
    return lambda report: [arm.update(fields) for arm in report["arms"] if arm["role"] == role]


def timed(
    change: Callable[[int, float, Report], float], pause_s: float = 0.0, tick: float | None = None
) -> Edit:
    """Return an edit of durations: from a row's number, its seconds of decoding, and the row. The clock may tick."""

    def on_tick(seconds: float) -> float:
        return seconds if tick is None else max(1, round(seconds / tick)) * tick

    def edit(report: Report) -> None:
        now = 0.0
        for i, row in enumerate(report["rows"]):
            row["started_s"] = on_tick(now)
            if "seconds" in row:
                row["seconds"] = on_tick(change(i, row["seconds"], row))
                now += row["seconds"]
            else:
                row["decode_s"] = on_tick(change(i, row["decode_s"], row))
                row["prefill_s"] = on_tick(row["prefill_s"])
                row["e2e_s"] = row["prefill_s"] + row["decode_s"]
                now += row["e2e_s"]
            now += pause_s + 1e-4
        report["seconds"] = now + 0.1

    return edit


def same(_: int, seconds: float, __: Report) -> float:
    return seconds


def answered(text: str) -> Edit:
    return lambda report: [row.update(text=text + row["text"]) for row in report["rows"]]


def bundled_before(report: Report) -> None:
    every("models", id="tiny-chat", weights=digest("before"))(report)
    report["config"]["model"] = "tiny-chat"


def named(asked: str, measured: str) -> Edit:
    """Return an edit that measures a model under another name than the one that it was asked for by."""
    return lambda report: every("models", id=measured)(report) and report["config"].update(model=asked)


def one_prompt(report: Report) -> None:
    report["prompts"] = report["prompts"][:1]
    report["rows"] = [row for row in report["rows"] if row["prompt"] == report["prompts"][0]["id"]]
    if "samples" in report["config"]:
        report["config"]["samples"] = 1


def alike(report: Report) -> None:
    for row in report["rows"]:
        row["tokens"], row["text"] = report["rows"][0]["tokens"], report["rows"][0]["text"]


def empty_answers(report: Report) -> None:
    for row in report["rows"]:
        row |= {"tokens": [reports.END], "text": "", "stop": "eos", "decode_tokens": 0, "decode_s": 0.0}
        row["e2e_s"] = row["prefill_s"]
        if "commits" in row:
            row |= {"commits": [], "drafted": [], "accepted": []}


def texts_of_windows(report: Report) -> None:
    for i, prompt in enumerate(report["prompts"]):
        text = f"Zeile {i}:\r\n\tdef größe(x):\r\n\t\treturn '日本語 🦄 é e\u0301 \u200b'\r\n"
        prompt |= {"text": text, "sha256": digest(text)}


def unsolved(report: Report) -> None:
    """Let the model solve nothing."""
    for row in report["rows"]:
        if row["arm"].endswith("raw"):
            row |= {"passed": False, "error": "SyntaxError"}


def looking_up(drafted: int) -> Edit:
    """Return an edit that makes the candidate look drafts up, of which so many were found in each round."""

    def edit(report: Report) -> None:
        arms("candidate", loop="engine.lookup", options={"drafter": "lookup"})(report)
        report["models"] = report["models"][:1]
        for row in report["rows"]:
            if row["arm"] == "dflash":
                n = reports.TOKENS - 1
                row |= {"commits": [1] * n, "drafted": [drafted] * n, "accepted": [0] * n, "counters": {}}

    return edit


def three_times_as_fast(report: Report) -> None:
    """Our own loops, with and without drafts, beside a slow mlx-lm."""
    timed(lambda _, seconds, row: seconds if row["arm"] == "mlx-lm" else seconds / 3)(report)


def rising_clock(report: Report) -> None:
    """Passes over a second context run while the GPU's clock rises."""
    rows = [
        row | {"context": 8192, "seconds": row["seconds"] * (1.3 - i / 50)}
        for i, row in enumerate(report["rows"])
    ]
    report["rows"] += rows
    report["config"]["contexts"] = [4096, 8192]
    timed(same)(report)


def resumed(report: Report) -> None:
    """The first rows are of an earlier run, whose clock was another one."""
    report["config"]["resumed_rows"] = 12
    for row in report["rows"][:12]:
        row["started_s"] += 1e6


# Kinds whose rows always have counters.
COUNTING = (kinds.RECALL, kinds.RESTORED, kinds.SERVE, kinds.TORCH_PARITY)


def older(report: Report) -> None:
    """Fields that reports did not have yet."""
    for row in report["rows"]:
        row.pop("started_s", None)
        row.pop("counters" if report["kind"] not in COUNTING else "", None)
    report["identity"].pop("power")
    report["identity"].pop("memory_bytes")
    report["identity"].pop("cores")
    for arm in report.get("arms", []):
        arm.pop("options")


def further_arm(report: Report) -> None:
    """A drafter, a rollback and an arm option that no list knows."""
    config = {"drafters": ["oracle-tree"], "rollbacks": ["undo-log"]}
    report["config"] |= config
    for arm in report["arms"]:
        if arm["role"] == "candidate":
            arm |= {"name": "oracle-tree/undo-log/wide", "options": {"tree_width": 7, "new": {"a": [1]}}}
    for row in report["rows"]:
        if row["arm"] == "dflash":
            row["arm"] = "oracle-tree/undo-log/wide"


def cached_in(cache: str) -> Edit:
    """Return an edit that measures a cache in all arms of a benchmark."""
    return lambda report: every("arms", cache=cache)(report) or report["config"].update(cache=cache)


def codec_named(cache: str) -> Edit:
    """Return an edit that gives a codec another name."""

    def edit(report: Report) -> None:
        report["config"]["caches"] = [
            cache if name == "e8v@4.25" else name for name in report["config"]["caches"]
        ]
        for arm in report["arms"]:
            arm["cache"] = cache if arm["cache"] == "e8v@4.25" else arm["cache"]

    return edit


def new_kind_of_cache(report: Report) -> None:
    for row in report["rows"]:
        for layer in row["memory"]["layers"]:
            layer["kind"] = "PagedRingCache v2"


def sliding(report: Report) -> None:
    """Only sliding layers evict: the others find every needle alone, and only predictions tell."""
    report["config"] |= {"layers": "sliding"}
    moved = {"mlx-lm": 0.0, "e8": 0.5, "same": 1e-6, "noise": 90.0, "nothing": 80.0}
    for row in report["rows"]:
        row["prediction"] = {"n_positions": 40, "sum_kl": moved[row["arm"]], "same_top": 30}
        row |= {key: report["rows"][0][key] for key in ("tokens", "text")}


def to_rows(where: Report, change: Edit) -> Edit:
    """Return an edit of the rows that hold these values."""
    return lambda report: [change(row) for row in report["rows"] if where.items() <= row.items()]


def rows(where: Report, **fields) -> Edit:
    return to_rows(where, lambda row: row.update(reports.copy(fields)))


def other_tokens(name: str, **divergence) -> Edit:
    """Return an edit that lets an arm leave its oracle at the fifth token, with or without a recorded reason."""

    def edit(report: Report) -> None:
        for row in report["rows"]:
            if row["arm"] == name and row["prompt"] == "code-0":
                theirs = row["tokens"][4]
                row["tokens"] = [*row["tokens"][:4], *[token + 1 for token in row["tokens"][4:]]]
                if divergence:
                    best = [[theirs, 30.0], [theirs + 1, 29.9]]
                    row["divergence"] = {
                        "index": 4,
                        "best": best,
                        "margin": 0.1,
                        "rounding": 0.06,
                    } | divergence

    return edit


def cell(
    draft: str = "none", cache: str = "raw", warm: bool = False, clients: int = 1, form: str = "free"
) -> Report:
    return {"draft": draft, "cache": cache, "warm": warm, "clients": clients, "form": form}


def nothing_proposed(row: Report) -> None:
    row["counters"] |= {"proposed": 0, "accepted": 0}


def ranks_part(**fields) -> Edit:
    """Return an edit after which two ranks leave one host's tokens, with these fields of the recorded reason."""
    ours, theirs = [1, 9, 3], [1, 2, 3]
    parting = {
        "index": 1,
        "best": [[2, 3.0], [9, 2.95]],
        "rounding": 0.02,
        "ours": ours,
        "theirs": theirs,
        **fields,
    }

    def edit(report: Report) -> None:
        digest_of_ours = f"sha256:{digests.tokens_digest(ours)}"
        rows({"rank": 0, "prompt": "a"}, tokens=ours, digest=digest_of_ours)(report)
        rows({"rank": 1, "prompt": "a"}, digest=digest_of_ours)(report)
        if fields:
            rows({"rank": 0, "prompt": "a"}, divergence=parting)(report)

    return edit


def parted(**fields) -> Edit:
    """Return an edit after which an answer of the server differs from the single client's."""
    ours, theirs = [1, 2, 3], [1, 5, 3]

    def edit(report: Report) -> None:
        from bridge.gate.checks.served import digest_of  # noqa: PLC0415

        rows({"cache": "raw", "form": "free", "question": 0}, tokens=digest_of(theirs))(report)
        divergence = {
            "index": 1, "best": [[2, 3.0], [5, 2.95]], "margin": 0.05, "rounding": 0.02, "ours": ours, "theirs": theirs,
        }  # fmt: skip
        rows(cell("lookup") | {"question": 0}, tokens=digest_of(ours), divergence=divergence | fields)(report)

    return edit


# Kind of report, what was otherwise, and the notes on it.
TWINS: dict[str, tuple[str, Edit, set[str]]] = {
    # Clocks, pauses and machines
    "equal layers that are written once": ("spec", layers_once, set()),
    "ticks of 41.67 ns": ("spec", timed(same, tick=1 / 24e6), set()),
    "ticks of 1 us": ("spec", timed(same, tick=1e-6), set()),
    "ticks of 1 us over passes": ("verify", timed(same, tick=1e-6), set()),
    "sleeps between rows": ("spec", timed(same, pause_s=10.0), set()),
    "throttling": ("spec", timed(lambda i, s, _: s * (1 + i / 100)), set()),
    "one run beside another program": ("spec", timed(lambda i, s, _: s * (1.8 if i == 7 else 1)), set()),
    "load": ("spec", identity(load=[31.5, 12.0, 7.0]), set()),
    "battery": ("spec", identity(power={"plugged": False, "percent": 41}), {"LOW_POWER"}),
    "battery of an unknown level": ("verify", identity(power={"plugged": False}), {"LOW_POWER"}),
    "low power": ("spec", identity(power={"plugged": True, "low_power": True}), {"LOW_POWER"}),
    "an unknown power source": ("spec", identity(power={}), set()),
    "an unknown chip": ("spec", identity(chip="Apple M9 Ultra", device="gpu", cores=None, memory_bytes=None), set()),
    "a GPU by its number": ("verify", identity(device="Device(gpu, 0)", os="Linux 7.1", blas={"x": [1]}), set()),
    "a GPU's clock that rises over contexts": ("verify", rising_clock, set()),
    "an interrupted run that goes on": ("spec", resumed, set()),
    # Models
    "bfloat16": ("spec", every("models", dtype="bfloat16"), set()),
    "float16": ("recall", every("models", dtype="float16"), set()),
    "float32": ("quant", every("models", dtype="float32"), set()),
    "4-bit weights": ("spec", every("models", quantization="affine@4g64"), set()),
    "a model that was trained again": ("recall", every("models", weights=digest("later")), set()),
    "a bundled model of before": ("spec", bundled_before, set()),
    "a published model by its short name": ("spec", named("qwen3-8b", "Qwen/Qwen3-8B"), set()),
    "a folder with a target in it": ("quant", named("mine", "mine/target"), set()),
    "rounding that swaps near logits": ("spec", other_tokens("dflash", index=4), set()),
    "rounding that swaps three near logits, of which two others are the best": (
        "spec", other_tokens("dflash", best=[[1, 30.05], [2, 30.02]]), set(),
    ),
    "an installation without git": ("spec", put("identity", "code", "commit", to=None), set()),
    # Two backends
    "near ties between backends": ("backends", other_tokens("torch/raw", index=4), set()),
    "packed answers that part": ("backends", other_tokens("torch/e8v@4.25"), set()),
    "published codes of which a few differ": (
        "backends",
        lambda report: (
            codec_named("e8@q38")(report), rows({"arm": "torch/e8v@4.25", "repeat": 1}, codes=["0" * 16] * 8)(report),
        ),
        set(),
    ),
    # Prompts and answers
    "unicode and Windows line ends": ("spec", texts_of_windows, set()),
    "one prompt": ("spec", one_prompt, {"NOTHING_CLAIMED"}),
    "one needle": ("recall", one_prompt, set()),
    "empty answers": ("spec", empty_answers, {"NOTHING_CLAIMED", "DRAFTED_NOTHING"}),
    "answers with <think>": ("spec", answered("<think>\nOkay, so"), set()),
    "answers alike across prompts": ("spec", alike, set()),
    "lookup that drafted nothing": ("spec", looking_up(0), {"DRAFTED_NOTHING"}),
    "lookup that was refused": ("spec", looking_up(3), set()),
    "no problem is solved": ("solved", unsolved, set()),
    "solutions that were cut off": ("solved", put("rows", 4, "stop", to="length"), {"ANSWERS_CUT"}),
    "a cache of few bits that loops": (
        "recall", rows({"arm": "e8"}, tokens=[9] * 30, text=" w9" * 30, decode_tokens=29, stop="length"),
        {"OUTPUT_LOOPS", "ANSWERS_CUT"},
    ),
    # Loops, rollbacks, caches, codecs and options that no list knows
    "loops three times as fast as mlx-lm": ("spec", three_times_as_fast, {"SLOW_BASELINE"}),
    "a new drafter, rollback and option": ("spec", further_arm, set()),
    "a new engine option": ("spec", put("config", "speculate_twice", to={"deep": [1, None]}), set()),
    "a new loop": ("spec", arms("candidate", loop="engine.speculate-ahead"), set()),
    "a new one-row loop": ("native", arms("verify1", loop="engine.fused"), set()),
    "a new kind of cache": ("spec", new_kind_of_cache, set()),
    "a new codec of the cache": ("recall", codec_named("zip9@3.1"), set()),
    "a new codec of keys and values": ("quant", codec_named("zip9@3.1"), set()),
    "keys and values stored apart": ("quant", codec_named("k=e8v@4.25,v=raw"), set()),
    "drafts over keys and values stored apart": ("spec", cached_in("k=e8v@4.25,v=e8v@3.25"), set()),
    "a new code of vectors": ("rd", every("rows", codec="zip9"), set()),
    "a new place for the cache": ("spec", cached_in("paged+zip9@3.1/host"), set()),
    "caches of one kind": ("spec", cached_in("affine@4g64"), set()),
    "only sliding layers evict": ("restored", sliding, set()),
    "a near tie of ranks": ("ranks", ranks_part(margin=0.05), set()),
    "a near tie of the server": ("served", parted(), set()),
    "a server's answer with nothing to look up": ("served", to_rows(cell("lookup"), nothing_proposed), set()),
    **{
        f"the rollback {name}": ("spec", arms("candidate", options={"rollback": name}), set())
        for name in ("auto", "trim", "replay", "snapshot", "window")
    },
    "a slower tree": ("compare", put("seconds", to=100.0), set()),
    "a tree that prints more of what is better": ("compare", put("config", "better", to="higher"), set()),
    # Older reports
    **{
        f"an older report: {kind}": (kind, older, set())
        for kind in KIND
        if kind not in ("recall", "restored", "compare")
    },
}  # fmt: skip


@pytest.mark.parametrize("name", TWINS)
def test_an_honest_run_is_accepted(name):
    kind, edit, notes = TWINS[name]
    report = KIND[kind]()
    edit(report)
    report, run = reports.vouched(derived(report))

    judged = judge({"report.json": json.dumps(report).encode()}, run=run)

    assert [(fault.code, fault.message) for fault in judged.violations] == []
    assert judged.verdict == "ACCEPTED"
    assert {note.split(": ")[1] for note in judged.notes} == notes
    loose = check_report(report, NO_RUN)
    assert {fault.code for fault in loose} == {"NO_RUN"}


@pytest.mark.parametrize("name", reports.REAL_NAMES)
def test_a_real_report_is_accepted_with_its_run(name):
    report, run = reports.vouched(reports.real(name), argvs=())

    assert check_report(report, run) == []


@pytest.mark.parametrize("name", reports.REAL_NAMES)
def test_a_real_report_without_a_run_is_incomplete(name):
    assert [fault.code for fault in check_report(reports.real(name))] == ["NO_RUN"]


UNEVEN = {
    "a busy machine": ("spec", timed(lambda i, s, _: s * (1 if i % 9 < 3 else 3)), {"DECODE_SPREAD"}),
    "busy passes": ("verify", timed(lambda i, s, _: s * (1 if i < 8 else 4)), {"DECODE_SPREAD"}),
    "prefill beside other programs": (
        "spec", lambda report: [
            row.update(prefill_s=2.0, e2e_s=2.0 + row["decode_s"]) for row in report["rows"] if row["repeat"] == 1
        ] and timed(same)(report), {"PREFILL_SPREAD"},
    ),
    "plain decoding that is not deterministic": (
        "native", lambda report: report["rows"][0].update(tokens=[*report["rows"][0]["tokens"][:-1], 7]),
        {"BASELINE_UNSTEADY"},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", UNEVEN)
def test_what_is_too_uneven_to_judge_is_incomplete(name):
    kind, edit, codes = UNEVEN[name]
    report = KIND[kind]()
    edit(report)
    report["identity"]["load"] = [9.5]
    report, run = reports.vouched(derived(report))

    found = check_report(report, run)

    assert verdict(found) == "INCOMPLETE"
    assert {fault.code for fault in found} == codes
    for fault in found:
        if fault.code in ("DECODE_SPREAD", "PREFILL_SPREAD"):
            assert "the load was 9.5 on 8 cores" in fault.message
            assert "--max-repeats" in fault.mend


def test_on_battery_an_uneven_run_says_so():
    report = reports.spec_bench()
    UNEVEN["a busy machine"][1](report)
    report["identity"]["power"] = {"plugged": False}
    report["identity"]["cores"] = None

    (message, *_) = [
        fault.message for fault in check_report(derived(report)) if fault.code == "DECODE_SPREAD"
    ]

    assert "the load was 0.1, and the machine ran on battery" in message


def test_some_of_the_claims_may_be_missing():
    report = reports.spec_bench()
    report["claims"] = report["claims"][::2]
    report, run = reports.vouched(report)

    assert check_report(report, run) == []


def test_the_requesters_own_engine_is_never_plainly_accepted():
    report, run = reports.vouched(reports.native())
    data = {"a.json": json.dumps(report).encode()}

    assert judge(data, run=replace(run, requester_measured=True)).verdict == "ACCEPTED_BY_REQUESTER"


def deep_model(layers: int = 64, arms_: int = 10, prompts: int = 50, repeats: int = 9) -> bytes:
    """Return a large report as bytes, each layer of each row written out."""
    report = reports.spec_bench(
        texts=tuple(f"{text} {i}" for i in range(prompts) for text in reports.TEXTS[:1])
    )
    candidates = [f"drafts-{i}" for i in range(arms_ - 2)]
    report["arms"] = [*report["arms"][:2], *(report["arms"][2] | {"name": name} for name in candidates)]
    templates = {
        row["prompt"]: row for row in report["rows"] if row["arm"] == "dflash" and row["repeat"] == 0
    }
    plain = {row["prompt"]: row for row in report["rows"] if row["arm"] == "one-pass" and row["repeat"] == 0}
    cache, clock, rows = reports.memory(300, layers=layers), reports.Clock(), []
    for prompt in report["prompts"]:
        for repeat in range(repeats):
            for arm in report["arms"]:
                row = (templates if arm["role"] == "candidate" else plain)[prompt["id"]] | {"memory": cache}
                row |= {"arm": arm["name"], "repeat": repeat, "started_s": clock.pass_by(row["e2e_s"])}
                rows.append(row)
    report |= {"rows": rows, "seconds": clock.now + 1}
    report["config"]["repeats"] = repeats
    return json.dumps(derived(report)).encode()


@pytest.mark.long
def test_a_deep_model_is_judged_in_bounded_time_and_memory():
    data = deep_model()
    assert len(data) > 30_000_000
    gc.collect()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    began = time.process_time()

    judged = judge({"deep.json": data})

    assert {fault.code for fault in judged.violations} == {"NO_RUN"}
    assert time.process_time() - began < 60
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 1_500_000  # KiB


@pytest.mark.long
def test_equal_layers_are_one_object_in_memory():
    few, many = (
        deep_model(layers=4, arms_=3, prompts=5, repeats=3),
        deep_model(layers=64, arms_=3, prompts=5, repeats=3),
    )
    peaks = []
    for data in (few, many):
        tracemalloc.start()
        judge({"deep.json": data})
        peaks.append(tracemalloc.get_traced_memory()[1] - len(data))
        tracemalloc.stop()

    assert peaks[1] < 4 * peaks[0]
