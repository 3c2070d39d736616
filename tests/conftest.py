"""What every test stands on: a temporary home, no network, real git, real runner processes."""

from __future__ import annotations

import base64
import gc
import hashlib
import json
import os
import shutil
import signal
import struct
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import import_module
from itertools import count
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import yaml

from bridge.bus import objects, wire
from bridge.client import Client, Run
from bridge.system.git import Git
from runner.bus.stale_files import end_orphans
from runner.context import RunnerContext, open_runner
from runner.policy import load_policy
from runner.serve.compose import Composer
from runner.state import signing_key
from tests import programs, properties

properties.load_profile()

# pytest keeps test files with rewritten assertions, which takes twice as long as all the rest of collecting. Keep them
# also where Python is told to keep no byte code.
sys.dont_write_bytecode = False

_TESTS = Path(__file__).parent
_rewriters: list[int] = []


def pytest_configure(config: pytest.Config) -> None:
    """On a fresh checkout, let a second process rewrite the assertions of the last test files meanwhile."""
    is_shared = "PYTEST_XDIST_WORKER" in os.environ or config.getoption("numprocesses", None)
    if is_shared or sys.platform != "linux" or any(_TESTS.glob("*/__pycache__")):
        return
    if process := os.fork():
        _rewriters.append(process)
        return
    for path in sorted(_TESTS.rglob("test_*.py"), reverse=True):
        with suppress(BaseException):  # also what skips a whole file
            import_module(".".join(path.relative_to(_TESTS.parent).with_suffix("").parts))
    os._exit(0)


# Nothing that is collected goes before the end: see pytest_collection_finish.
gc.disable()

if "PYTEST_XDIST_WORKER" in os.environ:
    # The workers share the processors already, and threads that wait for each other take turns from the others: MLX
    # would take a tenth more with its BLAS, and torch half more.
    for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):
        os.environ.setdefault(name, "1")

# A shell that starts the tests in the background lets them ignore ^C, and all that they start as well.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


# The table of attacks takes minutes, and is long as a whole.
_ATTACKS = _TESTS / "attacks"


@pytest.hookimpl(tryfirst=True)  # before -m looks at the markers
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give each worker of pytest-xdist its share of the long tests, at the beginning, so that none starts last.

    Files with tests that may take longest, by their time limits, come first. `--dist worksteal` cuts the list into one
    piece a worker. What a file sets up once stays with one worker.
    """
    _mark_rows(items)
    for item in items:
        if item.path.parent == _ATTACKS:
            item.add_marker(pytest.mark.long)
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    long = [item for item in items if item.get_closest_marker("long")]
    rest = [item for item in items if not item.get_closest_marker("long")]
    limit_s: dict[Path, float] = {}
    for item in long:
        marker = item.get_closest_marker("timeout")
        limit_s[item.path] = max(limit_s.get(item.path, 0.0), marker.args[0] if marker else 0.0)
    files = sorted(limit_s, key=limit_s.__getitem__, reverse=True)
    ordered: list[pytest.Item] = []
    for worker in range(workers):
        own = {*files[worker::workers]}
        share = [item for item in long if item.path in own]
        piece = (len(items) - len(ordered)) // (workers - worker)
        filling = max(0, piece - len(share))
        ordered += share + rest[:filling]
        del rest[:filling]
    items[:] = ordered


def _mark_rows(items: list[pytest.Item]) -> None:
    """Mark as long what follows the first rows of a test with the marker `rows`: `make test` runs only those."""
    met: Counter[str] = Counter()
    for item in items:
        if marker := item.get_closest_marker("rows"):
            test = item.nodeid.partition("[")[0]
            met[test] += 1
            if met[test] > marker.args[0]:
                item.add_marker("long")


def pytest_collection_finish(session: pytest.Session) -> None:
    """Keep the garbage collector from what lives to the end: thousands of tests, and all modules that they import.

    It would walk through them again and again, which took half of the time of what makes many objects.
    """
    for process in _rewriters:
        os.kill(process, signal.SIGKILL)
        os.waitpid(process, 0)
    gc.freeze()
    gc.enable()


@pytest.fixture(scope="session")
def _homes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Return a new empty folder at each `next`: pytest's own search for a free name takes longer with each test."""
    folder = tmp_path_factory.mktemp("homes")
    return (folder / str(number) for number in count())


