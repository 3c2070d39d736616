"""A program in a process of its own, forked from one that has imported it: that takes a fourth of the time.

Each program is the child of a keeper, which waits for it and reports how it ended.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import IO

_lock = threading.Lock()
_SERVER = ("engine.serve.main", "uvicorn")
# What is imported before a program is forked, by the program. MLX and torch start their threads at their first use.
_IMPORTED: dict[str, tuple[str, ...]] = {
    "runner": ("runner.cli",),
    "engine": ("engine.cli", *_SERVER, "engine.serve.scheduler.backend"),
    "engine on torch": ("engine.cli", *_SERVER, "engine.serve.torch.backend"),
}


class Program:
    """A running program, to be used as a `subprocess.Popen`."""

    def __init__(
        self, *args: object, stdin: int | None = None, out: int, err: int, cwd: Path | None = None,
        env: Mapping[str, str] = os.environ, program: str = "runner",
    ) -> None:  # fmt: skip
        self.args = [f"kakeya-{program.partition(' ')[0]}", *map(str, args)]
        read, write = os.pipe()
        self._report = os.fdopen(read, encoding="ascii")
        order = json.dumps({"argv": self.args, "cwd": str(cwd or Path.cwd()), "env": {**env}}).encode()
        with _lock, Path(os.devnull).open() as nothing:
            fds = [nothing.fileno() if stdin is None else stdin, out, err, write]
            socket.send_fds(_server(program), [len(order).to_bytes(4, "big")], fds)
            _server(program).sendall(order)
        os.close(write)
        self.pid = int(self._report.readline())
        self.returncode: int | None = None

    def __del__(self) -> None:
        self._report.close()

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            if not select.select([self._report], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(self.args, timeout or 0.0)
            self.returncode = int(self._report.readline())
        return self.returncode

    def poll(self) -> int | None:
        try:
            return self.wait(0)
        except subprocess.TimeoutExpired:
            return None

    def send_signal(self, signum: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, signum)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def start(*args: object, out: IO[bytes], cwd: Path) -> Program | subprocess.Popen[bytes]:
    """Start `kakeya-runner`: anew, if a variable was set that Python reads before it can be forked."""
    if _CAN_FORK and _early() == _EARLY:
        return Program(*args, out=out.fileno(), err=out.fileno(), cwd=cwd)
    return subprocess.Popen(_argv(*args), stdout=out, stderr=subprocess.STDOUT, cwd=cwd)


def run(
    *args: object, stdin: int | None = None, cwd: Path | None = None, env: Mapping[str, str] = os.environ
) -> subprocess.CompletedProcess[str]:
    """Run `kakeya-runner` to its end."""
    if not _CAN_FORK:
        how = {
            "stdin": subprocess.DEVNULL if stdin is None else stdin,
            "cwd": cwd,
            "env": env,
            "capture_output": True,
            "text": True,
        }
        return subprocess.run(_argv(*args), check=False, **how)
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        program = Program(*args, stdin=stdin, out=out.fileno(), err=err.fileno(), cwd=cwd, env=env)
        try:
            code = program.wait(240)
        finally:
            program.kill()
        said = [file.seek(0) or file.read() for file in (out, err)]
        return subprocess.CompletedProcess(program.args, code, *said)


def _argv(*args: object) -> list[str]:
    return [sys.executable, "-P", "-m", "runner", *map(str, args)]


def _early() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name.startswith(("LD_", "PYTHON"))}


_EARLY = _early()
# The frameworks of macOS may not be used in a process that was forked and runs no other program.
_CAN_FORK = sys.platform == "linux"


@cache
def _server(program: str) -> socket.socket:
    """Start the process that forks a program, and return the way to it. It ends once that is closed."""
    near, far = socket.socketpair()
    argv = [sys.executable, "-P", "-m", __name__, str(far.fileno()), program]
    env = {name: value for name, value in os.environ.items() if name not in _early()} | _EARLY
    if "torch" in program:
        env["OMP_NUM_THREADS"] = "1"  # torch reads it when it is imported; servers share few cores
    root = Path(__file__).parents[1]
    server = subprocess.Popen(argv, pass_fds=[far.fileno()], stdin=subprocess.DEVNULL, cwd=root, env=env)
    far.close()
    atexit.register(lambda: (near.close(), server.wait()))
    return near


def _import(program: str) -> None:
    for module in _IMPORTED[program]:
        import_module(module)
    if program == "runner":
        import_module("bridge.presets").load_presets()
        for name in import_module("runner.cli").cli.list_commands(None):
            import_module("runner.cli").cli.get_command(None, name)
    gc.freeze()


def _serve(door: socket.socket) -> None:
    """Fork a program for each order. In the program, return."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for a keeper
    while True:
        head, fds, *_ = socket.recv_fds(door, 4, 4)
        if not head:
            sys.exit()
        order = json.loads(door.recv(int.from_bytes(head, "big"), socket.MSG_WAITALL))
        if os.fork() == 0:
            break
        for fd in fds:
            os.close(fd)
    door.close()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    *streams, report = fds
    if child := os.fork():
        os.write(report, f"{child}\n".encode())
        for fd in (0, 1, 2, *streams):
            os.close(fd)
        os.write(report, f"{os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])}\n".encode())
        os._exit(0)
    os.close(report)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for to, fd in enumerate(streams):
        os.dup2(fd, to)
        os.close(fd)
    # New streams: the parent's have noted whether its own files are seekable, and these files may differ.
    sys.stdin, sys.stdout = os.fdopen(0), os.fdopen(1, "w")
    sys.stderr = os.fdopen(2, "w", buffering=1, errors="backslashreplace")
    os.chdir(order["cwd"])
    os.environ.clear()
    os.environ.update(order["env"])
    sys.argv = order["argv"]


if __name__ == "__main__":
    _program = sys.argv[2]
    _import(_program)
    _serve(socket.socket(fileno=int(sys.argv[1])))
    import_module(_IMPORTED[_program][0]).main()
