"""One command under the supervisor: nothing goes in that was not declared, and nothing survives."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from runner.job.command import NO_CORE, Command, Ready, job_environment
from runner.job.logs import LogSink

SHELL = "/bin/sh"


@pytest.fixture
def start(tmp_path):
    """Start commands; what is left at the end of a test is stopped."""
    home, tree = tmp_path / "job-home", tmp_path / "tree"
    (home / "tmp").mkdir(parents=True)
    tree.mkdir()
    started = []

    def start(*argv, timeout_s=30.0, grace_s=0.3, limits=None, extra=None, log=1 << 20, ready=None):
        sink = LogSink(log)
        command = Command(
            list(argv),
            env=job_environment(home, interpreter=Path(sys.executable), extra=extra or {}),
            cwd=tree,
            timeout_s=timeout_s,
            grace_s=grace_s,
            sink=sink,
            limits=limits,
            ready=ready,
        )
        command.sink = sink
        started.append(command)
        return command

    yield start
    for command in started:
        command.stop()


@pytest.fixture
def run(start):
    """Run a command to its end and return how it ended and what it printed."""

    def run(*argv, **how):
        command = start(*argv, **how)
        ended = command.poll(120)
        assert ended is not None, "it did not end"
        return ended, command.sink.kept.decode()

    return run


def _pids(path):
    return [int(word) for word in path.read_text().split()] if path.exists() else []


class TestHowItEnds:
    """What is reported of a command's end is what happened."""

    @pytest.mark.parametrize("code", [0, 1, 2, 77, 255])
    def test_an_exit_code_is_reported(self, run, code):
        ended, _ = run(SHELL, "-c", f"exit {code}")

        assert (ended.exit_code, ended.error, ended.timed_out, ended.survivors) == (code, None, False, [])

    @pytest.mark.parametrize("name", ["SIGKILL", "SIGTERM", "SIGSEGV", "SIGABRT"])
    def test_a_signal_is_reported_as_a_negative_code(self, run, name):
        ended, _ = run(SHELL, "-c", f"kill -{name[3:]} $$")

        assert ended.exit_code == -signal.Signals[name]

    @pytest.mark.parametrize(
        ("make", "words"),
        [
            pytest.param(str, "No such file", id="missing"),
            pytest.param(lambda path: path.write_text("#!/bin/sh\n"), "Permission denied", id="not-executable"),
            pytest.param(lambda path: path.mkdir(), "Permission denied", id="a-folder"),
        ],
    )  # fmt: skip
    def test_what_cannot_be_started_is_127_with_the_reason(self, run, tmp_path, make, words):
        path = tmp_path / "program"
        make(path)

        ended, _ = run(str(path))

        assert ended.exit_code == 127
        assert words in ended.error
        assert str(path) in ended.error

    def test_a_working_directory_that_is_gone_is_said(self, start, tmp_path):
        (tmp_path / "tree").rmdir()

        ended = start("/bin/true").poll(30)

        assert ended.exit_code == 127
        (tmp_path / "tree").mkdir()

    def test_the_time_and_the_memory_that_it_took_are_reported(self, run):
        ended, _ = run(sys.executable, "-c", "import time; x = b'x' * 30_000_000; time.sleep(0.3)")

        assert 0.3 <= ended.seconds < 20
        assert ended.max_rss_bytes > 30_000_000

    def test_polling_after_the_end_says_the_same_again(self, start):
        command = start("/bin/true")
        ended = command.poll(30)

        assert command.poll() == ended
        assert command.stop() == ended

    def test_polling_while_it_runs_says_nothing(self, start):
        assert start("/bin/sleep", "60").poll(0.1) is None

    def test_a_job_that_kills_its_supervisor_is_ended_and_its_end_is_no_success(self, run, tmp_path, ends):
        script = "(setsid sleep 60 & echo $! >> $1); echo $$ >> $1; kill -KILL $PPID; sleep 60"

        ended, _ = run(SHELL, "-c", script, "sh", str(tmp_path / "pids"))

        assert ended.exit_code is None
        assert "no report" in ended.error
        assert all(ends(pid) for pid in _pids(tmp_path / "pids"))


