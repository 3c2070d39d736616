import json
import os
import platform
import sys
import tomllib
from importlib import metadata, util
from pathlib import Path

import pytest

from engine import blas

ROOT = Path(__file__).parents[2]

linux = pytest.mark.skipif(sys.platform != "linux", reason="other platforms bring their own BLAS")
packaged = pytest.mark.skipif(
    util.find_spec(blas.PACKAGE) is None, reason=f"needs the package {blas.PACKAGE}"
)

REPORT = (
    "import json; from engine.mx import mx; from engine import blas, blas_speed; "
    "print(json.dumps({**vars(blas.preload()), **blas_speed.in_use().as_dict()}))"
)


@linux
def test_off_leaves_the_bundled_library(python):
    said = json.loads(python("-c", REPORT, KAKEYA_OPENBLAS="off").stdout)
    assert said["name"] == "bundled"
    assert not said["loaded"]
    assert said["gflops"] > 0


@linux
def test_an_absent_library_is_no_error(python):
    done = python("-c", REPORT, KAKEYA_OPENBLAS="/no/such/library.so")
    said = json.loads(done.stdout)
    assert (said["name"], said["loaded"]) == ("bundled", False)
    assert "/no/such/library.so" in said["reason"]


@linux
@packaged
def test_the_packages_library_is_what_mlx_is_bound_to(python):
    """By its path: the system's, where there is one, comes after it."""
    said = json.loads(python("-c", REPORT).stdout)
    assert (said["name"], said["loaded"]) == ("openblas", True)
    assert f"/{blas.PACKAGE}/lib/" in said["library"]
    assert said["library"] == str(Path(said["tried"]).resolve())


@linux
@packaged
def test_a_named_library_comes_before_it(python):
    folder, name = os.path.split(blas.candidates()[0])
    mine = f"{folder}/../lib/{name}"
    said = json.loads(python("-c", REPORT, KAKEYA_OPENBLAS=mine).stdout)
    assert (said["tried"], said["loaded"]) == (mine, True)


@linux
@packaged
def test_its_linear_algebra_works_in_mlx(python):
    """LAPACK comes from the same library: a factorization that gives the matrix again."""
    code = (
        "from engine.mx import mx; mx.set_default_device(mx.cpu); a = mx.random.normal((48, 48), "
        "key=mx.random.key(0)); "
        "q, r = mx.linalg.qr(a, stream=mx.cpu); u, s, v = mx.linalg.svd(a, stream=mx.cpu); "
        "l = mx.linalg.cholesky(a @ a.T + 48 * mx.eye(48), stream=mx.cpu); "
        "print(max(mx.abs(q @ r - a).max().item(), mx.abs(u * s @ v - a).max().item(), "
        "mx.abs(l @ l.T - a @ a.T - 48 * mx.eye(48)).max().item()))"
    )
    done = python("-c", code)
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) < 1e-3


@linux
@packaged
@pytest.mark.parametrize("threads", ["1", "2"])
def test_the_usual_variable_sets_its_threads(python, threads):
    code = (
        "import ctypes; from engine.mx import mx; from engine import blas; "
        "print(ctypes.CDLL(blas.in_use().library).openblas_get_num_threads())"
    )
    done = python("-c", code, OPENBLAS_NUM_THREADS=threads)
    assert done.stdout.strip() == str(min(int(threads), len(os.sched_getaffinity(0)))), done.stderr


@linux
@packaged
def test_a_library_whose_names_have_a_prefix_is_passed_over(python, tmp_path):
    """As later releases of the package are: loading one must not look like success."""
    folder = tmp_path / "site" / blas.PACKAGE / "lib"
    folder.mkdir(parents=True)
    (folder.parent / "__init__.py").touch()
    # Any library without the name will do; this one is surely there.
    other = next(Path(blas.candidates()[0]).parent.glob("libquadmath*"), None) or pytest.skip(
        "no other library"
    )
    prefixed = folder / "libopenblas_prefixed.so"
    prefixed.symlink_to(other)
    code = (
        f"import sys; sys.path.insert(0, {str(tmp_path / 'site')!r}); from engine import blas; "
        "print(blas.preload().reason); print(*blas.candidates())"
    )
    done = python("-c", code, KAKEYA_OPENBLAS=str(prefixed))
    assert done.stdout.splitlines()[0].endswith("does not export cblas_sgemm"), done.stderr
    assert done.stdout.splitlines()[1] == f"{prefixed} libopenblas.so.0"


@linux
def test_too_late_is_said(python):
    done = python("-c", "import mlx.core; from engine import blas; print(blas.preload().reason)")
    assert "imported before" in done.stdout
    assert "RuntimeWarning: mlx.core was imported before the engine" in done.stderr


def test_the_package_is_pinned_to_one_release_everywhere():
    """Its maintainers promise no names: any other release may be one that MLX cannot use."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    (need,) = [need for need in extras["cpu"] if need.startswith("scipy-openblas32")]
    pin = need.partition(";")[0].strip()
    assert pin.startswith("scipy-openblas32==")
    for lock in ("demo", "dev", "parity"):
        text = (ROOT / "release" / "requirements" / f"{lock}.txt").read_text()
        assert f"\n{pin} ;" in text
    if util.find_spec(blas.PACKAGE):
        assert metadata.version("scipy-openblas32") == pin.partition("==")[2]


@linux
@pytest.mark.skipif(platform.machine() not in ("x86_64", "aarch64"), reason="no wheel for this machine")
def test_it_is_installed_with_the_tests():
    assert util.find_spec(blas.PACKAGE), "make .venv/.dev installs it"
