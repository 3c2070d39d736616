import importlib.util
import itertools
import json
import shutil
from dataclasses import replace

import pytest

from bridge.reports.claims import decoding
from bridge.reports.claims.why_no_speed import why_no_speed
from bridge.reports.counted import CountedRows
from engine import cli, models
from engine.attention import router
from engine.cache import make_caches
from engine.cli.bench import show
from engine.dflash.step import Step
from engine.errors import BadInput
from engine.evals.speculation import arms
from engine.evals.speculation import bench as spec
from engine.harness import cache_bytes, prompt_sets, rows
from engine.harness import job as evals_job
from engine.harness.arm import interleave
from engine.mx import mx
from tests.engine import evals_world, folders

PLAN = spec.SpeculationPlan(drafters=("dflash", "lookup"), max_tokens=34, repeats=3)
installed = pytest.mark.skipif(importlib.util.find_spec("dflash") is None, reason="needs the dflash package")


def benchmark(pair, some, plan):
    """Return the report of one workload, and what the engine's loop decoded wrongly, a line each."""
    workloads = [prompt_sets.Workload(spec.WORKLOAD, some, "code", "the test")]
    job, made = spec.speculation(pair, workloads, plan)
    report, _ = evals_job.run(job)
    return report, spec.faults(report["rows"], made)


@pytest.fixture(scope="session")
def walker(tmp_path_factory):
    return folders.write_walker(tmp_path_factory.mktemp("walker"))


@pytest.fixture(scope="session")
def pair(walker):
    return models.load(walker)


@pytest.fixture(scope="session")
def asked():
    return [
        prompt_sets.Prompt("one", "def f(a):\n    return a"),
        prompt_sets.Prompt("two", "import os\n\nx = os.path"),
    ]


@pytest.fixture(scope="session")
def measured(pair, asked):
    report, faults = benchmark(pair, asked, PLAN)
    return json.loads(json.dumps(report, allow_nan=False)), faults


@pytest.fixture(scope="session")
def report(measured):
    return measured[0]


def _start(tokens):
    """A loop that says these tokens, one a step."""

    def start(ids, most, caches):
        for i, token in enumerate(tokens):
            yield Step((token,), finish_reason="length" if i + 1 == len(tokens) else None)

    return start


@pytest.mark.long
def test_every_arm_runs_once_in_each_cell_and_the_order_moves(report):
    names = [arm["name"] for arm in report["arms"]]
    rows = [row for row in report["rows"] if "profile" not in row]
    cells = [rows[i : i + len(names)] for i in range(0, len(rows), len(names))]
    orders = []
    for cell in cells:
        assert len({(row["prompt"], row["repeat"]) for row in cell}) == 1
        assert sorted(row["arm"] for row in cell) == sorted(names)
        orders.append([row["arm"] for row in cell])
    assert len(cells) == 2 * (PLAN.repeats + 1)
    for prompt in (0, 1):
        assert len({tuple(order) for order in orders[prompt::2]}) == PLAN.repeats + 1
    for one, other in itertools.combinations(names, 2):
        turns = [row["arm"] for row in rows if row["arm"] in (one, other)]
        assert max(len([*run]) for _, run in itertools.groupby(turns)) <= 2
    assert all(row["warmup"] == (row["repeat"] == 0) for row in rows)


@pytest.mark.long
def test_all_arms_decode_what_mlx_lm_does(measured):
    report, faults = measured
    assert not faults
    tokens = {(row["prompt"], tuple(row["tokens"])) for row in report["rows"]}
    assert len(tokens) == 2
    same = {c["arm"]: c["value"] for c in report["claims"] if c["name"] == "identical_outputs"}
    assert set(same) == {arm["name"] for arm in report["arms"]} - {"native"}
    assert set(same.values()) == {1.0}


