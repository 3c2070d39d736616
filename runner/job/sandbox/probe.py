"""Tests a sandbox before the runner relies on it: a real job tries things that must fail or must succeed."""

import json
import os
import secrets
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from runner.job.command import Command, Ended, job_environment
from runner.job.logs import LogSink
from runner.job.workspace import Workspace, workspace

_ATTEMPT = Path(__file__).with_name("attempt.py")
_OUTPUT_BYTES = 1 << 20

Around = Callable[[Workspace], list[str]]


def find_fault(around: Around, *, state_folder: Path, interpreter: Path) -> str | None:
    """Run the self-test inside a sandbox. Returns None if the sandbox holds, otherwise what is wrong with it.

    ``around`` returns the argv prefix of the sandbox. The canary file is in the folder of the runner's own files.
    """
    canary = state_folder / f"canary-{secrets.token_hex(8)}"
    written = canary.with_name(canary.name + "-written")
    canary.write_text(secrets.token_hex(16), encoding="ascii")
    try:
        with (
            workspace(state_folder, "probe") as space,
            socket.create_server(("127.0.0.1", 0)) as server,
            socket.socket(socket.AF_UNIX) as local,
        ):
            port = server.getsockname()[1]
            facts = [str(canary), str(port), _listen(local), str(os.getpid()), json.dumps(_namespaces())]
            argv = [str(interpreter), "-I", "-c", _ATTEMPT.read_text(encoding="utf-8"), *facts]
            ended, output = run_trial(argv, space, around(space), interpreter=interpreter)
            fault = _judge(ended.exit_code, output or ended.error or "it printed nothing")
            if fault is None and written.exists():
                return "a job in it could write beside a file of the runner's"
            return fault
    finally:
        canary.unlink()
        written.unlink(missing_ok=True)


def _listen(local: socket.socket) -> str:
    """Listen on an abstract socket, if the system has them, and return its name."""
    name = f"kakeya-probe-{secrets.token_hex(8)}"
    if sys.platform == "linux":
        local.bind(f"\0{name}")
        local.listen()
    return name


def _namespaces() -> dict[str, str]:
    """Return this process's namespaces that a sandbox must replace, as far as the kernel has them."""
    folder = Path("/proc/self/ns")
    kinds = ("ipc", "mnt", "net", "pid", "uts")
    return {kind: str((folder / kind).readlink()) for kind in kinds if (folder / kind).is_symlink()}


def _judge(exit_code: int | None, output: str) -> str | None:
    last = output.splitlines()[-1]
    if exit_code != 0:
        return f"a job does not start in it: {last[:300]}"
    try:
        tried = json.loads(last)
        could, could_not = tried["could"], tried["could_not"]
    except (ValueError, KeyError, TypeError):
        return f"the probe said what it should not: {last[:300]}"
    if could:
        return f"a job in it could {', '.join(could)}"
    return f"a job in it could not {', '.join(could_not)}" if could_not else None


def run_trial(
    argv: Sequence[str],
    space: Workspace,
    inside: Sequence[str],
    *,
    interpreter: Path,
    extra: Mapping[str, str] | None = None,
    timeout_s: float = 30.0,
) -> tuple[Ended, str]:
    """Run a command like a job, behind the argv prefix ``inside``. Returns how it ended, and its stripped output.

    ``extra`` are variables beside those that every job has.
    """
    sink = LogSink(_OUTPUT_BYTES)
    env = job_environment(space.home, interpreter=interpreter, extra=extra or {})
    command = Command(
        argv, inside=inside, env=env, cwd=space.tree, timeout_s=timeout_s, grace_s=1.0, sink=sink
    )
    try:
        while command.poll(0.1) is None:
            pass
    finally:
        ended = command.stop()
    return ended, sink.kept.decode("utf-8", "replace").strip()
