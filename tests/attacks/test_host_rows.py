"""Rows of the attack table that are about the host: servers that lie or hang, clocks, files and limits: 60 to 67."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil
import pytest

from bridge.bus import times
from bridge.bus.wire import State
from bridge.client import Client
from bridge.errors import InfrastructureError, PolicyError, ProcessError, WaitTimeout
from bridge.presets import load_presets
from bridge.system import batch
from bridge.system.deadline import stopped_by, within
from bridge.system.git import Git
from bridge.system.process import KEPT_ERRORS, run
from runner.job.sandbox import attempt, bubblewrap
from runner.job.sandbox.paths import needed_by
from runner.job.sandbox.private_files import hidden_below
from runner.job.sandbox.probe import find_fault
from runner.job.syscalls import PLACEHOLDER, job_filter
from runner.ownership import check_owned
from runner.policy import load_policy
from runner.serve.compose import Composer
from tests.attacks import servers
from tests.runner.host.test_clock import YEAR, shifted

pytestmark = pytest.mark.bus

TOKEN = "canary-5b0c7a12-token"
BRANCH = "refs/heads/mac-bridge/noop-1790000000-abc123"


def is_gone(pid: int) -> bool:
    """Say whether a process is gone, or a zombie, sooner than the 60 s or more that it would take by itself."""
    until = time.monotonic() + 40
    while time.monotonic() < until:
        if not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
            return True
        time.sleep(0.05)
    return False


@pytest.fixture
def serve():
    """Start servers of a test's own; they end with the test."""
    started = []

    def start(answer):
        started.append(servers.Http(answer))
        return started[-1]

    yield start
    for server in started:
        server.close()


@pytest.fixture
def token_file(tmp_path):
    path = tmp_path / "token"
    path.write_text(TOKEN)
    path.chmod(0o600)
    return str(path)


def test_row_47_the_token_follows_no_redirect_to_another_host(runners, serve, token_file, wait_for):
    """A redirect of the second request; test_transport.py tries one of the first."""

    def collect(handler):
        body = servers.advertisement(BRANCH)
        servers.say(handler, 200, body, Content_Type="application/x-git-upload-pack-advertisement")

    thief = serve(collect)

    def redirect(handler):
        if handler.command == "GET":
            return collect(handler)
        return servers.say(handler, 302, Location=f"{thief.url}{handler.path}")

    bus = serve(redirect)
    settings = {"url": f"{bus.url}/bus.git", "token_file": token_file, "poll_s": 0.1}
    runner = runners.start(bus=settings)
    wait_for(lambda: "trying again" in runner.said())

    assert any("authorization" in headers for _, _, headers in bus.asked)
    assert thief.asked == []


def test_row_48_endless_messages_of_a_server_fill_no_memory(runners, serve, wait_for):
    line = servers.packet(b"\2" + b"x" * 60_000 + b"\n")

    def flood(handler):
        if handler.command == "GET":
            body = servers.advertisement(BRANCH)
            return servers.say(handler, 200, body, Content_Type="application/x-git-upload-pack-advertisement")
        # First git asks where the history is cut off, which is nowhere, and then for the objects.
        if b"done" not in handler.rfile.read(int(handler.headers["Content-Length"])):
            return servers.say(handler, 200, b"0000", Content_Type="application/x-git-upload-pack-result")
        handler.send_response(200)
        handler.send_header("Content-Type", "application/x-git-upload-pack-result")
        handler.end_headers()
        handler.wfile.write(b"0000" + servers.packet(b"NAK\n"))
        while True:
            handler.wfile.write(line)

    bus = serve(flood)
    runner = runners.start(bus={"url": f"{bus.url}/bus.git", "poll_s": 0.1})
    process, most = psutil.Process(runner.process.pid), 0

    def told():
        nonlocal most
        most = max(most, process.memory_info().rss)
        return "trying again" in runner.said()

    wait_for(told)

    assert "bytes of messages" in runner.said()
    assert most < 150 << 20


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_row_48_of_a_child_that_prints_without_end_the_end_is_kept_and_it_is_ended(stream):
    script = f"import sys\nwhile True: sys.{stream}.write('x' * 9999 + chr(10))"
    with pytest.raises(ProcessError, match="printed more than"):
        run(sys.executable, "-I", "-c", script, env={}, most=1 << 20, timeout=60)


def test_row_48_of_many_messages_the_last_are_kept():
    script = "import sys\nfor i in range(200_000): sys.stderr.write(f'{i}\\n')\nsys.exit(3)"
    done = run(sys.executable, "-I", "-c", script, env={}, check=False, timeout=60)
    assert done.returncode == 3
    assert done.stderr.endswith(b"\n199999\n")
    assert len(done.stderr) <= KEPT_ERRORS