@pytest.mark.long
def test_lookup_drafts_and_its_rounds_add_up(report):
    rows = [row for row in report["rows"] if row["arm"] == "lookup/auto" and not row["warmup"]]
    for row in rows:
        assert sum(row["commits"]) == len(row["tokens"]) == 34
        assert len(row["commits"]) == row["counters"]["rounds"] < 30
        assert row["counters"]["syncs"] >= row["counters"]["rounds"]
        assert sum(row["accepted"]) > 6
    tau = next(
        c["value"] for c in report["claims"] if (c["name"], c["arm"]) == ("accept_length", "lookup/auto")
    )
    rounds = sum(len(row["commits"]) for row in rows)
    assert tau == 34 * len(rows) / rounds


def test_drafting_arms_say_where_their_time_went(report):
    profiled = [row for row in report["rows"] if "profile" in row]
    assert {row["arm"] for row in profiled} == {"dflash/auto", "lookup/auto"}
    for row in profiled:
        assert row["warmup"]
        assert sum(row["profile"].values()) == pytest.approx(1)
    draft = next(row["profile"]["draft_share"] for row in profiled if row["arm"] == "dflash/auto")
    assert draft > 0.01


def test_bytes_are_those_of_live_arrays(pair):
    for cache in ("raw", "e8v@4.25", "affine@4g64", "e8@q38"):
        caches = make_caches(pair.target, cache)
        mx.eval(pair.target(mx.array([[1, 2, 3]]), cache=caches))
        held = cache_bytes.live(caches)
        assert held["cache_bytes"] == sum(c.nbytes for c in caches) > 0, cache
        assert sum(layer.get("count", 1) for layer in held["layers"]) == 2  # those that are alike stand once


def test_the_gate_believes_the_report(report):
    assert evals_world.violations(report) == []


@pytest.mark.long
def test_over_a_packed_cache_the_baselines_keep_mlx_lms_own(pair, asked):
    """And run in mlx-lm as it is installed, or the gate would refuse what is claimed over them."""
    plan = replace(PLAN, cache="e8v@4.25", drafters=("dflash",), repeats=1, max_tokens=8)
    report, faults = benchmark(pair, asked[:1], plan)
    assert not faults
    found = {
        arm["name"]: (arm["role"], arm["cache"], arm["oracle"], arm["patches"]) for arm in report["arms"]
    }
    patch = ["mlx_lm.models.qwen3.scaled_dot_product_attention"]
    assert found == {
        "native": ("baseline", "raw", None, []),
        "verify1": ("verify1", "raw", "native", []),
        "native e8v@4.25": ("reference", "e8v@4.25", None, patch),
        "incremental": ("reference", "e8v@4.25", "native e8v@4.25", patch),
        "dflash/auto": ("candidate", "e8v@4.25", "native e8v@4.25", patch),
    }
    kinds = {row["arm"]: row["memory"]["layers"][0]["kind"] for row in report["rows"]}
    assert (kinds["native"], kinds["native e8v@4.25"]) == ("KVCache", "PackedKVCache")
    assert evals_world.violations(report) == []


def test_an_arm_without_patches_runs_in_mlx_lm_as_it_is_installed(pair):
    """Also where caches of another arm had its attention replaced before."""
    make_caches(pair.target, "e8v@4.25")
    bound = []

    def start(ids, most, caches):
        bound.append(router.patched_names(pair.target))
        yield Step((1,), finish_reason="length")

    plain = _broken(pair, [])
    rows.decode(replace(plain, decode=start), [5], 1, {0}, [])
    rows.decode(replace(plain, decode=start, patches=router.patched_names(pair.target)), [5], 1, {0}, [])
    assert bound[0] == ()
    assert bound[1]


def test_a_baseline_over_a_cache_of_ours_is_refused(pair, asked):
    workload = prompt_sets.Workload("w", asked, "code", "the test")
    with pytest.raises(BadInput, match=r"does not decode over e8v@4\.25 by itself"):
        spec.baseline(pair, workload, replace(PLAN, cache="e8v@4.25"))


