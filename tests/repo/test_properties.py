"""Property tests draw the same examples each time, and others where that is asked for."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests import properties

ROOT = Path(__file__).parents[2]
DRAWN = """
from hypothesis import given, strategies as st
from tests import properties
properties.load_profile()
drawn = []
@properties.examples(10)
@given(st.integers())
def draw(n):
    drawn.append(n)
draw()
print(drawn)
"""


def drawn(folder: Path, **env: str) -> list[int]:
    """Return what a fresh interpreter draws."""
    kept = {name: value for name, value in os.environ.items() if name != properties.VARIABLE}
    argv = [sys.executable, "-c", DRAWN]
    path = {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(argv, cwd=folder, env=kept | path | env, capture_output=True, text=True, check=True)
    return eval(done.stdout)


@pytest.mark.long
def test_the_examples_are_the_same_each_time(tmp_path):
    assert drawn(tmp_path) == drawn(tmp_path)


@pytest.mark.long
def test_exploring_draws_others_and_more(tmp_path):
    one, other = (drawn(tmp_path, EXPLORE="5") for _ in range(2))
    assert one != other
    assert len(one) == 50


def test_no_test_sets_a_deadline_or_draws_at_random_by_itself():
    files = [path for path in (ROOT / "tests").rglob("test_*.py") if path.name != Path(__file__).name]
    users = {path: text for path in files if "from hypothesis" in (text := path.read_text(encoding="utf-8"))}
    assert len(users) > 10
    own = re.compile("derandomize=False|deadline=")
    assert [str(path.relative_to(ROOT)) for path, text in users.items() if own.search(text)] == []
