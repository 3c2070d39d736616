import json

import numpy as np
import pytest

from bridge.reports.kinds import STOCK_LOOP
from engine.attention import router
from engine.cache import make_caches
from engine.dflash.step import Step
from engine.errors import BadInput
from engine.evals import needles
from engine.evals import recall as evaluation
from engine.evals.controls import ControlCache, control_caches, noise, same
from engine.evals.liveness import counters
from engine.harness import prompt_sets, rows
from engine.harness.arm import Arm
from engine.harness.journal import Journal
from engine.lm import base
from engine.lm import cache as lm_cache
from engine.models import load
from engine.mx import mx
from tests.engine import evals_world as world
from tests.engine import folders
from tests.engine import small_models as models


class Words:
    """A tokenizer of words, for texts whose spaces do not matter."""

    def __init__(self):
        self.known = {}

    def encode(self, text):
        return [self.known.setdefault(word, len(self.known)) for word in text.split()]


@pytest.mark.parametrize(("depth", "notes_before"), [(0, 0), (0.5, 0.5), (1, 1)])
def test_a_needle_stands_where_it_is_said_to(depth, notes_before):
    (needle,) = needles.make(Words(), [300], [depth], 1, 7, chat=False)
    before, _, after = needle.prompt.text.partition(f"the secret code is {needle.expected}.")
    share = before.count("Note ") / (before.count("Note ") + after.count("Note "))
    assert share == pytest.approx(notes_before, abs=0.05)
    assert 285 < len(needle.prompt.ids) <= 300
    assert needle.prompt.text.count(needle.expected) == 1
    assert needle.prompt.text.endswith("\nQuestion: what is the secret code? Answer:")


def test_the_question_is_what_controls_leave_alone():
    words = Words()
    (needle,) = needles.make(words, [200], [0.5], 1, 7, chat=False)
    asked = {number: word for word, number in words.known.items()}
    last = [asked[i] for i in needle.prompt.ids[-needle.question_tokens :]]
    assert " ".join(last) == "Question: what is the secret code? Answer:"


def test_prompts_follow_the_seed_and_share_no_code():
    made = [needles.make(Words(), [100, 200], [0.2, 0.8], 3, seed, chat=False) for seed in (1, 1, 2)]
    assert made[0] == made[1]
    assert {n.expected for n in made[0]} != {n.expected for n in made[2]}
    assert len({n.expected for n in made[0]}) == 12
    assert len({n.prompt.id for n in made[0]}) == 12


def test_the_shared_texts_are_said():
    made = needles.make(Words(), [100], [0.2, 0.8], 3, 1, chat=False)
    about = needles.workload(made).section(chat=False)
    assert about["shared_suffix"].endswith(needles.QUESTION)
    assert all(n.prompt.text.endswith(about["shared_suffix"]) for n in made)
    assert all(n.prompt.text.startswith(about["shared_prefix"]) for n in made)


def test_one_prompt_shares_its_text_with_none():
    (needle,) = needles.make(Words(), [9000], [0.5], 1, 1, chat=False)
    about = needles.workload([needle]).section(chat=False)
    assert (about["shared_prefix"], about["shared_suffix"]) == ("", "")


def test_depths_that_are_close_have_names_of_their_own():
    made = needles.make(Words(), [100], [0, 0.1, 0.1000001], 1, 1, chat=False)
    assert [needle.id for needle in made] == ["100/0/0", "100/0.1/0", "100/0.1000001/0"]


def test_prompts_that_cannot_be_made():
    with pytest.raises(BadInput, match="hold no two notes"):
        needles.make(Words(), [20], [0.5], 1, 0, chat=False)
    with pytest.raises(BadInput, match="200000 needles"):
        needles.make(Words(), [100], [0.5], 200_000, 0, chat=False)


def _last(model, caches, tokens, cuts=(20, 29, 30)):
    start = 0
    for stop in cuts:
        logits = model(tokens[:, start:stop], cache=caches)
        mx.eval(logits)
        start = stop
    return logits[0, -1]


