"""YAML that people write: what is refused."""

from __future__ import annotations

import pytest

from bridge.errors import PresetError
from bridge.system.strict_yaml import MAX_DEPTH, read_yaml

REFUSED = {
    "a list": ("[a, b]", "must hold one mapping"),
    "a number as a key": ("1: a", "must hold one mapping"),
    "a key that stands twice": ("a: 1\na: 2", "'a' stands twice"),
    "an object of Python": ("a: !!python/object/apply:os.getcwd []", "could not determine a constructor"),
    "no text": ("a: \x01", "not valid YAML"),
    "too deep": ("a: " + "[" * MAX_DEPTH + "]" * MAX_DEPTH, "nested deeper than 32 levels"),
    "a value that is named again": ("a: &a x\nb: *a", "a is an alias"),
    "a list in itself": ("a: &a [*a]", "a is an alias"),
    "an alias of nothing": ("a: *b", "b is an alias"),
    "too large": ("a: " + "x" * (1 << 18), "larger than 262144 bytes"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_is_refused(tmp_path, what):
    text, why = REFUSED[what]
    (tmp_path / "x.yaml").write_text(text)
    with pytest.raises(PresetError, match=why):
        read_yaml(tmp_path / "x.yaml")


@pytest.mark.long
def test_a_file_of_its_greatest_size_without_aliases_is_read(tmp_path):
    (tmp_path / "x.yaml").write_text("a: [" + "x," * ((1 << 17) - 3) + "]")
    assert len(read_yaml(tmp_path / "x.yaml")["a"]) == (1 << 17) - 3
