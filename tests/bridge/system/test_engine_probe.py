"""What `doctor` and `check` say of the engine, by what its probe answers."""

from __future__ import annotations

import json

import pytest

from bridge.common import install
from bridge.system import engine_probe

FAST = {"name": "openblas", "library": "/site/libopenblas.so", "gflops": 57.0}
SLOW = {"name": "bundled", "library": "/site/libblas.so", "gflops": 2.5}


def answer(**changes):
    found = {
        "healthy": True,
        "device": "cpu",
        "versions": {"mlx": "0.32"},
        "blas": FAST,
        "blas_preload": {"tried": "x"},
    }
    return json.dumps(found | changes)


@pytest.fixture
def asked(tmp_path):
    """Let an interpreter answer a text, and return what is made of it."""

    def ask(text, **options):
        python = tmp_path / "python"
        (tmp_path / "answer").write_text(text)
        python.write_text(f"#!/bin/sh\ncat {tmp_path}/answer\n")
        python.chmod(0o755)
        return engine_probe.engine(python, {"PATH": "/usr/bin:/bin"}, **options), python

    return ask


def test_the_library_and_its_speed_are_named(asked):
    check, _ = asked(answer())
    assert check.ok is True
    assert check.message == "MLX 0.32 on cpu, BLAS openblas, 57.0 GFLOP/s at /site/libopenblas.so"


def test_a_gpu_needs_no_fast_blas(asked):
    check, _ = asked(answer(device="gpu", blas=SLOW))
    assert check.ok is True


def test_a_slow_library_comes_with_what_brings_a_fast_one(asked):
    check, python = asked(answer(blas=SLOW))
    assert check.ok is None
    assert "2.5 GFLOP/s" in check.message
    assert check.fix.endswith(install.engine(python=python))


def test_one_that_was_asked_for_is_not_an_installation(asked):
    check, _ = asked(answer(blas=SLOW, blas_preload={"tried": ""}))
    assert check.fix == "A fast BLAS is not loaded because KAKEYA_OPENBLAS is off: unset it."


@pytest.mark.parametrize("text", ["", "[]", "no JSON", answer(healthy=False)])
def test_no_answer_is_no_engine(asked, text):
    check, python = asked(text)
    assert check.ok is None
    assert check.fix == f"See why: {python} -P -m engine probe"


def test_wrong_results_fail_the_check_of_an_engine_that_is_required(asked):
    wrong = answer(
        healthy=False, problems=[{"what": "MLX does not work", "why": "a product is wrong", "fix": ""}]
    )
    check, _ = asked(wrong, required=True)
    assert check.ok is False
    assert check.message == "MLX is not usable: MLX does not work (a product is wrong)"
    assert asked(wrong)[0].ok is None


def test_an_interpreter_that_is_not_there(tmp_path):
    assert engine_probe.engine(tmp_path / "none", {}).ok is None


def test_how_to_install_names_a_source_tree_and_each_extra_once():
    said = install.engine(install.PARITY, install.ENGINE, python="/venv/bin/python")
    needs = f"'.[{install.ENGINE},parity]' ./release/weights"
    assert said == f"In a checkout of kakeya-bridge: /venv/bin/python -m pip install {needs}"