@pytest.mark.parametrize("make", [models.llama, models.gemma3, models.gemma4])
def test_the_identity_control_changes_nothing_and_noise_does(make):
    model, tokens = make(), models.tokens(30)
    plain = _last(model, lm_cache.make_prompt_cache(model), tokens)
    kept, poisoned = control_caches(model, same, 25), control_caches(model, noise(1), 25)
    assert mx.array_equal(_last(model, kept, tokens), plain).item()
    assert mx.abs(_last(model, poisoned, tokens) - plain).max().item() > 0.01
    layers = sum(isinstance(cache, ControlCache) for cache in kept)
    assert layers == len(kept)
    for caches in (kept, poisoned):
        found = counters(caches)
        assert (found["injected_positions"], found["raw_positions"]) == (25 * layers, 5 * layers)


def test_noise_has_the_moments_and_leaves_the_rest():
    rng = np.random.default_rng(0)
    keys = mx.array(rng.normal(3, 2, (1, 2, 4000, 8)).astype(np.float32))
    cache = ControlCache(lm_cache.KVCache(), noise(0), 3000)
    found, values = cache.update_and_fetch(keys, keys * 2)
    assert mx.array_equal(found[:, :, 3000:], keys[:, :, 3000:]).item()
    assert np.corrcoef(np.array(found[0, 0, :3000, 0]), np.array(keys[0, 0, :3000, 0]))[0, 1] < 0.1
    assert found[:, :, :3000].mean().item() == pytest.approx(3, abs=0.1)
    assert found[:, :, :3000].std().item() == pytest.approx(2, abs=0.1)
    assert values[:, :, :3000].std().item() == pytest.approx(4, abs=0.2)


@pytest.mark.parametrize(
    ("spec", "injected"), [("raw", 0), ("e8v@4.25", 60), ("e8@q10", 60), ("affine@4g64", 60)]
)
def test_counters_show_what_a_codec_did(spec, injected):
    model = models.llama()
    caches = make_caches(model, spec)
    _last(model, caches, models.tokens(30))
    found = counters(caches)
    assert (found["injected_positions"], found["raw_positions"]) == (injected, 60 - injected)
    assert (found["packed_bytes"] > 0) == (spec in ("e8v@4.25", "affine@4g64"))
    assert found["codec_failures"] == 0


def test_a_layer_left_raw_is_not_counted():
    model = models.llama(layers=4)
    caches = make_caches(model, "e8v@4.25", boundary=1)
    _last(model, caches, models.tokens(30))
    assert counters(caches)["injected_positions"] == 60


def test_a_baseline_runs_what_was_installed():
    model = models.llama()
    make_caches(model, "e8v@4.25")
    (bound,) = router.patched_names(model)
    with router.without_routing():
        assert router.patched_names(model) == ()
        home = router.sys.modules[type(model.layers[0].self_attn).__module__]
        assert home.scaled_dot_product_attention is base.scaled_dot_product_attention
    assert router.patched_names(model) == (bound,)


def test_arms_without_patches_are_decoded_without_them():
    model, seen = models.llama(), []
    make_caches(model, "e8v@4.25")

    def decode(*_):
        seen.append(router.patched_names(model))
        yield Step((1,))

    for patches in ((), router.patched_names(model)):
        arm = Arm("a", "candidate", STOCK_LOOP, lambda _: [], decode, patches=patches)
        rows.decode(arm, [5], 1, set(), [])
    assert seen == [(), router.patched_names(model)]
    assert seen[1]


def test_an_interrupted_run_goes_on(tmp_path):
    out, key = tmp_path / "r.json", ("arm", "prompt")
    one = Journal(out, {"seed": 1}, key)
    one.append({"arm": "a", "prompt": "p", "x": 1})
    one.append({"arm": "b", "prompt": "p", "x": 2})
    path = tmp_path / "r.json.rows.jsonl"
    with path.open("a") as file:
        file.write('{"arm": "a", "prom')
    again = Journal(out, {"seed": 1}, key)
    assert again.resumed == 2
    assert ("a", "p") in again
    assert ("a", "q") not in again
    again.append({"arm": "a", "prompt": "q", "x": 3})
    assert [row["x"] for row in Journal(out, {"seed": 1}, key).rows] == [1, 2, 3]
    with pytest.raises(BadInput, match="another run"):
        Journal(out, {"seed": 2}, key)
    again.close()
    assert not path.exists()
    path.write_text("nonsense\n")
    with pytest.raises(BadInput, match="cannot be used"):
        Journal(out, {"seed": 1}, key)


