import contextlib
import subprocess
import sys
from pathlib import Path

import pytest

import engine

with contextlib.suppress(ImportError):
    # Before engine.lm, which some modules of tests import and which keeps torch out otherwise.
    import torch  # noqa: F401

from engine import mx  # noqa: F401 - loads a fast BLAS before a test imports MLX


@pytest.fixture
def python(tmp_path):
    """Run a program in a fresh interpreter, outside the repository: ``python("-c", code)``."""

    def run(*argv, **env):
        base = {"PATH": "/usr/bin:/bin:/usr/sbin", "HOME": str(tmp_path), **env}
        argv = [sys.executable, "-P", *argv]
        return subprocess.run(
            argv, cwd=tmp_path, env=base, capture_output=True, text=True, timeout=120, check=False
        )

    return run


@pytest.fixture
def engine_folder():
    return Path(engine.__file__).parent