class TestWhatGoesIn:
    """The job gets its argv and its declared environment, and not a thing of the runner's."""

    CANARIES = (
        "DYLD_INSERT_LIBRARIES", "DYLD_LIBRARY_PATH", "DYLD_FRAMEWORK_PATH", "LD_PRELOAD_CANARY", "LD_AUDIT_CANARY",
        "LD_LIBRARY_PATH_CANARY", "GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_SSH_COMMAND", "GIT_ASKPASS",
        "GIT_CONFIG_COUNT_CANARY", "GIT_EXEC_PATH_CANARY", "PYTHONPATH", "PYTHONSTARTUP", "PYTHONINSPECT_CANARY",
        "PYTHONHOME_CANARY", "PYTHONWARNINGS_CANARY", "NODE_OPTIONS", "PERL5LIB", "PERL5OPT", "RUBYOPT", "BASH_ENV",
        "ENV", "PROMPT_COMMAND", "IFS_CANARY", "SSH_AUTH_SOCK", "SSH_AGENT_PID", "SSH_ASKPASS", "KAKEYA_BUS_TOKEN",
        "KAKEYA_RUNNER_POLICY", "GITHUB_TOKEN", "GH_TOKEN", "ACTIONS_RUNTIME_TOKEN", "ACTIONS_ID_TOKEN_REQUEST_TOKEN",
        "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "NPM_TOKEN",
        "DOCKER_HOST", "HTTPS_PROXY", "http_proxy", "XDG_CONFIG_HOME", "XDG_RUNTIME_DIR", "DBUS_SESSION_BUS_ADDRESS",
        "GNUPGHOME", "NETRC", "EDITOR", "MAIL",
    )  # fmt: skip

    def test_the_environment_is_the_declared_one_and_nothing_else(self, run, monkeypatch, tmp_path):
        for name in self.CANARIES:
            monkeypatch.setenv(name, "canary")

        _, text = run("/usr/bin/env", "-0", extra={"KAKEYA_MAC_VERIFIER_PATH": "/models/v"})

        found = dict(line.split("=", 1) for line in text.replace("␀", "\n").splitlines() if "=" in line)
        mark = found.pop("KAKEYA_JOB")
        assert len(self.CANARIES) == 50
        assert "canary" not in text
        assert len(mark) == 32
        assert found == {
            "HOME": str(tmp_path / "job-home"),
            "TMPDIR": str(tmp_path / "job-home" / "tmp"),
            "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin:/usr/sbin:/sbin",
            "LANG": "C.UTF-8",
            "LC_ALL": "C.UTF-8",
            "PYTHONUNBUFFERED": "1",
            "PYTHONDONTWRITEBYTECODE": "1",
            "KAKEYA_MAC_VERIFIER_PATH": "/models/v",
        }

    def test_what_is_declared_cannot_replace_what_the_runner_sets(self, run, tmp_path):
        _, text = run(SHELL, "-c", 'echo "$HOME $PATH"', extra={"HOME": "/root", "PATH": "/evil"})

        assert text == f"{tmp_path}/job-home {Path(sys.executable).parent}:/usr/bin:/bin:/usr/sbin:/sbin\n"

    def test_standard_input_is_empty(self, run):
        ended, text = run(SHELL, "-c", "readlink /proc/self/fd/0; cat; echo read")

        assert ended.exit_code == 0
        assert text == "/dev/null\nread\n"

    def test_errors_land_in_the_log_in_order(self, run):
        _, text = run(SHELL, "-c", "echo one; echo two >&2; echo three")

        assert text == "one\ntwo\nthree\n"

    @pytest.mark.skipif(sys.platform != "linux", reason="/proc")
    def test_no_descriptor_of_the_runner_is_inherited(self, run):
        with Path(__file__).open() as opened:
            os.set_inheritable(opened.fileno(), True)
            _, text = run(
                sys.executable, "-c",
                "import os; print([n for n in range(3, 99) if os.path.exists(f'/proc/self/fd/{n}')])",
            )  # fmt: skip

        assert text == "[]\n"

    def test_the_argv_arrives_as_it_was_given(self, run):
        odd = ["a b", "$(id)", "; ls", "*", "--", "\u202e", "'\"", ""]
        _, text = run(sys.executable, "-c", "import json, sys; print(json.dumps(sys.argv[1:]))", *odd)

        assert json.loads(text) == odd

    def test_it_runs_in_a_session_of_its_own(self, run):
        _, text = run(sys.executable, "-c", "import os; print(os.getsid(0) == os.getpid())")

        assert text == "True\n"

    @pytest.mark.parametrize(
        "ignored", [(), (signal.SIGQUIT, signal.SIGUSR1)], ids=["usually", "in the background"]
    )
    def test_it_begins_with_no_signal_ignored_or_blocked(self, run, ignored):
        before = {number: signal.signal(number, signal.SIG_IGN) for number in ignored}
        try:
            _, text = run(SHELL, "-c", "grep -E '^Sig(Blk|Ign):' /proc/self/status")
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

        masks = {line.split(":")[0]: int(line.split()[1], 16) for line in text.splitlines()}
        # Those that the C library keeps for itself cannot be set by a program, and may come ignored from a parent.
        settable = sum(1 << (number - 1) for number in signal.valid_signals())
        assert masks["SigBlk"] & settable == 0
        assert masks["SigIgn"] & settable == 0


