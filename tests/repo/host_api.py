"""A git host's REST API on loopback over a bare repository: the calls that docs/agents.md and the Action use.

Paths, fields and codes are those of GitHub's documentation (REST API version 2022-11-28).
"""

from __future__ import annotations

import base64
import json
import re
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

REPOSITORY = "OWNER/REPOSITORY"
TOKEN = "a-token-of-the-agent"
WHO = {"GIT_AUTHOR_NAME": "An agent", "GIT_AUTHOR_EMAIL": "agent@example.invalid"}
WHO |= {name.replace("AUTHOR", "COMMITTER"): value for name, value in WHO.items()}

Answer = tuple[int, Any]


@dataclass
class HostApi:
    """The API, what was asked of it, and the statuses and comments that it keeps."""

    bus: Path
    url: str = ""
    asked: list[tuple[str, str]] = field(default_factory=list)
    statuses: list[dict[str, Any]] = field(default_factory=list)
    comments: list[dict[str, Any]] = field(default_factory=list)
    # Calls, as "METHOD path", that are answered with this status code instead.
    refused: dict[str, int] = field(default_factory=dict)

    def git(self, *args: str, stdin: bytes = b"") -> bytes:
        done = subprocess.run(
            ["git", *args], cwd=self.bus, input=stdin, capture_output=True, check=True,
            env={"PATH": "/usr/bin:/bin:/usr/local/bin", **WHO},
        )  # fmt: skip
        return done.stdout

    def _has(self, name: str) -> bool:
        try:
            self.git("cat-file", "-e", name)
        except subprocess.CalledProcessError:
            return False
        return True

    def answer(self, method: str, path: str, query: dict[str, list[str]], body: Any, accept: str) -> Answer:
        """Answer one call: a status code, and JSON, or bytes as they are."""
        self.asked.append((method, path))
        for call, code in self.refused.items():
            if re.fullmatch(call, f"{method} {path}"):
                return code, {"message": "Resource not accessible by integration"}
        head = f"/repos/{REPOSITORY}/"
        if not path.startswith(head):
            return 404, {"message": "Not Found"}
        path = path.removeprefix(head)
        for pattern, make in ROUTES.items():
            if found := re.fullmatch(pattern, f"{method} {path}"):
                return make(self, *found.groups(), query=query, body=body, accept=accept)
        return 404, {"message": "Not Found"}

    def read_ref(self, name: str, **_: Any) -> Answer:
        if not self._has(f"refs/{name}"):
            return 404, {"message": "Not Found"}
        sha = self.git("rev-parse", f"refs/{name}").decode().strip()
        return 200, {"ref": f"refs/{name}", "object": {"type": "commit", "sha": sha}}

    def create_ref(self, *, body: Any, **_: Any) -> Answer:
        if self._has(body["ref"]):
            return 422, {"message": "Reference already exists"}
        self.git("update-ref", body["ref"], body["sha"], "0" * 40)
        return 201, {"ref": body["ref"], "object": {"type": "commit", "sha": body["sha"]}}

    def put_file(self, path: str, *, body: Any, **_: Any) -> Answer:
        """Commit one file. GitHub asks for the blob that is replaced, if there is one."""
        ref, content = f"refs/heads/{body['branch']}", base64.b64decode(body["content"], validate=True)
        if not self._has(ref):
            return 404, {"message": f"Branch {body['branch']} not found"}
        old = self.git("rev-parse", f"{ref}:{path}").decode().strip() if self._has(f"{ref}:{path}") else None
        if old != body.get("sha"):
            return 422, {"message": 'Invalid request.\n\n"sha" wasn\'t supplied.'}
        return 201, {"commit": {"sha": self.commit(ref, {path: content}, body["message"])}}

    def commit(self, ref: str, files: dict[str, bytes], message: str) -> str:
        """Put files on a branch, as GitHub does for a bot: with a signature that is GitHub's, not the caller's."""
        tip = self.git("rev-parse", ref).decode().strip()
        index = self.bus / f"index-{threading.get_ident()}"
        env = ["-c", f"core.worktree={self.bus}"]
        with_index = {"PATH": "/usr/bin:/bin:/usr/local/bin", "GIT_INDEX_FILE": str(index), **WHO}

        def git(*args: str) -> str:
            done = subprocess.run(
                ["git", *env, *args], cwd=self.bus, capture_output=True, check=True, env=with_index
            )
            return done.stdout.decode().strip()

        git("read-tree", tip)
        for path, content in files.items():
            blob = self.git("hash-object", "-w", "--stdin", stdin=content).decode().strip()
            git("update-index", "--add", "--cacheinfo", f"100644,{blob},{path}")
        commit = git("commit-tree", git("write-tree"), "-p", tip, "-m", message)
        index.unlink()
        head, _, text = self.git("cat-file", "commit", commit).partition(b"\n\n")
        pgp = b"gpgsig -----BEGIN PGP SIGNATURE-----\n \n wsFcBAABCAAQBQJm\n =abcd\n -----END PGP SIGNATURE-----"
        whole = b"%s\n%s\n\n%s" % (head, pgp, text)
        signed = self.git("hash-object", "-t", "commit", "-w", "--stdin", stdin=whole).decode().strip()
        self.git("update-ref", ref, signed, tip)
        return signed

    def read_file(self, path: str, *, query: dict[str, list[str]], accept: str, **_: Any) -> Answer:
        name = f"refs/heads/{query['ref'][0]}:{path}"
        if not self._has(name):
            return 404, {"message": "Not Found"}
        content = self.git("cat-file", "blob", name)
        if accept == "application/vnd.github.raw+json":
            return 200, content
        sha = self.git("rev-parse", name).decode().strip()
        return 200, {"encoding": "base64", "content": base64.encodebytes(content).decode(), "sha": sha}

    def set_status(self, sha: str, *, body: Any, **_: Any) -> Answer:
        assert body["state"] in ("success", "failure", "error", "pending")
        assert len(body.get("description", "")) <= 140
        self.statuses.append({"sha": sha, **body})
        return 201, {}

    def list_comments(self, number: str, *, query: dict[str, list[str]], **_: Any) -> Answer:
        size, page = int(query["per_page"][0]), int(query.get("page", ["1"])[0])
        those = [comment for comment in self.comments if comment["issue"] == number]
        return 200, those[(page - 1) * size : page * size]

    def add_comment(self, number: str, *, body: Any, **_: Any) -> Answer:
        assert len(body["body"]) <= 65536
        user = {"login": "github-actions[bot]", "type": "Bot"}
        self.comments.append({"id": len(self.comments) + 1, "issue": number, "user": user, **body})
        return 201, self.comments[-1]

    def change_comment(self, number: str, *, body: Any, **_: Any) -> Answer:
        self.comments[int(number) - 1] |= body
        return 200, self.comments[int(number) - 1]