@pytest.mark.parametrize("scheme", ["http", "ssh", "git"])
def test_row_48_a_server_that_never_answers_does_not_keep_a_runner_from_stopping(runners, wait_for, scheme):
    if scheme == "ssh" and not Path("/usr/bin/ssh").exists():
        pytest.skip("there is no OpenSSH here")
    with servers.silent() as port:
        runner = runners.start(bus={"url": f"{scheme}://127.0.0.1:{port}/bus.git", "poll_s": 0.1})
        process = psutil.Process(runner.process.pid)
        wait_for(lambda: process.children(recursive=True))
        time.sleep(0.5)
        helpers = process.children(recursive=True)

        began = time.monotonic()
        assert runner.stop(timeout=120) == 0

        assert time.monotonic() - began < 20
        assert psutil.wait_procs(helpers, 60)[1] == []


def test_row_48_a_server_that_never_answers_does_not_outlast_the_client_s_time(clone, git):
    others = psutil.Process().children(recursive=True)  # such as what multiprocessing keeps
    with servers.silent() as port:
        git(clone, "remote", "set-url", "origin", f"http://127.0.0.1:{port}/bus.git")
        began = time.monotonic()
        with pytest.raises(WaitTimeout, match="did not answer within 1"):
            Client(clone).wait("mac-bridge/noop-1790000000-abc123", timeout=1)
        assert time.monotonic() - began < 15
    batch.invalidate_all()
    assert [each for each in psutil.Process().children(recursive=True) if each not in others] == []


def test_row_48_what_a_child_starts_ends_with_it(tmp_path):
    """Also where it has no session of its own, as the user's git, which may ask on the terminal, has not."""
    script = f"trap '' TERM; sleep 600 & echo $! > {tmp_path}/new; mv {tmp_path}/new {tmp_path}/pid; wait"
    for seconds in (0.5, 10, 50):  # more if this machine is too busy to begin it
        with pytest.raises(ProcessError, match="took longer than"), within(seconds):
            run("/bin/sh", "-c", script, env={"PATH": "/usr/bin:/bin"})
        if (tmp_path / "pid").exists():
            break
    assert is_gone(int((tmp_path / "pid").read_text()))


def test_row_48_a_helper_that_holds_the_pipes_open_holds_nobody_up(tmp_path):
    script = f"sleep 600 & echo $! > {tmp_path}/pid; echo done"
    began = time.monotonic()
    done = run("/bin/sh", "-c", script, env={"PATH": "/usr/bin:/bin"}, own_session=True)
    assert done.text == "done"
    assert time.monotonic() - began < 10
    assert is_gone(int((tmp_path / "pid").read_text()))


def test_row_48_a_call_that_waits_for_nobody_ends_when_this_process_is_to_stop(monkeypatch):
    monkeypatch.setattr("bridge.system.deadline.AFTER_STOP_S", 0.2)

    class Asked:
        def is_set(self):
            return True

    with pytest.raises(ProcessError, match="asked to stop"), stopped_by(Asked()):
        run("/bin/sh", "-c", "exec >&- 2>&-; sleep 60", env={"PATH": "/usr/bin:/bin"})


def test_row_48_git_asks_nobody_where_nobody_sits(clone, monkeypatch):
    """Neither git nor a helper opens a window when no terminal is there."""
    monkeypatch.setenv("SSH_ASKPASS", "/bin/false")
    monkeypatch.setenv("DISPLAY", ":0")
    with open("/dev/null") as nothing:  # noqa: PTH123
        monkeypatch.setattr(sys, "stdin", nothing)
        env = Git.of_user(clone).env
    assert env["GIT_TERMINAL_PROMPT"] == "0"
    assert env["SSH_ASKPASS_REQUIRE"] == "never"
    assert "SSH_ASKPASS" not in env


@shifted
@pytest.mark.parametrize("by", [YEAR, -YEAR], ids=["a year ahead", "a year behind"])
def test_row_49_a_clock_that_is_wrong_at_the_start_refuses_nothing(
    runners,
    client,
    set_clock,
    wait_for,
    presets,
    by,
):
    """What waits looks expired, or of the future, until the clock is set; then it runs."""
    folder = presets(quick={"steps": [{"argv": ["/bin/true"]}]}, other={"steps": [{"argv": ["/bin/true"]}]})
    client = Client(client.git.directory, presets=folder)
    run, refused = client.run("quick"), client.run("other")
    set_clock(by)
    settings = {"poll_s": 0.1, "idle_poll_s": 0.2}
    runner = runners.start(preset_folder=str(folder), bus=settings, presets=["quick"])
    wait_for(lambda: "nothing on the bus confirms this machine's clock" in runner.said())
    with pytest.raises(WaitTimeout):
        run.wait(timeout=2)
    assert not client.view(refused.branch).current_state.is_final

    set_clock(0)

    assert run.wait(timeout=120).state is State.SUCCEEDED
    assert refused.wait(timeout=120).state is State.REFUSED


