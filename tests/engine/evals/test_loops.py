"""Loops compared: one fused graph, two phases, and eager, at several context lengths."""

from dataclasses import replace

import pytest

from bridge.reports.claims.decoding import loop_crossovers
from engine import models
from engine.cli.bench import show
from engine.errors import BadInput
from engine.evals import needles
from engine.evals.speculation import bench
from engine.harness.job import run
from engine.harness.prompt_sets import CONTENT_CHANNEL, Prompt, Workload, encode
from tests.engine import evals_world, folders

LOOPS = ("fused", "two-phase", "eager")
PLAN = bench.SpeculationPlan(
    ("dflash",), loops=LOOPS, block=4, max_tokens=40, repeats=3, package=False, fixed_length=True
)


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    pair = models.load(folders.write_walker(tmp_path_factory.mktemp("walker")))
    texts = {
        "needles-8": "{0} = def f{0}(a):",
        "needles-40": "{0} import m{0}\n\nx{0} = m{0}.join(a{0}, b, c{0}, d, e{0}, f{0})",
    }
    workloads = [
        Workload(name, [Prompt(f"{name}/{i}", text.format(i * 7)) for i in (1, 2)], "code", "the test")
        for name, text in texts.items()
    ]
    made, _ = run(bench.speculation(pair, workloads, PLAN)[0])
    return made


def counted(report, loop):
    found = [row for row in report["rows"] if row["arm"] == f"dflash/auto/{loop}" and not row["warmup"]]
    assert found
    return found


@pytest.mark.long
def test_every_loop_decodes_the_same_tokens_to_the_full_length(report):
    by_prompt = {}
    for row in report["rows"]:
        by_prompt.setdefault(row["prompt"], set()).add(tuple(row["tokens"]))
        assert (row["stop"], len(row["tokens"])) == ("length", 40)
    assert [len(some) for some in by_prompt.values()] == [1] * 4


@pytest.mark.long
def test_rows_say_what_each_round_took(report):
    for loop in LOOPS:
        for row in counted(report, loop):
            parts = row["round_s"]
            assert {len(part) for part in parts.values()} == {len(row["commits"])}
            assert 0 < sum(map(sum, parts.values())) <= row["e2e_s"]


@pytest.mark.long
def test_loops_wait_as_often_as_they_are_said_to(report):
    for row in counted(report, "fused"):
        assert row["counters"]["syncs"] == len(row["commits"])
    for row in counted(report, "two-phase"):
        assert row["counters"]["syncs"] == len(row["commits"]) + sum(map(bool, row["drafted"]))
    for row in counted(report, "eager"):
        assert row["counters"]["syncs"] > len(row["commits"]) + sum(map(bool, row["drafted"]))


@pytest.mark.long
def test_one_graph_is_compared_with_the_other_loops_at_each_context(report):
    found = {
        (claim["against"], claim.get("where", {}).get("workload"))
        for claim in report["claims"]
        if claim["name"] == "decode_ratio" and claim["arm"] == "dflash/auto/fused"
    }
    others = {f"dflash/auto/{loop}" for loop in LOOPS[1:]}
    assert found >= {(other, name) for other in others for name in (None, "needles-8", "needles-40")}


def test_the_gate_believes_it(report):
    assert evals_world.violations(report) == []


@pytest.mark.parametrize(
    ("ratios", "least"),
    [({128: 1.2, 512: 0.9, 2048: 0.5}, 512), ({128: 0.9, 512: 1.1}, None), ({128: 0.8, 512: 0.9}, 128)],
)
def test_from_which_context_on_one_graph_loses(ratios, least):
    names = ("dflash/auto/fused", "dflash/auto/two-phase")
    told = [
        {"name": "decode_ratio", "arm": names[0], "against": names[1], "value": value, "where": {"workload": str(at)}}
        for at, value in ratios.items()
    ]  # fmt: skip

    assert loop_crossovers(told, {str(at): at for at in ratios}) == {names: least}


def test_the_verdict_is_printed(report, capsys):
    show.show_decoding(report)

    said = capsys.readouterr().out
    assert "longest wait" in said
    assert said.count("dflash/auto/fused is ") == 2


def test_chat_prompts_may_ask_for_the_code_alone_and_begin_in_the_content_channel(tmp_path):
    pair = models.load("tiny")
    made = needles.ask_directly(needles.make(pair.tokenizer, [256], [0.5], 2, 0, chat=True))
    plain, behind = (
        encode([made[0].prompt], pair.tokenizer, chat=True, begin=begin)[0].ids
        for begin in ("", CONTENT_CHANNEL)
    )

    assert needles.workload(made).shared["shared_suffix"].endswith(needles.DIRECTLY)
    assert behind[: len(plain)] == plain
    assert pair.tokenizer.decode(list(behind[len(plain) :])) == CONTENT_CHANNEL


def test_a_content_channel_without_a_chat_is_refused():
    workload = Workload("prompts", [Prompt("one", "def f(a):")], "code", "the test")
    with pytest.raises(BadInput, match="content channel"):
        bench.speculation(models.load("tiny"), [workload], replace(PLAN, content_channel=True))
