"""How fast restored prompts are decoded: what is timed, and what may be claimed of it."""

import pytest

from bridge.reports.claims.recall import RECOMPUTE, pace_claims
from tests.engine import evals_world as world
from tests.engine import folders

ARMS = [
    {"name": "raw", "role": "baseline", "oracle": None},
    {"name": RECOMPUTE, "role": "reference", "oracle": "raw"},
    {"name": "restored e8v@4.25", "role": "candidate", "oracle": "raw"},
]
SECONDS = {"raw": 1.0, RECOMPUTE: 8.0, "restored e8v@4.25": 2.0}


def rows(repeats=3, tokens=33, prompts=("a", "b")):
    return [
        {
            "arm": name, "prompt": prompt, "repeat": repeat, "warmup": repeat == 0, "decode_tokens": tokens - 1,
            "tokens": [*range(tokens)],
            "decode_s": took * (1 + repeat / 100),
        }
        for prompt in prompts for repeat in range(repeats + 1) for name, took in SECONDS.items()
    ]  # fmt: skip


def test_each_arm_has_its_pace_and_candidates_are_held_against_the_recomputation():
    made = pace_claims(rows(), ARMS, {})

    found = {(claim["name"], claim["arm"], claim.get("against")): claim["value"] for claim in made}
    assert found == {
        ("decode_tok_s", "raw", None): pytest.approx(32 / 1.02),
        ("decode_tok_s", RECOMPUTE, None): pytest.approx(32 / 8.16),
        ("decode_tok_s", "restored e8v@4.25", None): pytest.approx(32 / 2.04),
        ("decode_ratio", "restored e8v@4.25", RECOMPUTE): pytest.approx(4.0),
    }


@pytest.mark.parametrize(
    "few", [{"repeats": 2}, {"tokens": 32}, {"prompts": ("a",)}], ids=["repeats", "tokens", "prompts"]
)
def test_too_little_allows_no_claim(few):
    assert pace_claims(rows(**few), ARMS, {}) == []


def test_rows_without_a_warm_up_allow_no_claim():
    assert pace_claims([row for row in rows() if row["repeat"]], ARMS, {}) == []


def test_answers_that_repeat_themselves_allow_no_claim():
    assert pace_claims([row | {"tokens": [7] * 34} for row in rows()], ARMS, {}) == []


def test_without_the_recomputation_there_is_no_ratio():
    some = [row for row in rows() if row["arm"] != RECOMPUTE]

    made = pace_claims(some, [arm for arm in ARMS if arm["name"] != RECOMPUTE], {})

    assert {claim["name"] for claim in made} == {"decode_tok_s"}


@pytest.mark.long
def test_a_report_of_pace_holds_all_runs_and_the_gate_believes_its_times(tmp_path):
    folders.write_target(tmp_path / "model", {"num_hidden_layers": 2})
    out = tmp_path / "report.json"
    asked = (
        "--caches",
        "e8v@4.25",
        "--lengths",
        "300",
        "--window",
        "32",
        "--depths",
        "0.1,0.5",
        "--samples",
        "1",
    )
    timed = ("--max-tokens", "5", "--repeats", "2", "--fixed-length", "--recompute")

    assert world.run("restored-prefill", "--model", tmp_path / "model", *asked, *timed, "--out", out) == 0

    made = world.report(out)
    mine = [row for row in made["rows"] if row["arm"] == RECOMPUTE]
    assert [(row["repeat"], row.get("warmup", False)) for row in mine] == [
        *[(0, True)] * 2, *[(1, False)] * 2, *[(2, False)] * 2,
    ]  # fmt: skip
    assert {len(row["tokens"]) for row in made["rows"]} == {5}
    whole = {(row["prompt"], row["repeat"]): row["tokens"] for row in made["rows"] if row["arm"] == "raw"}
    assert all(row["tokens"] == whole[row["prompt"], row["repeat"]] for row in mine)
    assert not {claim["name"] for claim in made["claims"]} & {"decode_tok_s", "decode_ratio"}
    assert world.violations(made) == []


@pytest.mark.long
def test_sliding_layers_are_restored_where_that_is_asked_for(tmp_path):
    folders.write_target(tmp_path / "model", folders.GEMMA3)
    out = tmp_path / "report.json"
    asked = (
        "--caches",
        "e8v@4.25,e8@q38",
        "--lengths",
        "300",
        "--window",
        "4",
        "--sink",
        "1",
        "--depths",
        "0.1",
    )

    argv = (
        "--model",
        tmp_path / "model",
        "--layers",
        "sliding",
        *asked,
        "--samples",
        "2",
        "--max-tokens",
        "2",
    )
    assert world.run("restored-prefill", *argv, "--out", out) == 0

    made = world.report(out)
    assert made["config"]["layers"] == "sliding"
    assert made["config"]["left_out"] == {"restored e8@q38": "e8@q38 cannot hold what sliding layers evict"}
    assert {arm["options"]["layers"] for arm in made["arms"] if arm["options"]} == {"sliding"}
    assert set(world.violations(made)) <= {"EVICTED_SURVIVES", "POISON_SURVIVES"}


def test_the_environment_names_the_restorer(tmp_path, monkeypatch, capsys):
    folders.write_target(tmp_path / "model")
    (tmp_path / "f-theta").mkdir()
    monkeypatch.setenv("KAKEYA_MAC_FTHETA_DIR", str(tmp_path / "f-theta"))

    assert world.run("restored-prefill", "--model", tmp_path / "model", "--lengths", "300") == 2
    assert "f-theta" in capsys.readouterr().err
