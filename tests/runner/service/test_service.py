"""Installing the runner as a service: valid files, a plan that is shown first, and twice is once.

`launchctl`, `systemctl` and `loginctl` are stand-ins that write down how they were called: a test must not change the
services of the machine that it runs on.
"""

from __future__ import annotations

import configparser
import os
import plistlib
import pwd
import shlex
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from bridge.errors import InfrastructureError, UsageError
from runner.policy import load_policy
from runner.service import actions_listener, launchd, systemd
from runner.service.plan import Plan, call, write
from runner.service.settings import settings_for
from tests import programs

NOBODY = pwd.getpwnam("nobody")


@pytest.fixture
def calls(tmp_path, monkeypatch):
    """Put the stand-ins on the PATH and return what they were called with."""
    folder, log = tmp_path / "commands", tmp_path / "calls"
    folder.mkdir()
    for name in ("launchctl", "systemctl", "loginctl"):
        script = folder / name
        script.write_text(f'#!/bin/sh\necho "{name} $*" >>{shlex.quote(str(log))}\ntest "$1" != bootout\n')
        script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    return lambda: log.read_text().splitlines() if log.exists() else []


@pytest.fixture
def settings(runners, tmp_path):
    def make(*, system: bool = False, **policy: object):
        file = runners.policy("host", **policy)
        made = settings_for({file: load_policy(file)}, NOBODY, system=system)
        return replace(made, home=tmp_path / "home", variables={}, left_out=())

    return make


@pytest.mark.parametrize("system", [False, True], ids=["agent", "daemon"])
def test_the_property_list_says_what_a_runner_needs(settings, system):
    made = settings(system=system)
    keys = plistlib.loads(launchd.plist(made))
    expected = {
        "Label": "com.kakeya.bridge-runner",
        "ProgramArguments": list(made.argv),
        "RunAtLoad": True,
        "KeepAlive": {"SuccessfulExit": False},
        "ThrottleInterval": 10,
        "ProcessType": "Interactive",
        "ExitTimeOut": 65,
        "WorkingDirectory": "/",
        "EnvironmentVariables": {"PATH": made.path, "HOME": str(made.home), "LC_ALL": "en_US.UTF-8"},
        "StandardOutPath": str(made.home / "Library/Logs/kakeya-runner.log"),
        "StandardErrorPath": str(made.home / "Library/Logs/kakeya-runner.log"),
        "Umask": 0o077,
    }
    assert keys == (expected | {"UserName": "nobody"} if system else expected)
    assert made.argv[-2:] == ("serve", "--awake")
    assert all(Path(word).is_absolute() for word in (made.argv[0], made.argv[5]))


@pytest.mark.parametrize("system", [False, True], ids=["agent", "daemon"])
def test_a_second_job_watches_the_first(settings, system):
    made = settings(system=system)
    keys = plistlib.loads(launchd.watchdog_plist(made))
    assert keys["Label"] == "com.kakeya.bridge-runner-watchdog"
    assert keys["ProgramArguments"] == [*made.argv[:6], "watchdog"]
    assert (keys["StartInterval"], keys["RunAtLoad"], keys["AbandonProcessGroup"]) == (60, True, True)
    assert "KeepAlive" not in keys
    # A daemon runs as the runner's user: what root starts must not lie where that user can write.
    assert keys.get("UserName") == ("nobody" if system else None)


@pytest.mark.skipif(sys.platform != "darwin", reason="plutil comes with macOS")
@pytest.mark.parametrize("system", [False, True])
def test_macos_takes_the_property_list(settings, tmp_path, system):
    file = tmp_path / "runner.plist"
    for content in (launchd.plist, launchd.watchdog_plist):
        file.write_bytes(content(settings(system=system)))
        subprocess.run(["/usr/bin/plutil", "-lint", str(file)], check=True)


def first_file(service, settings) -> Path:
    return next(iter(service.service(settings).files))


def parse(unit: bytes) -> dict[str, dict[str, str]]:
    parser = configparser.RawConfigParser(strict=True)
    parser.optionxform = str  # type: ignore[assignment, method-assign]
    parser.read_string(unit.decode())
    return {section: dict(parser[section]) for section in parser.sections()}


