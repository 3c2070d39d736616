"""Looking at models that lie on this machine: each says by itself what is missing, and nothing is downloaded."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from engine.models.look import look
from engine.models.registry import DATA, is_bundled_here

pytestmark = pytest.mark.skipif(not is_bundled_here("tiny"), reason="this installation holds no bundled pair")
TARGET, DRAFT = str(DATA / "tiny" / "target"), str(DATA / "tiny" / "draft")


@pytest.fixture(autouse=True)
def _hub(monkeypatch, tmp_path):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_HOME", str(tmp_path))


def errors(*args: str | None, build: bool = False) -> dict[str, str]:
    return {entry["role"]: entry["error"] for entry in look(*args, build=build)}


@pytest.mark.parametrize("build", [False, True], ids=["files", "loaded"])
def test_what_is_whole_has_no_error(build):
    assert errors("tiny", "tiny", build=build) == {"target": "", "draft": ""}
    assert errors(TARGET, DRAFT, build=build) == {"target": "", "draft": ""}
    assert errors(None, DRAFT, build=build) == {"draft": ""}
    assert errors(TARGET, None, build=build) == {"target": ""}


@pytest.mark.parametrize(
    ("model", "draft", "role", "says"),
    [
        ("org/none", "tiny", "target", "org/none is not downloaded"),
        ("tiny", "org/none", "draft", "org/none is not downloaded"),
        ("/nowhere", "tiny", "target", "there is no folder /nowhere"),
        (DRAFT, "tiny", "target", "the target's folder holds a drafter"),
        ("", "tiny", "target", "the name of the model is empty"),
    ],
)
def test_each_model_is_told_apart_from_the_other(model, draft, role, says):
    found = {entry["role"]: entry for entry in look(model, draft, build=False)}
    assert says in found[role]["error"]
    assert not found[role]["ok"]
    assert [entry["ok"] for other, entry in found.items() if other != role] == [True]
    assert found[role]["remedy"] or role == "draft"


def test_the_command_names_the_download_and_fails():
    argv = [sys.executable, "-P", "-m", "engine", "load", "--model", "org/none", "--files", "--json"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    (entry,) = json.loads(done.stdout)["models"]
    assert entry["remedy"] == "hf download org/none"


def test_looking_at_files_does_not_load_mlx():
    lines = ["import sys", "from engine.models.look import look", "look('tiny', 'tiny', build=False)"]
    code = "\n".join([*lines, "print('mlx.core' in sys.modules)"])
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