ROUTES = {
    r"GET git/ref/(.+)": HostApi.read_ref,
    r"POST git/refs": HostApi.create_ref,
    r"PUT contents/(.+)": HostApi.put_file,
    r"GET contents/(.+)": HostApi.read_file,
    r"POST statuses/([0-9a-f]{40})": HostApi.set_status,
    r"GET issues/(\d+)/comments": HostApi.list_comments,
    r"POST issues/(\d+)/comments": HostApi.add_comment,
    r"PATCH issues/comments/(\d+)": HostApi.change_comment,
}


class _Handler(BaseHTTPRequestHandler):
    api: HostApi

    def _answer(self) -> None:
        parts = urlsplit(self.path)
        raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self.headers.get("Authorization") not in (f"Bearer {TOKEN}", f"token {TOKEN}"):
            code, content = 401, {"message": "Bad credentials"}
        else:
            accept = self.headers.get("Accept", "")
            body = json.loads(raw) if raw else None
            code, content = self.api.answer(
                self.command, unquote(parts.path), parse_qs(parts.query), body, accept
            )
        data = content if isinstance(content, bytes) else json.dumps(content, indent=2).encode()
        self.send_response(code)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    do_GET = do_POST = do_PUT = do_PATCH = _answer  # noqa: N815

    def log_message(self, *args: object) -> None:
        """Say nothing."""


@contextmanager
def served(bus: Path) -> Iterator[HostApi]:
    """Serve the API of a bare repository on loopback."""
    api = HostApi(bus)
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"api": api}))
    api.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield api
    finally:
        server.shutdown()
        server.server_close()
        thread.join(5)