class TestLimits:
    """What is bounded stays bounded."""

    def test_a_file_cannot_grow_past_its_limit(self, run, tmp_path):
        ended, _ = run(
            "/bin/dd", "if=/dev/zero", "of=big", "bs=1024", "count=4096", limits={"RLIMIT_FSIZE": 1 << 20}
        )

        assert ended.exit_code != 0
        assert (tmp_path / "tree" / "big").stat().st_size == 1 << 20

    def test_no_core_is_written(self, run):
        _, text = run(SHELL, "-c", "ulimit -c; ulimit -H -c", limits={"RLIMIT_CORE": 0})

        assert text == "0\n0\n"

    def test_a_job_that_crashes_leaves_no_core_also_where_a_program_takes_them(self, run, tmp_path):
        ended, text = run(
            sys.executable, "-c",
            "import os, resource; print(resource.getrlimit(resource.RLIMIT_CORE), flush=True); os.abort()",
            limits={"RLIMIT_CORE": NO_CORE},
        )  # fmt: skip

        assert ended.exit_code == -signal.SIGABRT
        assert text == f"({NO_CORE}, {NO_CORE})\n"
        assert list((tmp_path / "tree").glob("*core*")) == []

    def test_open_files_are_limited(self, run):
        _, text = run(SHELL, "-c", "ulimit -n", limits={"RLIMIT_NOFILE": 64})

        assert text == "64\n"

    def test_a_flood_of_output_ends_and_is_counted_in_full(self, run):
        ended, _ = run(SHELL, "-c", "head -c 50000000 /dev/zero | tr '\\0' x", log=10_000)

        assert ended.exit_code == 0

    def test_a_flood_of_output_is_kept_within_bounds(self, start):
        command = start(SHELL, "-c", "head -c 20000000 /dev/zero | tr '\\0' x", log=10_000)
        command.poll(60)

        assert command.sink.total == 20_000_000
        assert len(command.sink.kept) < 10_100


# Each writes the ids of its processes to $1; none ends by itself in time.
TREES = {
    "ignores TERM": "trap '' TERM INT HUP; echo $$ >> $1; while :; do sleep 0.1; done",
    "child ignores TERM": "(trap '' TERM; echo $$ >> $1; sleep 600 & echo $! >> $1; wait) & wait",
    "new session": "setsid sh -c 'echo $$ >> $0; trap \"\" TERM; while :; do sleep 0.1; done' $1 & sleep 600",
    "double fork": "(setsid sh -c '(echo $$ >> $0; exec sleep 600) &' $1 &) ; sleep 600",
    "no environment": "(env -i setsid sh -c 'echo $$ >> $0; sleep 600 & echo $! >> $0; wait' $1 &) ; sleep 600",
    "stopped": "echo $$ >> $1; kill -STOP $$; sleep 600",
}  # fmt: skip