@pytest.mark.parametrize("system", [False, True], ids=["user", "system"])
def test_the_unit_says_what_a_runner_needs(settings, system):
    made = settings(system=system)
    unit = parse(systemd.unit(made))
    service = unit["Service"]
    assert service["ExecStart"] == " ".join(f'"{word}"' for word in made.argv)
    assert (service["Restart"], service["KillMode"], service["TimeoutStopSec"]) == (
        "on-failure",
        "mixed",
        "65",
    )
    assert (service["OOMPolicy"], service["NoNewPrivileges"]) == ("continue", "yes")
    assert (service["Type"], service["NotifyAccess"], service["WatchdogSec"]) == ("notify", "main", "900")
    assert unit["Unit"]["StartLimitIntervalSec"] == "0"
    assert service.get("User") == ("nobody" if system else None)
    assert service.get("ProtectSystem") == ("full" if system else None)
    assert unit["Install"]["WantedBy"] == ("multi-user.target" if system else "default.target")
    # What would keep bubblewrap from making a sandbox for a job.
    broken = {"RestrictNamespaces", "PrivateUsers", "ProtectProc", "ProcSubset", "ProtectKernelTunables",
              "ProtectKernelLogs", "SystemCallFilter", "MemoryDenyWriteExecute"}  # fmt: skip
    assert broken & set(service) == set()


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="there is no systemd-analyze here")
@pytest.mark.parametrize("system", [False, True], ids=["user", "system"])
def test_systemd_takes_the_unit(settings, tmp_path, monkeypatch, system):
    file = tmp_path / systemd.UNIT
    made = replace(settings(system=system), user="daemon")
    file.write_bytes(systemd.unit(made))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    argv = ["systemd-analyze", "verify", *([] if system else ["--user"]), str(file)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("policy", "seconds"),
    [({}, 65), ({"limits": {"grace_s": 30}}, 90), ({"on_stop": "finish", "limits": {"timeout_s": 600}}, 665)],
    ids=["hands back", "longer grace", "finishes"],
)
def test_a_stop_leaves_time_for_what_the_policy_does(settings, policy, seconds):
    made = settings(**policy)
    assert plistlib.loads(launchd.plist(made))["ExitTimeOut"] == seconds
    assert parse(systemd.unit(made))["Service"]["TimeoutStopSec"] == str(seconds)


def test_names_with_a_meaning_to_systemd_are_quoted(settings):
    made = replace(settings(), argv=('/opt/a b/100%/$HOME/"x"/\\y',))
    assert parse(systemd.unit(made))["Service"]["ExecStart"] == '"/opt/a b/100%%/$$HOME/\\"x\\"/\\\\y"'


@pytest.mark.parametrize(
    ("service", "wanted"),
    [
        (
            launchd,
            [
                line.format(f"gui/{NOBODY.pw_uid}", label, file)
                for label, file in (
                    ("com.kakeya.bridge-runner", "{file}"),
                    ("com.kakeya.bridge-runner-watchdog", "{watchdog}"),
                )
                for line in (
                    "launchctl bootout {0}/{1}",
                    "launchctl enable {0}/{1}",
                    "launchctl bootstrap {0} {2}",
                )
            ],
        ),
        (
            systemd,
            [
                "loginctl enable-linger nobody",
                "systemctl --user daemon-reload",
                "systemctl --user enable kakeya-runner.service",
                "systemctl --user restart kakeya-runner.service",
            ],
        ),
    ],
    ids=["launchd", "systemd"],
)
def test_install_shows_then_does_and_does_it_once(settings, calls, service, wanted):
    made = settings()
    file = first_file(service, made)
    plan = service.service(made).install()
    shown = list(plan.show())
    assert shown[0] == f"write {file}"
    commands = [line.format(file=file, watchdog=file.with_stem(f"{file.stem}-watchdog")) for line in wanted]
    assert [line.removeprefix("run ") for line in shown if line.startswith("run ")] == commands
    assert not file.exists()
    assert calls() == []

    said = list(plan.carry_out())

    assert said[0] == f"write {file}"
    assert [line for line in said if line.startswith("run ")] == [f"run {line}" for line in commands]
    assert calls() == commands
    assert service.service(made).install().is_done
    assert list(service.service(made).install().carry_out()) == []
    assert calls() == commands


