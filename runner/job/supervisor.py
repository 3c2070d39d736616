"""The process between the runner and a job: it starts the job, ends it in time, and leaves no process behind.

The first line on standard input describes the job as JSON. The supervisor ends the job if that pipe is closed (because
the runner is gone, for whatever reason) or if ``stop`` arrives. It writes events as JSON lines to ``report_fd``.

On Linux, the supervisor is the reaper of all orphans below it, so it also finds children that left their session and
their parent. Elsewhere it observes descendants while they run, and recognizes them by a mark in their environment.
"""

import ctypes
import errno
import json
import os
import resource
import selectors
import signal
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TextIO

import psutil

from bridge.common import limits
from bridge.common.process import ENDING_SIGNALS
from runner.job import syscalls
from runner.job.usage import BOUNDS, Usage

MARK = "KAKEYA_JOB"
_REAPER = sys.platform == "linux"
_PR_SET_CHILD_SUBREAPER = 36
# Signals restored to their defaults for the job: this program, Python or a shell may have ignored or handled them.
_RESTORED = signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}
_WATCH_S = 0.25
_KILL_S = 15.0
_ROUNDS = 1_000


class ProcessTree:
    """All descendants of the job: processes below ``root``, processes with the mark, and their descendants."""

    def __init__(self, mark: str, root: psutil.Process | None = None) -> None:
        self._mark = mark
        self._root = root
        self._known: dict[int, psutil.Process] = {}

    def scan(self) -> list[psutil.Process]:
        """Find new descendants of known members in one pass over all processes, and return the live members."""
        below: defaultdict[int, list[psutil.Process]] = defaultdict(list)
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                below[process.ppid()].append(process)
        parents = [pid for pid, member in self._known.items() if member.is_running()]
        parents += [self._root.pid] if self._root else []
        while parents:
            for process in below.pop(parents.pop(), ()):
                self._known[process.pid] = process
                parents.append(process.pid)
        self._known = {pid: member for pid, member in self._known.items() if _lives(member)}
        return list(self._known.values())

    def scan_everywhere(self) -> list[psutil.Process]:
        """Return the live members, including those that only the mark in their environment identifies."""
        for process in psutil.process_iter():
            with suppress(psutil.Error, OSError):
                if process.pid != os.getpid() and process.environ().get(MARK) == self._mark:
                    self._known.setdefault(process.pid, process)
        return self.scan()