# How long a job gets until it is ended: more if this machine is so busy that the job did not get anywhere.
LONGER = (1.0, 10.0, 50.0)


class TestNothingSurvives:
    """The end of a command is the end of everything that it started."""

    @pytest.mark.long
    @pytest.mark.parametrize("script", TREES.values(), ids=TREES)
    def test_a_timeout_ends_the_whole_tree(self, run, tmp_path, ends, script):
        pids = tmp_path / "pids"
        pids.touch()

        for timeout_s in LONGER:
            ended, _ = run(SHELL, "-c", script, "sh", str(pids), timeout_s=timeout_s)
            assert ended.timed_out
            assert ended.survivors == []
            if _pids(pids):
                break

        assert _pids(pids), "the script did not get as far as it should"
        assert all(ends(pid) for pid in _pids(pids))  # by themselves they would take 600 s

    def test_a_polite_job_may_finish_its_last_words(self, run):
        script = "trap 'echo goodbye; exit 3' TERM; echo up; while :; do sleep 0.05; done"
        for timeout_s in LONGER:
            ended, text = run(SHELL, "-c", script, timeout_s=timeout_s, grace_s=60.0)
            assert ended.timed_out
            if text:
                break

        assert text.startswith("up\n")
        assert text.endswith("goodbye\n")
        assert ended.seconds < timeout_s + 50  # it was not left the whole grace

    @pytest.mark.parametrize("how", ["", "setsid"], ids=["children", "sessions"])
    def test_a_fork_storm_ends(self, run, how):
        span = f"60.{time.time_ns()}"
        storm = f"i=0; while [ $i -lt 400 ]; do {how} sleep {span} & i=$((i+1)); done; wait"

        ended, _ = run(SHELL, "-c", storm, timeout_s=0.3)

        assert ended.survivors == []
        assert [p for p in psutil.process_iter(["cmdline"]) if p.info["cmdline"] == ["sleep", span]] == []

    def test_a_job_that_forks_away_for_ever_ends(self, run):
        chain = "import os, time\nwhile True:\n    if os.fork(): os._exit(0)\n    os.setsid()\n    time.sleep(0.002)\n"

        ended, _ = run(SHELL, "-c", f"{sys.executable} -c '{chain}' & sleep 60", timeout_s=0.6)

        assert ended.timed_out
        assert ended.survivors == []
        assert not [p for p in psutil.process_iter(["cmdline"]) if chain in (p.info["cmdline"] or [])]

    def test_what_a_successful_job_leaves_running_is_ended(self, run, tmp_path, ends):
        pids = tmp_path / "pids"

        ended, _ = run(
            SHELL, "-c", "setsid sh -c 'echo $$ >> $0; exec sleep 600' $1 & until [ -s $1 ]; do sleep 0.05; done",
            "sh", str(pids),
        )  # fmt: skip

        assert ended.exit_code == 0
        assert ends(_pids(pids)[0])

    def test_a_stop_ends_it_at_once(self, start, wait_for):
        command = start(SHELL, "-c", "trap '' TERM; echo up; while :; do sleep 0.1; done")
        wait_for(lambda: b"up" in command.sink.stream.next_piece().data)
        began = time.monotonic()

        ended = command.stop()

        assert (ended.exit_code, ended.timed_out) == (-signal.SIGKILL, False)
        assert time.monotonic() - began < 60  # by itself it would never end

    def test_a_stop_of_a_job_that_floods_nobody_ends_it(self, start):
        command = start(SHELL, "-c", "while :; do echo yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy; done")
        command.poll(0.3)

        assert command.stop().exit_code < 0

    def test_a_dying_runner_takes_its_job_along(self, tmp_path, wait_for, ends):
        pids = tmp_path / "pids"
        code = (
            "import sys\nfrom pathlib import Path\nfrom runner.job.logs import LogSink\n"
            "from runner.job.command import NO_CORE, Command, Ready, job_environment\n"
            "env = job_environment(Path(sys.argv[1]), interpreter=Path(sys.executable), extra={})\n"
            "script = 'trap \"\" TERM; echo $$ >> $1; (env -i setsid sleep 60 & echo $! >> $1); sleep 60'\n"
            "c = Command(['/bin/sh', '-c', script, 'sh', sys.argv[2]], env=env, cwd=Path(sys.argv[1]),\n"
            "            timeout_s=60, grace_s=0.2, sink=LogSink(1000))\n"
            "c.poll(60)\n"
        )
        dying = subprocess.Popen([sys.executable, "-P", "-c", code, str(tmp_path), str(pids)])
        wait_for(lambda: len(_pids(pids)) == 2)

        dying.kill()
        dying.wait()

        assert all(ends(pid) for pid in _pids(pids))


