"""The example in docs/presets.md runs as it is printed."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from bridge.bus.wire import State
from bridge.presets import load_presets

PAGE = (Path(__file__).parents[2] / "docs" / "presets.md").read_text(encoding="utf-8")


@pytest.fixture
def folder(clone):
    """The printed file, in the folder and under the name that the page gives it, in a requester's clone."""
    found = re.search(r"```yaml\n# (presets/[a-z-]+\.yaml)[^\n]*\n(.*?)```", PAGE, re.DOTALL)
    file = clone / found[1]
    file.parent.mkdir()
    file.write_text(found[2])
    return file.parent


def test_the_table_of_the_page_is_made_from_the_files_of_the_presets_alone():
    table = PAGE.split("<!-- presets: begin -->\n")[1].split("<!-- presets: end -->")[0]
    rows = [line.strip("|").split("|") for line in table.splitlines()[2:]]
    shown = {cells[0].strip(" `"): cells[-1].strip() for cells in rows}
    assert shown == {name: preset.cannot_show for name, preset in load_presets().items()}


def printed(command: str) -> list[list[str]]:
    lines = re.findall(rf"^\$ KAKEYA_PRESETS=\./presets kakeya ({command} .*)$", PAGE, re.MULTILINE)
    return [shlex.split(line) for line in lines]


def kakeya(where: Path, *args: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-P", "-m", "bridge", *args]
    env = os.environ | {"KAKEYA_PRESETS": "./presets"}
    return subprocess.run(argv, cwd=where, env=env, capture_output=True, text=True, check=False)


def test_the_example_is_shown(folder, clone):
    (args,) = printed("presets")
    done = kakeya(clone, *args)
    assert (done.returncode, done.stderr) == (0, "")
    assert args[1] in done.stdout
    assert load_presets(folder).broken == {}


@pytest.mark.long
@pytest.mark.bus
def test_the_example_runs(folder, clone, runners, client):
    runners.start(preset_folder=str(folder))
    (args,) = printed("run")
    done = kakeya(clone, *args)
    assert done.returncode == 0, done.stdout + done.stderr
    (run,) = client.list()
    assert run.state is State.SUCCEEDED
    assert "best of 3" in client.logs(run.branch)


def test_the_step_of_pieces_is_put_together(tmp_path):
    text = re.search(r"```yaml\n(steps:\n  - use:.*?)```", PAGE, re.DOTALL)[1]
    needed = "use: [installed, models, samples, decoding, blocks]\n"
    report = "collect: [results/research/drafts.json]\n"
    (tmp_path / "mine.yaml").write_text(f"name: mine\ndescription: x\ntimeout_s: 5\n{needed}{report}{text}")
    found = load_presets(tmp_path)
    assert found.broken == {}
    assert found["mine"].steps[0].argv[-1] == "results/research/drafts.json"
