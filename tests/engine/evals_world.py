"""The command of evaluations, their reports, and what the gate says of them."""

import json

import pytest

from bridge import evidence
from engine import cli


def run(*argv):
    """Run ``kakeya-engine eval`` and return its exit code."""
    with pytest.raises(SystemExit) as ended:
        cli.main(["eval", *map(str, argv)])
    return ended.value.code


def report(path):
    return json.loads(path.read_text())


def violations(made):
    """Return the codes of what the gate finds wrong, without what a busy machine does to an honest run."""
    found = {violation.code for violation in evidence.check_report(made)}
    return sorted(code for code in found if not evidence.TABLE[code].noise)
