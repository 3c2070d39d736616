"""The command of evaluations, their reports, and what the gate says of them."""

import json

import pytest

from bridge import gate
from bridge.demo.walkthrough import NOISE
from engine import cli


def run(*argv):
    """Run ``kakeya-engine eval`` and return its exit code."""
    with pytest.raises(SystemExit) as ended:
        cli.main(["eval", *map(str, argv)])
    return ended.value.code


def report(path):
    return json.loads(path.read_text())


def violations(report):
    """Return the codes of what the gate finds wrong, without what a busy machine does to an honest run."""
    codes = {violation.code for violation in gate.check_report(report)} - {"NO_RUN"}
    return sorted(codes - NOISE)
