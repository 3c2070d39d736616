"""Honest runs on other machines, models and luck than the bundled ones are believed."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from bridge.evidence import check_report, rules_speed
from bridge.evidence.kinds import MODELS
from bridge.evidence.laws import counted
from bridge.evidence.laws.cells import digest_of, no_cell_differs
from bridge.evidence.laws.closed import configured_and_left_out
from bridge.evidence.laws.identity import _letters, size_in_the_name
from bridge.evidence.laws.passes import tokens_of_longer_passes
from bridge.evidence.laws.quality import changes_within_divergence, divergence_follows_error
from bridge.evidence.laws.relative import same_divergence_of_every_code
from bridge.evidence.laws.served import texts_are_answers
from bridge.evidence.laws.stored import layers_of_the_model
from bridge.evidence.laws.text import (
    length_of_text,
    loops_are_in_both,
    one_text_for_tokens,
    texts_part_where_tokens_do,
)
from bridge.evidence.laws.turns import no_pauses_of_one_arm, no_time_between_rows
from bridge.evidence.laws.vocabulary import vocabulary_of
from bridge.evidence.report_index import ReportIndex
from bridge.evidence.rows import Decode
from bridge.evidence.rules_output import output_degenerate, output_diverges, row_repeated
from bridge.evidence.rules_sweep import slow_oracle, workload_degenerate
from bridge.evidence.stats import median
from tests.bridge.evidence import reports
from tests.bridge.evidence.falsehoods import (
    BEN,
    KVQ,
    NAT,
    PAR,
    REC,
    RES,
    SERVED,
    VER,
    Case,
    Report,
    prompt_ids,
    real,
    resized,
    rows,
    told,
)
from tests.bridge.evidence.red_rest import own_model
from tests.bridge.evidence.whole import served_at_a_tie

TICK = 1 / 24e6


ROOT = Path(__file__).parents[3]


def index(made: Report) -> ReportIndex:
    return ReportIndex(MODELS[made["kind"]].model_validate(made))


def codes(made: Report) -> set[str]:
    return {one.code for one in check_report(made)}


@pytest.mark.parametrize(
    "name", ["kv_quant_bfloat16", "kv_quant_float16", "native_float16", "recall_float16"]
)
def test_a_run_in_half_precision(name):
    """As MLX computes on a GPU: each cache moves predictions by what rounding does, and 8 bits err more."""
    made = real(name)
    assert {model["dtype"] for model in made["models"]} == {name.rpartition("_")[2]}
    assert check_report(made) == []


def test_on_short_texts_chance_moves_divergences():
    """As `k3-kv-quant-eval` measures: of eighteen caches one diverges 1.7 times as much on a text of 66 tokens."""
    made = real("kv_quant_short")
    assert min(row["n_positions"] for row in made["rows"] if "n_positions" in row) < 66 + 1
    assert check_report(made) == []


def test_refused_drafts_may_have_made_a_cache_grow():
    """Answers of ten tokens that end just below 256 positions, and drafts that reached beyond them."""
    made = real("bench_needles")
    assert {row["stop"] for row in made["rows"] if "stop" in row} == {"eos"}
    assert check_report(made) == []


def test_a_loop_that_computes_ahead_has_room_for_the_next_step():
    """After 256 positions, mlx-lm has put the last token in as well, and one forward pass a token has not."""

    def edit(made: Report) -> None:
        own_model(made)
        made["prompts"][0]["n_tokens"] = 257 - made["config"]["max_tokens"]
        for row in rows(made, prompt=prompt_ids(made)[0]):
            resized(row, 512 if row["arm"] == "native" else 256)

    assert "BYTES_IMPOSSIBLE" not in codes(told(Case(NAT, edit)))


TEMPLATE = 12 * 256


def templated(kept: int, odd: int = 0, room: int = TEMPLATE) -> set[str]:
    """Judge a chat behind a long template: how many prompts are kept, and how many more tokens one of them names."""

    def edit(made: Report) -> None:
        own_model(made)
        ids = prompt_ids(made)[:kept]
        made["prompts"] = made["prompts"][:kept]
        made["rows"] = [row for row in made["rows"] if row["prompt"] in ids]
        made["config"]["chat"] = made["workloads"]["prompts"]["chat_template"] = True
        for prompt in made["prompts"]:
            prompt["n_tokens"] += TEMPLATE
        made["prompts"][0]["n_tokens"] += odd
        for row in made["rows"]:
            more = odd if row["prompt"] == ids[0] else 0
            held = dict(row["memory"])
            resized(row, row["memory"]["layers"][0]["arrays"][0]["shape"][2] + room + more)
            if "peak_bytes" in held:
                row["memory"]["peak_bytes"] = (
                    held["peak_bytes"] + row["memory"]["cache_bytes"] - held["cache_bytes"]
                )

    return codes(told(Case(NAT, edit)))


@pytest.mark.parametrize("kept", [1, 3])
def test_a_chat_template_may_be_long(kept):
    assert not templated(kept) & {"PROMPT_MISSTATED", "BYTES_IMPOSSIBLE", "MALFORMED"}


def test_all_prompts_hold_one_template():
    assert "PROMPT_MISSTATED" in templated(3, odd=TEMPLATE)


def test_the_cache_of_a_long_template_has_room_for_it():
    assert "BYTES_IMPOSSIBLE" in templated(1, room=0)


def test_a_restorer_of_other_layers_is_left_out():
    made = real(RES)
    asked = made["config"]
    asked.update(layers="full", left_out={"restored learned": "the restorer was made for sliding layers"})
    assert not any(configured_and_left_out(index(made)))
    asked["layers"] = "sliding"
    assert any(configured_and_left_out(index(made)))
    asked["layers"] = "full"
    made["models"] = [model for model in made["models"] if model["role"] != "reconstruction"]
    assert any(configured_and_left_out(index(made)))


@pytest.mark.parametrize(
    ("device", "odd"), [("cpu", False), ("gpu:0", False), ("Device(gpu, 0)", False), ("gpu\u200b", True)]
)
def test_the_device_of_an_older_report(device, odd):
    made = reports.legacy()
    made["identity"]["device"] = device
    assert codes(made) == ({"IDENTITY_DOUBTFUL"} if odd else set())


def test_answers_of_one_token_share_a_tick():
    row = Decode.model_validate(reports.spec_bench()["rows"][0])
    made = [
        row.model_copy(update={"prompt": f"p{i}", "prefill_s": TICK * (9000 + i % 50), "decode_s": 0.0})
        for i in range(100)
    ]  # fmt: skip
    made = [one.model_copy(update={"e2e_s": one.prefill_s}) for one in made]
    assert [*row_repeated(SimpleNamespace(rows=made))] == []


def parted(margin: float, dtype: str, loop: bool = False) -> Report:
    """Let the drafter leave the oracle at its tenth token, where logits lie so far apart."""
    made = real(BEN)
    own_model(made)
    made["models"][0]["dtype"] = dtype
    for row in rows(made, "lookup/auto", prompt_ids(made)[0]):
        tokens = row["tokens"]
        theirs, ours = tokens[9], tokens[9] + 1
        row["tokens"] = [*tokens[:9], *([ours] * (len(tokens) - 9) if loop else [ours, *tokens[10:]])]
        row["divergence"] = {
            "index": 9, "best": [[theirs, 30.0], [ours, 30.0 - margin]],
            "kind": "tie", "margin": margin, "rounding": 0.2,
        }  # fmt: skip
    return made


@pytest.mark.parametrize(
    ("margin", "dtype", "odd"), [(0.5, "bfloat16", False), (0.5, "float32", True), (3.0, "bfloat16", True)]
)
def test_half_precision_has_wider_ties(margin, dtype, odd):
    assert any(output_diverges(index(parted(margin, dtype)))) is odd


def test_behind_a_tie_an_answer_may_go_round():
    assert not any(output_degenerate(index(parted(0.1, "bfloat16", loop=True))))
    assert any(output_degenerate(index(parted(0.9, "bfloat16", loop=True))))


def written(*answers: tuple[list[int], str]) -> SimpleNamespace:
    row = Decode.model_validate(reports.spec_bench()["rows"][0])
    made = [row.model_copy(update={"tokens": tokens, "text": text}) for tokens, text in answers]
    return SimpleNamespace(rows=made, tells_text=lambda _: True)


@pytest.mark.parametrize(
    "answers",
    [
        pytest.param([([1, 2, 3, 4, 7], "🦄a"), ([1, 2, 3, 4, 8], "🦄b")], id="one sign of four tokens"),
        pytest.param([([1, 2, 3, 4] * 20, "🦄" * 20)], id="signs alone"),
        pytest.param([([5, 5, 5, 6, 7], "        return x"), ([5, 5, 5, 6, 8], "        return")], id="indented"),
        pytest.param([([9], " Yes"), ([10], "Yes")], id="one word with its blank and without"),
        pytest.param([([3] * 16, "." * 1024)], id="lines of dots"),
        pytest.param(
            [([1, 20, 21, 22], "    return self._items[0:12]"), ([2, 20, 21, 23], "  return self._items[0:12] + 1")],
            id="the same code behind another indent",
        ),
        pytest.param(
            [([*range(200), *[999] * 12], " ".join(map(str, range(200))) + " no" * 12)], id="words repeated at the end"
        ),
    ],
)  # fmt: skip
def test_texts_of_other_vocabularies(answers):
    made = written(*answers)
    laws = (one_text_for_tokens, texts_part_where_tokens_do, length_of_text, loops_are_in_both)
    assert [said for law in laws for said in law(made)] == []


@pytest.mark.parametrize(
    ("architecture", "odd"), [("Gemma3nForConditionalGeneration", False), ("Qwen3ForCausalLM", True)]
)
def test_layers_may_share_a_cache(architecture, odd):
    made = real(NAT)
    own_model(made)
    made["models"][0] |= {"architecture": architecture, "layers": made["models"][0]["layers"] + 2}
    assert any(layers_of_the_model(index(made))) is odd


@pytest.mark.parametrize(
    ("name", "parameters", "odd"),
    [
        ("Llama-4-Scout-17B-16E", 109e9, False), ("stablelm-2-1_6b", 1.64e9, False), ("Qwen3-8B", 8.2e9, False),
        ("Qwen3-8B", 1.7e9, True),
    ],
)  # fmt: skip
def test_names_with_sizes(name, parameters, odd):
    made = real(NAT)
    own_model(made)
    made["models"][0] |= {"id": name, "parameters": int(parameters)}
    assert any(size_in_the_name(index(made))) is odd


@pytest.mark.parametrize(
    ("one", "other", "alike"),
    [
        ("What is 3 + 4?", "What is 3 * 4?", False), ("17-4", "17/4", False), ("x < y", "x > y", False),
        ("Say 😀", "Say 😢", False), ("किस", "कीस", False), ("well-known", "well known!", True), ("cafe", "café", True),
        ("a b", "a\u200b b\ufe0f", True),
    ],
)  # fmt: skip
def test_prompts_that_differ_by_more_than_punctuation(one, other, alike):
    assert (_letters(one) == _letters(other)) is alike


def test_passes_of_several_caches_take_turns():
    """Between two rows of a report, passes over the other cache run: on a slow machine that takes long."""
    made = real(VER)
    made["config"]["caches"] = ["raw", "affine@4g64"]
    start = 0.0
    for row in made["rows"]:
        row["seconds"] *= 100
        row["started_s"] = start
        start += 2.1 * row["seconds"]
    for law in (no_time_between_rows, no_pauses_of_one_arm):
        assert not any(law(index(made)))
    assert any(no_time_between_rows(index(made | {"config": made["config"] | {"caches": ["raw"]}})))


def test_quantized_rows_are_multiplied_one_by_one():
    made = real(VER)
    for row in rows(made, length=8):
        row["seconds"] *= 1.9
    assert any(slow_oracle(index(made)))
    made["models"][0]["quantization"] = "affine@4g64"
    assert not any(slow_oracle(index(made)))


@pytest.mark.parametrize(
    ("early", "device", "slower", "holds"),
    [
        (True, "cpu", 1.45, True),
        (True, "cpu", 2.0, False),
        (True, "gpu", 1.45, False),
        (False, "cpu", 1.45, False),
    ],
)
def test_a_loop_whose_layers_begin_early_may_be_faster_than_mlx_lm(early, device, slower, holds):
    made = real(BEN)
    made["identity"]["device"] = device
    for arm in made["arms"]:
        if arm["name"] == "incremental":
            arm["options"]["early_layers"] = early
    for row in made["rows"]:
        if row["arm"] in ("native", "verify1"):
            row["decode_s"] *= slower
    assert any(rules_speed._behind(index(made))) != holds


@pytest.mark.parametrize(
    ("options", "machine", "dtype", "bundled", "slower", "holds"),
    [
        ({"early_layers": True, "products": "tiled"}, "openblas", "float32", True, 1.8, True),
        ({"early_layers": True, "products": "turned"}, "openblas", "float32", True, 1.8, True),
        ({"early_layers": True, "products": "tiled"}, "openblas", "float32", True, 2.5, False),
        ({"early_layers": True, "products": "tiled"}, "openblas", "float32", False, 2.5, True),
        ({"early_layers": True, "products": "tiled"}, "openblas", "float32", False, 4.5, False),
        ({"early_layers": True, "products": "plain"}, "openblas", "float32", True, 1.8, False),
        ({"early_layers": False, "products": "tiled"}, "openblas", "float32", True, 1.8, False),
        ({"early_layers": True, "products": "tiled"}, "accelerate", "float32", True, 1.8, False),
        ({"early_layers": True, "products": "tiled"}, "openblas", "bfloat16", True, 1.8, False),
    ],
)
def test_a_loop_with_other_products_may_be_faster_than_mlx_lm(
    options, machine, dtype, bundled, slower, holds
):
    made = real(BEN)
    made["identity"] |= {"device": "cpu", "blas": {"name": machine}}
    for model in made["models"]:
        model["dtype"] = dtype
        model["weights"] = model["weights"] if bundled else "sha256:" + "5" * 64
    for arm in made["arms"]:
        if arm["name"] == "incremental":
            arm["options"] |= options
    for row in made["rows"]:
        if row["arm"] in ("native", "verify1"):
            row["decode_s"] *= slower
    assert any(rules_speed._behind(index(made))) != holds


@pytest.mark.parametrize(("faster", "judged"), [(1, True), (8, False)])
def test_tokens_of_a_millisecond_show_no_slowed_baseline(faster, judged):
    """Threads that take turns on busy cores move them; such a report is INCOMPLETE at most."""
    made = real(BEN)
    for row in made["rows"]:
        row["decode_s"] *= (2.5 if row["arm"] in ("native", "verify1") else 1) / faster
    found = [*rules_speed._behind(index(made))]
    assert found
    assert any(apart for apart, _ in found) is judged


@pytest.mark.parametrize(("kind", "odd"), [("KakeyaLatticeMLXCache", False), ("LatticeKVCache", True)])
def test_a_cache_around_a_window_need_not_be_named_after_it(kind, odd):
    """The classic lattices wrap the cache that the model's layer has, whichever that is."""
    made = json.loads((ROOT / "docs" / "results" / "recall-tiny-hybrid.json").read_bytes())
    found = index(made)
    assert not [*counted.shape_of_the_bundled_model(found)]
    for row in made["rows"]:
        for layer in row["memory"]["layers"]:
            layer["kind"] = kind
    assert bool([*counted.shape_of_the_bundled_model(index(made))]) is odd


