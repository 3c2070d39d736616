"""Removing the service, and an installation that no service manager answers."""

from __future__ import annotations

import os
import plistlib
import shlex
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from bridge.errors import InfrastructureError
from runner.cli import main
from runner.policy import load_policy
from runner.service import launchd, systemd
from runner.service.plan import Plan, call, write
from runner.service.served import Served
from runner.service.settings import find_user, settings_for, settings_to_remove
from tests import programs

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
        done = programs.run("--policy", policy, *args, "--root", root)
        done.check_returncode()
        return done

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


@pytest.mark.bus
class TestServed:
    """The service's list of policies, with a service's files below a folder and no command run."""

    @pytest.fixture
    def home(self, tmp_path):
        return tmp_path / "root"

    @pytest.fixture
    def runner(self, home, capsys, monkeypatch):
        def run(*words: object, root: Path = home) -> str:
            monkeypatch.setattr(sys, "argv", ["kakeya-runner", *map(str, words), "--root", str(root)])
            with pytest.raises(SystemExit) as ended:
                main()
            done = capsys.readouterr()
            assert not ended.value.code, done.err
            return done.out + done.err

        return run

    @pytest.fixture
    def files(self, runners, runner):
        files = [runners.policy(name) for name in ("a", "b")]
        for file in files:
            load_policy(file).state.mkdir(parents=True)
        runner("install", *files, "--yes")
        return files

    @staticmethod
    def served(home: Path) -> list[Path]:
        service = {"darwin": launchd, "linux": systemd}[sys.platform].service
        who = find_user(None, system=False)
        return [*Served.by(service(settings_to_remove(who, system=False)), home).files]

    @pytest.mark.parametrize("service", [launchd, systemd], ids=["launchd", "systemd"])
    def test_a_services_file_tells_its_policies(self, settings, service, tmp_path):
        files = [tmp_path / name for name in ("a b.yaml", "ü%h$X.yaml", "it's \\.yaml", 'q"q.yaml')]
        made = settings_for(dict.fromkeys(files), find_user(None, system=False), system=False)
        made = service.service(replace(made, home=settings.home))
        list(made.install(tmp_path).carry_out(commands=False))
        assert Served.by(made, tmp_path).files == tuple(files)
        file = Path(f"{tmp_path}{next(iter(made.files))}")
        for content in (b"", b"ExecStart='", b"<plist>", b"\xff", plistlib.dumps([1])):
            file.write_bytes(content)
            assert not Served.by(made, tmp_path).files

    def test_each_command_keeps_the_other_policies(self, files, runners, runner, home, bus):
        other = runners.policy("other")
        runner("--policy", other, "setup", "--bus", bus)
        assert self.served(home) == files
        said = runner("--policy", other, "install")
        assert f'+ExecStart={self.line(home)} "{other}"' in said or sys.platform == "darwin"
        runner("install", other, "--yes")
        assert self.served(home) == [*files, other]
        # A second time, without a name, and by another spelling of the path: nothing to do.
        (runners.folder / "link").symlink_to(runners.folder)
        for words in ([other], [], [files[1]], [runners.folder / "link" / other.name]):
            assert "up to date" in runner("install", *words, "--yes")

    @staticmethod
    def line(home: Path) -> str:
        unit = next(home.rglob("kakeya-runner.service"), None)
        lines = unit.read_text().splitlines() if unit else ["ExecStart="]
        return next(line for line in lines if line.startswith("ExecStart=")).partition("=")[2]

    def test_a_named_policy_leaves_and_the_others_stay(self, files, runner, home):
        said = runner("uninstall", files[0], "--yes")
        assert f"the service goes on with {files[1]}" in said
        assert self.served(home) == [files[1]]
        assert "does not serve" in runner("uninstall", files[0], "--yes")
        assert self.served(home) == [files[1]]
        runner("uninstall", files[1], "--yes")
        assert not [path for path in home.rglob("*") if path.is_file()]

    def test_without_a_name_all_leave_and_what_remains_of_each_is_named(self, files, runner, home):
        said = runner("uninstall", "--yes")
        for file in files:
            state = load_policy(file).state
            assert f"of {file}:" in said
            assert f"rm -r {shlex.quote(str(state))}" in said
            assert f"rm {shlex.quote(str(file))}" in said
        assert self.served(home) == []

    @pytest.mark.usefixtures("files")
    def test_the_state_of_this_hosts_policy_is_named_though_the_policy_is_gone(
        self, runner, tmp_path, monkeypatch
    ):
        monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "xdg"))
        monkeypatch.setenv("KAKEYA_RUNNER_POLICY", str(tmp_path / "gone.yaml"))
        state = tmp_path / "xdg" / "kakeya" / "runner"
        state.mkdir(parents=True)
        gone = f"state of a policy that is gone, with the key that signs: rm -r {state}"
        # The service of other policies does not speak of it.
        assert gone not in runner("uninstall", "--yes")
        assert gone in runner("uninstall")

    def test_a_policy_that_cannot_be_read_stays_and_one_that_is_gone_leaves(
        self, files, runners, runner, home
    ):
        files[0].write_text("bus: [")
        assert "not valid YAML" in runner("install", runners.policy("e"), "--yes")
        assert self.served(home) == [*files, runners.folder / "e.yaml"]
        files[1].unlink()
        assert f"{files[1]} does not exist any more" in runner("install", "--yes")
        assert self.served(home) == [files[0], runners.folder / "e.yaml"]
