"""The command line in this process."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from bridge.cli import main


@dataclass
class Done:
    """How a command ended."""

    returncode: int
    stdout: str
    stderr: str


@pytest.fixture
def kakeya(monkeypatch, capsys) -> Callable[..., Done]:
    """Run the command line in this process: everything but the start of the interpreter is real."""

    def run(where: Path, *args: str) -> Done:
        capsys.readouterr()
        with monkeypatch.context() as patch:
            patch.chdir(where)
            patch.setattr(sys, "argv", ["kakeya", *args])
            with pytest.raises(SystemExit) as ended:
                main()
        return Done(int(ended.value.code or 0), *capsys.readouterr())

    return run