@shifted
def test_row_49_a_clock_a_year_ahead_deletes_no_fresh_answer(runners, client, set_clock, bus, git):
    """Neither alone, nor beside a branch of the far future."""
    runners.start()
    done = [client.run("noop") for _ in range(3)]
    for sent in done:
        sent.wait(timeout=120)
    runners.started[0].stop()
    there = [git(bus, "rev-parse", sent.branch) for sent in done]
    set_clock(YEAR)

    policy = runners.policy(retention={"days": 30, "keep": 1})
    for _ in range(2):
        for argv in (
            ["runner", "--policy", str(policy), "gc"],
            ["bridge", "-C", str(client.git.directory), "gc", "--remote-branches", "--everybody"],
        ):
            told = subprocess.run(
                [sys.executable, "-P", "-m", *argv], capture_output=True, text=True, check=True
            )
            assert "mac-bridge/" not in told.stdout
        future = f"refs/heads/mac-bridge/noop-{int(time.time()) + 10 * YEAR}-abc123"
        git(bus, "update-ref", future, done[0].commit)
    runner = runners.start(retention={"days": 30, "keep": 1}, bus={"poll_s": 0.1, "idle_poll_s": 0.1})
    time.sleep(2)
    assert runner.stop() == 0

    assert [git(bus, "rev-parse", sent.branch) for sent in done] == there


def test_row_49_what_is_old_goes_when_the_bus_shows_that_time_has_passed(tmp_path, git):
    """Runners' own commits show nothing, and neither does a date that no clock here has reached."""
    git(tmp_path, "init", "--quiet", "repo")
    repo = Git.of_user(tmp_path / "repo")
    tree = repo.text("mktree", stdin="")
    now = 1_800_000_000
    for name, who, date in (
        ("mac-bridge/noop-1790000000-abc123", "kakeya-mac-bridge@localhost", now),
        ("mac-bridge/noop-1790000500-abc123", "someone@example.invalid", 1_790_001_000),
        ("mac-bridge/other", "someone@example.invalid", now + 10**9),
    ):
        dated = repo.with_env(
            GIT_COMMITTER_EMAIL=who, GIT_COMMITTER_NAME="x", GIT_COMMITTER_DATE=f"@{date} +0000"
        )
        commit = dated.text("commit-tree", tree, "-m", "x")
        repo("update-ref", f"refs/heads/{name}", commit)
    seen = times.request_times(repo, "refs/heads/")

    assert sorted(seen) == [1_790_000_000, 1_790_000_500, 1_790_001_000, now + 10**9]
    assert times.confirmed_time(now, seen[:-1]) == 1_790_001_000 + times.TOLERANCE_S
    assert times.confirmed_time(now, seen) == 1_790_001_000 + times.TOLERANCE_S, (
        "of the dates in the future, none counts"
    )
    assert times.confirmed_time(1_700_000_000, seen) == 1_700_000_000
    assert times.confirmed_time(now, []) == now
    assert not times.is_confirmed(now, seen)
    assert times.is_confirmed(1_790_000_900, seen)


@pytest.fixture
def configured(tmp_path, runners, presets):
    """A policy deep in folders of its own, with presets beside it."""
    folder = tmp_path / "above" / "config"
    folder.mkdir(parents=True)
    made = presets(quick={"steps": [{"argv": ["/bin/true"]}]})
    there = folder / "presets"
    made.rename(there)
    policy = folder / "runner.yaml"
    runners.policy(preset_folder=str(there)).rename(policy)
    return policy


def refused(policy: Path) -> PolicyError:
    with pytest.raises(PolicyError, match="others") as caught:
        load_policy(policy)
    return caught.value


@pytest.mark.parametrize(
    "place", ["..", "../config", "runner.yaml", "presets", "presets/quick.yaml", "presets/_fragments.yaml"]
)
@pytest.mark.parametrize("mode", [0o022, 0o002])
def test_row_51_what_decides_what_runs_may_be_written_by_nobody_else(configured, place, mode):
    load_policy(configured)
    there = (configured.parent / place).resolve()
    if not there.exists():
        there.write_text("steps: {}\n")
    there.chmod(there.stat().st_mode | mode)

    error = refused(configured)

    assert str(there) in error.message
    assert error.fix == f"Run: chmod go-w {there}"


def test_row_51_check_says_so_too(configured):
    configured.parent.parent.chmod(0o777)
    argv = [sys.executable, "-P", "-m", "runner", "--policy", str(configured), "check"]
    checked = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert checked.returncode == 1
    assert f"Run: chmod go-w {configured.parent.parent}" in checked.stdout + checked.stderr


@pytest.mark.parametrize("what", ["the policy", "its folder", "a link to a link", "the presets"])
def test_row_51_a_link_is_as_safe_as_where_it_leads(configured, tmp_path, what):
    open_folder, link = tmp_path / "open", tmp_path / "link"
    open_folder.mkdir()
    policy = link
    if what == "the policy":
        link.symlink_to(configured.rename(open_folder / "runner.yaml"))
    elif what == "its folder":
        configured.parent.rename(open_folder / "config")
        link.symlink_to(open_folder / "config")
        policy = link / "runner.yaml"
    elif what == "a link to a link":
        (open_folder / "between").symlink_to(configured)
        link.symlink_to(open_folder / "between")
    else:
        (configured.parent / "presets").rename(open_folder / "presets")
        (configured.parent / "presets").symlink_to(open_folder / "presets")
        policy = configured
    if what != "its folder":
        load_policy(policy)
    open_folder.chmod(0o777)

    assert refused(policy).fix == f"Run: chmod go-w {open_folder}"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_row_51_a_folder_of_somebody_else_is_no_place_for_a_policy(configured):
    os.chown(configured.parent.parent, 65534, 65534)

    error = refused(configured)

    assert "belongs to another user" in error.message
    assert error.fix == f"Run: chown root {configured.parent.parent}"


