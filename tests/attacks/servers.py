"""Servers on loopback that do not do what a git server does."""

from __future__ import annotations

import socket
import ssl
import struct
import threading
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

OID = "1" * 40
_BLOB = 3
# As much as a line of git's protocol holds besides its length and the band.
_BAND = 65_515


def packet(line: bytes) -> bytes:
    """Return a line as git's protocol writes it."""
    return b"%04x" % (len(line) + 4) + line


def advertisement(*refs: str) -> bytes:
    """Return what a server says first, by the older protocol, of which git makes no more than one request."""
    lines = [f"{OID} {ref}".encode() for ref in refs]
    lines[0] += b"\0side-band-64k ofs-delta shallow"
    return b"".join([packet(b"# service=git-upload-pack\n"), b"0000", *map(packet, lines), b"0000"])


def endless_pack(branch: str) -> Callable[[BaseHTTPRequestHandler], None]:
    """Return an answer that lists a branch and sends a pack with a blob of a tebibyte, as fast as the client reads."""

    def answer(handler: BaseHTTPRequestHandler) -> None:
        if handler.command == "GET":
            kind = "application/x-git-upload-pack-advertisement"
            return say(handler, 200, advertisement(f"refs/heads/{branch}"), Content_Type=kind)
        asked = handler.rfile.read(int(handler.headers["Content-Length"]))
        kind = "application/x-git-upload-pack-result"
        # Where the history is cut off, which is nowhere; a runner asks for that first.
        cut = b"0000" if b"deepen" in asked else b""
        if b"done" not in asked:
            return say(handler, 200, cut, Content_Type=kind)
        handler.send_response(200)
        handler.send_header("Content-Type", kind)
        handler.end_headers()
        # Git writes a pack of a thousand objects to a file, and a smaller one into single files.
        begin = b"PACK" + struct.pack(">LL", 2, 1_000) + _entry(_BLOB, 1 << 40)
        handler.wfile.write(cut + packet(b"NAK\n") + packet(b"\1" + begin))
        packer = zlib.compressobj(0)
        while True:
            raw = packer.compress(bytes(1 << 20)) + packer.flush(zlib.Z_SYNC_FLUSH)
            for start in range(0, len(raw), _BAND):
                handler.wfile.write(packet(b"\1" + raw[start : start + _BAND]))

    return answer


def _entry(kind: int, size: int) -> bytes:
    """Return the header of an object in a pack: its kind, and how long it will be."""
    raw, size = bytearray([kind << 4 | size & 15]), size >> 4
    while size:
        raw[-1] |= 0x80
        raw.append(size & 0x7F)
        size >>= 7
    return bytes(raw)


class Http:
    """An HTTP server whose answers a test writes, and what was asked of it: method, path and headers.

    With a certificate and its key it speaks HTTPS.
    """

    def __init__(
        self, answer: Callable[[BaseHTTPRequestHandler], None], certificate: tuple[Path, Path] | None = None
    ) -> None:
        self.asked: list[tuple[str, str, Mapping[str, str]]] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def _answer(self) -> None:
                headers = {name.lower(): value for name, value in self.headers.items()}
                outer.asked.append((self.command, self.path, headers))
                try:
                    answer(self)
                except (BrokenPipeError, ConnectionResetError):
                    self.close_connection = True

            do_GET = do_POST = do_PROPFIND = _answer  # noqa: N815 - the names that the library looks for

            def log_message(self, *args: object) -> None:
                """Say nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        if certificate:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*certificate)
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        scheme = "https" if certificate else "http"
        self.url = f"{scheme}://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def close(self) -> None:
        """End it."""
        self._server.shutdown()
        self._server.server_close()


def say(handler: BaseHTTPRequestHandler, status: int, body: bytes = b"", **headers: str) -> None:
    """Send one whole answer."""
    handler.send_response(status)
    for name, value in headers.items():
        handler.send_header(name.replace("_", "-"), value)
    handler.send_header("Content-Length", str(len(body)))
    handler.end_headers()
    handler.wfile.write(body)


@contextmanager
def silent() -> Iterator[int]:
    """Let clients connect, and never say anything to them. Yields the port."""
    with socket.create_server(("127.0.0.1", 0), backlog=64) as server:
        yield server.getsockname()[1]
