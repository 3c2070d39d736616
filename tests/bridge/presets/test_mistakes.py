"""What a preset's author is told of mistakes: all at once, each by its name, with what was probably meant."""

from __future__ import annotations

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


def test_every_mistake_is_named(tmp_path):
    text = GOOD.replace("code: installed", "code: nobody").replace(
        "description: One of mine.", "collects: []"
    )
    (tmp_path / "mine.yaml").write_text(text)

    message = load_presets(tmp_path).broken["mine"].message

    for part in ("description is missing", "code: ", "collects is not a known field (did you mean collect?)"):
        assert part in message


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