def test_row_51_a_sticky_folder_is_a_place_for_a_policy(configured):
    """Such as /tmp: nobody can replace a file of somebody else's there."""
    configured.parent.parent.chmod(0o1777)
    load_policy(configured)


def test_row_51_links_without_end_are_no_way_to_a_policy(tmp_path):
    (tmp_path / "a").symlink_to(tmp_path / "b")
    (tmp_path / "b").symlink_to(tmp_path / "a")
    with pytest.raises(PolicyError, match="too many links"):
        check_owned(tmp_path / "a", "the policy")


NUL = {
    "a variable": {"env": {"MODEL": "/models\0/tiny"}},
    "a variable that is too long": {"env": {"MODEL": "x" * 40_000}},
    "the state": {"state": "/var/lib/\0"},
    "the interpreter": {"interpreter": "/usr/bin/python\0"},
    "the token's file": {"bus": {"url": "/bus.git", "token_file": "/tok\0en"}},
    "the list of signers": {"trust": {"allowed_signers": "/sign\0ers"}},
}


@pytest.mark.parametrize("keys", NUL.values(), ids=NUL)
def test_row_51_what_no_process_can_be_given_is_no_policy(runners, keys):
    with pytest.raises(PolicyError):
        load_policy(runners.policy(**keys))


def test_row_51_what_no_process_can_be_given_is_no_preset(presets):
    folder = presets(quick={"steps": [{"argv": ["/bin/true"]}], "env": {"WORD": "a\0b"}})
    assert "WORD" in load_presets(folder).broken["quick"].message


linux = pytest.mark.skipif(sys.platform != "linux", reason="bubblewrap is for Linux")

REACH = """
    import ctypes, json, os, socket, stat
    libc = ctypes.CDLL(None, use_errno=True)
    opened, read = [], []
    for top in ("/proc", "/sys", "/dev"):
        for folder, _, names in os.walk(top):
            for name in names:
                path = os.path.join(folder, name)
                try:
                    if stat.S_ISREG(os.lstat(path).st_mode):
                        os.close(os.open(path, os.O_WRONLY | os.O_NONBLOCK))
                        opened.append(path)
                except OSError:
                    pass
    for path in ("kcore", "keys", "key-users", "kallsyms", "sysrq-trigger", "kmsg", "iomem", "config.gz", "kpageflags"):
        try:
            if os.read(os.open(f"/proc/{path}", os.O_RDONLY | os.O_NONBLOCK), 8):
                read.append(path)
        except OSError:
            pass
    numbers = {"x86_64": (248, 249, 250), "aarch64": (217, 218, 219)}[os.uname().machine]
    keys = [libc.syscall(numbers[0], b"user", b"canary", b"x", 1, where) for where in (-2, -3, -4, -5)]
    keys += [libc.syscall(numbers[2], what, where, 0, 0, 0) for what in (0, 1, 6, 11) for where in (-3, -4, -5)]
    made = [libc.unshare(flag) for flag in (0x10000000, 0x20000, 0x08000000, 0x40000000)]
    made += [libc.shmget(0, 4096, 0o1600), libc.msgget(0, 0o1600), libc.semget(0, 1, 0o1600)]
    sockets = []
    for family in (socket.AF_VSOCK, socket.AF_PACKET, 38, 15, 31):
        for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_SEQPACKET, socket.SOCK_RAW):
            try:
                sockets.append(socket.socket(family, kind).family)
            except OSError:
                pass
    status = dict(line.split(":", 1) for line in open("/proc/self/status").read().splitlines())
    caps = [int(status[name], 16) for name in status if name.startswith("Cap")]
    print(json.dumps([opened, read, [key for key in keys + made if key >= 0], sockets, any(caps)]))
"""


@linux
@pytest.mark.usefixtures("confined")
def test_row_45_a_job_changes_no_setting_of_the_kernel_and_reads_no_key(attacked):
    answer = attacked.by(REACH)

    assert answer.result.reason.code == "ok", answer.log
    assert json.loads(answer.log) == [[], [], [], [], False]


