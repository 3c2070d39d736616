"""A report is written whole or not at all."""

from __future__ import annotations

import errno

import pytest

from engine.errors import BadInput
from engine.harness import report


def test_a_report_that_cannot_be_written_leaves_no_file(tmp_path, monkeypatch):
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("os.fsync", full)

    with pytest.raises(BadInput, match="No space left"):
        report.write(tmp_path / "report.json", {"rows": []})

    assert [*tmp_path.iterdir()] == []


def test_a_written_report_is_the_only_file(tmp_path):
    report.write(tmp_path / "report.json", {"rows": []})

    assert [path.name for path in tmp_path.iterdir()] == ["report.json"]
