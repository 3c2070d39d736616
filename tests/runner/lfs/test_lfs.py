"""Files of Git LFS in a request's tree: fetched by the runner within bounds, or named in the answer."""

from __future__ import annotations

import hashlib
import json
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace

import pytest

from bridge.bus import history
from bridge.bus.wire import State
from runner.lfs import Pointer, fill, http, message, parse_pointer
from runner.policy import Bus, Lfs
from runner.serve import watch_job
from runner.serve.lease import Lease

SPEC = "https://git-lfs.github.com/spec/v1"
CONTENT = b"weights of a model\n" * 1000
OTHER = b"more weights\n"
SECRET = "canary-lfs-token"


def pointer_to(content: bytes, *, size: int | None = None, extra: str = "") -> bytes:
    oid = hashlib.sha256(content).hexdigest()
    return (
        f"version {SPEC}\n{extra}oid sha256:{oid}\nsize {len(content) if size is None else size}\n".encode()
    )


class TestPointer:
    """The grammar, to the letter: a file that only looks like one is a file."""

    def test_a_pointer_is_read(self):
        found = parse_pointer("a", pointer_to(CONTENT))
        assert found == Pointer("a", hashlib.sha256(CONTENT).hexdigest(), len(CONTENT))
        extra = f"ext-0-foo sha256:{'1' * 64}\n"
        assert parse_pointer("a", pointer_to(CONTENT, extra=extra)).plain is False

    @pytest.mark.parametrize(
        "content",
        [
            b"",
            CONTENT,
            pointer_to(CONTENT) + b"\n",
            pointer_to(CONTENT)[:-1],
            pointer_to(CONTENT).replace(b"\n", b"\r\n"),
            pointer_to(CONTENT).upper(),
            pointer_to(CONTENT).replace(SPEC.encode(), b"https://example.com/spec/v1"),
            pointer_to(CONTENT).replace(b"size 19000", b"size -1"),
            pointer_to(CONTENT).replace(b"size 19000", b"size 019000"),
            pointer_to(CONTENT, extra=f"ext-0-{'a' * 1024} sha256:{'1' * 64}\n"),
        ],
    )
    def test_what_is_none_is_not(self, content):
        assert parse_pointer("a", content) is None


@dataclass
class Server:
    """A real LFS server on loopback, and everything that it was asked."""

    url: str = ""
    objects: dict[str, bytes] = field(default_factory=dict)
    asked: list[tuple[str, str, dict[str, str]]] = field(default_factory=list)
    # Changes an entry of the batch answer, or the whole answer to any request.
    entry: Callable[[dict], dict] = lambda entry: entry
    answer: Callable[[str], tuple[int, dict[str, str], bytes] | None] = lambda _: None
    drip: float = 0.0
    # Between two bytes of an endless header.
    drip_headers: float = 0.0
    token: str | None = None

    @property
    def origin(self) -> str:
        return self.url.rsplit("/", 1)[0]

    def href(self, content: bytes) -> str:
        return f"{self.origin}/get/{hashlib.sha256(content).hexdigest()}"

    def hold(self, *contents: bytes) -> None:
        self.objects |= {hashlib.sha256(content).hexdigest(): content for content in contents}

    def batch(self, body: bytes) -> dict:
        entries = []
        for wanted in json.loads(body)["objects"]:
            entry = dict(wanted)
            if wanted["oid"] in self.objects:
                entry["actions"] = {"download": {"href": f"{self.origin}/get/{wanted['oid']}"}}
            else:
                entry["error"] = {"code": 404, "message": "no such object"}
            entries.append(self.entry(entry))
        return {"transfer": "basic", "objects": entries}


