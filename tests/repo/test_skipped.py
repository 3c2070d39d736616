"""What CI does with skipped tests: note them, and run them again once what they want is there."""

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
TEST = """
import os
import pytest

@pytest.mark.mine
def test_always():
    pass

@pytest.mark.mine
def test_wants_something():
    if "SOMETHING" not in os.environ:
        pytest.skip("nothing is here")
"""


def run_pytest(folder, *args, **environment):
    argv = [sys.executable, "-m", "pytest", "--strict-markers", "-p", "tests.skipped", *args]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTEST_ADDOPTS": "", **environment}
    return subprocess.run(argv, check=False, cwd=folder, env=environment, capture_output=True, text=True)


def test_only_skipped_tests_run_again_under_the_settings_of_the_project(tmp_path):
    project, notes = tmp_path / "project", tmp_path / "elsewhere/skipped"
    project.mkdir()
    notes.parent.mkdir()
    (project / "pyproject.toml").write_text("[tool.pytest.ini_options]\nmarkers = ['mine: a mark']\n")
    (project / "test_it.py").write_text(TEST)

    assert "1 passed, 1 skipped" in run_pytest(project, f"--skips-to={notes}").stdout
    again = run_pytest(project, f"--only-skipped-in={notes}", SOMETHING="1")

    assert "1 passed, 1 deselected" in again.stdout, again.stdout + again.stderr


def test_files_follow_their_option_in_one_word():
    """pytest takes a lone path that exists for a test file, and looks for its settings beside it."""
    for file in (".ci/run", ".github/workflows/ci.yaml"):
        text = (ROOT / file).read_text(encoding="utf-8")
        assert "tests.skipped" in text
        assert not re.search(r"--(skips-to|only-skipped-in)\s", text)
