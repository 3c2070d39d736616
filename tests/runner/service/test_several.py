"""One service for several buses: one process a policy, one job at a time, and fair turns between the buses."""

from __future__ import annotations

import json
import os
import pwd
import shutil
import subprocess
import sys
import time
from contextlib import contextmanager
from itertools import groupby, pairwise

import psutil
import pytest

from bridge.bus.wire import State
from bridge.client import Client
from bridge.errors import PolicyError
from runner.cli import main
from runner.policy import load_policy
from runner.service.settings import settings_for
from runner.service.several import load_members
from runner.state.heartbeat import serving_process
from runner.state.turn import Turn
from tests import programs
from tests.conftest import git, wait_for

SPAN = """
import sys, time
began = time.monotonic()
time.sleep(float(sys.argv[2]))
with open(sys.argv[1], "a") as file:
    file.write(f"{sys.argv[3]} {began} {time.monotonic()}\\n")
"""


@pytest.fixture
def lab(bus, clone):
    """A second bus."""
    path = bus.with_name("lab.git")
    shutil.copytree(bus, path)
    git(clone, "remote", "add", "lab", str(path))
    return path


@pytest.fixture
def spans(tmp_path):
    """The file in which jobs note when they ran."""
    return tmp_path / "spans"


@pytest.fixture
def policies(presets, spans, runners, lab, tmp_path, monkeypatch):
    """The policies of both buses."""
    (tmp_path / "span.py").write_text(SPAN)
    argv = ["${ENV:KAKEYA_MAC_PYTHON}", str(tmp_path / "span.py"), str(spans), "{seconds}", "{name}"]
    word = {"type": "enum", "values": ["a", "b"]}
    seconds = {"type": "int", "min": 0, "max": 600, "default": 0}
    folder = presets(
        span={"params": {"name": word, "seconds": seconds}, "steps": [{"argv": argv}], "timeout_s": 900}
    )
    monkeypatch.setenv("KAKEYA_PRESETS", str(folder))

    def make(name, bus):
        return runners.policy(name, preset_folder=str(folder), bus={"url": str(bus)})

    return make("a", runners.bus), make("b", lab)


@contextmanager
def service(*policies, log):
    """Serve several policies in one service."""
    with log.open("wb") as out:
        process = programs.start("serve", *policies, out=out, cwd=log.parent)
    try:
        yield process
    finally:
        if process.poll() is None:
            process.terminate()
            process.wait(120)


def ran(spans):
    """Return name, begin and end of each job that ended, in order."""
    lines = spans.read_text().splitlines() if spans.exists() else []
    return sorted((float(begin), float(end), name) for name, begin, end in map(str.split, lines))


def children(process):
    return [child for child in psutil.Process(process.pid).children() if "serve" in child.cmdline()]


