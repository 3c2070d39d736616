"""The command line of the server."""

import subprocess
import sys

import pytest


def run(*argv):
    argv = [sys.executable, "-P", "-m", "engine", "serve", *argv]
    return subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (("--host", "0.0.0.0"), "--api-key-file"),
        (("--cache", "zip"), "no cache spec"),
        (("--max-body", "many"), "is no size"),
        (("--enable-dflash", "--draft", "none"), "exclude each other"),
        (("--host", "no.such.host.invalid", "--api-key-file", "KEY"), "cannot listen"),
        (("--api-key-file", "SHORT"), "at least 16"),
    ],
)
def test_refused(argv, said, tmp_path):
    (tmp_path / "KEY").write_text("k" * 20)
    (tmp_path / "SHORT").write_text("k")
    done = run(*(str(tmp_path / word) if word in ("KEY", "SHORT") else word for word in argv))
    assert done.returncode in (1, 2)
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_help_needs_no_model():
    done = run("--help")
    assert done.returncode == 0
    assert "OpenAI" in done.stdout