@pytest.fixture(autouse=True)
def _own_home(_homes: Iterator[Path], monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give each test a home of its own, and git no configuration but this."""
    home = next(_homes)
    home.mkdir()
    move_in(home, monkeypatch)
    return home


def move_in(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make a folder the home of this process, with nothing of the real one's settings."""
    for name in list(os.environ):
        if name.startswith(("GIT_", "KAKEYA_", "GITHUB_", "GH_", "XDG_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    (home / ".gitconfig").write_text(
        "[user]\n\tname = A Tester\n\temail = tester@example.invalid\n[init]\n\tdefaultBranch = main\n"
        '[protocol "file"]\n\tallow = always\n[advice]\n\tdetachedHead = false\n'
    )


def git(where: Path, *args: str, stdin: str | None = None) -> str:
    """Run git as a user would and return what it printed."""
    done = subprocess.run(["git", *args], cwd=where, input=stdin, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"git {' '.join(args)}: {done.stderr}"
    return done.stdout.strip()


@pytest.fixture(name="git")
def _git() -> Callable[..., str]:
    return git


@pytest.fixture(scope="session")
def _repositories(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bus with one commit on main and a clone of it, made once: copying them is ten times as fast as git is."""
    folder = tmp_path_factory.mktemp("repositories")
    bus, seed = folder / "bus.git", folder / "seed"
    for path in (folder / "template" / "hooks", folder / "template" / "info", seed / "tests"):
        path.mkdir(parents=True)
    (seed / "readme.txt").write_text("a workload\n")
    (seed / "tests" / "test_ok.py").write_text("def test_ok():\n    assert True\n")
    with pytest.MonkeyPatch.context() as patch:
        move_in(folder, patch)
        # Without the examples of hooks that git comes with.
        patch.setenv("GIT_TEMPLATE_DIR", str(folder / "template"))
        git(folder, "init", "--quiet", "--bare", str(bus))
        # Otherwise git looks after each push whether there is anything to clean up.
        git(bus, "config", "receive.autogc", "false")
        git(folder, "init", "--quiet", str(seed))
        git(seed, "add", "--all")
        git(seed, "commit", "--quiet", "-m", "A workload")
        git(seed, "push", "--quiet", str(bus), "HEAD:refs/heads/main")
        git(folder, "clone", "--quiet", str(bus), "clone")
    return folder


@pytest.fixture
def bus(_repositories: Path, tmp_path: Path) -> Path:
    """A bare repository with one commit on main, as the remote that both sides push to."""
    path = tmp_path / "bus.git"
    shutil.copytree(_repositories / "bus.git", path)
    return path


@pytest.fixture
def clone(_repositories: Path, bus: Path, tmp_path: Path) -> Path:
    """A clone of the bus, where a requester works."""
    path = tmp_path / "clone"
    shutil.copytree(_repositories / "clone", path)
    config = path / ".git" / "config"
    config.write_text(config.read_text().replace(str(_repositories / "bus.git"), str(bus)))
    # The index notes which file on the disk it saw, and these are others.
    git(path, "update-index", "--refresh")
    return path


@pytest.fixture
def client(clone: Path) -> Client:
    """A client in the clone."""
    return Client(clone)


@dataclass
class RunnerProcess:
    """A real `kakeya-runner serve`, and what it said."""

    policy: Path
    process: programs.Program | subprocess.Popen[bytes]
    log: Path

    def said(self) -> str:
        """Return everything that it printed."""
        return self.log.read_text(errors="replace")

    def stop(self, signum: int = signal.SIGTERM, timeout: float = 120) -> int:
        """Send a signal and wait for the end."""
        if self.process.poll() is None:
            self.process.send_signal(signum)
        return self.process.wait(timeout)


@dataclass
class Runners:
    """Starts runners on one bus; what is left is killed at the end of the test."""

    folder: Path
    bus: str
    started: list[RunnerProcess] = field(default_factory=list)

    def policy(self, name: str = "one", **overrides: object) -> Path:
        """Write a policy and return its path. `overrides` replace top-level keys; `bus` is merged."""
        path = self.folder / f"{name}.yaml"
        settings: dict[str, object] = {
            "schema_version": 1,
            "id": name,
            "state": str(self.folder / f"state-{name}"),
            "interpreter": sys.executable,
            # Tests see what a job did by the files that it leaves outside its workspace.
            "sandbox": "off",
            **{key: value for key, value in overrides.items() if key != "bus"},
            # With the default of six pushes a minute, logs would stream too slowly for tests of other things.
            "bus": {"url": self.bus, "pushes_per_minute": 600, **dict(overrides.get("bus", {}))},  # type: ignore[call-overload]
        }
        path.write_text(yaml.safe_dump(settings))
        return path

    def launch(self, name: str = "one", *, args: tuple[str, ...] = (), **overrides: object) -> RunnerProcess:
        """Start a runner and return at once."""
        policy = self.policy(name, **overrides)
        log = self.folder / f"{name}-{len(self.started)}.log"
        with log.open("wb") as out:
            process = programs.start("--policy", policy, "serve", *args, out=out, cwd=self.folder)
        runner = RunnerProcess(policy, process, log)
        self.started.append(runner)
        return runner

    def start(self, name: str = "one", *, args: tuple[str, ...] = (), **overrides: object) -> RunnerProcess:
        """Start a runner and return once it serves."""
        runner = self.launch(name, args=args, **overrides)
        process = runner.process
        wait_for(lambda: "serving" in runner.said() or process.poll() is not None)
        assert process.poll() is None, runner.said()
        return runner


@pytest.fixture
def runners(tmp_path: Path, bus: Path) -> Iterator[Runners]:
    """Start real runner processes on the bus."""
    folder = tmp_path / "runners"
    folder.mkdir()
    made = Runners(folder, str(bus))
    yield made
    for runner in made.started:
        if runner.process.poll() is None:
            runner.process.kill()
        runner.process.wait(60)
    if made.started:
        end_orphans(*folder.glob("*/store.git"))


def wait_for(condition: Callable[[], object], timeout: float = 120.0) -> None:
    """Wait until a condition holds. Fails the test where it does not in time, also on a busy machine."""
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)


@pytest.fixture(name="wait_for")
def _wait_for() -> Callable[..., None]:
    return wait_for


@pytest.fixture
def presets(tmp_path: Path) -> Callable[..., Path]:
    """Write presets of a test's own into a folder and return it."""
    folder = tmp_path / "presets"
    folder.mkdir()

    def write(**bodies: dict[str, object]) -> Path:
        for name, body in bodies.items():
            called = name.replace("_", "-")
            content = {
                "name": called,
                "description": "for a test",
                "code": "installed",
                "timeout_s": 60,
                **body,
            }
            (folder / f"{called}.yaml").write_text(yaml.safe_dump(content))
        return folder

    return write


def files_of(repository: Path, commit: str) -> dict[str, str]:
    """Return every file in a commit by path."""
    names = git(repository, "ls-tree", "-r", "--name-only", commit).splitlines()
    return {name: git(repository, "show", f"{commit}:{name}") for name in names}


@pytest.fixture(name="files_of")
def _files_of() -> Callable[..., dict[str, str]]:
    return files_of


@pytest.fixture
def user_git(clone: Path) -> Git:
    """Our own door to git, in the clone."""
    return Git.of_user(clone)


@dataclass
class Keyed:
    """A runner in this process that signs what it answers."""

    runners: Runners
    told: list[str] = field(default_factory=list)

    def key(self, name: str = "one") -> Path:
        """Return the public key file of the runner `name`, made at the first call."""
        state = self.runners.folder / f"state-{name}"
        if not (state / signing_key.PUBLIC).exists():
            signing_key.make_key(state)
        return state / signing_key.PUBLIC

    @contextmanager
    def context(self, name: str = "one", **policy: object) -> Iterator[RunnerContext]:
        """Open the context of the runner `name`."""
        with open_runner(load_policy(self.runners.policy(name, **policy)), self.told.append) as context:
            yield context

    def handle(self, name: str = "one", *, signed: bool = True, **policy: object) -> None:
        """Let the runner `name` handle whatever there is."""
        if signed:
            self.key(name)
        with self.context(name, **policy) as context:
            poller = Composer(context).poller()
            while poller.poll():
                pass


@pytest.fixture
def keyed(runners: Runners) -> Keyed:
    """A runner in this process that signs what it answers."""
    return Keyed(runners)


@dataclass
class Forger:
    """Someone who may push to the bus, and puts there what a runner never said."""

    bus: Path

    @property
    def git(self) -> Git:
        return Git.isolated(self.bus)

    def tip(self, branch: str) -> str:
        return git(self.bus, "rev-parse", f"refs/heads/{branch}")

    def read(self, branch: str, path: str) -> bytes:
        blob = objects.read_blob(self.git, f"refs/heads/{branch}", path, max_bytes=1 << 26)
        assert blob is not None, path
        return blob

    def put(self, branch: str, files: Mapping[str, bytes | None], *parents: str) -> str:
        """Set a branch to an answer like the one on it, with other files; by default in that one's place."""
        tip = self.tip(branch)
        tree = objects.overlay(self.git, f"{tip}^{{tree}}", files)
        upon = parents or tuple(objects.parents_of(self.git, tip))
        who = objects.Identity("A Forger", "forger@example.invalid")
        commit = objects.commit(self.git, tree, upon, "an answer\n", who)
        git(self.bus, "update-ref", f"refs/heads/{branch}", commit)
        return commit

    def rewrite(self, branch: str, content: Mapping[str, bytes] | None = None, /, **fields: object) -> None:
        """Change files and fields of a result so that everything in it still agrees."""
        result = json.loads(self.read(branch, wire.RESULT))
        for path, data in (content or {}).items():
            digest = hashlib.sha256(data).hexdigest()
            for about in result["files"]:
                if about["path"] == path:
                    about |= {"sha256": digest, "size": len(data)}
            for log in result["logs"]:
                if log["path"] == path:
                    log |= {"stream_sha256": digest, "stream_bytes": len(data), "kept_bytes": len(data)}
        self.put(branch, {**(content or {}), wire.RESULT: json.dumps(result | fields).encode()})


@pytest.fixture
def forger(bus: Path) -> Forger:
    """Someone who may push to the bus."""
    return Forger(bus)


@dataclass
class HttpBus:
    """The bus over smart HTTP on loopback, and whatever else a test lets the same server answer."""

    root: Path
    url: str = ""
    # Where set, every request must carry it as the password of Basic authentication.
    token: str | None = None
    # What was asked for, in order: method, path with query, headers.
    requests: list[tuple[str, str, dict[str, str]]] = field(default_factory=list)
    # Answers paths that begin with /api/: from (path with query, headers) to (status, headers, body).
    api: Callable[[str, dict[str, str]], tuple[int, dict[str, str], bytes]] | None = None
    # An answer to a request that names one of these objects stops before its end until the event is set.
    held: dict[str, threading.Event] = field(default_factory=dict)
    # Folders with copies of the bus, from which all but pushes are answered, by turns.
    copies: list[Path] = field(default_factory=list)
    # Called after each push, with its path: true hangs up without a reply. It may also change what is served next.
    loses_reply: Callable[[str], bool] = lambda _: False

    @contextmanager
    def lagging(self, *lags_s: float) -> Iterator[None]:
        """Answer readers from copies of the bus that are brought up to date every so many seconds; 0: from itself."""
        stop = threading.Event()
        bus = self.root / urlsplit(self.url).path.strip("/")
        threads = []
        for i, lag_s in enumerate(lags_s):
            folder = self.root / f"copy-{i}" if lag_s else self.root
            self.copies.append(folder)
            if lag_s:
                shutil.copytree(bus, folder / bus.name)
                update = ("git", "fetch", "--quiet", "--prune", str(bus), "+refs/*:refs/*")

                def follow(copy: Path = folder / bus.name, lag_s: float = lag_s) -> None:
                    while not stop.wait(lag_s):
                        subprocess.run(update, cwd=copy, capture_output=True, check=False)  # noqa: B023

                threads.append(threading.Thread(target=follow, daemon=True))
                threads[-1].start()
        try:
            yield
        finally:
            stop.set()
            for thread in threads:
                thread.join(60)
            self.copies.clear()

    @property
    def origin(self) -> str:
        """The server's address without a path."""
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.netloc}"

    def url_with(self, token: str) -> str:
        """Return the URL with a token in it, as CI systems write it."""
        return self.url.replace("://", f"://x-access-token:{token}@", 1)


class _GitHandler(BaseHTTPRequestHandler):
    """`git http-backend` behind Python's own server."""

    protocol_version = "HTTP/1.1"
    bus: HttpBus

    def do_GET(self) -> None:
        """Answer discovery, and the API of a test."""
        self._answer()

    def do_POST(self) -> None:
        """Answer a fetch or a push."""
        self._answer()

    def log_message(self, *args: object) -> None:
        """Say nothing."""

    def _answer(self) -> None:
        body = self._body()
        headers = {key.lower(): value for key, value in self.headers.items()}
        self.bus.requests.append((self.command, self.path, headers))
        if self.bus.api and self.path.startswith("/api/"):
            return self._send(*self.bus.api(self.path, headers))
        if self.bus.token and not self._is_authorized():
            return self._send(401, {"WWW-Authenticate": 'Basic realm="bus"'}, b"who are you?")
        path, _, query = self.path.partition("?")
        root = self.bus.root
        if self.bus.copies and "git-receive-pack" not in self.path:
            root = self.bus.copies[len(self.bus.requests) % len(self.bus.copies)]
        env = {
            "PATH": os.environ["PATH"],
            "GIT_PROJECT_ROOT": str(root),
            "GIT_HTTP_EXPORT_ALL": "1",
            "GIT_CONFIG_NOSYSTEM": "1",
            "HOME": str(self.bus.root),
            "PATH_INFO": path,
            "QUERY_STRING": query,
            "REQUEST_METHOD": self.command,
            "CONTENT_TYPE": headers.get("content-type", ""),
            "CONTENT_LENGTH": str(len(body)),
            "HTTP_CONTENT_ENCODING": headers.get("content-encoding", ""),
            "GIT_PROTOCOL": headers.get("git-protocol", ""),
            "REMOTE_ADDR": "127.0.0.1",
            # Whoever has a name may push.
            "REMOTE_USER": "tester",
        }
        done = subprocess.run(["git", "http-backend"], env=env, input=body, capture_output=True, check=False)
        if self.command == "POST" and path.endswith("/git-receive-pack") and self.bus.loses_reply(path):
            self.close_connection = True
            return None
        head, _, content = done.stdout.partition(b"\r\n\r\n")
        fields = dict(line.split(": ", 1) for line in head.decode().splitlines() if ": " in line)
        status = int(fields.pop("Status", "200").split()[0]) if head else 500
        held = next((event for oid, event in self.bus.held.items() if oid.encode() in body), None)
        return self._send(status, fields, content, held)

    def _is_authorized(self) -> bool:
        kind, _, pair = self.headers.get("Authorization", "").partition(" ")
        return kind == "Basic" and base64.b64decode(pair).decode().partition(":")[2] == self.bus.token

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        chunks = []
        while size := int(self.rfile.readline().split(b";")[0], 16):
            chunks.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(chunks)

    def _send(
        self, status: int, fields: dict[str, str], content: bytes, held: threading.Event | None = None
    ) -> None:
        try:
            self.send_response(status)
            for key, value in fields.items():
                self.send_header(key, value)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            if held:
                self.wfile.write(content[:-30])
                held.wait(60)
                content = content[-30:]
            self.wfile.write(content)
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True


@pytest.fixture
def http_bus(bus: Path) -> Iterator[HttpBus]:
    """Serve the bus over smart HTTP on loopback; pushes are taken. Set `token` to ask for one."""
    made = HttpBus(bus.parent)
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_GitHandler,), {"bus": made}))
    made.url = f"http://127.0.0.1:{server.server_address[1]}/{bus.name}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    yield made
    server.shutdown()
    server.server_close()
    thread.join(5)