def main() -> int:
    """Run the job that standard input describes. Returns 0 if it ran, however it ended."""
    job = json.loads(_first_line())
    report = os.fdopen(job["report_fd"], "w", encoding="utf-8", buffering=1)
    for own in (job["report_fd"], *job["kept_fds"]):
        os.set_inheritable(own, False)
    if _REAPER:
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    for signum in ENDING_SIGNALS:
        signal.signal(signum, signal.SIG_IGN)
    began = time.monotonic()
    tree = ProcessTree(job["env"][MARK], psutil.Process())
    wake, poke = os.pipe()
    os.set_blocking(poke, False)
    signal.set_wakeup_fd(poke, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    spawned = time.monotonic()
    try:
        child = _spawn(job)
    except OSError as error:
        message = f"cannot run {job['argv'][0]}: {error.strerror}"
        _report(report, exit_code=127, error=message, seconds=_seconds_since(began), survivors=[])
        return 0
    _report(report, began=True)
    watched = Usage(job["bounds"], job["watched"])
    reason, status = _watch(child, tree, wake, deadline=began + job["timeout_s"], watched=watched)
    wall_s = time.monotonic() - spawned
    seconds = _seconds_since(began)
    # On Linux, bubblewrap stays as the job's parent. On macOS, sandbox-exec is replaced by the job.
    wrapped = bool(job["inside"]) and sys.platform == "linux"
    # Report the known facts now, in case this process does not survive the next steps.
    exceeded = reason if reason in BOUNDS else None
    ending = {"timed_out": reason == "timeout", "exceeded": exceeded, "seconds": seconds}
    _report(report, exit_code=_exit_code(status, wrapped=wrapped), **ending)
    grace = job["grace_s"] if reason else 0.0
    survivors, ended = _end_all(child, tree, grace, wrapped=wrapped, watched=watched)
    code = _exit_code(status if ended is None else ended, wrapped=wrapped)
    watched.release()
    used: dict[str, object] = {"max_rss_bytes": watched.largest or None, "peaks": watched.peaks}
    used |= {"wall_s": wall_s, "processor_s": watched.processor_s}
    _report(report, exit_code=code, survivors=survivors, **used)
    return 0


def _report(report: TextIO, **facts: object) -> None:
    """Send the runner fields of ``runner.job.command.Ended``, which replace earlier fields of the same name."""
    with suppress(BrokenPipeError):  # the runner may be gone
        report.write(json.dumps(facts) + "\n")


def _seconds_since(began: float) -> float:
    """Return the seconds since a time of the monotonic clock, rounded, but never to 0: whatever is tried takes time."""
    return max(0.001, round(time.monotonic() - began, 3))


def end_marked(mark: str) -> list[str]:
    """End all processes with a mark and their descendants, and return the survivors. Call it if a supervisor died."""
    tree = ProcessTree(mark)
    until = time.monotonic() + _KILL_S
    while (members := tree.scan_everywhere()) and time.monotonic() < until:
        _signal(members, signal.SIGKILL)
        time.sleep(0.01)
    return _named(members)


def _first_line() -> bytes:
    """Read byte by byte: what follows the line must stay in the pipe, where ``_watch`` looks for it."""
    line = b""
    while not line.endswith(b"\n"):
        if not (piece := os.read(0, 1)):
            raise SystemExit(1)
        line += piece
    return line


def _spawn(job: Mapping[str, Any]) -> int:
    """Start the job in a session of its own and return its process id."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(read)
            os.setsid()
            # The files that a job creates are the same whatever umask its runner inherited.
            os.umask(0o022)
            for signum in _RESTORED:
                signal.signal(signum, signal.SIG_DFL)
            null = os.open(os.devnull, os.O_RDONLY)
            os.dup2(null, 0)
            os.dup2(1, 2)
            for name, wanted in job["limits"].items():
                kind = getattr(resource, name)
                hard = resource.getrlimit(kind)[1]
                limit = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
                resource.setrlimit(kind, (limit, limit))
            os.chdir(job["cwd"])
            argv = [*_with_filter(job["inside"]), *job["argv"]]
            if job["inside"]:  # otherwise a sandbox would report this later, in its own words
                _check_program(job["argv"][0])
            os.execve(argv[0], argv, job["env"])  # noqa: S606 - there is no shell
        except OSError as error:
            os.write(write, str(error.errno).encode())
        os._exit(127)
    os.close(write)
    failed = os.read(read, 16)
    os.close(read)
    if failed:
        os.waitpid(child, 0)
        raise OSError(int(failed), os.strerror(int(failed)))
    return child


def _with_filter(inside: Sequence[str]) -> list[str]:
    """Return a sandbox's argv prefix, with the descriptor of its seccomp filter if it uses one."""
    if syscalls.PLACEHOLDER not in inside:
        return list(inside)
    read, write = os.pipe()
    os.write(write, syscalls.job_filter() or b"")
    os.close(write)
    os.set_inheritable(read, True)
    return [str(read) if word == syscalls.PLACEHOLDER else word for word in inside]


def _check_program(path: str) -> None:
    if not os.path.exists(path):  # noqa: PTH110 - one import less between fork and exec
        raise FileNotFoundError(errno.ENOENT, "")
    if os.path.isdir(path) or not os.access(path, os.X_OK):  # noqa: PTH112
        raise PermissionError(errno.EACCES, "")


def _watch(
    child: int, tree: ProcessTree, wake: int, deadline: float, watched: Usage
) -> tuple[str | None, int | None]:
    """Wait until the job has ended or must be ended. Returns why it must be, or its status."""
    with selectors.DefaultSelector() as selector:
        selector.register(wake, selectors.EVENT_READ)
        selector.register(0, selectors.EVENT_READ)
        while True:
            remaining = deadline - time.monotonic()
            if remaining <= 0:
                return "timeout", None
            for key, _ in selector.select(min(remaining, _WATCH_S)):
                data = os.read(key.fd, 4096)
                if key.fd == 0:
                    return ("stop" if data else "orphaned"), None
            # Do this before the measurements below, which would count as the job's time.
            pid, status, usage = os.wait4(child, os.WNOHANG)
            if pid:
                watched.note(usage)
                return None, status
            if over := watched.exceeded_limit():
                return over, None
            if not _REAPER:  # elsewhere, a process that leaves its parent must have been seen before that
                tree.scan()


def _end_all(
    child: int, tree: ProcessTree, grace: float, *, wrapped: bool, watched: Usage
) -> tuple[list[str], int | None]:
    """End all descendants of the job: with SIGTERM and ``grace`` seconds, then with SIGKILL until none is left.

    Returns the survivors, and the job's own status if that was still unknown.
    """
    ended: int | None = None

    def reap() -> None:
        nonlocal ended
        with suppress(ChildProcessError):
            while True:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
                if pid == 0:
                    return
                watched.note(usage)
                if pid == child:
                    ended = status

    if grace:
        # Spare the sandbox's own process: its end would kill the job at once.
        _signal([p for p in tree.scan_everywhere() if not (wrapped and p.pid == child)], signal.SIGTERM)
        until = time.monotonic() + grace
        while tree.scan() and time.monotonic() < until:
            reap()
            time.sleep(0.02)
    until = time.monotonic() + _KILL_S
    while time.monotonic() < until:
        _kill_children(reap)
        members = tree.scan_everywhere()
        if not members:
            reap()
            return [], ended
        # Stop all of them first, so that none can fork while the others are killed.
        _signal(members, signal.SIGSTOP)
        _signal(tree.scan(), signal.SIGKILL)
        time.sleep(0.01)
    return _named(tree.scan_everywhere()), ended


def _named(survivors: list[psutil.Process]) -> list[str]:
    return truncate_survivors([f"{process.pid} {_name(process)}" for process in survivors])


def truncate_survivors(survivors: list[str]) -> list[str]:
    """Return the first survivors, at most as many as an answer may name."""
    more = len(survivors) - limits.ANSWER_NOTES
    return survivors if more <= 0 else [*survivors[: limits.ANSWER_NOTES - 1], f"and {more + 1} more"]


def _kill_children(reap: Callable[[], None]) -> None:
    """Kill this process's children until none is left that can be killed, if the system lists them.

    Every orphan becomes a child of its reaper, so this also ends processes that keep forking. An unreaped child keeps
    its process id, so no unrelated process can be killed.
    """
    listed = Path(f"/proc/self/task/{os.getpid()}/children")
    for _ in range(_ROUNDS):
        reap()
        children = listed.read_text().split() if listed.exists() else []
        if not sum(_can_kill(int(pid)) for pid in children):
            return


def _can_kill(pid: int) -> bool:
    """Kill a child, and return whether the system allows that. It does not if the child runs as another user."""
    with suppress(PermissionError):
        os.kill(pid, signal.SIGKILL)
        return True
    return False


def _exit_code(status: int | None, *, wrapped: bool) -> int | None:
    """Return the job's exit code, if its status is known. A sandbox reports a signal as a shell does: 128 + number."""
    if status is None:
        return None
    code = os.waitstatus_to_exitcode(status)
    return 128 - code if wrapped and 128 < code <= 128 + signal.NSIG else code  # noqa: PLR2004


def _signal(members: list[psutil.Process], signum: int) -> None:
    for member in members:
        with suppress(psutil.Error, OSError):
            member.send_signal(signum)


def _lives(process: psutil.Process) -> bool:
    with suppress(psutil.Error):
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False


def _name(process: psutil.Process) -> str:
    with suppress(psutil.Error):
        return str(process.name())
    return "?"


if __name__ == "__main__":
    sys.exit(main())