@pytest.mark.long
def test_an_interrupted_benchmark_goes_on_where_it_stopped(pair, asked, tmp_path, monkeypatch):
    plan = replace(PLAN, drafters=("lookup",), package=False, repeats=1, max_tokens=4)
    job, _ = spec.speculation(pair, [prompt_sets.Workload("w", asked, "code", "the test")], plan)
    calls, run = [], rows.decode

    def stopping(*args, **kwargs):
        calls.append(args[0].name)
        if len(calls) == 7:
            raise KeyboardInterrupt
        return run(*args, **kwargs)

    monkeypatch.setattr(rows, "decode", stopping)
    out = tmp_path / "spec.json"
    with pytest.raises(KeyboardInterrupt):
        evals_job.run(job, out)
    made, journal = evals_job.run(job, out)
    assert made["config"]["resumed_rows"] == journal.resumed == 6
    assert len(calls) == len(made["rows"]) + 1
    whole, _ = evals_job.run(job)
    named = [[(row["arm"], row["prompt"], row["repeat"]) for row in found["rows"]] for found in (made, whole)]
    assert named[0] == named[1]


@installed
def test_the_package_runs_on_a_target_of_its_own(pair, report):
    model_mlx = importlib.import_module("dflash.model_mlx")
    assert type(pair.target.model.layers[1]).__name__ == "TransformerBlock"
    assert model_mlx.make_prompt_cache.__module__ == "mlx_lm.models.cache"
    assert model_mlx.snapshot_download.__module__.startswith("huggingface_hub")
    row = next(row for row in report["rows"] if row["arm"] == arms.PACKAGE)
    assert sum(layer["count"] for layer in row["memory"]["layers"]) == 2
    assert sum(row["commits"]) == len(row["tokens"]) - 1
    assert row["drafted"][0] == 7
    told = next(arm for arm in report["arms"] if arm["name"] == arms.PACKAGE)
    assert told["patches"] == ["dflash.model_mlx.make_prompt_cache"]


def test_without_a_drafter_or_a_sound_rollback_arms_are_left_out(pair, walker, tmp_path):
    alone = models.load(walker, draft=False)
    found, left_out = spec.arms_of(alone, PLAN)
    assert [arm.name for arm in found] == ["native", "verify1", "incremental", "lookup/auto"]
    assert left_out == {"dflash/auto": "no draft model"}
    with pytest.raises(BadInput, match="no drafter is left"):
        benchmark(alone, [], replace(PLAN, drafters=("dflash",)))
    folders.write_target(tmp_path / "target", folders.GEMMA3)
    sliding = models.load(tmp_path)
    found, left_out = spec.arms_of(sliding, replace(PLAN, drafters=("lookup",), rollbacks=("trim", "late")))
    assert [arm.name for arm in found][3:] == ["lookup/late"]
    assert "cannot be trimmed" in left_out["lookup/trim"]


def _decoded(arm, ids, most):
    return rows.decode(arm, ids, most, {0}, arm.make(None))[0]


def _rows(both, encoded):
    turns = interleave(both, encoded, range(2))
    return [evals_job.by_turn(turn) | spec.row(turn, 12, {0}) for turn in turns]


def _broken(pair, tokens, loop=arms.OUR_LOOP):
    own = arms.incremental(pair, "raw")
    return replace(own, name="broken", decode=_start(tokens), loop=loop)


@pytest.fixture
def plain(pair, asked):
    encoded = prompt_sets.encode(asked[:1], pair.tokenizer, chat=False)
    return encoded, _decoded(arms.native(pair, "raw"), encoded[0].ids, 12)["tokens"]


def _judge(pair, plain, tokens):
    encoded, _ = plain
    both = [arms.native(pair, "raw"), _broken(pair, tokens)]
    found = _rows(both, encoded)
    spec.explain(found, both, encoded, pair)
    made = decoding.speculation_claims({"rows": found, "arms": [arm.section() for arm in both]})
    same = next(c["value"] for c in made if c["name"] == "identical_outputs")
    return next(row for row in found if row["arm"] == "broken"), spec.faults(found, both), same