@pytest.mark.parametrize("service", [launchd, systemd], ids=["launchd", "systemd"])
def test_a_change_is_shown_as_a_diff(settings, calls, service):
    made = settings()
    list(service.service(made).install().carry_out())
    changed = service.service(replace(made, path="/opt/git/bin")).install()
    shown = list(changed.show())
    assert shown[0] == f"change {first_file(service, made)}"
    assert any(line.startswith("    -") and made.path in line for line in shown)
    assert any(line.startswith("    +") and "/opt/git/bin" in line for line in shown)
    assert len(shown) < 25 * sum(line.startswith("change ") for line in shown)
    list(changed.carry_out())
    assert b"/opt/git/bin" in first_file(service, made).read_bytes()


@pytest.mark.parametrize("service", [launchd, systemd], ids=["launchd", "systemd"])
def test_uninstall_removes_and_is_done_then(settings, calls, service):
    made = settings()
    assert service.service(made).uninstall().is_done
    list(service.service(made).install().carry_out())
    list(service.service(made).uninstall().carry_out())
    assert not first_file(service, made).exists()
    assert service.service(made).uninstall().is_done
    assert any("bootout" in line or "disable --now" in line for line in calls())


def test_below_another_root_files_are_written_and_nothing_is_run(settings, calls, tmp_path):
    made = settings(system=True)
    said = list(systemd.service(made).install(tmp_path / "root").carry_out(commands=False))
    assert (tmp_path / "root/etc/systemd/system/kakeya-runner.service").exists()
    assert said[1] == "left to you: run systemctl daemon-reload"
    assert calls() == []


def test_a_system_service_never_runs_as_root(runners):
    file = runners.policy("host")
    with pytest.raises(UsageError, match="must not run as root"):
        settings_for({file: load_policy(file)}, pwd.getpwuid(0), system=True)


def test_what_may_not_be_written_is_an_error_with_a_remedy(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(InfrastructureError) as caught:
        list(Plan([write(tmp_path / "file" / "unit", b"")]).carry_out())
    assert "sudo" in caught.value.fix


def test_a_command_that_fails_ends_it_unless_it_may(tmp_path):
    steps = [
        write(tmp_path / "unit", b"x"),
        call("false", may_fail=True),
        call("false"),
        call("touch", "no"),
    ]
    plan = Plan(steps)
    said = []
    with pytest.raises(InfrastructureError):
        said += plan.carry_out()
    assert not (tmp_path / "no").exists()


def test_the_hook_lies_beside_the_policy_for_its_user_alone(runners):
    policy = runners.policy("host")
    plan = actions_listener.hook(policy).install()
    list(plan.carry_out())
    script = policy.with_name("job-started.sh")
    assert script.stat().st_mode & 0o777 == 0o700
    assert f"ACTIONS_RUNNER_HOOK_JOB_STARTED={script}" in plan.then[0]
    assert subprocess.run(["/bin/sh", "-n", str(script)], check=True).returncode == 0
    assert actions_listener.hook(policy).install().is_done
    list(actions_listener.hook(policy).uninstall().carry_out())
    assert not script.exists()


def test_a_hook_that_github_could_not_start_is_refused(tmp_path):
    with pytest.raises(UsageError, match="no path with a space"):
        actions_listener.hook(tmp_path / "a folder" / "runner.yaml")


@pytest.mark.long
def test_the_command_changes_nothing_without_yes(runners, calls, tmp_path):
    policy = runners.policy("host")

    def install(*args: str) -> subprocess.CompletedProcess[str]:
        return programs.run("--policy", policy, "install", *args)

    first = install("--hook")
    assert first.returncode == 0
    assert first.stdout.startswith(f"write {policy.with_name('job-started.sh')}\n")
    assert "nothing was changed" in first.stderr
    assert not policy.with_name("job-started.sh").exists()
    assert install("--hook", "--yes").returncode == 0
    assert policy.with_name("job-started.sh").exists()
    assert "nothing to do" in install("--hook", "--yes").stderr
    system = install("--system", "--as", "nobody", "--root", str(tmp_path / "root"), "--yes")
    assert system.returncode == 0, system.stderr
    assert [path for path in (tmp_path / "root").rglob("*") if path.is_file()]
    assert install("--as", "nobody").returncode == 2
    assert calls() == []


@pytest.mark.long
def test_serve_runs_with_awake_everywhere(runners):
    runners.start(args=("--awake",))
    assert runners.started[0].stop() == 0
