"""Checking models that lie on this machine: each says by itself what is wrong, and nothing is downloaded."""

import json
import shutil

import pytest
from huggingface_hub import constants

from bridge.common import host
from engine import cli
from engine.models import registry
from engine.models.registry import DATA, is_bundled_here
from engine.mx import mx
from tests.engine import folders

BUNDLED = pytest.mark.skipif(not is_bundled_here("tiny"), reason="this installation holds no bundled pair")
TARGET, DRAFT = str(DATA / "tiny" / "target"), str(DATA / "tiny" / "draft")


@pytest.fixture(autouse=True)
def hub(monkeypatch, tmp_path):
    """An empty cache of the hub, and the environment as it was once the test has ended."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    return tmp_path / "hub"


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


@BUNDLED
@pytest.mark.parametrize("files", [["--files"], []], ids=["files", "run"])
def test_what_is_whole_has_no_error(files, check):
    for asked in (["tiny", "--draft", "tiny"], [TARGET, "--draft", DRAFT], ["tiny"]):
        code, found = check(*asked, *files)
        assert (code, found["ok"], found["target"]["ok"], found["draft"]["ok"]) == (0, True, True, True)
        assert found["draft"]["id"] == asked[-1]
    assert check(TARGET, *files)[1]["draft"] is None


def test_without_a_drafter_and_with_another_one(made, check, tmp_path):
    assert check(made, "--no-draft")[1]["draft"] is None
    other = folders.write_draft(tmp_path / "other")
    assert check(made, "--draft", other)[1]["draft"]["folder"] == str(other)


def _damaged(change):
    return lambda pair: folders.change_tensors(pair / "target", change)


FAILURES = {
    "no weights": (
        "target",
        lambda p: (p / "target/model.safetensors").unlink(),
        "no model*.safetensors",
    ),
    "no tokenizer": ("target", lambda p: (p / "target/tokenizer.json").unlink(), "has no tokenizer"),
    "no architecture": (
        "target",
        lambda p: folders.change_config(p / "target", architectures=3),
        "cannot be read",
    ),
    "no drafter's weights": (
        "draft",
        lambda p: (p / "draft/model.safetensors").unlink(),
        "no model*.safetensors",
    ),
    "another drafter": (
        "draft",
        lambda p: folders.change_config(p / "draft", num_target_layers=9),
        "9 layers",
    ),
}
FAIL_WHEN_RUN = {
    "another tokenizer": (
        "draft",
        lambda p: folders.change_config(p / "draft", made_for={"vocabulary": "sha256:0"}),
        "another tokenizer",
    ),
    "not numbers": (
        "target",
        _damaged(lambda t: t.update({"model.norm.weight": t["model.norm.weight"] * mx.nan})),
        "not finite",
    ),
    "does not run": (
        "target",
        lambda p: folders.change_config(p / "target", rope_theta="wide"),
        "does not run",
    ),
}


@pytest.mark.parametrize("case", [*FAILURES, *FAIL_WHEN_RUN])
def test_what_cannot_run_says_why_and_what_to_do(case, made, check, tmp_path):
    role, damage, words = {**FAILURES, **FAIL_WHEN_RUN}[case]
    pair = shutil.copytree(made, tmp_path / "pair")
    damage(pair)
    code, found = check(pair)
    assert (code, found["ok"], found["target"]["id"]) == (2, False, str(pair))
    assert [part for part in ("target", "draft") if not found[part]["ok"]] == [role]
    assert words in found["error"]
    assert found["fix"]
    assert (found["error"], found["fix"]) == (found[role]["error"], found[role]["fix"])


@pytest.mark.parametrize("case", FAILURES)
def test_the_files_alone_tell_what_is_missing_or_does_not_fit(case, made, check, tmp_path):
    role, damage, words = FAILURES[case]
    pair = shutil.copytree(made, tmp_path / "pair")
    damage(pair)
    code, found = check(pair, "--files")
    assert (code, [part for part in ("target", "draft") if not found[part]["ok"]]) == (2, [role])
    assert words in found[role]["error"]


@BUNDLED
@pytest.mark.parametrize("files", [["--files"], []], ids=["files", "run"])
@pytest.mark.parametrize(
    ("model", "draft", "role", "says"),
    [
        ("org/none", "tiny", "target", "org/none is not downloaded"),
        ("tiny", "org/none", "draft", "org/none is not downloaded"),
        ("/nowhere", "tiny", "target", "there is no folder /nowhere"),
        ("tiny", "/nowhere", "draft", "there is no folder /nowhere"),
        (DRAFT, "tiny", "target", "the target's folder holds a drafter"),
        ("", "tiny", "target", "the name of the model is empty"),
        ("tiny", "", "draft", "the name of the draft is empty"),
    ],
)
def test_each_model_is_told_apart_from_the_other(files, model, draft, role, says, check):
    code, found = check(model, "--draft", draft, *files)
    assert (code, found["target"]["id"], found["draft"]["id"]) == (2, model, draft)
    other = found["draft" if role == "target" else "target"]
    assert (other["ok"], other["error"], other["fix"]) == (True, None, None)
    assert says in found[role]["error"]
    assert found[role]["fix"]
    assert not found[role]["ok"]


@pytest.mark.parametrize("files", [["--files"], []], ids=["files", "run"])
def test_nothing_is_downloaded(files, check):
    """With the network off by pytest-socket a connection would be another error."""
    code, found = check("qwen3-8b", *files)
    assert (code, found["fix"]) == (2, "hf download Qwen/Qwen3-8B")
    assert "is not downloaded" in found["error"]
    assert found["draft"]["fix"] == "hf download z-lab/Qwen3-8B-DFlash-b16"


def test_a_name_that_is_nearly_known_is_asked_about(check):
    _, found = check("Qwen/qwen3-8b", "--files")
    assert "did you mean Qwen/Qwen3-8B?" in found["error"]


def test_weights_beyond_the_memory_are_not_loaded(made, check, monkeypatch):
    monkeypatch.setattr(host, "memory_bytes", lambda: 1000)
    code, found = check(made)
    assert (code, found["fix"]) == (2, "choose a smaller or a quantized model")
    assert "GB of memory" in found["error"]


def test_weights_of_four_bits_are_named_if_the_full_ones_do_not_fit(made, check, monkeypatch):
    monkeypatch.setitem(registry.PUBLISHED, "qwen3-8b", (str(made / "target"), None))
    monkeypatch.setattr(host, "memory_bytes", lambda: 1000)
    _, found = check("qwen3-8b")
    assert found["fix"] == "choose a smaller or a quantized model, such as qwen3-8b-4bit"


def test_a_drafter_has_to_fit_into_the_memory_beside_its_target(check, monkeypatch, tmp_path):
    pair = folders.write_pair(tmp_path / "pair", dtype="float32")
    target, draft = ((pair / part / "model.safetensors").stat().st_size for part in ("target", "draft"))
    monkeypatch.setattr(host, "memory_bytes", lambda: target + draft // 2)
    code, found = check(pair)
    assert (code, found["target"]["ok"], found["draft"]["ok"]) == (2, True, False)
    assert "of target and drafter together take" in found["error"]


def test_a_machine_without_mlx_is_an_answer(python):
    code = (
        "import sys; sys.modules['mlx'] = sys.modules['mlx.core'] = None\n"
        "from engine.cli import main; main(['models', '--check', 'tiny', '--json'])"
    )
    done = python("-c", code)
    found = json.loads(done.stdout)
    assert (done.returncode, found["ok"]) == (2, False)
    assert (found["target"]["id"], found["target"]["ok"]) == ("tiny", False)
    assert "MLX cannot be loaded" in found["error"]


@BUNDLED
def test_looking_at_files_does_not_load_mlx(python):
    code = (
        "import atexit, sys; atexit.register(lambda: print('mlx.core' in sys.modules))\n"
        "from engine.cli import main; main(['models', '--check', 'tiny', '--files', '--json'])"
    )
    done = python("-c", code)
    answer, loaded = done.stdout.splitlines()
    assert (done.returncode, json.loads(answer)["ok"], loaded) == (0, True, "False")


def test_messages_without_json(made, capsys):
    with pytest.raises(SystemExit) as ended:
        cli.main(["models", "--check", str(made)])
    assert ended.value.code == 0
    assert "runs (Qwen3ForCausalLM, 4 layers" in capsys.readouterr().out
    with pytest.raises(SystemExit) as ended:
        cli.main(["models", "--check", str(made / "none")])
    assert ended.value.code == 2
    assert "error: there is no folder" in capsys.readouterr().err
    with pytest.raises(SystemExit) as ended:
        cli.main(["models", "--check", str(made), "--files"])
    assert ended.value.code == 0
    assert "all files are there (Qwen3ForCausalLM, 4 layers" in capsys.readouterr().out


@pytest.mark.parametrize("options", [["--json"], ["--check", "tiny"], ["--no-draft"]])
def test_the_options_of_the_check_do_not_go_with_a_download(options, capsys):
    with pytest.raises(SystemExit) as ended:
        cli.main(["models", *options, "get", "no-such-model"])
    assert ended.value.code == 2
    assert "do not go with `models get`" in capsys.readouterr().err
