"""A reason that reaches a requester says on which machine somebody can do something about it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from runner.refusal import with_place

RUNNER = Path(__file__).parents[2] / "runner"
# Their own sentence names the runner's operator, or the policy on the runner.
OWN_WORDS = {"untrusted_code", "preset_not_allowed", "interpreter", "models"}


def test_every_refusal_has_a_place():
    text = "".join(path.read_text(encoding="utf-8") for path in RUNNER.rglob("*.py"))
    codes = set(re.findall(r'Refusal\(\s*"([a-z_]+)"', text))
    assert len(codes) > 10
    assert [code for code in sorted(codes - OWN_WORDS) if with_place(code, "No", "mini") == "No"] == []


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("expired", "It is old. Send a new request from your machine: kakeya run."),
        ("free", "It is old. The operator of the runner mini has to make room on its disk."),
        ("exit_code", "It is old"),
    ],
)
def test_the_place_follows_the_reason(code, message):
    assert with_place(code, "It is old", "mini") == message