BY_LIST = """
    import ctypes, fcntl, json, mmap, os, sys
    libc = ctypes.CDLL(None, use_errno=True)
    x86 = os.uname().machine == "x86_64"
    done = []
    def tries(name, call):
        try:
            if call() >= 0:
                done.append(name)
        except OSError:
            pass
    for path in (sys.executable, "/usr/bin/git", "mine"):
        open("mine", "w").close()
        for kind in (fcntl.F_RDLCK, fcntl.F_WRLCK):
            with open(path, "rb") as file:
                tries(f"lease on {path}", lambda: fcntl.fcntl(file, fcntl.F_SETLEASE, kind))
    tries("F_NOTIFY", lambda: fcntl.fcntl(os.open(".", os.O_RDONLY), 1026, 1))
    context = ctypes.c_ulong()
    tries("io_setup", lambda: libc.syscall(206 if x86 else 0, 128, ctypes.byref(context)))
    tries("io_uring", lambda: libc.syscall(425, 8, bytes(120)))
    tries("memfd_secret", lambda: libc.syscall(447, 0))
    for request in (16, 0x4206):
        tries(f"ptrace {request}", lambda: libc.ptrace(request, 1, 0, 0))
    tries("process_vm_readv", lambda: libc.process_vm_readv(1, None, 0, None, 0, 0))
    tries("kcmp", lambda: libc.syscall(312 if x86 else 272, 1, 1, 0, 0, 0))
    tries("inotify", lambda: libc.inotify_init1(0))
    tries("fanotify", lambda: libc.fanotify_init(0, 0))
    tries("mq_open", lambda: libc.syscall(240 if x86 else 180, b"x", os.O_CREAT | os.O_RDWR, 0o600, None))
    tries("a call of the future", lambda: libc.syscall(100_000))
    print(json.dumps([done, ctypes.get_errno() == 38]))
    # What a job needs works: threads, processes, locks, pipes, memory, polling.
    import multiprocessing, select, subprocess, tempfile, threading
    threading.Thread(target=len, args=("",)).start()
    with tempfile.TemporaryFile() as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        fcntl.lockf(file, fcntl.LOCK_EX)
    multiprocessing.get_context("spawn").Semaphore(1).acquire()
    select.epoll().close()
    os.close(os.memfd_create("x"))
    subprocess.run(["/usr/bin/git", "init", "-q", "made"], check=True)
    subprocess.run(["/usr/bin/git", "-C", "made", "status"], check=True, stdout=subprocess.DEVNULL)
"""


@linux
@pytest.mark.usefixtures("confined")
def test_row_45_a_job_makes_only_system_calls_of_the_list(attacked):
    answer = attacked.by(BY_LIST)

    assert answer.result.reason.code == "ok", answer.log
    assert json.loads(answer.log.splitlines()[0]) == [[], True]


SERVICES = """
    import json, os, socket, stat, subprocess, sys
    uid = os.getuid()
    tried = [
        f"/run/user/{uid}/bus", "/run/dbus/system_bus_socket", "/var/run/dbus/system_bus_socket",
        "/run/systemd/private",
        f"/run/user/{uid}/systemd/private", "/run/systemd/journal/socket", "/run/systemd/notify", "/dev/log",
        "/run/docker.sock", "/var/run/docker.sock", "/run/containerd/containerd.sock", "/run/podman/podman.sock",
        f"/run/user/{uid}/podman/podman.sock", "/run/crio/crio.sock", "/run/libvirt/libvirt-sock", "/run/snapd.socket",
        f"/run/user/{uid}/wayland-0", "/tmp/.X11-unix/X0", "\\0/tmp/.X11-unix/X0", f"/run/user/{uid}/gnupg/S.gpg-agent",
        f"/run/user/{uid}/keyring/ssh", f"/run/user/{uid}/pulse/native",
        f"/run/user/{uid}/pipewire-0", *sys.argv[1:],
    ]
    for name in ("SSH_AUTH_SOCK", "DBUS_SESSION_BUS_ADDRESS", "XDG_RUNTIME_DIR", "WAYLAND_DISPLAY", "DISPLAY"):
        tried += [os.environ[name]] if name in os.environ else []
    for top, folders, names in os.walk("/"):
        folders[:] = [f for f in folders if os.path.join(top, f) not in ("/proc", "/sys", "/usr")]
        for name in names:
            path = os.path.join(top, name)
            if stat.S_ISSOCK(os.lstat(path).st_mode):
                tried.append(path)
    reached = []
    for address in dict.fromkeys(tried):
        for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_SEQPACKET):
            with socket.socket(socket.AF_UNIX, kind) as client:
                try:
                    client.connect(address.replace("\\\\0", "\\0"))
                    reached.append(address)
                except (OSError, ValueError):
                    pass
    left = []
    for argv in (["systemd-run", "--user", "/bin/true"], ["systemd-run", "/bin/true"], ["crontab", "-"], ["at", "now"],
                 ["batch"], ["loginctl", "enable-linger"], ["machinectl", "shell"], ["pkexec", "/bin/true"],
                 ["sudo", "-n", "/bin/true"], ["su", "-c", "/bin/true"], ["dbus-launch", "/bin/true"],
                 ["docker", "ps"]):
        try:
            done = subprocess.run(argv, input=b"* * * * * true\\n", capture_output=True, timeout=10)
            left += [argv[0]] if done.returncode == 0 else []
        except (OSError, subprocess.TimeoutExpired):
            pass
    for spool in ("/var/spool/cron/crontabs/x", "/etc/cron.d/x", "/var/spool/at/x", "/etc/systemd/system/x.service",
                  os.path.expanduser("~/.config/systemd/user/x.service"), "/run/x", "/var/run/x"):
        try:
            os.makedirs(os.path.dirname(spool), exist_ok=True)
            open(spool, "w").close()
            left += [] if spool.startswith(os.environ["HOME"]) else [spool]
        except OSError:
            pass
    print(json.dumps([reached, left]))
"""