def test_one_prompt_shares_all_with_itself():
    made = real(REC)
    name = prompt_ids(made)[0]
    made["prompts"] = made["prompts"][:1]
    made["rows"] = rows(made, prompt=name)
    for workload in made["workloads"].values():
        workload["shared_prefix"] = workload["shared_suffix"] = made["prompts"][0]["text"]
    assert "RECALL_VACUOUS" not in codes(made)


def test_an_answer_under_a_schema_may_be_cut_off():
    made = real(SERVED)
    for row in rows(made, form="json_schema"):
        row |= {"stop": "length", "n_tokens": made["config"]["max_tokens"], "text": '{"path": "a/b'}
    assert not any("JSON" in said for said in texts_are_answers(index(made)))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
@pytest.mark.parametrize("cache", ["raw", "e8v@4.25"])
def test_an_answer_of_the_server_may_part_at_a_near_tie(cache, dtype):
    made = served_at_a_tie(cache)
    made["models"][0]["dtype"] = dtype
    assert codes(made) == set()


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision_rounds_raw_logits_too(dtype):
    made = served_at_a_tie("raw")
    made["models"][0]["dtype"] = dtype
    (row,) = (row for row in made["rows"] if "divergence" in row)
    row["divergence"]["best"][1][1] = 11.4
    assert codes(made) == set()


