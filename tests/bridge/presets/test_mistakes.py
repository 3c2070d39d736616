"""What a preset's author is told of mistakes: all at once, each by its name, with what was probably meant."""

from __future__ import annotations

import pytest

from bridge.presets import load_presets

GOOD = """\
name: mine
description: One of mine.
code: installed
timeout_s: 30
steps:
  - argv: [/bin/echo, "{n}"]
params:
  n: {type: int, min: 1, max: 5, default: 3}
"""

MISTAKES = {
    "a misspelt key": (
        GOOD.replace("timeout_s", "timeout"),
        ("timeout is not a known field (did you mean timeout_s?)",),
    ),
    "a default out of range": (
        GOOD.replace("default: 3", "default: 9"),
        ("params.n", "the default must be a whole number from 1 to 5, not 9"),
    ),
    "several": (
        GOOD.replace("code: installed", "code: nobody").replace("description: One of mine.", "collects: []"),
        ("description is missing", "code: ", "collects is not a known field (did you mean collect?)"),
    ),
}


@pytest.mark.parametrize(("text", "told"), MISTAKES.values(), ids=MISTAKES)
def test_every_mistake_is_named(tmp_path, text, told):
    (tmp_path / "mine.yaml").write_text(text)

    message = load_presets(tmp_path).broken["mine"].message

    assert [part for part in told if part not in message] == []


def test_a_file_of_another_ending_is_named(tmp_path):
    (tmp_path / "mine.yml").write_text(GOOD)

    error = load_presets(tmp_path).broken["mine"]

    assert error.message == "mine.yml is not read"
    assert "mine.yaml" in error.fix


def test_the_right_ending_beside_the_wrong_one_counts(tmp_path):
    for ending in ("yml", "yaml"):
        (tmp_path / f"mine.{ending}").write_text(GOOD)

    presets = load_presets(tmp_path)

    assert "mine" in presets
    assert "mine" not in presets.broken