class Handler(BaseHTTPRequestHandler):
    server_state: Server

    def do_GET(self):
        self.handle_one()

    def do_POST(self):
        self.handle_one()

    def log_message(self, *args):
        pass

    def handle_one(self):
        state = self.server_state
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        state.asked.append((self.command, self.path, {k.lower(): v for k, v in self.headers.items()}))
        status, headers, content = state.answer(self.path) or self.usual(state, body)
        try:
            if state.drip_headers:
                self.wfile.write(b"HTTP/1.1 200 OK\r\nX: ")
                while True:
                    self.wfile.write(b"x")
                    self.wfile.flush()
                    time.sleep(state.drip_headers)
            self.send_response(status)
            for key, value in {"Content-Length": str(len(content)), **headers}.items():
                self.send_header(key, value)
            self.end_headers()
            if state.drip and self.command == "GET":
                for n in range(len(content)):
                    self.wfile.write(content[n : n + 1])
                    self.wfile.flush()
                    time.sleep(state.drip)
            else:
                self.wfile.write(content)
        except (BrokenPipeError, ConnectionResetError):
            pass

    def usual(self, state, body):
        if self.path.endswith("/objects/batch"):
            if state.token and self.headers.get("Authorization") != state.token:
                return 401, {}, b"{}"
            return 200, {}, json.dumps(state.batch(body)).encode()
        content = state.objects.get(self.path.rpartition("/")[2])
        return (404, {}, b"") if content is None else (200, {}, content)


@pytest.fixture
def serve():
    running = []

    def start() -> Server:
        state = Server()
        server = ThreadingHTTPServer(("127.0.0.1", 0), type("One", (Handler,), {"server_state": state}))
        state.url = f"http://127.0.0.1:{server.server_address[1]}/bus.git"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        thread.start()
        running.append((server, thread))
        return state

    yield start
    for server, thread in running:
        server.shutdown()
        server.server_close()
        thread.join(5)


@pytest.fixture
def server(serve):
    made = serve()
    made.hold(CONTENT, OTHER)
    return made


@pytest.fixture
def tree(tmp_path):
    """Lay pointers into a tree and fill it; return what stays and what each file holds."""
    root = tmp_path / "tree"

    def laid(bus: Bus, rule: Lfs | None = None, secret=None, attend=lambda: None, **files: bytes):
        pointers = []
        for name, content in files.items():
            path = root / f"{name}.bin"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
            path.chmod(0o755)
            pointers.append(parse_pointer(f"{name}.bin", content))
        left = fill(pointers, root, bus, secret, rule or Lfs(), attend)
        assert [entry.name for entry in root.parent.iterdir() if "lfs" in entry.name] == []
        assert all(os.access(root / f"{name}.bin", os.X_OK) for name in files)
        return left, {name: (root / f"{name}.bin").read_bytes() for name in files}

    return laid


class TestBounds:
    """What the policy and the pointers allow."""

    @pytest.mark.parametrize(
        ("rule", "files", "says"),
        [
            ({"file_mb": 1}, {"a": pointer_to(CONTENT, size=(1 << 20) + 1)}, "lfs.file_mb allows 1"),
            ({"total_mb": 1}, {n: pointer_to(bytes(n, "ascii"), size=600_000) for n in "ab"}, "lfs.total_mb"),
            ({"files": 1}, {"a": pointer_to(CONTENT), "b": pointer_to(OTHER)}, "lfs.files allows 1"),
            ({}, {"a": pointer_to(CONTENT, extra=f"ext-0-x sha256:{'1' * 64}\n")}, "an extension of git-lfs"),
            ({}, {"a": pointer_to(CONTENT), "b": pointer_to(CONTENT, size=3)}, "disagree about its size"),
            ({}, {"a": pointer_to(CONTENT, size=len(CONTENT) - 1)}, "larger than the pointer says"),
        ],
        ids=["file", "total", "files", "extension", "two sizes", "longer"],
    )
    def test_bounds_hold(self, server, tree, rule, files, says):
        # As large as the pointer says.
        server.entry = lambda entry: {**entry, "actions": {"download": {"href": server.href(CONTENT)}}}
        left, found = tree(Bus(url=server.url), Lfs(**rule), **files)
        assert set(left) == {f"{name}.bin" for name in files}
        assert all(says in why for why in left.values())
        assert found == files

    def test_without_the_section_nothing_is_fetched(self, server, tmp_path):
        pointers = [parse_pointer(f"{n}.bin", pointer_to(OTHER)) for n in range(9)]
        left = fill(pointers, tmp_path, Bus(url=server.url), None, None, lambda: None)
        assert server.asked == []
        said = message(left)
        assert said.startswith("9 files are pointers of Git LFS")
        assert "0.bin, 1.bin, 2.bin, 3.bin, 4.bin and 4 more" in said
        assert "with lfs in the policy" in said