@pytest.mark.long
def test_a_broken_arm_is_found(pair, plain):
    tokens = plain[1]
    wrong = [*tokens[:5], tokens[5] + 1, *tokens[6:]]
    row, faults, same = _judge(pair, plain, wrong)
    assert row["divergence"]["index"] == 5
    assert row["divergence"]["kind"] == "fault"
    assert row["divergence"]["best"][0][0] == tokens[5]
    assert row["divergence"]["best"][0][1] > row["divergence"]["best"][1][1] + 0.2
    assert faults == ["broken on one leaves native at token 5"]
    assert same == 0.0


@pytest.mark.long
@pytest.mark.rows(1)
@pytest.mark.parametrize("change", [lambda t: t[:-1], lambda t: [*t, t[0]]])
def test_too_few_tokens_and_too_many_are_faults(pair, plain, change):
    row, faults, _ = _judge(pair, plain, change(plain[1]))
    assert row["divergence"]["kind"] == "length"
    assert faults


@pytest.mark.long
def test_a_near_tie_is_no_fault(walker, tmp_path, asked):
    """Two tokens with equal rows in the head have equal logits, whatever was read."""
    folder = shutil.copytree(walker, tmp_path / "tied")
    pair = models.load(folder, draft=False)
    encoded = prompt_sets.encode(asked[:1], pair.tokenizer, chat=False)
    tokens = _decoded(arms.native(pair, "raw"), encoded[0].ids, 12)["tokens"]
    twin = 300

    def change(tensors):
        head = tensors["lm_head.weight"]
        rows = mx.arange(head.shape[0])
        tensors["lm_head.weight"] = head[mx.where(rows == twin, tokens[5], rows)]

    folders.change_tensors(folder / "target", change)
    pair = models.load(folder, draft=False)
    row, faults, same = _judge(pair, (encoded, tokens), [*tokens[:5], twin, *tokens[6:]])
    assert row["divergence"]["kind"] == "tie"
    assert {token for token, _ in row["divergence"]["best"]} == {tokens[5], twin}
    assert not faults
    assert same == 0.0


@pytest.mark.long
def test_another_loop_may_part_and_it_is_told(pair, plain):
    tokens = plain[1]
    wrong = _broken(pair, [*tokens[:5], tokens[5] + 1, *tokens[6:]], loop="somebody.else")
    both = [arms.native(pair, "raw"), wrong]
    found = _rows(both, plain[0])
    spec.explain(found, both, plain[0], pair)
    assert all("divergence" in row for row in found if row["arm"] == "broken")
    assert not spec.faults(found, both)


def test_a_first_round_of_several_tokens_counts_as_decoding(pair):
    def start(ids, most, caches):
        mx.eval(pair.target(mx.array(ids)[None], cache=caches))
        yield Step((1, 2, 3), prefill=1e-6)
        yield Step((4,))
        yield Step((), finish_reason="length")

    row = _decoded(replace(_broken(pair, []), decode=start), [5, 6], 4)
    assert (row["tokens"], row["decode_tokens"], row["prefill_s"]) == ([1, 2, 3, 4], 3, 1e-6)
    assert row["decode_s"] == pytest.approx(row["e2e_s"] - 1e-6)


@pytest.mark.long
def test_stops_are_told_apart(pair):
    ids = pair.tokenizer.encode("a #")
    row = _decoded(arms.native(pair, "raw"), ids, 40)
    assert (row["tokens"][-1], row["stop"]) == (0, "eos")
    for arm in (arms.incremental(pair, "raw"), arms.verify1(pair, "raw")):
        again = _decoded(arm, ids, 40)
        assert (again["tokens"], again["stop"]) == (row["tokens"], "eos")
    assert _decoded(arms.native(pair, "raw"), ids, 3)["stop"] == "length"


