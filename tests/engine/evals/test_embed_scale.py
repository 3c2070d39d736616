"""`--embed-scale`: on a Gemma, which multiplies its embeddings by the root of the hidden size without naming it."""

import json

import pytest

from bridge.gate.command_line import config_mismatches
from engine import cli
from engine.dflash.target.embeddings import factor_of
from engine.models import load
from tests.engine import evals_world, folders, small_models

ROOT = 8.0  # of the hidden size, 64
PARITY = ("--against", "float32", "--max-prompts", "2", "--blocks", "2", "--block-size", "4", "--least", "0")
SPEC = ("--max-prompts", "2", "--max-tokens", "8", "--repeats", "3", "--block-size", "3", "--no-package")
SAME = "both scalings of the embeddings are the same: the target multiplies them by 1"


@pytest.fixture(scope="module")
def gemma(tmp_path_factory):
    return folders.write_pair(tmp_path_factory.mktemp("gemma"), folders.GEMMA3)


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    return folders.write_walker(tmp_path_factory.mktemp("plain"))


def run(*argv):
    with pytest.raises(SystemExit) as ended:
        cli.main([*map(str, argv)])
    return ended.value.code


def doubts(report):
    """Return what the gate finds wrong, without what a busy machine or random weights do to an honest run."""
    return {*evals_world.violations(report)}


@pytest.mark.parametrize(
    ("make", "factor"),
    [
        (small_models.gemma2, ROOT),
        (small_models.gemma3, ROOT),
        (small_models.gemma4, ROOT),
        (small_models.qwen3, 1.0),
        (small_models.llama, 1.0),
        (small_models.qwen3_5, 1.0),
    ],
)
def test_the_factor_is_found_whether_the_model_names_it_or_not(make, factor):
    assert factor_of(make()) == factor


@pytest.mark.parametrize(("asked", "scale"), [(None, 1.0), ("both", 1.0), ("target", ROOT), (2.5, 2.5)])
def test_the_flag_sets_the_factor_of_the_drafter(gemma, asked, scale):
    pair = load(gemma).with_embed_scale(asked)
    assert pair.draft.config.embed_scale == scale


def test_the_other_factor(gemma, plain):
    pair = load(gemma).with_embed_scale(None)
    other = pair.rescaled()
    assert (pair.draft.config.embed_scale, other.draft.config.embed_scale) == (1.0, ROOT)
    assert load(gemma).with_embed_scale("target").rescaled().draft.config.embed_scale == 1.0
    assert load(gemma).with_embed_scale(2.5).rescaled().draft.config.embed_scale == 1.0
    assert load(plain).with_embed_scale("both").rescaled() is None
    assert load(plain, draft=False).rescaled() is None


@pytest.mark.long
@pytest.mark.parametrize(("asked", "scale"), [((), 1.0), (("--embed-scale", "target"), ROOT)])
def test_a_comparison_says_the_factor(asked, scale, gemma, tmp_path, capsys):
    out = tmp_path / "p.json"
    assert run("eval", "parity", "--model", gemma, *PARITY, *asked, "--out", out) == 0
    assert f"the drafter reads embeddings times {scale:g}" in capsys.readouterr().out
    made = evals_world.report(out)
    assert {arm["options"]["embed_scale"] for arm in made["arms"]} == {scale}
    assert not doubts(made)


@pytest.mark.long
def test_a_comparison_shows_both_scalings(gemma, tmp_path, capsys):
    out, other = tmp_path / "p.json", tmp_path / "p-rescaled.json"
    assert run("eval", "parity", "--model", gemma, *PARITY, "--embed-scale", "both", "--out", out) == 0
    said = capsys.readouterr().out
    assert said.index("embeddings times 1\n") < said.index("embeddings times 8\n")
    assert said.count("the target accepts") == 2
    reports = [evals_world.report(path) for path in (out, other)]
    assert [report["arms"][0]["options"]["embed_scale"] for report in reports] == [1.0, ROOT]
    assert reports[0]["rows"][0]["candidate"] != reports[1]["rows"][0]["candidate"]
    assert not any(map(doubts, reports))


@pytest.mark.long
def test_a_benchmark_shows_both_scalings(gemma, tmp_path, capsys):
    out = tmp_path / "b.json"
    argv = ["bench", "spec", *SPEC, "--drafters", "dflash", "--embed-scale", "both"]
    assert run(*argv, "--model", gemma, "--out", out) == 0
    said = capsys.readouterr().out
    made = json.loads(out.read_text())
    scales = {arm["name"]: arm["options"].get("embed_scale") for arm in made["arms"][3:]}
    assert scales == {"dflash/auto": 1.0, "rescaled/auto": ROOT}
    for name, scale in scales.items():
        assert f"{name}: embeddings times {scale:g}, " in said
    drafted = {arm: [row["tokens"] for row in made["rows"] if row["arm"] == arm] for arm in scales}
    assert drafted["dflash/auto"] == drafted["rescaled/auto"]  # neither changes the answer
    assert not doubts(made)
    assert [*config_mismatches(made, [["kakeya-engine", *argv]])] == []


@pytest.mark.long
@pytest.mark.rows(1)
@pytest.mark.parametrize("command", ["spec", "parity"])
def test_the_same_scalings_are_said_to_be_so(command, plain, tmp_path, capsys):
    out = tmp_path / "r.json"
    argv = {"spec": ("bench", "spec", *SPEC, "--drafters", "dflash"), "parity": ("eval", "parity", *PARITY)}
    assert run(*argv[command], "--model", plain, "--embed-scale", "both", "--out", out) == 0
    assert SAME in capsys.readouterr().err
    made = json.loads(out.read_text())
    assert [*tmp_path.glob("*.json")] == [out]
    if command == "spec":
        assert made["config"]["left_out"] == {"rescaled/auto": SAME}
        assert "rescaled/auto" not in [arm["name"] for arm in made["arms"]]
    assert not doubts(made)


@pytest.mark.parametrize("odd", ["0", "-1", "nan", "either", "1e9"])
def test_an_odd_factor_is_refused(odd, plain, capsys):
    assert run("bench", "spec", "--model", plain, "--embed-scale", odd) == 2
    assert "neither a positive number, target nor both" in capsys.readouterr().err
