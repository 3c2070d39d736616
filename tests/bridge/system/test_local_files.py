import os
from pathlib import Path

import pytest

from bridge.system.local_files import read_regular, replace


def test_a_file_is_replaced_whole(tmp_path):
    path = tmp_path / "facts.json"
    path.write_text("old")

    replace(path, "new")

    assert path.read_text() == "new"
    assert list(tmp_path.iterdir()) == [path]


def test_what_cannot_be_written_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch):
    path = tmp_path / "facts.json"
    path.write_text("old")

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(OSError, match="No space left"):
        replace(path, "new")

    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir], ids=["pipe", "folder"])
def test_only_regular_files_are_read(tmp_path, make):
    make(tmp_path / "odd")

    assert read_regular(tmp_path / "odd", 100) is None


def test_a_file_beyond_the_limit_is_not_read(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"12345")

    assert read_regular(path, 5) == b"12345"
    assert read_regular(path, 4) is None