@dataclass
class Signers:
    """SSH keys of requesters, and a host's list of those that it trusts."""

    folder: Path

    @property
    def file(self) -> Path:
        return self.folder / "allowed_signers"

    def key(self, name: str) -> Path:
        """Return the private key of that name, made at the first call."""
        path = self.folder / name
        if not path.exists():
            assert shutil.which("ssh-keygen"), (
                "these tests need OpenSSH's client: ssh-keygen is not on the PATH"
            )
            argv = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", name, "-f", str(path)]
            subprocess.run(argv, check=True)
        return path

    def allow(self, *names: str, options: str = 'namespaces="git"', principal: str | None = None) -> Path:
        """Write the list anew, with these keys under `<name>@example.invalid`."""
        lines = []
        for name in names:
            key = " ".join(self.key(name).with_suffix(".pub").read_text().split()[:2])
            lines.append(f"{principal or name + '@example.invalid'} {options} {key}\n")
        self.file.write_text("".join(lines))
        self.file.chmod(0o644)
        return self.file


@pytest.fixture
def signers(tmp_path: Path) -> Signers:
    """Alice is on the host's list."""
    made = Signers(tmp_path / "signers")
    made.folder.mkdir()
    made.allow("alice")
    return made


@dataclass
class Trusting:
    """A host that runs the code of those it trusts, and a requester with keys."""

    client: Client
    keyed: Keyed
    signers: Signers
    forger: Forger
    folder: Path
    ran: Path

    def policy(self, **trust: object) -> dict[str, object]:
        """Return a policy under which signed code runs, with changes to its `trust`."""
        rules = {"code_request": "signed", "allowed_signers": str(self.signers.file)} | trust
        return {"preset_folder": str(self.folder), "trust": {k: v for k, v in rules.items() if v is not None}}

    def ask(self, signed_by: str | None = None, preset: str = "here") -> Run:
        """Send a request for the requester's own code, perhaps signed."""
        if signed_by:
            self.client.git("config", "user.signingkey", f"{self.signers.key(signed_by)}.pub")
        return self.client.run(preset, sign=bool(signed_by))

    def answer(self, run: Run, **trust: object) -> wire.Result | None:
        """Let the host handle what there is and return the answer to a request, if it got one."""
        self.keyed.handle(**self.policy(**trust))
        return self.result(run)

    def result(self, run: Run) -> wire.Result | None:
        blob = objects.read_blob(
            self.forger.git, f"refs/heads/{run.branch}", wire.RESULT, max_bytes=wire.MAX_RESULT
        )
        return wire.parse_result(blob) if blob else None

    def refused(self, run: Run, **trust: object) -> str:
        """Let the host handle a request, see that it refuses it and ran nothing, and return why."""
        result = self.answer(run, **trust)
        assert result is not None
        assert (result.state, result.reason.code) == (wire.State.REFUSED, "untrusted_code")
        assert not self.ran.exists()
        return result.reason.message


