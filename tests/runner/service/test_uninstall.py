"""Removing the service, and an installation that no service manager answers."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from bridge.errors import InfrastructureError
from runner.policy import load_policy
from runner.service import launchd, systemd
from runner.service.plan import Plan, call, write
from runner.service.settings import find_user, settings_for

BOTH = pytest.mark.parametrize("service", [launchd, systemd], ids=["launchd", "systemd"])


@pytest.fixture
def manager(tmp_path, monkeypatch):
    """Put stand-ins for the service managers on the PATH; return a function that makes one command fail."""
    folder = tmp_path / "commands"
    folder.mkdir()

    def failing(word: str = "") -> None:
        test = f"case \"$*\" in *{word}*) echo 'no manager answers' >&2; exit 1;; esac\n" if word else ""
        for name in ("launchctl", "systemctl", "loginctl"):
            script = folder / name
            script.write_text(f'#!/bin/sh\necho "{name} $*" >>{shlex.quote(str(tmp_path / "calls"))}\n{test}')
            script.chmod(0o755)

    failing()
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    return failing


@pytest.fixture
def settings(runners, tmp_path):
    file = runners.policy("host")
    made = settings_for({file: load_policy(file)}, find_user(None, system=False), system=False)
    home = tmp_path / "home"
    home.mkdir()
    return replace(made, home=home, variables={}, left_out=())


def below(folder: Path) -> dict[str, bytes | None]:
    return {str(path): path.read_bytes() if path.is_file() else None for path in folder.rglob("*")}


@BOTH
@pytest.mark.parametrize("word", ["enable", "reload", "restart", "bootstrap"])
def test_an_installation_that_no_manager_answers_leaves_nothing(manager, settings, service, word):
    if word not in str([step.lines for step in service.service(settings).start]):
        return
    manager(word)
    with pytest.raises(InfrastructureError, match="all changes were undone") as caught:
        list(service.service(settings).install().carry_out())
    assert "no manager answers" in caught.value.message
    assert shlex.join(settings.argv) in caught.value.fix
    assert below(settings.home) == {}


@BOTH
def test_without_the_managers_program_it_leaves_nothing_either(monkeypatch, settings, service, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(InfrastructureError, match="all changes were undone"):
        list(service.service(settings).install().carry_out())
    assert below(settings.home) == {}
    # Nor does removing need it.
    write(next(iter(service.service(settings).files)), b"x").act()
    list(service.service(settings).uninstall().carry_out())
    assert service.service(settings).uninstall().is_done


@BOTH
def test_a_change_that_fails_brings_the_old_version_back(manager, settings, service):
    list(service.service(settings).install().carry_out())
    before = below(settings.home)
    manager("bootstrap" if service is launchd else "restart")
    with pytest.raises(InfrastructureError):
        list(service.service(replace(settings, path="/opt/git/bin")).install().carry_out())
    assert below(settings.home) == before


def test_a_folder_that_others_use_by_now_stays(tmp_path):
    file = tmp_path / "a" / "b" / "unit"
    other = call("touch", str(tmp_path / "a" / "other"))
    plan = Plan([write(file, b"x"), other, call("false")], if_fails="Do it by hand.")
    with pytest.raises(InfrastructureError):
        list(plan.carry_out())
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["other"]


@pytest.mark.bus
@pytest.mark.parametrize("policy_is_gone", [False, True])
def test_the_command_removes_the_service_and_names_what_remains(runners, tmp_path, policy_is_gone):
    policy, root = runners.policy("host"), tmp_path / "root"
    state = load_policy(policy).state
    state.mkdir(parents=True, exist_ok=True)
    (state / "instance").write_text("0123456789abcdef\n")

    def runner(*args: str) -> subprocess.CompletedProcess[str]:
        argv = [sys.executable, "-P", "-m", "runner", "--policy", str(policy), *args, "--root", str(root)]
        return subprocess.run(argv, capture_output=True, text=True, check=True, cwd=tmp_path)

    runner("install", "--yes")
    assert len([path for path in root.rglob("*") if path.is_file()]) in {1, 2}
    if policy_is_gone:
        policy.unlink()
    shown = runner("uninstall")
    assert "remove " in shown.stdout
    assert "add --yes" in shown.stderr
    done = runner("uninstall", "--yes")
    assert not [path for path in root.rglob("*") if path.is_file()]
    assert "pipx uninstall kakeya-bridge" in done.stdout
    assert (f"rm -r {state}" in done.stdout) is not policy_is_gone
    assert (f"rm {policy}" in done.stdout) is not policy_is_gone
    assert (":refs/kakeya-runners/0123456789abcdef" in done.stdout) is not policy_is_gone
    again = runner("uninstall", "--yes")
    assert "the service is not installed" in again.stderr
    assert state.exists()