def test_published_sets_are_read_as_they_are(tmp_path):
    path = tmp_path / "set.jsonl"
    path.write_text(
        '{"question": "How many?", "answer": "#### 4"}\n'
        '{"task_id": "HumanEval/0", "prompt": "def f():", "test": "", "canonical_solution": ""}\n'
    )
    found = [(prompt.id, prompt.text) for prompt in prompt_sets.read(path)]
    assert found == [("question-1", "How many?"), ("HumanEval/0", "def f():")]


CACHES = "e8v@4.25,affine@4g64"


def test_sets_of_prompts_are_workloads(tmp_path):
    for name, line in (("gsm8k", '{"question": "How many?"}'), ("own", '{"id": "own/1", "text": "One"}')):
        (tmp_path / f"{name}.jsonl").write_text(line + "\n")
    asked = ["functions", "sums", str(tmp_path / "gsm8k.jsonl"), str(tmp_path / "own.jsonl")]
    found = prompt_sets.read_sets(asked, 1)
    told = [(one.name, one.task, one.source, [prompt.id for prompt in one.prompts]) for one in found]
    assert told == [
        ("functions", "code", "bundled", ["functions/0"]),
        ("sums", "maths", "bundled", ["sums/question-1"]),
        ("gsm8k", "maths", asked[2], ["gsm8k/question-1"]),
        ("own", "code", asked[3], ["own/1"]),
    ]


def test_two_sets_of_one_name_are_refused(tmp_path):
    (tmp_path / "code.jsonl").write_text('{"id": "a", "text": "b"}\n')
    with pytest.raises(BadInput, match=r"cannot be a workload called 'code'"):
        prompt_sets.read_sets(["code", str(tmp_path / "code.jsonl")], None)


@pytest.mark.long
def test_acceptance_is_told_of_each_set(tmp_path, capsys):
    folders.write_pair(tmp_path / "pair")
    out = tmp_path / "acceptance.json"
    asked = (
        "--max-prompts",
        "2",
        "--max-tokens",
        "4",
        "--repeats",
        "1",
        "--no-package",
        "--drafters",
        "dflash",
    )
    assert world.run("acceptance", "--model", tmp_path / "pair", *asked, "--out", out) == 0, (
        capsys.readouterr()
    )
    made = world.report(out)
    assert (made["kind"], sorted(made["workloads"])) == ("kakeya.acceptance", ["code", "functions"])
    told = [
        c.get("where") for c in made["claims"] if (c["name"], c["arm"]) == ("accept_length", "dflash/auto")
    ]
    assert told == [None, {"workload": "code"}, {"workload": "functions"}]
    assert world.violations(made) == []


def test_where_exact_values_lead_to_other_tokens_the_row_says_how_near_they_were(tmp_path):
    """Restored sliding layers hold positions in another order than a ring, so attention rounds otherwise."""
    pair = load(folders.write_target(tmp_path / "model"))
    plan = evaluation.RecallPlan(lengths=(256,), depths=(0.5,), samples=1, max_tokens=4)
    asked = needles.make(pair.tokenizer, plan.lengths, plan.depths, plan.samples, 1, chat=False)
    arms, _ = evaluation.arms_of(pair.target, plan)
    answers = {"raw": [1, 2, 3], "identity": [1, 2, 4], "poison": [1, 2, 5]}
    made = [{"arm": n, "prompt": asked[0].id, "repeat": 0, "tokens": tokens} for n, tokens in answers.items()]

    evaluation.job(evaluation.KIND, pair, arms, asked, plan, {}).finish(made)

    assert [row.get("divergence", {}).get("index") for row in made] == [None, 2, None]


@pytest.fixture(scope="module")
def recall(tmp_path_factory):
    folder = tmp_path_factory.mktemp("recall")
    folders.write_target(folder / "model", folders.GEMMA3)
    out = folder / "recall.json"
    asked = ("--lengths", "256,288", "--depths", "0.3", "--samples", "2", "--max-tokens", "4")
    code = world.run("recall", "--model", folder / "model", *asked, "--caches", CACHES, "--out", out)
    assert code == 0
    return world.report(out), out


@pytest.mark.long
def test_a_recall_report_passes_the_gate(recall):
    made, out = recall
    assert world.violations(made) == []
    assert out.with_suffix(".svg").read_text().startswith("<svg")
    assert not out.with_name("recall.json.rows.jsonl").exists()


