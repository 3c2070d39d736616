"""YAML that people write: what is refused, and that no alias makes a small file large."""

from __future__ import annotations

import time

import pytest

from bridge.errors import PresetError
from bridge.system.strict_yaml import MAX_DEPTH, read_yaml

NINE = ", ".join(["*{0}"] * 9)
REFUSED = {
    "a list": ("[a, b]", "must hold one mapping"),
    "a number as a key": ("1: a", "must hold one mapping"),
    "a key that stands twice": ("a: 1\na: 2", "'a' stands twice"),
    "a key that is no text and stands twice": ("a: {no: 1, off: 2}", "False stands twice"),
    "an octal number": ("a: 010", "010 is 8 in YAML 1.1 alone"),
    "a negative octal number in a list": ("a: [-0_7]", "-0_7 is -7 in YAML 1.1 alone"),
    "a number in minutes": ("a: {b: 1:30}", "1:30 is 90 in YAML 1.1 alone"),
    "a decimal number in minutes": ("a: 1:30.5", "1:30.5 is 90.5 in YAML 1.1 alone"),
    "an object of Python": ("a: !!python/object/apply:os.getcwd []", "could not determine a constructor"),
    "no text": ("a: \x01", "not valid YAML"),
    "too deep": ("a: " + "[" * MAX_DEPTH + "]" * MAX_DEPTH, "nested deeper than 32 levels"),
    "too deep by aliases": (
        "\n".join(["a0: &a0 [x]", *(f"a{i}: &a{i} [*a{i - 1}]" for i in range(1, MAX_DEPTH + 1))]),
        "nested deeper than 32 levels",
    ),
    "a list in itself": ("a: &a [*a]", "'a' holds itself"),
    "a mapping deep in itself": ("a: &a\n  b: [{c: *a}]", "'a' holds itself"),
    "an alias of nothing": ("a: *b", "undefined alias"),
    "nine to the power of ten values": (
        "\n".join(["a0: &a0 x", *(f"a{i}: &a{i} [{NINE.format(f'a{i - 1}')}]" for i in range(1, 11))]),
        "more than 200000 values",
    ),
    "too large": ("a: " + "x" * (1 << 18), "larger than 262144 bytes"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_is_refused(tmp_path, what):
    text, why = REFUSED[what]
    (tmp_path / "x.yaml").write_text(text)
    with pytest.raises(PresetError, match=why):
        read_yaml(tmp_path / "x.yaml")


def test_a_value_may_be_named_again(tmp_path):
    (tmp_path / "x.yaml").write_text("a: &a {b: 1}\nc: [*a, *a]\nd: &s text\ne: *s\n")
    assert read_yaml(tmp_path / "x.yaml") == {"a": {"b": 1}, "c": [{"b": 1}] * 2, "d": "text", "e": "text"}


def test_numbers_that_every_version_reads_alike_are_read(tmp_path):
    (tmp_path / "x.yaml").write_text("a: [0, -10, 1_000, 0x1F, '010', '1:30', 1.5, 00.5, 08]\n")
    assert read_yaml(tmp_path / "x.yaml")["a"] == [0, -10, 1000, 31, "010", "1:30", 1.5, 0.5, "08"]


@pytest.mark.long
def test_a_file_of_its_greatest_size_without_aliases_is_read(tmp_path):
    (tmp_path / "x.yaml").write_text("a: [" + "x," * ((1 << 17) - 3) + "]")
    assert len(read_yaml(tmp_path / "x.yaml")["a"]) == (1 << 17) - 3


@pytest.mark.long
def test_very_many_keys_are_compared_in_time(tmp_path):
    (tmp_path / "x.yaml").write_text("".join(f"k{i:x}: 0\n" for i in range(25_000)))
    began = time.process_time()
    assert len(read_yaml(tmp_path / "x.yaml")) == 25_000
    assert time.process_time() - began < 10
