"""A local git server that counts: `git daemon` behind a relay that sees each connection and its bytes."""

from __future__ import annotations

import socket
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil
from common import Place, git

PUSH, FETCH, LIST = "push", "fetch", "list"
_BLOCK = 1 << 16


class GitServer:
    """Serves the folder of a bare repository over git's own protocol on this machine, and counts what is done."""

    def __init__(self, bus: Path) -> None:
        self.counts: Counter[str] = Counter()
        self.bytes: Counter[str] = Counter()
        # Seconds from the first byte of each connection of a kind to its end.
        self.seconds: dict[str, list[float]] = {PUSH: [], FETCH: [], LIST: []}
        self._bus = bus
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        git(self._bus, "config", "core.logAllRefUpdates", "always")
        # Git packs a server's loose references and objects, as hosts do. It does so in the push, so it is counted.
        for name in ("gc.autoDetach", "maintenance.autoDetach"):
            git(self._bus, "config", name, "false")
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self._behind = free.getsockname()[1]
        options = [f"--port={self._behind}", f"--base-path={self._bus.parent}", "--max-connections=0"]
        argv = [
            "git",
            "daemon",
            *options,
            "--listen=127.0.0.1",
            "--export-all",
            "--enable=receive-pack",
            "--reuseaddr",
        ]
        self._daemon = subprocess.Popen([*argv, str(self._bus)], stderr=subprocess.DEVNULL)
        self._front = socket.create_server(("127.0.0.1", 0), backlog=512)
        self.url = f"git://127.0.0.1:{self._front.getsockname()[1]}/{self._bus.name}"
        threading.Thread(target=self._accept, daemon=True).start()
        until = time.monotonic() + 20
        while True:
            with suppress(OSError), socket.create_connection(("127.0.0.1", self._behind)):
                return self
            if time.monotonic() > until:
                raise OSError("git daemon did not start")
            time.sleep(0.05)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._front.close()
        self._daemon.terminate()
        self._daemon.wait(20)

    def totals(self) -> Counter[str]:
        """Return the connections of each kind so far, and the bytes of all kinds together."""
        with self._lock:
            return self.counts + Counter(bytes=sum(self.bytes.values()))

    def processor_s(self) -> float:
        """Return the processor seconds of the server's processes that have ended, without the relay's."""
        processes = [psutil.Process(self._daemon.pid)]
        processes += processes[0].children()
        return sum(sum(each.cpu_times()[:4]) for each in processes)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._front.accept()
            except OSError:
                return
            threading.Thread(target=self._relay, args=(client,), daemon=True).start()

    def _relay(self, client: socket.socket) -> None:
        began = time.perf_counter()
        talk = _Talk()
        with client, suppress(OSError), socket.create_connection(("127.0.0.1", self._behind)) as server:
            back = threading.Thread(target=talk.copy, args=(server, client), daemon=True)
            back.start()
            talk.copy(client, server, listen=True)
            back.join()
        if kind := talk.kind:
            with self._lock:
                self.counts[kind] += 1
                self.bytes[kind] += talk.size
                self.seconds[kind].append(time.perf_counter() - began)


class _Talk:
    """One connection: how many bytes it took, and what it was for."""

    def __init__(self) -> None:
        self.size = 0
        self.kind = ""

    def copy(self, source: socket.socket, sink: socket.socket, *, listen: bool = False) -> None:
        with suppress(OSError):
            while block := source.recv(_BLOCK):
                if listen:
                    self._hear(block)
                self.size += len(block)
                sink.sendall(block)
        with suppress(OSError):
            sink.shutdown(socket.SHUT_WR)

    def _hear(self, block: bytes) -> None:
        if not self.kind:
            self.kind = PUSH if b"git-receive-pack" in block[:64] else LIST
        if self.kind == LIST and b"command=fetch" in block:
            self.kind = FETCH


@contextmanager
def git_server(place: Place) -> Iterator[GitServer]:
    """Serve the bus of a place, and let its clone use the server."""
    with GitServer(place.bus) as server:
        git(place.clone, "remote", "set-url", "origin", server.url)
        yield server