@pytest.mark.bus
@pytest.mark.long
class TestAService:
    def test_jobs_of_two_buses_never_overlap_and_take_turns(self, policies, clone, spans, tmp_path):
        with service(*policies, log=tmp_path / "log") as process:
            wait_for(lambda: all(serving_process(load_policy(file).state) for file in policies))
            runs = [
                Client(clone, remote).run("span", {"name": name, "seconds": 1})
                for _ in range(3)
                for remote, name in (("origin", "a"), ("lab", "b"))
            ]
            assert [run.wait(120).state for run in runs] == [State.SUCCEEDED] * 6
            jobs = ran(spans)
            assert all(one[1] <= other[0] for one, other in pairwise(jobs))
            # Both had requests all the time, so neither runs twice in a row but at the beginning.
            assert max(len(list(some)) for _, some in groupby(job[2] for job in jobs[1:-1])) == 1
            process.terminate()
            assert process.wait(60) == 0
        assert not any(serving_process(load_policy(file).state) for file in policies)

    def test_a_broken_bus_does_not_stop_the_other(self, policies, clone, lab, tmp_path):
        lab.rename(lab.with_name("gone.git"))
        with service(*policies, log=tmp_path / "log"):
            run = Client(clone).run("span", {"name": "a"})
            assert run.wait(120).state is State.SUCCEEDED
            lab.with_name("gone.git").rename(lab)
            assert Client(clone, "lab").run("span", {"name": "b"}).wait(120).state is State.SUCCEEDED

    def test_a_runner_that_is_killed_is_started_again_and_its_job_keeps_the_turn(
        self, policies, clone, tmp_path
    ):
        with service(*policies, log=tmp_path / "log") as process:
            long = Client(clone).run("span", {"name": "a", "seconds": 600})
            wait_for(lambda: long.status().state is State.RUNNING)
            other = Client(clone, "lab").run("span", {"name": "b"})
            first = serving_process(load_policy(policies[0]).state)
            first.kill()
            assert other.wait(120).state is State.SUCCEEDED
            assert len(children(process)) in (1, 2)
            wait_for(
                lambda: (now := serving_process(load_policy(policies[0]).state)) and now.pid != first.pid
            )
            long.cancel()
            assert long.wait(180).state is State.CANCELLED

    def test_all_end_with_the_service(self, policies, tmp_path):
        with service(*policies, log=tmp_path / "log") as process:
            wait_for(lambda: all(serving_process(load_policy(file).state) for file in policies))
            below = children(process)
            process.kill()
            process.wait(60)
            psutil.wait_procs(below, timeout=60)
            assert not any(child.is_running() for child in below)

    def test_a_policy_that_cannot_be_read_does_not_stop_the_other(self, policies, clone, tmp_path):
        text = policies[1].read_text()
        policies[1].write_text("bus: [")
        with service(*policies, log=tmp_path / "log"):
            assert Client(clone).run("span", {"name": "a"}).wait(120).state is State.SUCCEEDED
            assert "it is read again later" in (tmp_path / "log").read_text()
            policies[1].write_text(text)
            assert Client(clone, "lab").run("span", {"name": "b"}).wait(120).state is State.SUCCEEDED

    def test_one_that_drains_leaves_the_other(self, policies, clone, monkeypatch, capsys, tmp_path):
        with service(*policies, log=tmp_path / "log") as process:
            wait_for(lambda: all(serving_process(load_policy(file).state) for file in policies))
            command(monkeypatch, "drain", policies[0], "--wait", "60s")
            assert Client(clone, "lab").run("span", {"name": "b"}).wait(120).state is State.SUCCEEDED
            code = command(monkeypatch, "status", policies[1], "--no-blas", "--json")
            facts = json.loads(capsys.readouterr().out)
            assert (code, [each["serving"] for each in facts["others"]]) == (0, [False])
            command(monkeypatch, "drain", policies[1])
            assert process.wait(60) == 0


def command(monkeypatch, *args):
    """Run `kakeya-runner` in this process and return its exit code."""
    monkeypatch.setattr(sys, "argv", ["kakeya-runner", *map(str, args)])
    with pytest.raises(SystemExit) as ended:
        main()
    return int(ended.value.code or 0)


class TestPolicies:
    def test_two_with_one_state_folder_are_refused(self, runners):
        files = [runners.policy(name, state=str(runners.folder / "state")) for name in ("a", "b")]
        with pytest.raises(PolicyError, match="the same state folder"):
            load_members(files)

    def test_the_service_starts_all(self, runners, monkeypatch, capsys, tmp_path):
        files = [runners.policy(name) for name in ("a", "b")]
        slow = {"on_stop": "finish", "limits": {"timeout_s": 1000}}
        files.append(runners.policy("c", **slow))
        who = pwd.getpwuid(os.getuid())
        settings = settings_for({file: load_policy(file) for file in files}, who, system=False)
        assert settings.argv[-4:] == ("serve", "--awake", *map(str, files[1:]))
        assert settings.watchdog[-3:] == ("watchdog", *map(str, files[1:]))
        assert settings.stop_s > 1000
        assert command(monkeypatch, "install", *files, "--root", tmp_path / "root") == 0
        assert str(files[2]) in capsys.readouterr().out

    @pytest.mark.long
    @pytest.mark.parametrize(
        "order",
        [["drain"], ["maintenance", "on"], ["status", "--no-blas"], ["watchdog"], ["check"]],
        ids=" ".join,
    )
    def test_one_that_fails_does_not_keep_an_order_from_the_others(self, order, runners, monkeypatch, capsys):
        (runners.folder / "x.yaml").write_text("bus: [")
        files = [runners.folder / "x.yaml", runners.policy("b", presets=["noop"]), runners.folder / "y.yaml"]
        assert command(monkeypatch, *order, *files) in (1, 2)
        out, err = capsys.readouterr()
        assert f"{files[0]} is not valid YAML" in out + err
        assert f"no policy at {files[2]}" in out + err

    def test_with_no_policy_that_can_be_read_nothing_is_served(self, runners, monkeypatch, capsys):
        assert command(monkeypatch, "serve", runners.folder / "x.yaml", runners.folder / "y.yaml") == 2
        assert f"no policy at {runners.folder / 'y.yaml'}" in capsys.readouterr().err

    def test_what_remains_of_each_is_named(self, runners, monkeypatch, capsys, tmp_path):
        files = [runners.policy(name) for name in ("a", "b")]
        for file in files:
            load_policy(file).state.mkdir()
        assert command(monkeypatch, "uninstall", *files, "--root", tmp_path / "root") == 0
        said = capsys.readouterr().out
        assert all(f"rm -r {load_policy(file).state}" in said and f"rm {file}" in said for file in files)

    def test_a_limit_is_for_one(self, runners, monkeypatch, capsys):
        files = [runners.policy(name) for name in ("a", "b")]
        assert command(monkeypatch, "serve", *files, "--limit", "1") == 2
        assert "--limit" in capsys.readouterr().err

    def test_check_and_status_take_several(self, runners, monkeypatch, capsys):
        files = [runners.policy(name) for name in ("a", "b")]
        assert command(monkeypatch, "status", *files, "--no-blas", "--json") == 1
        shown = [json.loads(line)["id"] for line in capsys.readouterr().out.splitlines()]
        assert shown == ["a", "b"]