@pytest.mark.long
def test_arms_take_turns(recall):
    made, _ = recall
    order = [row["arm"] for row in made["rows"]]
    assert order[:5] == ["raw", "e8v@4.25", "affine@4g64", "identity", "poison"]
    assert order[5:10] == ["e8v@4.25", "affine@4g64", "identity", "poison", "raw"]


def test_rows_show_what_ran(recall):
    made, _ = recall
    rows = {(row["arm"], row["prompt"]): row for row in made["rows"]}
    prompt = made["prompts"][0]
    read = prompt["n_tokens"] + 3  # the last token of an answer of four is not read back, but one ahead
    for arm, injected in (("raw", 0), ("e8v@4.25", 4 * read)):
        found = rows[arm, prompt["id"]]["counters"]["injected_positions"]
        assert injected <= found <= injected + 4 * (injected > 0)
    for arm in ("identity", "poison"):
        assert rows[arm, prompt["id"]]["counters"]["injected_positions"] == 4 * (prompt["n_tokens"] - 43)
    assert rows["identity", prompt["id"]]["tokens"] == rows["raw", prompt["id"]]["tokens"]
    patched = {arm["name"]: arm["patches"] for arm in made["arms"]}
    assert patched["raw"] == []
    assert patched["e8v@4.25"] == ["mlx_lm.models.gemma3_text.scaled_dot_product_attention"]


def test_a_cache_says_which_layers_it_leaves_raw(recall):
    """mlx-lm quantizes no ring: two of these four layers stay as they are, and the report says so."""
    made = json.loads(json.dumps(recall[0]))
    options = {arm["name"]: arm["options"] for arm in made["arms"]}
    assert options["e8v@4.25"]["raw_layers"] == []
    assert options["affine@4g64"]["raw_layers"] == [0, 2]


def test_the_gate_sees_a_control_that_did_nothing(recall):
    made = json.loads(json.dumps(recall[0]))
    for row in made["rows"]:
        if row["arm"] == "poison":
            row["counters"]["injected_positions"] = 0
    assert "INJECTION_NEVER_RAN" in world.violations(made)


@pytest.mark.parametrize("command", [["recall"], ["restored-prefill", "--depths", "0.1"]])
def test_prompts_longer_than_the_model_can_read_are_refused_at_once(command, tmp_path, capsys):
    folders.write_target(tmp_path / "model")
    code = world.run(*command, "--model", tmp_path / "model", "--lengths", "99999")
    assert code == 2
    assert "100015 tokens are more than the 4096 that" in capsys.readouterr().err


def test_a_cache_that_a_model_does_not_take(tmp_path, capsys):
    folders.write_target(tmp_path / "model")
    code = world.run("recall", "--model", tmp_path / "model", "--caches", "affine@4g128", "--lengths", "256")
    assert code == 2
    assert "cannot use the cache affine@4g128: it stores vectors of 64 values" in capsys.readouterr().err


@pytest.mark.rows(1)
@pytest.mark.parametrize(
    "command",
    [
        ["kv-quant", "--caches", "e8v@4.25,affine@4g64", "--tokens", "64", "--max-prompts", "3"],
        [
            "recall",
            "--caches",
            "e8v@4.25,affine@4g64",
            "--lengths",
            "400",
            "--depths",
            "0.5",
            "--samples",
            "2",
        ],
        ["restored-prefill", "--caches", "e8v@4.25,affine@4g64", "--lengths", "600", "--depths", "0.3"],
    ],
    ids=lambda command: command[0],
)
def test_a_cache_that_the_model_cannot_use_is_left_out_by_name(command, tmp_path, capsys):
    folders.write_target(tmp_path / "model", {"head_dim": 96, "num_hidden_layers": 2})
    out = tmp_path / "report.json"
    assert world.run(command[0], "--model", tmp_path / "model", *command[1:], "--out", out) == 0
    made = world.report(out)
    (why,) = [why for name, why in made["config"]["left_out"].items() if name.endswith("affine@4g64")]
    assert "vectors of 96 values, which groups of 64 do not divide" in why
    assert "affine@4g64: this model cannot use the cache" in capsys.readouterr().err
    assert any("e8v@4.25" in arm["name"] for arm in made["arms"])
    assert not any("affine" in arm["name"] for arm in made["arms"])
    assert world.violations(made) == []
