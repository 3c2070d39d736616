"""A target on disk with random weights, reports of a small run, and the gate where it knows the kinds."""

import importlib.util
import json
from pathlib import Path

import pytest

from bridge import evidence
from engine import cli


def _load(name):
    spec = importlib.util.spec_from_file_location(f"engine_test_{name}", Path(__file__).parent / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


folders = _load("folders")
models = _load("models")


def run(*argv):
    """Run ``kakeya-engine eval`` and return its exit code."""
    with pytest.raises(SystemExit) as ended:
        cli.main(["eval", *map(str, argv)])
    return ended.value.code


def report(path):
    return json.loads(path.read_text())


def violations(made):
    """Return the codes of what the gate finds wrong."""
    pytest.importorskip("bridge.evidence.kinds", reason="this gate does not know the kinds of evaluations")
    return sorted({violation.code for violation in evidence.check_report(made)})