class TestReady:
    """A supervisor that is started before its job is known."""

    @pytest.fixture
    def ready(self):
        ready = Ready()
        yield ready
        ready.close()

    def test_it_runs_the_first_command_that_takes_it(self, run, ready):
        supervisor = psutil.Process(ready.pid)

        ended, said = run(SHELL, "-c", "echo $PPID", ready=ready)
        again, other = run(SHELL, "-c", "echo $PPID", ready=ready)

        assert ended.exit_code == again.exit_code == 0
        assert int(said) == supervisor.pid != int(other)

    def test_it_ends_if_no_command_takes_it(self):
        before = psutil.Process().num_fds()
        ready = Ready()
        supervisor = psutil.Process(ready.pid)

        ready.close()
        ready.close()

        assert not supervisor.is_running()
        assert psutil.Process().num_fds() <= before

    def test_another_is_started_if_it_is_gone(self, run, ready, wait_for):
        supervisor = psutil.Process(ready.pid)
        supervisor.kill()
        wait_for(lambda: supervisor.status() == psutil.STATUS_ZOMBIE)

        ended, said = run(SHELL, "-c", "echo $PPID", ready=ready)

        assert ended.exit_code == 0
        assert int(said) != supervisor.pid

    def test_it_ends_with_the_process_that_started_it(self, wait_for):
        program = (
            "import os\n"
            "from runner.job.command import Ready\n"
            "ready = Ready()\n"
            "print(ready.pid, flush=True)\n"
            "os.kill(os.getpid(), 9)\n"
        )
        done = subprocess.run([sys.executable, "-P", "-c", program], stdout=subprocess.PIPE, check=False)

        wait_for(lambda: not psutil.pid_exists(int(done.stdout)))


# A runner that is root, but may not signal processes of other users, as any user may not.
LEAVE_A_CHILD = """
import os, time
if os.fork() == 0:
    os.setsid()
    os.setuid(65534)
    time.sleep(600)
time.sleep(0.5)
os._exit(7)
"""
WITHOUT_KILL = """
import json, sys
from dataclasses import asdict
from pathlib import Path
from runner.job.command import Command, job_environment
from runner.job.logs import LogSink
folder = Path(sys.argv[1])
env = job_environment(folder, interpreter=Path(sys.executable), extra={})
argv, sink = [sys.executable, "-c", sys.argv[2]], LogSink(1000)
command = Command(argv, env=env, cwd=folder, timeout_s=60, grace_s=0.1, sink=sink)
while command.poll(0.1) is None:
    pass
print(json.dumps(asdict(command.stop())))
"""


@pytest.mark.long
@pytest.mark.skipif(not (os.geteuid() == 0 and shutil.which("setpriv")), reason="needs root and setpriv")
def test_a_process_that_cannot_be_killed_is_listed_and_the_end_of_the_step_is_known(tmp_path):
    weak = ["setpriv", "--bounding-set=-kill", "--inh-caps=-kill"]
    argv = [*weak, sys.executable, "-c", WITHOUT_KILL, str(tmp_path), LEAVE_A_CHILD]
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    ended = json.loads(done.stdout)
    (survivor,) = ended["survivors"]
    os.kill(int(survivor.split()[0]), signal.SIGKILL)

    assert ended["exit_code"] == 7
    assert ended["error"] is None
