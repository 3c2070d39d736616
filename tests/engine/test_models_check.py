import json
import shutil

import pytest

from engine import cli, host
from engine.mx import mx
from tests.engine import folders


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return folders.write_pair(tmp_path_factory.mktemp("made") / "pair")


@pytest.fixture
def check(capsys):
    """Run ``models --check``; return the exit code and the JSON that it prints."""

    def run(*argv):
        with pytest.raises(SystemExit) as ended:
            cli.main(["models", "--check", *map(str, argv), "--json"])
        return ended.value.code, json.loads(capsys.readouterr().out)

    return run


def test_a_pair_that_runs(made, check):
    code, found = check(made)
    assert (code, found["ok"], found["error"], found["fix"]) == (0, True, None, None)
    assert found["target"]["architecture"] == "Qwen3ForCausalLM"
    assert found["target"]["folder"] == str(made / "target")
    assert (found["draft"]["architecture"], found["draft"]["layers"]) == ("DFlashDraftModel", 1)


def test_without_a_drafter_and_with_another_one(made, check, tmp_path):
    assert check(made, "--no-draft")[1]["draft"] is None
    other = folders.write_draft(tmp_path / "other")
    assert check(made, "--draft", other)[1]["draft"]["folder"] == str(other)


def _damaged(change):
    return lambda pair: folders.change_tensors(pair / "target", change)


FAILURES = {
    "no weights": (lambda p: (p / "target/model.safetensors").unlink(), "no model*.safetensors"),
    "no tokenizer": (lambda p: (p / "target/tokenizer.json").unlink(), "has no tokenizer"),
    "another drafter": (lambda p: folders.change_config(p / "draft", num_target_layers=9), "9 layers"),
    "not numbers": (
        _damaged(lambda t: t.update({"model.norm.weight": t["model.norm.weight"] * mx.nan})),
        "not finite",
    ),
    "does not run": (lambda p: folders.change_config(p / "target", rope_theta="wide"), "does not run"),
}


@pytest.mark.parametrize("case", FAILURES)
def test_what_cannot_run_says_why_and_what_to_do(case, made, check, tmp_path):
    damage, words = FAILURES[case]
    pair = shutil.copytree(made, tmp_path / "pair")
    damage(pair)
    code, found = check(pair)
    assert (code, found["ok"], found["target"]) == (2, False, {"id": str(pair)})
    assert words in found["error"]
    assert found["fix"]


def test_nothing_is_downloaded(check, monkeypatch, tmp_path):
    """With the network off by pytest-socket a connection would be another error."""
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    code, found = check("qwen3-8b")
    assert (code, found["fix"]) == (2, "download it with: hf download Qwen/Qwen3-8B")


def test_weights_beyond_the_memory_are_not_loaded(made, check, monkeypatch):
    monkeypatch.setattr(host, "memory_bytes", lambda: 1000)
    code, found = check(made)
    assert (code, found["fix"]) == (2, "choose a smaller or a quantized model")
    assert "GB of memory" in found["error"]


def test_a_machine_without_mlx_is_an_answer(python):
    code = (
        "import sys; sys.modules['mlx'] = sys.modules['mlx.core'] = None\n"
        "from engine.cli import main; main(['models', '--check', 'tiny', '--json'])"
    )
    done = python("-c", code)
    found = json.loads(done.stdout)
    assert (done.returncode, found["ok"], found["target"]) == (2, False, {"id": "tiny"})
    assert "MLX cannot be loaded" in found["error"]


def test_messages_without_json(made, capsys):
    with pytest.raises(SystemExit) as ended:
        cli.main(["models", "--check", str(made)])
    assert ended.value.code == 0
    assert "runs (Qwen3ForCausalLM, 4 layers" in capsys.readouterr().out
    with pytest.raises(SystemExit) as ended:
        cli.main(["models", "--check", str(made / "none")])
    assert ended.value.code == 2
    assert "error: there is no folder" in capsys.readouterr().err