# Where a request goes, how it is framed, who it is said to come from, and what is to come back.
STEERING = [
    "Host", "Content-Length", "Transfer-Encoding", "Connection", "TE", "Upgrade", "Expect", "Range", "Cookie",
    "Proxy-Authorization", "Forwarded", "X-Forwarded-Host", "x-forwarded-for", "X-HTTP-Method-Override",
    "X-Original-URL", "X-Rewrite-URL", "X-Real-IP", "X-Host", "Accept-Encoding", "Content-Type", "User-Agent", "X-",
    "X_Y", "x-\u00e4",
]  # fmt: skip


@pytest.mark.parametrize("name", STEERING)
def test_row_127_no_server_chooses_a_header_that_steers_a_request(server, tree, name):
    headers = {"header": {name: "1"}}
    server.entry = lambda entry: entry | {"actions": {"download": entry["actions"]["download"] | headers}}

    left, _ = tree(Bus(url=server.url), a=pointer_to(CONTENT))

    assert "headers that cannot be sent" in left["a.bin"]
    assert [asked[0] for asked in server.asked] == ["POST"]


class TestHttp:
    """The batch API, against a real server."""

    def test_objects_come_with_the_bus_s_secret_to_its_own_server(self, server, tree):
        import base64  # noqa: PLC0415 - used here alone

        server.token = "Basic " + base64.b64encode(f"x-access-token:{SECRET}".encode()).decode()
        left, found = tree(Bus(url=server.url), secret=SECRET, a=pointer_to(CONTENT), b=pointer_to(OTHER))
        assert (left, found) == ({}, {"a": CONTENT, "b": OTHER})
        method, path, headers = server.asked[0]
        assert (method, path) == ("POST", "/bus.git/info/lfs/objects/batch")
        assert headers["accept"] == headers["content-type"] == "application/vnd.git-lfs+json"
        assert all(asked[2]["authorization"] == server.token for asked in server.asked)

    def test_an_object_with_two_pointers_is_fetched_once(self, server, tree):
        left, contents = tree(Bus(url=server.url), a=pointer_to(CONTENT), b=pointer_to(CONTENT))
        assert (left, contents) == ({}, {"a": CONTENT, "b": CONTENT})
        assert [asked[0] for asked in server.asked] == ["POST", "GET"]

    def test_a_token_in_netrc_is_sent_to_nobody(self, server, tree):
        netrc = Path.home() / ".netrc"
        netrc.write_text(f"machine 127.0.0.1 login a password {SECRET}\n")
        netrc.chmod(0o600)
        assert tree(Bus(url=server.url), a=pointer_to(CONTENT))[0] == {}
        assert all("authorization" not in asked[2] for asked in server.asked)

    def test_another_server_is_asked_only_if_the_policy_names_it_and_sees_no_secret(
        self, server, serve, tree
    ):
        other = serve()
        other.hold(CONTENT)
        host = other.origin.removeprefix("http://")

        def elsewhere(entry):
            href = f"{other.origin}/get/{entry['oid']}"
            return entry | {"actions": {"download": {"href": href, "header": {"X-Signed": "yes"}}}}

        server.entry = elsewhere
        left, _ = tree(Bus(url=server.url), secret=SECRET, a=pointer_to(CONTENT))
        assert "which lfs.hosts in the policy does not name" in left["a.bin"]
        assert other.asked == []
        left, found = tree(Bus(url=server.url), Lfs(hosts=[host]), secret=SECRET, a=pointer_to(CONTENT))
        assert (left, found["a"]) == ({}, CONTENT)
        assert other.asked[0][2]["x-signed"] == "yes"
        assert "authorization" not in other.asked[0][2]

    def test_a_redirect_is_not_followed(self, server, serve, tree):
        other = serve()
        other.hold(CONTENT)
        server.answer = lambda path: (
            (302, {"Location": f"{other.origin}{path}"}, b"") if path.startswith("/get/") else None
        )
        left, _ = tree(Bus(url=server.url), Lfs(hosts=["127.0.0.1"]), secret=SECRET, a=pointer_to(CONTENT))
        assert left["a.bin"] == "the server answered 302, and redirects are not followed"
        assert other.asked == []

    ENTRIES = (
        (lambda e: e | {"size": 1}, "another size"),
        (lambda e: {"oid": e["oid"], "size": e["size"]}, "does not have it"),
        (lambda e: e | {"actions": {"download": {"href": "http://example.invalid/x"}}}, "not https"),
        (lambda e: e | {"actions": {"download": {"href": "file:///etc/passwd"}}}, "not https"),
        (lambda e: e | {"actions": {"download": {"href": "https://example.invalid/x"}}}, "does not name"),
        (lambda e: e | {"actions": {"download": {"href": "http://a:b@127.0.0.1/x"}}}, "holds a user"),
        (lambda e: e | {"actions": {"download": {"href": "http://127.0.0.1:x/"}}}, "an invalid address"),
        (lambda e: e | {"error": {"code": 410, "message": "gone\x1b[31m"}}, "gone\\x1b"),
        (lambda e: {"oid": e["oid"]}, "not that of an LFS server"),
        (lambda _: [], "not that of an LFS server"),
        (
            lambda e: e | {"actions": {"download": {**e["actions"]["download"], "header": {"a\nb": "c"}}}},
            "headers that cannot be sent",
        ),
        (
            lambda e: (
                e | {"actions": {"download": {**e["actions"]["download"], "header": {"a": "b\r\nc: d"}}}}
            ),
            "headers that cannot be sent",
        ),
    )

    @pytest.mark.parametrize(
        "name", ["Authorization", "authorization", "X-Amz-Date", "x-ms-version", "X-Goog-Hash"]
    )
    def test_headers_that_storage_services_sign_are_sent(self, server, tree, name):
        server.entry = lambda e: (
            e | {"actions": {"download": {**e["actions"]["download"], "header": {name: "1"}}}}
        )
        left, found = tree(Bus(url=server.url), a=pointer_to(CONTENT))
        assert (left, found["a"]) == ({}, CONTENT)
        assert server.asked[-1][2][name.lower()] == "1"

    def test_a_cookie_goes_nowhere(self, server, tree):
        usual = server.answer

        def baking(path):
            body = json.dumps(server.batch(server.last)).encode() if path.endswith("/batch") else None
            return (200, {"Set-Cookie": "a=b; Path=/"}, body) if body else usual(path)

        server.last = json.dumps(
            {"objects": [{"oid": hashlib.sha256(CONTENT).hexdigest(), "size": len(CONTENT)}]}
        ).encode()
        server.answer = baking
        left, found = tree(Bus(url=server.url), a=pointer_to(CONTENT))
        assert (left, found["a"]) == ({}, CONTENT)
        assert all("cookie" not in asked[2] for asked in server.asked)

    @pytest.mark.parametrize(("entry", "says"), ENTRIES)
    def test_what_the_server_says_is_judged(self, server, tree, entry, says):
        server.entry = entry
        left, found = tree(Bus(url=server.url), a=pointer_to(CONTENT))
        assert says in left["a.bin"]
        assert found["a"] == pointer_to(CONTENT)
        assert not any(path.startswith("/get/") for _, path, _ in server.asked)

    @pytest.mark.parametrize(
        ("status", "body", "says"),
        [
            (404, b"", "answered 404"),
            (200, b"<html>", "not that of an LFS server"),
            (200, b"[" * 1000, "not that of an LFS server"),
            (200, b'"' + b"x" * (5 << 20) + b'"', "too long"),
        ],
    )
    def test_an_answer_of_another_kind_leaves_the_pointers(self, server, tree, status, body, says):
        server.answer = lambda _: (status, {}, body)
        left, _ = tree(Bus(url=server.url), a=pointer_to(CONTENT))
        assert says in left["a.bin"]

    @pytest.mark.parametrize("sent", [CONTENT[:-1], CONTENT + b"x", CONTENT[:-1] + b"X"])
    def test_content_that_is_not_what_was_promised_is_not_taken(self, server, tree, sent):
        server.objects[hashlib.sha256(CONTENT).hexdigest()] = sent
        left, found = tree(Bus(url=server.url), a=pointer_to(CONTENT))
        assert set(left) == {"a.bin"}
        assert found["a"] == pointer_to(CONTENT)

    def test_a_server_that_drips_is_left_when_the_time_is_over(self, server, tree):
        server.drip = 0.05
        start = time.monotonic()
        left, _ = tree(Bus(url=server.url), Lfs(timeout_s=1), a=pointer_to(CONTENT))
        assert "lfs.timeout_s, 1 s" in left["a.bin"]
        assert time.monotonic() - start < 60  # as a whole it would take 16 minutes

    def test_a_server_whose_headers_drip_is_left_and_its_connection_forgotten(
        self, server, tree, monkeypatch
    ):
        monkeypatch.setattr(http, "HEADERS_S", 1)
        server.drip_headers = 0.2
        start = time.monotonic()
        left, _ = tree(Bus(url=server.url), Lfs(timeout_s=60), a=pointer_to(CONTENT))
        assert "did not begin its answer within 1 s" in left["a.bin"]
        assert time.monotonic() - start < 50  # as a whole it would take 16 minutes

    def test_so_many_dripping_servers_are_waited_for_and_no_more(self, server, tree, monkeypatch):
        monkeypatch.setattr(http, "WAITING", threading.BoundedSemaphore(1))
        http.WAITING.acquire()
        left, _ = tree(Bus(url=server.url), a=pointer_to(CONTENT))
        assert "too many requests wait" in left["a.bin"]

    def test_whoever_attends_may_end_it(self, server, tree):
        def attend() -> None:
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            tree(Bus(url=server.url), attend=attend, a=pointer_to(CONTENT))

    def test_a_server_that_is_not_there_leaves_the_pointers(self, tree):
        left, _ = tree(Bus(url="http://127.0.0.1:9/bus.git"), a=pointer_to(CONTENT))
        assert "the request to the server failed" in left["a.bin"]


