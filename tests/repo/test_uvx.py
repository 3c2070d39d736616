"""`uvx` runs the client from a folder of wheels: what an agent's configuration does, and what it takes on disk.

uv is installed into an environment of its own. The dependencies come from the package index; without one, the tests are
skipped.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests.repo.programs import good, run

ROOT = Path(__file__).parents[2]
MOST_BYTES = 60_000_000

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def uvx(wheel, tmp_path_factory):
    """Return a function that runs a program of the package with uvx, in an empty home."""
    place = tmp_path_factory.mktemp("uvx")
    good(sys.executable, "-m", "venv", "--without-pip", place / "uv", cwd=place)
    pip = (sys.executable, "-m", "pip", "--python", place / "uv" / "bin" / "python")
    tried = run(*pip, "install", "--quiet", "uv", cwd=place)
    if tried.returncode:
        pytest.skip(f"no package index is reached: {tried.stderr.strip().splitlines()[-1:]}")
    kept = {
        name: value
        for name, value in os.environ.items()
        if name.startswith("SSL_") or "PROXY" in name.upper()
    }
    # The last two: the older and the newer name of an option. pip trusts the system's certificates without being told.
    env = kept | {"HOME": str(place), "PATH": f"{place / 'uv' / 'bin'}{os.pathsep}{os.environ['PATH']}",
                  "UV_CACHE_DIR": str(place / "cache"), "UV_PYTHON": sys.executable, "UV_NO_CONFIG": "1",
                  "UV_NATIVE_TLS": "1", "UV_SYSTEM_CERTS": "1"}  # fmt: skip

    def call(*words: object, cwd: Path) -> str:
        argv = ("uvx", "--quiet", "--find-links", wheel.parent, "--from", "kakeya-bridge", *words)
        return good("env", "-i", *(f"{name}={value}" for name, value in env.items()), *argv, cwd=cwd)

    return call


def test_the_doctor_runs_from_a_local_index_in_under_60_mb(uvx, clone):
    said = uvx("kakeya", "doctor", cwd=clone)

    assert "ok    repository" in said
    assert "ok    push" in said
    where = Path(uvx("python", "-c", "import sys; print(sys.prefix)", cwd=clone))
    total = sum(file.stat().st_size for file in (where / "lib").rglob("*") if file.is_file())
    print(f"{total / 1e6:.1f} MB installed by uvx, after `kakeya doctor` ran")
    assert 20_000_000 < total < MOST_BYTES
    packages = {path.name for path in where.glob("lib/python*/site-packages/*")}
    assert {"bridge", "runner", "git"} <= packages
    assert packages & {"mlx", "numpy", "mcp"} == set()


def test_the_programs_name_the_commit(uvx, clone):
    if not (ROOT / ".git").exists():
        pytest.skip("this is no git checkout")
    commit = good("git", "-C", ROOT, "rev-parse", "--short=12", "HEAD", cwd=clone)
    for program in ("kakeya", "kakeya-runner", "kakeya-engine"):
        assert f"(commit {commit}" in uvx(program, "--version", cwd=clone)
