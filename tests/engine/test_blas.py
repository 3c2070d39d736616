import ctypes
import json
import sys

import pytest

from engine import blas

linux = pytest.mark.skipif(sys.platform != "linux", reason="other platforms bring their own BLAS")

REPORT = (
    "import json; from engine.mx import mx; from engine import blas; "
    "print(json.dumps({**vars(blas.preload()), **blas.in_use(measure=True).as_dict()}))"
)


def _openblas_is_here():
    try:
        ctypes.CDLL(blas.CANDIDATES[0])
    except OSError:
        return False
    return True


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
@pytest.mark.skipif(not _openblas_is_here(), reason="no OpenBLAS on this machine")
def test_openblas_is_what_mlx_is_bound_to(python):
    said = json.loads(python("-c", REPORT).stdout)
    assert (said["name"], said["loaded"]) == ("openblas", True)
    assert "openblas" in said["library"]


@linux
def test_too_late_is_said(python):
    done = python("-c", "import mlx.core; from engine import blas; print(blas.preload().reason)")
    assert "imported before" in done.stdout