@pytest.mark.parametrize(
    "url", ["ssh://git@127.0.0.1:2222/srv/a.git", "git@127.0.0.1:a.git", "/srv/a.git", "file:///srv/a.git"]
)
def test_over_no_other_transport_pointers_are_filled_and_the_answer_says_so(tree, url):
    left, _ = tree(Bus(url=url), a=pointer_to(CONTENT))
    assert "over HTTPS only" in left["a.bin"]


class TestJob:
    """The job sees files, or is not run and says which are none."""

    ALLOW = {"trust": {"code_request": "allow"}}  # noqa: RUF012

    @pytest.fixture
    def ask(self, host, requester, presets, ran, serve, monkeypatch):
        presets(show={"code": "request", "steps": [{"argv": ["/bin/cp", "data/big.bin", str(ran)]}]})

        server = serve()
        monkeypatch.setattr(http, "endpoint_of", lambda _bus: f"{server.url}/info/lfs")

        def send(*there: bytes, **policy):
            server.hold(*there)
            files = {"data/big.bin": pointer_to(CONTENT), "other.bin": pointer_to(OTHER)}
            branch = requester.send(requester.manifest("show", code="request"), files=files)
            return host.answer(branch, **self.ALLOW, **policy)

        return send

    def test_by_default_the_pointers_are_named_and_nothing_runs(self, ask, host):
        result = ask()
        assert (result.state, result.reason.code, result.commands) == (State.FAILED, "lfs_pointers", [])
        assert "data/big.bin, other.bin" in result.reason.message
        assert not host.ran.exists()

    def test_allowed_by_the_policy_the_job_sees_the_content(self, ask, host):
        assert ask(CONTENT, OTHER, lfs={}).state is State.SUCCEEDED
        assert host.ran.read_bytes() == CONTENT

    def test_one_that_stays_fails_the_job(self, ask, host):
        result = ask(CONTENT, lfs={})
        assert (result.state, result.reason.code) == (State.FAILED, "lfs_pointers")
        assert result.reason.message.startswith(
            "1 file is a pointer of Git LFS and not the content: other.bin"
        )
        assert not host.ran.exists()

    def test_a_job_of_installed_code_does_not_look(self, host, requester):
        branch = requester.send(requester.manifest(), files={"other.bin": pointer_to(OTHER)})
        assert host.answer(branch).state is State.SUCCEEDED


