"""What ``kakeya gate --json`` prints about each report of ``claims.reports``."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from click.testing import CliRunner

from bridge.cli import cli
from tests.golden.claims import report_files


def texts() -> dict[str, str]:
    """Return one line per report: its path, and the output of the command, which sees the plain file name."""
    here = Path.cwd()
    lines = []
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            for name, data in report_files():
                file = Path(name.removesuffix(".gz")).name
                Path(file).write_bytes(data)
                lines.append(f"{name} {_judge(file)}")
        finally:
            os.chdir(here)
    return {"gate.txt": "".join(lines)}


def _judge(file: str) -> str:
    done = CliRunner().invoke(cli, ["gate", "--json", file], standalone_mode=False)
    if done.exception:
        raise done.exception
    return f"exits with {int(done.return_value)} {done.stdout}"
