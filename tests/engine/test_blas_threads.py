import sys
from importlib import util

import pytest

from engine import blas

packaged = pytest.mark.skipif(
    sys.platform != "linux" or util.find_spec(blas.PACKAGE) is None,
    reason=f"needs the package {blas.PACKAGE}",
)
SAID = "from engine.mx import mx; from engine import blas; "


@packaged
def test_the_number_of_threads_changes_while_a_process_runs(python):
    code = "found = blas.threads(); blas.use_threads(1); print(found == blas.most_threads(), blas.threads(), "
    done = python("-c", SAID + code + "blas.threads_are_given())")
    assert done.stdout.split() == ["True", "1", "False"], done.stderr


@pytest.mark.parametrize("name", ["OPENBLAS_NUM_THREADS", "GOTO_NUM_THREADS", "OMP_NUM_THREADS"])
def test_a_number_in_the_environment_is_given(python, name):
    assert python("-c", SAID + "print(blas.threads_are_given())", **{name: "1"}).stdout.strip() == "True"


def test_another_blas_has_no_number(python):
    done = python(
        "-c", SAID + "blas.use_threads(1); print(blas.most_threads(), blas.threads())", KAKEYA_OPENBLAS="off"
    )
    assert done.stdout.split() == ["None", "None"], done.stderr
