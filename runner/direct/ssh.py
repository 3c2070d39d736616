"""One SSH connection: no command but this one, a manifest on standard input, and an archive on standard output."""

import os
import select
import shlex
import sys
import tarfile
import tempfile
import threading
from collections import deque
from pathlib import Path
from typing import IO

from bridge.bus import wire
from bridge.common import environment
from bridge.errors import InfrastructureError, UsageError
from bridge.system.local_files import read_regular
from bridge.system.signals import Withdrawal

_CLOSED = "the SSH connection ended"
# The log that waits for a client that reads slowly; older parts are left out.
_MOST_WAITING = 1 << 20
_PIECE = 1 << 16
# How long a client may read nothing of the answer, and of the rest of the log.
_STALLS_S = 60.0
_REST_S = 5.0
_KEY_BYTES = 16 << 10
_KEY_TYPES = ("ssh-ed25519", "sk-ssh-ed25519@openssh.com", "ecdsa-sha2-", "sk-ecdsa-sha2-", "ssh-rsa")


def check_call() -> None:
    """Raise UsageError if the client wants anything but to send a manifest and to get an archive."""
    if environment.get("SSH_ORIGINAL_COMMAND") is not None:
        message = (
            "this SSH key may only send a manifest, and the client asked for a command or a file transfer"
        )
        raise UsageError(message, fix="Name no command: kakeya manifest PRESET | ssh HOST > answer.tar")
    streams = sys.stdin, sys.stdout
    if None in streams or environment.get("SSH_TTY") is not None or any(each.isatty() for each in streams):
        message = "a manifest comes in and an archive goes out, which no terminal and no closed stream can do"
        raise UsageError(message, fix="Write: kakeya manifest PRESET | ssh HOST > answer.tar")


def key_line(public_key: Path, policy: Path) -> str:
    """Return the line for ``authorized_keys`` that lets a key send manifests to this runner, and nothing else.

    Raises:
        UsageError: the file does not hold one public key.
    """
    text = (read_regular(public_key, _KEY_BYTES) or b"").decode("utf-8", "replace").strip()
    if not text.startswith(_KEY_TYPES) or not text.isprintable():
        fix = "Name the file that ends in .pub, of one key."
        raise UsageError(f"{public_key} does not hold one public SSH key", fix=fix)
    argv = [sys.executable, "-I", "-m", "runner", "--policy", str(policy.absolute()), "serve-ssh"]
    command = shlex.join(argv).replace("\\", "\\\\").replace('"', '\\"')
    return f'restrict,command="{command}" {text}'


def withdraw_if_closed(withdrawal: Withdrawal) -> None:
    """Withdraw the job once nobody reads standard error any more: then the connection is gone.

    Standard output is no such sign: it may share a socket with standard input, which the client closes first. Call this
    before a ``Relay`` begins.
    """
    descriptor = os.dup(2)

    def watch() -> None:
        poll = select.poll()
        poll.register(descriptor, 0)
        if any(events & (select.POLLHUP | select.POLLERR) for _, events in poll.poll()):
            withdrawal.withdraw(_CLOSED)

    threading.Thread(target=watch, daemon=True).start()


class Relay:
    """Passes on what is written to standard error, so that a client that does not read it holds up nothing."""

    def __init__(self) -> None:
        """Begin."""
        self._out = os.dup(2)
        reader, writer = os.pipe()
        os.dup2(writer, 2)
        os.close(writer)
        self._waiting: deque[bytes] = deque()
        self._size = 0
        self._is_over = False
        self._news = threading.Condition()
        self._threads = [
            threading.Thread(target=self._collect, args=(reader,), daemon=True),
            threading.Thread(target=self._pass_on, daemon=True),
        ]
        for thread in self._threads:
            thread.start()

    def finish(self) -> None:
        """Pass on the rest, if the client reads it in time."""
        sys.stderr.flush()
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 2)
        os.close(null)
        for thread in self._threads:
            thread.join(_REST_S)

    def _collect(self, reader: int) -> None:
        while data := os.read(reader, _PIECE):
            with self._news:
                self._waiting.append(data)
                self._size += len(data)
                while self._size > _MOST_WAITING:
                    self._size -= len(self._waiting.popleft())
                self._news.notify()
        with self._news:
            self._is_over = True
            self._news.notify()

    def _pass_on(self) -> None:
        while True:
            with self._news:
                self._news.wait_for(lambda: self._waiting or self._is_over)
                if not self._waiting:
                    return
                data = self._waiting.popleft()
                self._size -= len(data)
            try:
                while data:
                    data = data[os.write(self._out, data) :]
            except OSError:
                return


def pack(folder: Path) -> IO[bytes]:
    """Return an answer's folder as a tar archive, in a file without a name. What names the other files comes last."""
    archive = tempfile.TemporaryFile()  # noqa: SIM115 - the caller closes it
    with tarfile.open(fileobj=archive, mode="w", format=tarfile.PAX_FORMAT) as tar:
        files = sorted(path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
        for path in sorted(files, key=lambda path: path == folder / wire.RESULT):
            about = tarfile.TarInfo(path.relative_to(folder).as_posix())
            about.size, about.mode = path.stat().st_size, 0o644
            with path.open("rb") as content:
                tar.addfile(about, content)
    archive.seek(0)
    return archive


def send(archive: IO[bytes], descriptor: int = 1) -> None:
    """Write an archive to standard output.

    Raises:
        InfrastructureError: the client has gone, or reads nothing for a minute.
    """
    os.set_blocking(descriptor, False)
    while data := archive.read(_PIECE):
        while data:
            if not select.select([], [descriptor], [], _STALLS_S)[1]:
                raise InfrastructureError(f"the client read nothing of the answer for {_STALLS_S:g} s")
            try:
                data = data[os.write(descriptor, data) :]
            except BlockingIOError:
                continue
            except OSError as error:
                raise InfrastructureError(f"the answer cannot be sent: {error.strerror}") from error