def _row(arm, prompt, repeat, seconds, **more):
    row = {"arm": arm, "prompt": prompt, "repeat": repeat, "warmup": repeat == 0, "tokens": [*range(41)]}
    times = {"prefill_s": 1.0, "decode_s": seconds, "e2e_s": 1.0 + seconds, "decode_tokens": 40}
    return {**row, **times, "memory": {"cache_bytes": 8}, **more}


def test_claims_are_medians_of_medians():
    told = [
        {"name": "native", "role": "baseline", "oracle": None},
        {"name": "ours", "role": "candidate", "oracle": "native"},
    ]
    rounds = {"commits": [20, 21], "drafted": [20, 20], "accepted": [19, 20]}
    rows = []
    for prompt, times in {"a": (1.0, 2.0, 3.0), "b": (1.0, 1.0, 1.0), "c": (4.0, 8.0, 4.0)}.items():
        rows.append(_row("native", prompt, 0, 1e9))
        for repeat, seconds in enumerate(times, 1):
            rows.append(_row("native", prompt, repeat, seconds))
            rows.append(_row("ours", prompt, repeat, {"a": 0.5, "b": 2.0, "c": 1.0}[prompt], **rounds))
    made = {(c["name"], c["arm"]): c for c in decoding.speculation_claims({"rows": rows, "arms": told})}
    assert made["decode_tok_s", "native"]["value"] == 20  # of 20, 40 and 10
    assert made["decode_tok_s", "native"]["interval"] == [10, 40]
    assert made["decode_speedup", "ours"]["value"] == 4  # of 80 / 20, 20 / 40 and 40 / 10
    assert made["worst_speedup", "ours"]["value"] == 0.5
    assert made["e2e_speedup", "ours"]["value"] == pytest.approx(2)
    assert made["accept_length", "ours"]["value"] == 20.5
    assert made["accept_rate", "ours"]["value"] == 39 / 40
    assert all(len(c["definition"]) >= 10 for c in made.values())
    few = decoding.speculation_claims({"rows": [row for row in rows if row["repeat"] < 3], "arms": told})
    assert not {c["name"] for c in few} & {"decode_tok_s", "decode_speedup", "worst_speedup", "e2e_speedup"}
    one = decoding.speculation_claims({"rows": [row for row in rows if row["prompt"] == "a"], "arms": told})
    assert all(c["where"] == {"prompt": "a"} for c in one)


NO_DRAFTS = {"commits": [1] * 40, "drafted": [0] * 40, "accepted": [0] * 40}
DRAFTS = {"commits": [20, 21], "drafted": [20, 20], "accepted": [19, 20]}
LOOPS = [
    {"name": "native", "role": "baseline", "cache": "raw", "oracle": None},
    {"name": "verify1", "role": "verify1", "cache": "raw", "oracle": "native"},
    {"name": "incremental", "role": "reference", "cache": "raw", "oracle": "native"},
    {"name": "package", "role": "reference", "cache": "raw", "oracle": "native"},
    {"name": "ours", "role": "candidate", "cache": "raw", "oracle": "native"},
]


def _loops(ours, **seconds):
    """Rows of three repeats on each prompt: from names and prompts to the seconds of each repeat."""
    rows = []
    for arm, prompts_of in ({"ours": ours} | seconds).items():
        more = DRAFTS if arm in ("ours", "package") else NO_DRAFTS if arm == "incremental" else {}
        for prompt, times in prompts_of.items():
            rows += [_row(arm, prompt, repeat, time, **more) for repeat, time in enumerate((9, *times))]
    return rows


def _plain_claims(rows, told=LOOPS):
    there = {row["arm"] for row in rows}
    return decoding.plain_speedups(CountedRows(rows), [arm for arm in told if arm["name"] in there])