@pytest.fixture
def trusting(
    clone: Path, keyed: Keyed, signers: Signers, forger: Forger, presets: Callable[..., Path], tmp_path: Path
) -> Trusting:
    """A host that runs the code of those it trusts. Its presets leave the file `ran` behind."""
    ran = tmp_path / "ran"
    touch = {"steps": [{"argv": ["/usr/bin/touch", str(ran)]}]}
    folder = presets(here={"code": "request", **touch}, installed=touch)
    return Trusting(Client(clone, presets=folder), keyed, signers, forger, folder, ran)


@pytest.fixture
def set_clock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Set the wall clock of runners that are started from now on, also while they run."""
    library, file = tmp_path / "clock.so", tmp_path / "shift"
    source = Path(__file__).parent / "runner" / "clock.c"
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", str(library), str(source)], check=True)
    file.write_bytes(struct.pack("<q", 0))
    monkeypatch.setenv("LD_PRELOAD", str(library))
    monkeypatch.setenv("SHIFT_FILE", str(file))

    def put(seconds: int) -> None:
        with file.open("r+b") as opened:
            os.pwrite(opened.fileno(), struct.pack("<q", seconds), 0)

    return put


@pytest.fixture
def small_disk(monkeypatch: pytest.MonkeyPatch) -> Callable[[Path], None]:
    """Let what git receives into a folder of packs count as if it lay on a disk of 64 MiB."""

    def lies_in(packs: Path) -> None:
        def free(disk: Path | None) -> int | None:
            taken = 0
            for path in packs.glob("tmp_*"):
                # Git may have removed it meanwhile.
                with suppress(FileNotFoundError):
                    taken += path.stat().st_size
            return disk and max(0, (64 << 20) - taken)

        monkeypatch.setattr("bridge.system.spawn.free_bytes", free)

    return lies_in