class TestAttendant:
    """While files are fetched the claim is kept alive, and the job can be ended."""

    @pytest.fixture
    def pass_by(self, monkeypatch):
        """Move the clock by which claims are kept alive; it stands otherwise, however slow this machine is."""
        now = 1000.0

        def pass_by(seconds):
            nonlocal now
            now += seconds

        monkeypatch.setattr(watch_job, "time", SimpleNamespace(monotonic=lambda: now))
        return pass_by

    @pytest.fixture
    def attended(self, host, requester, pass_by):  # noqa: ARG002 - by this clock the lease is kept alive
        name = requester.send(requester.manifest())
        with host.context(bus={"lease_s": 60}) as context:
            branch = history.read_branch(context.bus.git, name, context.bus.tip(name))
            lease = Lease(context.author, branch)
            lease.advance(State.CLAIMED)
            yield (
                context,
                lease,
                watch_job.Keepalive(
                    context.process,
                    context.forwarder,
                    context.others,
                    context.policy,
                    lease,
                    "files of Git LFS are being fetched",
                ).check,
            )

    def test_a_third_of_a_lease_later_the_branch_says_what_is_done(self, attended, pass_by, git, bus):
        _, lease, beat = attended
        claimed = lease.tip
        pass_by(19)
        beat()
        assert lease.tip == claimed
        pass_by(1)
        beat()
        state = json.loads(git(bus, "show", f"{lease.branch}:.mac-bridge/state.json"))
        assert (state["state"], state["detail"]) == ("running", "files of Git LFS are being fetched")

    def test_a_runner_that_stops_hands_the_job_back(self, attended):
        context, _, beat = attended
        context.process.stop.set()
        with pytest.raises(watch_job.RunStopped) as caught:
            beat()
        assert caught.value.reason is watch_job.StopReason.STOPPING

    def test_a_requester_who_pushes_again_ends_it(self, attended, pass_by, requester):
        _, lease, beat = attended
        requester.git("fetch", "--quiet", "origin", lease.branch)
        requester.push(requester.commit({"more": b"x"}, lease.tip), lease.branch)
        pass_by(0.5)
        with pytest.raises(watch_job.RunStopped) as caught:
            beat()
        assert caught.value.reason is watch_job.StopReason.SUPERSEDED
