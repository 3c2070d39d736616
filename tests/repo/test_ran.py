"""What CI does with tests that ran: note them, and run the others once what they want is there."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TEST = """
import os
import pytest

@pytest.mark.parametrize("text", ["a line", "of\\nmany", "\\udc80"])
def test_always(text):
    pass

@pytest.mark.mine
def test_not_chosen():
    pass

def test_wants_something():
    if "SOMETHING" not in os.environ:
        pytest.skip("nothing is here")
"""


def run_pytest(folder, *args, **environment):
    argv = [sys.executable, "-m", "pytest", "--strict-markers", "-p", "tests.ran", *args]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTEST_ADDOPTS": "", **environment}
    return subprocess.run(argv, check=False, cwd=folder, env=environment, capture_output=True, text=True)


@pytest.mark.long
def test_what_ran_does_not_run_again_and_the_rest_does_under_the_settings_of_the_project(tmp_path):
    project, notes = tmp_path / "project", tmp_path / "elsewhere/ran"
    project.mkdir()
    notes.parent.mkdir()
    (project / "pyproject.toml").write_text("[tool.pytest.ini_options]\nmarkers = ['mine: a mark']\n")
    (project / "test_it.py").write_text(TEST)

    first = run_pytest(project, f"--ran-to={notes}", "-m", "not mine")
    assert "3 passed, 1 skipped, 1 deselected" in first.stdout, first.stdout + first.stderr
    rest = run_pytest(project, f"--not-in={notes}", SOMETHING="1")

    assert "2 passed, 3 deselected" in rest.stdout, rest.stdout + rest.stderr


def test_files_follow_their_option_in_one_word():
    """pytest takes a lone path that exists for a test file, and looks for its settings beside it."""
    for file in (".ci/run", ".github/workflows/ci.yaml"):
        text = (ROOT / file).read_text(encoding="utf-8")
        assert "tests.ran" in text
        assert not re.search(r"--(ran-to|not-in)\s", text)


@pytest.mark.rows(2)
@pytest.mark.parametrize("row", range(4))
def test_of_the_rows_of_a_test_the_first_ones_are_quick(row, request):
    assert (request.node.get_closest_marker("long") is not None) == (row >= 2)