@pytest.fixture
def services(tmp_path):
    """Sockets at which somebody listens: in the home, in /tmp, without a file, and in a folder that jobs are shown."""
    places = {
        "agent": tempfile.mkdtemp(prefix="ssh-") + "/agent.1",
        "gpg": str(Path.home() / "S.gpg-agent"),
        "abstract": f"\0/tmp/.X11-unix/X{os.getpid()}",
        "shown": str(tmp_path / "shown" / "S"),
        "shown deeper": str(tmp_path / "shown" / "a" / "b" / "S"),
    }
    (tmp_path / "shown" / "a" / "b").mkdir(parents=True)
    (tmp_path / "shown" / "weights").write_text("shown")
    listening = []
    for place in places.values():
        listening.append(socket.socket(socket.AF_UNIX))
        listening[-1].bind(place)
        listening[-1].listen()
    yield places
    for one in listening:
        one.close()
    shutil.rmtree(Path(places["agent"]).parent)


@linux
@pytest.mark.usefixtures("confined")
def test_row_61_a_job_reaches_no_service_of_the_host(attacked, services, tmp_path):
    shown = str(tmp_path / "shown")
    answer = attacked.by(
        SERVICES,
        *(place.replace("\0", "\\0") for place in services.values()),
        policy={"env": {"SHOWN": shown}},
        pass_env=["SHOWN"],
    )

    assert answer.result.reason.code == "ok", answer.log
    assert json.loads(answer.log.splitlines()[-1]) == [[], []]


@linux
def test_row_61_pipes_and_sockets_are_found_without_following_links(tmp_path, monkeypatch):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "file").write_text("x")
    (tmp_path / "a" / "round").symlink_to(tmp_path)
    os.mkfifo(tmp_path / "a" / "pipe")
    assert [*hidden_below([tmp_path, tmp_path / "gone"])] == [tmp_path / "a" / "pipe"]

    monkeypatch.setattr("runner.job.sandbox.private_files.MAX_ENTRIES", 3)
    with pytest.raises(InfrastructureError, match="more than 3 entries"):
        list(hidden_below([tmp_path]))


@linux
@pytest.mark.usefixtures("confined")
def test_row_61_the_files_beside_a_socket_are_shown(attacked, services, tmp_path):
    shown = str(tmp_path / "shown")
    script = "import os; print(open(os.environ['SHOWN'] + '/weights').read())"
    assert attacked.by(script, policy={"env": {"SHOWN": shown}}, pass_env=["SHOWN"]).log == "shown\n"


HONEST = """
    import multiprocessing, os, socket, subprocess, tempfile, threading
    from multiprocessing import shared_memory
    thread = threading.Thread(target=print, args=("thread",))
    thread.start(); thread.join()
    with multiprocessing.get_context("fork").Pool(2) as pool:
        print(pool.map(abs, [-1, 2]))
    shared = shared_memory.SharedMemory(create=True, size=4096)
    shared.close(); shared.unlink()
    one, other = socket.socketpair()
    one.send(b"pair"); print(other.recv(9))
    server = socket.create_server(("127.0.0.1", 0))
    socket.create_connection(server.getsockname()).close()
    os.write(os.memfd_create("x"), b"x")
    print(subprocess.run(["/bin/echo", "child"], capture_output=True).stdout, tempfile.gettempdir() != "/")
"""


@linux
@pytest.mark.usefixtures("confined")
def test_row_45_what_an_honest_job_asks_of_the_kernel_is_given(attacked):
    assert attacked.by(HONEST).log == "thread\n[1, 2]\nb'pair'\nb'child\\n' True\n"


def without(*words: str, times: int = 1):
    """Return what takes the last words of this kind out of a sandbox's command line."""

    def change(argv: list[str]) -> list[str]:
        for _ in range(times):
            for i in range(len(argv) - len(words), -1, -1):
                if tuple(argv[i : i + len(words)]) == words:
                    argv = argv[:i] + argv[i + len(words) :]
                    break
        return argv

    return change


def instead(old: str, *new: str):
    return lambda argv: [w for word in argv for w in (new if word == old else (word,))]


REST = (
    "--unshare-user",
    "--unshare-pid",
    "--unshare-net",
    "--unshare-uts",
    "--unshare-ipc",
    "--unshare-cgroup-try",
)
WEAKER = {
    "a writable /proc": (without("--remount-ro", "/proc"), "write to /proc/"),
    "no filter": (without("--seccomp", PLACEHOLDER), "keyring.*Seccomp: 0"),
    "the runner's IPC": (instead("--unshare-all", *(set(REST) - {"--unshare-ipc"})), "its ipc namespace"),
    "the runner's names": (instead("--unshare-all", *(set(REST) - {"--unshare-uts"})), "its uts namespace"),
    "the runner's network": (instead("--unshare-all", "--unshare-all", "--share-net"), "an abstract socket"),
    "the runner's processes": (
        instead("--unshare-all", *(set(REST) - {"--unshare-pid"})),
        "its pid namespace",
    ),
    "a privilege": (instead("ALL", "ALL", "--cap-add", "CAP_SYS_RESOURCE"), r"privileges \(Cap"),
}


