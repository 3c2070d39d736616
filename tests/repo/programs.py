"""Runs other programs, as a person at a terminal would."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path


def run(*argv: object, cwd: Path, umask: int = -1, **env: str) -> subprocess.CompletedProcess[str]:
    words = [str(word) for word in argv]
    return subprocess.run(
        words, cwd=cwd, env=os.environ | env, capture_output=True, text=True, check=False, umask=umask
    )


def good(*argv: object, cwd: Path, **more: str) -> str:
    done = run(*argv, cwd=cwd, **more)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.strip()
