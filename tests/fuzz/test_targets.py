"""The fuzz targets still run: a short turn of each, where atheris is installed. `make fuzz` takes longer turns."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent


@pytest.mark.parametrize("target", sorted(HERE.glob("fuzz_*.py")), ids=lambda path: path.stem)
def test_a_short_turn_holds(target, tmp_path):
    pytest.importorskip("atheris", reason="pip install atheris")
    argv = [sys.executable, "-P", str(target), "-runs=3000", "-verbosity=0", f"-artifact_prefix={tmp_path}/"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stderr


@pytest.mark.long
@pytest.mark.parametrize("seed", [2, 3], ids=["plain", "signed"])
def test_a_short_turn_of_pushes_holds(seed):
    """In a small process: what a child is said to take is at least what its parent took when it forked."""
    code = f"import sys; from tests.fuzz import push; sys.exit(push.main(8.0, {seed}))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=HERE.parents[1]
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_without_atheris_it_says_so_and_ends_well():
    argv = [sys.executable, "-S", "-P", str(HERE / "run.py"), "1"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (
        0,
        "atheris is not installed: nothing else was fuzzed (pip install atheris)\n",
    )
