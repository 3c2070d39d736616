"""A user without a home folder and without an entry in the system's list, as in a container with a random user id."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from bridge.common import environment
from bridge.common.errors import UsageError

COMMANDS = [
    *(("runner", *command) for command in (
        ["init", "--bus", "/nowhere"], ["check"], ["status"], ["serve"], ["once", "x"], ["keygen"], ["pin"], ["drain"],
        ["maintenance"], ["watchdog"], ["gc"], ["hook"], ["install"], ["install", "--hook"], ["install", "--system"],
        ["setup", "--bus", "/nowhere"], ["approve", "x"],
    )),
    *(("bridge", *command) for command in (
        ["presets"], ["doctor"], ["run", "noop"], ["list"], ["status"], ["measure", "noop", "--out", "out"],
        ["gate", "results"], ["completion", "bash"],
    )),
    *(("engine", *command) for command in (["models"], ["models", "get", "smollm2-135m"])),
]  # fmt: skip
# Makes this process a user who is not in the list: no tests need to be root for that.
NOBODY = """
import pwd
def nobody(number):
    raise KeyError(f"getpwuid(): uid not found: {number}")
pwd.getpwuid = nobody
"""


@pytest.fixture
def nobody(tmp_path):
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(NOBODY)
    env = {name: value for name, value in os.environ.items() if name not in ("HOME", "USER", "LOGNAME")}
    env = {name: value for name, value in env.items() if not name.startswith("XDG_")}
    return {**env, "PYTHONPATH": str(tmp_path / "site")}


@pytest.mark.rows(3)
@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_every_command_ends_with_a_sentence(clone, nobody, command):
    if command[0] == "engine":
        pytest.importorskip("mlx")
    argv = [sys.executable, "-P", "-m", *command]
    done = subprocess.run(argv, cwd=clone, env=nobody, capture_output=True, text=True, check=False)

    assert done.returncode in (0, 1, 2, 3), done.stderr
    assert "Traceback" not in done.stderr
    assert "bug" not in done.stderr
    if done.returncode == 2:
        assert "HOME" in done.stderr or "--" in done.stderr


@pytest.mark.parametrize(
    ("value", "says"),
    [("relative", "HOME is 'relative'"), (None, "HOME is not set"), ("", "HOME is not set")],
)
def test_a_home_that_is_none_is_said(monkeypatch, value, says):
    def unknown(number: int) -> None:
        raise KeyError(number)

    monkeypatch.setattr("pwd.getpwuid", unknown)
    monkeypatch.delenv("HOME") if value is None else monkeypatch.setenv("HOME", value)
    for name in ("XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME"):
        monkeypatch.delenv(name, raising=False)
    for ask in (
        environment.home,
        environment.config_home,
        environment.data_home,
        environment.state_home,
        lambda: environment.expand("~/x"),
    ):
        with pytest.raises(UsageError, match=says) as refused:
            ask()
        assert refused.value.fix.startswith("Set HOME to a folder of this user")
    assert environment.private_homes() == []


def test_a_home_is_found_without_the_variable(monkeypatch):
    monkeypatch.delenv("HOME")
    assert environment.home().is_absolute()
    assert environment.expand("~") == environment.home()
    assert str(environment.expand("x/~")) == "x/~"
    with pytest.raises(UsageError, match="does not exist on this machine"):
        environment.expand("~nobody-of-this-name/x")