@pytest.mark.parametrize(
    ("text", "odd"), [("abb", None), ("abc", "the text 'abc' is not what the recorded token ids stand for")]
)
def test_with_a_bundled_vocabulary_the_text_of_a_parting_is_its_tokens(text, odd):
    made = real(SERVED)
    words = vocabulary_of(index(made)).pieces
    alone, other, *_ = rows(made, cache="e8v@4.25", form="free", question=0)
    a, b = words.index(b"a"), words.index(b"b")
    for row, said, tokens in ((alone, "aab", [a, a, b]), (other, text, [a, b, b])):
        row |= {"text": said, "n_tokens": 3, "tokens": digest_of(tokens), "stop": "stop"}
    other["divergence"] = {
        "index": 1, "best": [[a, 3.0], [b, 3.0]], "kind": "tie", "ours": [a, b, b], "theirs": [a, a, b],
    }  # fmt: skip
    made["rows"] = [alone, other]
    assert [message.partition(": ")[2] for message in no_cell_differs(index(made))] == ([odd] if odd else [])


def test_chance_moves_passes_on_a_busy_machine():
    made = real(VER)
    context = made["rows"][0]["context"]
    for i, row in enumerate(made["rows"]):
        row |= {
            "context": context,
            "seconds": 0.002 * row["length"] * (3.0 if row["length"] > 1 and i % 2 else 1.0),
        }
    assert not any(tokens_of_longer_passes(index(made)))
    for row in made["rows"]:
        row["seconds"] = 0.002 * row["length"] * (3.0 if row["length"] > 1 else 1.0)
    assert any(tokens_of_longer_passes(index(made)))