def test_speed_is_claimed_over_the_fastest_plain_loop_of_each_prompt():
    rows = _loops(
        {"a": (1, 1, 1), "b": (1, 1, 1)},
        native={"a": (8, 8, 8), "b": (2, 2, 2)},
        verify1={"a": (9, 9, 9), "b": (3, 3, 3)},
        incremental={"a": (4, 4, 4), "b": (3, 3, 3)},
        package={"a": (0.1, 0.1, 0.1), "b": (0.1, 0.1, 0.1)},
    )
    whole, worst = _plain_claims(rows)
    assert (whole["name"], whole["arm"], whole["value"], whole["interval"]) == (
        "plain_speedup",
        "ours",
        3,
        [2, 4],
    )
    assert (worst["name"], worst["value"]) == ("worst_plain_speedup", 2)
    assert "against" not in whole


def test_a_slow_baseline_flatters_nobody():
    fast = {"a": (2, 2, 2), "b": (2, 2, 2)}
    for slower in (1, 100):
        native = {prompt: [slower * time for time in times] for prompt, times in fast.items()}
        rows = _loops({"a": (1, 1, 1), "b": (1, 1, 1)}, native=native, verify1=fast)
        assert _plain_claims(rows)[0]["value"] == 2


def test_quotients_are_paired_within_a_repeat():
    """A machine that slows down slows both loops: each repeat gives the same quotient."""
    rows = _loops({"a": (1, 2, 4), "b": (3, 1, 1)}, native={"a": (2, 4, 8), "b": (6, 2, 2)})
    assert _plain_claims(rows)[0]["interval"] == [2, 2]


def test_the_fastest_plain_loop_is_that_with_the_greatest_median():
    rows = _loops({"a": (1, 1, 1)} | {"b": (1, 1, 1)}, native={"a": (3, 3, 3), "b": (3, 3, 3)},
                  incremental={"a": (1, 4, 4), "b": (5, 5, 1)})  # fmt: skip
    assert _plain_claims(rows)[0]["interval"] == [3, 3]


def test_loops_over_another_cache_do_not_count_but_the_baseline_does():
    told = [arm | {"cache": "e8v@4.25"} if arm["name"] == "ours" else arm for arm in LOOPS]
    rows = _loops({"a": (1, 1, 1), "b": (1, 1, 1)}, native={"a": (3, 3, 3), "b": (3, 3, 3)},
                  incremental={"a": (2, 2, 2), "b": (2, 2, 2)})  # fmt: skip
    assert _plain_claims(rows, told)[0]["value"] == 3
    assert _plain_claims(rows)[0]["value"] == 2


def test_no_speed_is_claimed_without_a_baseline_or_of_two_repeats():
    fast = {"a": (2, 2, 2), "b": (2, 2, 2)}
    rows = _loops(fast, native=fast)
    assert _plain_claims(rows)
    assert not _plain_claims(_loops(fast, incremental=fast))
    assert not _plain_claims([row for row in rows if row["repeat"] < 3])


@pytest.mark.parametrize(
    ("keep", "more", "said"),
    [
        (lambda row: row["repeat"] < 2, {}, "one repeat, three are needed (--repeats 3)"),
        (lambda row: row["prompt"] == "a", {}, "three runs of each arm, five are needed (more prompts: --max-prompts"),
        (bool, {"decode_tokens": 31}, "31 tokens after the first, 32 are needed (--max-tokens 64)"),
        (bool, {"decode_tokens": 0}, "has one token (--fixed-length"),
    ],
)  # fmt: skip
def test_what_a_claim_of_speed_lacks_is_named_with_the_option_that_helps(keep, more, said):
    fast = {"a": (2, 2, 2), "b": (2, 2, 2)}
    rows = [row | more for row in _loops(fast, native=fast) if keep(row)]
    about = {"rows": rows, "prompts": [{"id": "a", "workload": "w"}], "config": {"max_tokens": 32}}
    (sentence,) = why_no_speed(about)
    assert sentence.startswith("nothing is claimed about speed: ")
    assert said in sentence
    assert not [*why_no_speed(about | {"rows": _loops(fast, native=fast)})]