@linux
@pytest.mark.usefixtures("confined")
@pytest.mark.parametrize(("change", "says"), WEAKER.values(), ids=WEAKER)
def test_row_45_a_sandbox_that_lacks_a_part_is_not_used(tmp_path, change, says):
    interpreter = Path(sys.executable)

    def around(place):
        argv = bubblewrap.prefix(
            bubblewrap.PROGRAMS[0], tree=place.tree, home=place.home, network=False,
            readable=needed_by(interpreter).paths, hidden=[Path.home(), tmp_path],
        )  # fmt: skip
        return change(argv)

    fault = find_fault(around, state_folder=tmp_path, interpreter=interpreter)

    assert fault is not None
    assert re.search(says, fault)


@linux
def test_row_45_a_process_that_ends_while_the_probe_looks_at_it_is_passed_over(tmp_path, monkeypatch):
    (tmp_path / "ended").touch()
    found = [*os.scandir(tmp_path)]
    (tmp_path / "ended").unlink()
    monkeypatch.setattr("os.path.lexists", lambda _: True)  # it ends just after
    monkeypatch.setattr("os.scandir", lambda path: found if path == "/proc" else [])

    assert [*attempt.writable_files()] == []


@linux
def test_row_45_a_machine_whose_system_calls_are_not_known_gets_no_filter(monkeypatch):
    """The probe then finds that keyrings can be read, and the sandbox is not used."""
    monkeypatch.setattr("platform.machine", lambda: "s390x")
    assert job_filter() is None


@pytest.mark.parametrize("machine", ["x86_64", "aarch64", "riscv64"])
def test_row_45_no_jump_of_the_filter_leads_out_of_it(monkeypatch, machine):
    monkeypatch.setattr("platform.machine", lambda: machine)
    program = job_filter()
    steps = [struct.unpack_from("=HBBI", program, at) for at in range(0, len(program), 8)]
    jumps = {code for code, *_ in steps if code & 7 == 5}
    assert jumps
    for i, (code, then, otherwise, _) in enumerate(steps):
        assert code & 7 != 5 or i + 1 + max(then, otherwise) < len(steps)
    assert steps[-1][0] == 0x06


HELD = {
    "a memfd": (
        "fd = os.memfd_create('x')\nfor _ in range(300): os.write(fd, bytes(1 << 20))",
        "memory",
    ),
    "a memfd that is mapped and closed": (
        (
            "fd = os.memfd_create('x'); os.ftruncate(fd, 300 << 20); m = mmap.mmap(fd, 300 << 20); os.close(fd)\n"
            "for i in range(0, 300 << 20, 4096): m[i] = 1"
        ),
        "memory",
    ),
    "memory that is shared and has no name": (
        "m = mmap.mmap(-1, 300 << 20)\nfor i in range(0, 300 << 20, 4096): m[i] = 1",
        "memory",
    ),
    "many small memfds in many processes": (
        (
            "for _ in range(10):\n"
            "    if os.fork() == 0:\n"
            "        for _ in range(30):\n"
            "            os.write(os.memfd_create('x'), bytes(1 << 20))\n"
            "        time.sleep(60)"
        ),
        "memory",
    ),
    "a deleted file": (
        "f = open('x', 'wb'); os.unlink('x')\nfor _ in range(300): f.write(os.urandom(1 << 20)); f.flush()",
        "disk",
    ),
    "a deleted file in its temporary folder": (
        "f = tempfile.TemporaryFile()\nfor _ in range(300): f.write(os.urandom(1 << 20)); f.flush()",
        "disk",
    ),
    "a file without a name": (
        "fd = os.open('.', os.O_TMPFILE | os.O_RDWR)\nfor _ in range(300): os.write(fd, os.urandom(1 << 20))",
        "disk",
    ),
}
# Counted in another way, where the job may have a namespace of its own or not.
LONE = ("many small memfds in many processes", "a deleted file")
SEGMENT = """
libc = ctypes.CDLL(None)
libc.shmat.restype = ctypes.c_void_p
id = libc.shmget(0, 300 << 20, 0o1600)
at = libc.shmat(id, None, 0)
print("segment", id, flush=True)
ctypes.memset(at, 1, 300 << 20)
libc.shmdt(ctypes.c_void_p(at))
"""
IMPORTS = "import ctypes, mmap, os, tempfile, time\n"


def hog(attacked, script, *, sandbox, limits):
    return attacked.by(
        f"{IMPORTS}{script}\ntime.sleep(60)\n",
        limits=limits, timeout_s=50, policy={"sandbox": sandbox, "limits": {"grace_s": 0.2}},
    )  # fmt: skip


