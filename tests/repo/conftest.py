"""What several tests of the packages start from."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest

from tests.repo.programs import good

ROOT = Path(__file__).parents[2]
BEGINNING_BYTES = 4096


@pytest.fixture(scope="session")
def tree(tmp_path_factory):
    """Return a checkout of the files as they are here, committed; of the weights, only their beginnings.

    Compressing them takes longer than all the rest of a release. The fixture `weights` packs the whole ones.
    """
    if not (ROOT / ".git").exists():
        pytest.skip("this is no git checkout")
    folder = tmp_path_factory.mktemp("tree")
    listed = good("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", cwd=ROOT).split("\0")
    for name in filter(None, listed):
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name)
            if name.endswith(".safetensors"):
                os.truncate(folder / name, BEGINNING_BYTES)
    who = {f"GIT_{role}_{part}": "x@y" for role in ("AUTHOR", "COMMITTER") for part in ("NAME", "EMAIL")}
    good("git", "init", "--quiet", cwd=folder)
    good("git", "add", "--all", cwd=folder)
    good("git", "commit", "--quiet", "-m", "x", cwd=folder, **who)
    return folder


def build(source: Path, out: Path) -> Path:
    argv = (sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", out, source)
    good(*argv, cwd=out)
    (wheel,) = out.glob("*.whl")
    return wheel


@pytest.fixture(scope="session")
def wheel(tmp_path_factory) -> Path:
    """The wheel of this checkout."""
    return build(ROOT, tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="session")
def weights(tmp_path_factory) -> Path:
    """The wheel of the bundled weights."""
    return build(ROOT / "release" / "weights", tmp_path_factory.mktemp("weights"))