class TestTurn:
    @pytest.mark.long
    def test_a_runner_that_is_killed_gives_its_turn_away(self, tmp_path):
        two, hold = Turn(tmp_path, "two"), "import sys, time, pathlib; from runner.state.turn import Turn"
        hold += (
            "\nwith Turn(pathlib.Path(sys.argv[1]), 'one').hold(): print('held', flush=True); time.sleep(600)"
        )
        argv = [sys.executable, "-P", "-c", hold, str(tmp_path)]
        with subprocess.Popen(argv, stdout=subprocess.PIPE) as killed:
            assert killed.stdout.readline() == b"held\n"
            with two.hold() as is_held:
                assert not is_held
            killed.kill()
        again = Turn(tmp_path, "one")
        with again.hold() as is_held:
            assert not is_held
        with two.hold() as is_held:
            assert is_held

    def test_one_at_a_time(self, tmp_path):
        one, two = Turn(tmp_path, "one"), Turn(tmp_path, "two")
        with one.hold() as first, two.hold() as second:
            assert (first, second, two.is_awaited) == (True, False, True)
        with two.hold() as second:
            assert second
            assert two.kept
        assert not two.kept

    def test_who_ran_longest_ago_is_next(self, tmp_path):
        one, two = Turn(tmp_path, "one"), Turn(tmp_path, "two")
        with one.hold(), two.hold() as is_held:
            assert not is_held
        with one.hold() as is_held:
            assert not is_held
        with two.hold() as is_held:
            assert is_held
        with one.hold() as is_held:
            assert is_held

    def test_who_has_nothing_to_run_lets_others_go_first(self, tmp_path):
        one, two = Turn(tmp_path, "one"), Turn(tmp_path, "two")
        with one.hold(), two.hold():
            pass
        two.begin_poll()
        two.end_poll()
        with one.hold() as is_held:
            assert is_held

    def test_who_has_not_asked_for_long_is_passed(self, tmp_path):
        one, two = Turn(tmp_path, "one"), Turn(tmp_path, "two")
        with one.hold(), two.hold():
            pass
        old = time.time() - 60
        os.utime(tmp_path / "two.wants", (old, old))
        with one.hold() as is_held:
            assert is_held

    def test_a_clock_that_was_set_back_keeps_nobody_waiting(self, tmp_path):
        one, two = Turn(tmp_path, "one"), Turn(tmp_path, "two")
        with one.hold():
            pass
        later = time.time() + 86_400
        os.utime(tmp_path / "one.ran", (later, later))
        with two.hold(), one.hold():
            pass
        with two.hold() as is_held:
            assert not is_held
        with one.hold() as is_held:
            assert is_held

    def test_a_copy_of_the_lock_holds_it(self, tmp_path):
        one, two = Turn(tmp_path, "one"), Turn(tmp_path, "two")
        with one.hold():
            copy = os.dup(one.kept[0])
        with two.hold() as is_held:
            assert not is_held
        os.close(copy)
        with two.hold() as is_held:
            assert is_held

    def test_alone_it_is_always_there(self):
        turn = Turn()
        turn.begin_poll()
        with turn.hold() as first, turn.hold() as second:
            assert first
            assert second
        turn.end_poll()


def test_the_job_itself_gets_no_copy_of_the_lock(tmp_path):
    """Otherwise a job that leaves a process would block the machine, and one could let go of the turn."""
    from runner.job.command import Command  # noqa: PLC0415

    class Sink:
        text = b""

        def write(self, data):
            self.text += data

        def close(self):
            pass

    turn, sink = Turn(tmp_path, "one"), Sink()
    with turn.hold():
        argv = ["/bin/ls", "-l", "/proc/self/fd"] if sys.platform == "linux" else ["/bin/ls", "/dev/fd"]
        command = Command(argv, env={}, cwd=tmp_path, timeout_s=60, grace_s=1, sink=sink, kept=turn.kept)
        ended = command.poll(60)
    assert ended.exit_code == 0
    assert b"turn.lock" not in sink.text