@linux
@pytest.mark.usefixtures("confined")
@pytest.mark.parametrize(
    ("what", "sandbox"), [*((what, "require") for what in HELD), *((what, "off") for what in LONE)]
)
def test_row_46_what_has_no_name_counts(attacked, what, sandbox):
    script, word = HELD[what]
    limits = {"memory_mb": 150} if word == "memory" else {"disk_mb": 100, "file_mb": 1000}

    result = hog(attacked, script, sandbox=sandbox, limits=limits).result

    assert result.reason.code == word, result.reason.message
    assert result.commands[0].peaks[word] > 100 << 20
    assert result.commands[0].seconds < 40


@linux
def test_row_46_a_segment_counts_and_does_not_outlive_the_job(attacked):
    answer = hog(attacked, SEGMENT, sandbox="off", limits={"memory_mb": 150})

    assert answer.result.reason.code == "memory"
    there = [line.split()[1] for line in Path("/proc/sysvipc/shm").read_text().splitlines()]
    assert answer.log.split()[1] not in there


@linux
@pytest.mark.usefixtures("confined")
def test_row_46_what_is_shared_is_not_counted_twice(attacked):
    script = """
fd = os.memfd_create('x')
os.write(fd, bytes(60 << 20))
m = mmap.mmap(fd, 60 << 20)
sum(m[i] for i in range(0, 60 << 20, 4096))
for _ in range(4):
    if os.fork() == 0:
        sum(m[i] for i in range(0, 60 << 20, 4096))
        time.sleep(3)
        os._exit(0)
time.sleep(3)
os._exit(0)
"""
    result = attacked.by(IMPORTS + script, limits={"memory_mb": 150}).result

    assert result.reason.code == "ok", result.reason.message
    assert result.commands[0].peaks["memory"] > 60 << 20


@linux
def test_row_46_a_host_whose_memory_is_nearly_used_up_ends_a_job(attacked):
    """Whoever holds it: what was sent into a socket and is held nowhere else is in nobody's list."""
    result = attacked.by(
        "import time; time.sleep(60)", policy={"sandbox": "off", "limits": {"keep_memory_mb": 1 << 40}}
    ).result

    assert result.reason.code == "available"


def test_row_52_the_dumb_protocol_is_refused_before_an_object_comes(
    runners, bus, client, git, serve, wait_for
):
    """Its server hands out files; git would take an object from it that no check has seen."""
    client.run("noop")
    git(bus, "update-server-info")

    def hand_out(handler):
        file = bus.parent / handler.path.partition("?")[0].lstrip("/")
        servers.say(handler, 200, file.read_bytes()) if file.is_file() else servers.say(handler, 404)

    server = serve(hand_out)
    runner = runners.start(bus={"url": f"{server.url}/bus.git", "poll_s": 0.1})
    wait_for(lambda: "cannot fetch from the bus: fatal: dumb http transport" in runner.said())

    assert runner.stop() == 0
    assert not any("/objects/" in path for _, path, _ in server.asked)
    # The store holds only the runner's own record.
    store = runners.folder / "state-one" / "store.git"
    held = git(store, "cat-file", "--batch-all-objects", "--batch-check=%(objectname)").split()
    assert {*held}.isdisjoint(
        git(bus, "cat-file", "--batch-all-objects", "--batch-check=%(objectname)").split()
    )


@pytest.mark.parametrize("is_killed", [False, True], ids=["while it serves", "and it is killed"])
@pytest.mark.parametrize("unknown", [0, 1, 2])
def test_row_52_a_cut_history_comes_whole_whatever_else_the_bus_cuts_off(
    keyed, client, bus, git, wait_for, unknown, is_killed
):
    """The bus chooses the commits at which git takes a history for cut off; they need not exist."""
    runs = [client.run("noop") for _ in range(2)]

    def fetch(store):
        cut = [f"{run.commit}:refs/look/{i}" for i, run in enumerate(runs)]
        git(store, "fetch", "--quiet", "--depth=1", f"file://{bus}", *cut)
        for i in range(2):
            git(store, "update-ref", "-d", f"refs/look/{i}")
        marks = [f"{i:040x}" for i in range(1, unknown + 1)] + (store / "shallow").read_text().split()
        (store / "shallow").write_text("".join(f"{oid}\n" for oid in marks))

    with keyed.context() as context:
        store = context.bus.git.directory
        if is_killed:
            fetch(store)
    with keyed.context() as context:
        if not is_killed:
            fetch(store)
        poller = Composer(context).poller()
        wait_for(lambda: [poller.poll()] and all(run.status().state is State.SUCCEEDED for run in runs))

    assert not (store / "shallow").exists()
    assert git(store, "rev-list", "--count", *(run.commit for run in runs)) == "3"


def test_row_52_a_history_that_the_bus_cuts_off_is_refused(runners, http_bus, bus, client, wait_for):
    run = client.run("noop")
    (bus / "shallow").write_text(f"{run.commit}\n")
    runner = runners.start(bus={"url": http_bus.url, "poll_s": 0.1})
    # Git refuses most of these itself, and says nothing more.
    wait_for(lambda: re.search("a history that is cut off|cannot fetch from the bus", runner.said()))

    assert not client.view(run.branch).current_state.is_final
    (bus / "shallow").unlink()

    assert run.wait(timeout=120).state is State.SUCCEEDED