def test_a_few_dull_drafts_say_nothing():
    made = real(PAR)
    made["rows"] = made["rows"][:4]
    for row in made["rows"]:
        row["reference"] = [11] * len(row["reference"])
    assert not any(workload_degenerate(index(made)))
    made["rows"] *= 2
    assert any(workload_degenerate(index(made)))


def test_a_cache_that_leaves_layers_raw_may_diverge_more_for_its_error():
    made = real(KVQ)
    arm = next(arm for arm in made["arms"] if arm["cache"].startswith("affine"))
    for row in rows(made, arm=arm["name"]):
        row["sum_kl"] *= 4
    assert any(same_divergence_of_every_code(index(made)))
    arm["options"]["raw_layers"] = [0, 1, 2]
    assert not any(same_divergence_of_every_code(index(made)))


def test_a_model_that_keeps_its_tokens_with_the_poisoned_cache_keeps_them_with_others():
    made = real(KVQ)
    (poison,) = (arm["name"] for arm in made["arms"] if arm["role"] == "poison")
    for row in made["rows"]:
        row["sum_kl"] *= 1 if row["arm"] == poison else 100
        row["same_top"] = row["same_top"] if row["arm"] == poison else row["n_positions"]
    assert any(changes_within_divergence(index(made)))
    for row in rows(made, arm=poison):
        row["same_top"] = row["n_positions"]
    assert not any(changes_within_divergence(index(made)))


def steeper(made: Report, arm: str, by: float) -> Report:
    """Return the report, where a cache diverges so many times as much for its error as others that rotate do."""
    made = copy.deepcopy(made)
    sums = {
        one["name"]: [
            sum(row[name] for row in rows(made, arm=one["name"])) for name in ("sum_kl", "sum_squared_error")
        ]
        for one in made["arms"]
        if one["cache"].startswith(("e8", "d4"))
    }
    slopes = {name: kl / error for name, (kl, error) in sums.items()}
    for row in rows(made, arm=arm):
        row["sum_kl"] *= by * median(slopes.values()) / slopes[arm]
    return made


def test_few_positions_leave_more_to_chance():
    made = real("kv_quant_short")
    shortest = min(made["rows"], key=lambda row: row["n_positions"])["prompt"]
    alone = made | {"rows": rows(made, prompt=shortest)}

    assert any(divergence_follows_error(index(steeper(made, "e8v@4.25", 1.6))))
    assert not any(divergence_follows_error(index(steeper(alone, "e8v@4.25", 1.6))))
    assert any(divergence_follows_error(index(steeper(alone, "e8v@4.25", 2.0))))