@pytest.mark.parametrize(
    ("about", "remedy"),
    [
        ({"config": {"max_tokens": 1}}, "at most 0 tokens after the first, 32 are needed (--max-tokens 64)"),
        ({"config": {"max_tokens": 99}, "kind": "kakeya.native"}, "has one token (--prompts with longer answers)"),
    ],
)  # fmt: skip
def test_a_remedy_is_one_that_helps_and_that_the_command_has(about, remedy):
    fast = {"a": (2, 2, 2), "b": (2, 2, 2)}
    rows = [row | {"decode_tokens": 0} for row in _loops(fast, native=fast)]
    assert remedy in next(why_no_speed({"rows": rows, "prompts": [], **about}))


@pytest.mark.parametrize(
    ("ours", "tight"),
    [
        ({"a": (1, 1, 1), "b": (2, 2, 2)}, True),
        ({"a": (1, 1.04, 1), "b": (2, 2, 2)}, True),
        ({"a": (1, 1.1, 1), "b": (2, 2, 2)}, False),
    ],
)
def test_repeats_go_on_until_the_paired_quotients_are_known_within_five_per_cent(ours, tight):
    rows = _loops(ours, native={"a": (2, 2, 2), "b": (3, 3, 3)})
    assert spec.has_tight(rows, LOOPS[:1] + LOOPS[-1:]) == tight


@pytest.mark.parametrize("arm", ["ours", "native"])
def test_answers_of_one_token_do_not_ask_for_repeats(arm):
    rows = _loops({"a": (1, 2, 3)}, native={"a": (2, 2, 2)})
    few = [row | {"decode_tokens": 0} if row["arm"] == arm else row for row in rows]
    assert spec.has_tight(few, LOOPS[:1] + LOOPS[-1:])


def test_nothing_is_claimed_of_rounds_where_every_answer_ends_with_its_first_token():
    told = [{"name": "ours", "role": "reference", "oracle": None}]
    none = {"commits": [], "drafted": [], "accepted": []}
    rows = [_row("ours", prompt, 1, 0.0, **none) for prompt in ("a", "b")]
    assert {claim["name"] for claim in decoding.speculation_claims({"rows": rows, "arms": told})} == {
        "cache_bytes"
    }


def test_bundled_prompts_are_code_that_goes_on():
    found = prompt_sets.read()
    assert len(found) >= 8
    assert all(len(prompt.text) > 400 and prompt.text.endswith("\n") for prompt in found)
    assert len(prompt_sets.read(most=3)) == 3


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        (None, "cannot be read"),
        (b"\xff\n", "cannot be read"),
        (b"", "no prompt"),
        (b"{", ":1 is no"),
        (b'{"id": "a"}', ":1 is no"),
        (b"[1]", ":1 is no"),
        (b'"one question"', ":1 is no"),
        (b'{"id": "a", "text": "x"}\n\n{"id": "a", "text": "y"}', ":3: the id 'a' is there twice"),
        (b'{"id": "?", "text": "x"}', "is no id"),
        (b'{"id": 1, "text": "x"}', "is no id"),
        (b'{"id": "a", "text": ""}', "text is empty"),
    ],
)
def test_prompts_that_are_none_are_refused(lines, words, tmp_path):
    path = tmp_path / "prompts.jsonl"
    if lines is not None:
        path.write_bytes(lines)
    with pytest.raises(BadInput, match=words):
        prompt_sets.read(path)


def test_long_prompts_stand_in_a_report_by_their_ends():
    section = prompt_sets.Prompt("long", "a" * 3000 + "b" * 3000, (1, 2)).section("w")
    assert (len(section["head"]), section["tail"][-1], section["n_tokens"]) == (1000, "b", 2)
    assert "text" not in section


def _run(capsys, *argv):
    with pytest.raises(SystemExit) as ended:
        cli.main(["bench", *argv])
    return ended.value.code, capsys.readouterr()


@pytest.mark.parametrize(
    "argv",
    [
        ["nonsense"],
        ["spec", "--drafters", "oracle"],
        ["spec", "--rollbacks", "hope"],
        ["spec", "--repeats", "0"],
        ["spec", "--block-size", "0"],
        ["spec", "--dtype", "int4"],
        ["verify-l", "--lengths", "0"],
        ["verify-l", "--lengths", "1,two"],
        ["verify-l", "--contexts", ""],
    ],
)
def test_bad_usage_is_two(argv, capsys):
    assert _run(capsys, *argv)[0] == 2


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["spec", "--model", "./nowhere"], "there is no folder"),
        (["spec", "--prompts", "nowhere.jsonl"], "cannot be read"),
        (["verify-l", "--model", "./nowhere"], "there is no folder"),
        (["verify-l", "--caches", "e9"], "no cache spec 'e9'"),
    ],
)
def test_what_cannot_be_measured_is_one_line(argv, words, capsys):
    code, said = _run(capsys, *argv)
    assert code == 2
    assert words in said.err
    assert "Traceback" not in said.err


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["--max-tokens", "128"], "tokens are more than the 100 that"),
        (["--chat"], "the model has no chat template\n  leave out --chat"),
    ],
)
def test_what_the_model_cannot_read_is_refused_before_anything_runs(argv, words, tmp_path, capsys):
    folder = folders.write_target(tmp_path / "model", {"max_position_embeddings": 100})
    (tmp_path / "p.jsonl").write_text('{"id": "p", "text": "def g"}')
    common = ["spec", "--model", str(folder), "--prompts", str(tmp_path / "p.jsonl"), "--drafters", "lookup"]
    code, said = _run(capsys, *common, *argv)
    assert code == 2, said.err
    assert words in said.err


def test_the_command_measures_writes_and_shows(walker, tmp_path, capsys):
    lines = '{"id": "p", "text": "def g"}'
    (tmp_path / "p.jsonl").write_text(lines)
    out = tmp_path / "reports" / "r.json"
    argv = ["--model", str(walker), "--prompts", str(tmp_path / "p.jsonl"), "--out", str(out)]
    argv += ["--drafters", "lookup", "--max-tokens", "8", "--repeats", "1", "--no-package"]
    code, said = _run(capsys, "spec", *argv)
    assert code == 0, said.err
    written = json.loads(out.read_text())
    assert written["kind"] == "kakeya.spec-bench"
    assert [arm["name"] for arm in written["arms"]] == ["native", "verify1", "incremental", "lookup/auto"]
    assert "lookup/auto" in said.out
    assert "1 of 1" in said.out


def test_the_command_fails_where_our_loop_does(report, walker, monkeypatch, capsys):
    module = importlib.import_module("engine.cli.bench.spec")
    monkeypatch.setattr(module, "carry_out", lambda *_, **__: report)
    monkeypatch.setattr(spec, "faults", lambda *_: ["dflash/auto on one leaves native at token 5"])
    code, said = _run(capsys, "spec", "--model", str(walker))
    assert code == 1
    assert "leaves native at token 5" in said.err


def test_tables_hold_an_arm_a_line(report, capsys):
    show.show_decoding(report)
    lines = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    for arm in report["arms"]:
        assert sum(line.strip().startswith(arm["name"]) for line in lines[: lines.index("Rounds")]) == 1
    best = max((c for c in report["claims"] if c["name"] == "plain_speedup"), key=lambda c: c["value"])
    (line,) = [line for line in lines if line.startswith("speed-up of ")]
    assert line.startswith(
        f"speed-up of {best['arm']}: {best['value']:.2f} over the fastest loop without drafts"
    )
    assert "…" not in "\n".join(lines)
