"""What the runner's tests share: a requester who can push anything, and a host whose presets leave a trace."""

from __future__ import annotations

import importlib
import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from bridge.bus import objects, wire
from bridge.bus.branch_names import new_nonce
from bridge.bus.objects import BlobId, Identity
from bridge.bus.wire import Result
from bridge.manifest import format_time
from bridge.system.git import Git
from runner.context import RunnerContext, open_runner
from runner.policy import load_policy
from runner.serve.compose import Composer
from tests import programs

STRANGER = Identity("A Stranger", "stranger@example.invalid")


def utc(seconds_from_now: float = 0.0) -> str:
    """Return a time as manifests write it."""
    from datetime import UTC, datetime, timedelta  # noqa: PLC0415 - used here alone

    return format_time(datetime.now(UTC) + timedelta(seconds=seconds_from_now))


@dataclass
class Requester:
    """Someone who may push, and who does it by hand: any manifest, any tree, any parents."""

    git: Git
    head: str

    def manifest(self, preset: str = "touch", **changes: object) -> dict[str, object]:
        """Return a valid version-2 manifest with changes; a key that is given as None is left out."""
        whole = {
            "schema_version": 2, "preset": preset, "params": {}, "ref": "HEAD", "requested_by": "a stranger",
            "nonce": new_nonce(), "workload": self.head, "created_at": utc(), "expires_at": utc(3600),
            "code": "installed",
        } | changes  # fmt: skip
        return {key: value for key, value in whole.items() if value is not None}

    def older(self, preset: str = "touch", **changes: object) -> dict[str, object]:
        """Return a valid version-1 manifest with changes."""
        later = dict.fromkeys(("workload", "created_at", "expires_at", "code"))
        return self.manifest(preset, **{"schema_version": 1, **later, **changes})

    def commit(
        self, files: Mapping[str, bytes | BlobId | None], *parents: str, base: str | None = None
    ) -> str:
        """Make a commit with these files over the tree of `base` (by default the workload)."""
        tree = objects.overlay(self.git, f"{base or self.head}^{{tree}}", files)
        return objects.commit(self.git, tree, parents or (self.head,), "a request\n", STRANGER)

    def push(self, commit: str, branch: str, *, force: bool = False) -> str:
        """Set a branch on the bus and return the commit."""
        self.git(
            "push", "--quiet", *(["--force"] if force else []), "origin", f"{commit}:refs/heads/{branch}"
        )
        return commit

    def delete(self, branch: str) -> None:
        """Remove a branch from the bus."""
        self.git("push", "--quiet", "origin", f":refs/heads/{branch}")

    def send(
        self,
        manifest: Mapping[str, object] | bytes | None,
        *,
        branch: str | None = None,
        files: Mapping[str, bytes | BlobId | None] | None = None,
        parents: tuple[str, ...] = (),
    ) -> str:
        """Push a request made of this manifest and return its branch."""
        if isinstance(manifest, Mapping):
            branch = branch or f"mac-bridge/{manifest['preset']}-{str(manifest['nonce']).strip()}"
            manifest = json.dumps(manifest).encode()
        whole: dict[str, bytes | BlobId | None] = dict(files or {})
        if manifest is not None:
            whole[wire.REQUEST] = manifest
        branch = branch or f"mac-bridge/touch-{new_nonce()}"
        self.push(self.commit(whole, *parents), branch)
        return branch


@pytest.fixture
def requester(clone: Path) -> Requester:
    """A requester in the clone."""
    git = Git.of_user(clone)
    return Requester(git, git.text("rev-parse", "HEAD"))


@dataclass
class Host:
    """A runner's host in this process. Every one of its presets creates `ran`."""

    ran: Path
    policy: Callable[..., Path]
    bus: Path
    told: list[str] = field(default_factory=list)

    @contextmanager
    def context(self, name: str = "one", **policy: object) -> Iterator[RunnerContext]:
        """Open the context of the runner `name`."""
        with open_runner(load_policy(self.policy(name, **policy)), self.told.append) as context:
            yield context

    def handle(self, name: str = "one", **policy: object) -> None:
        """Let the runner handle whatever there is."""
        with self.context(name, **policy) as context:
            poller = Composer(context).poller()
            while poller.poll():
                pass

    def result(self, branch: str) -> Result | None:
        """Return the answer on a branch, if there is one."""
        git = Git.isolated(self.bus)
        blob = objects.read_blob(git, f"refs/heads/{branch}", wire.RESULT, max_bytes=wire.MAX_RESULT)
        return wire.parse_result(blob) if blob else None

    def answer(self, branch: str, **policy: object) -> Result | None:
        """Let the runner handle whatever there is and return the answer on one branch."""
        self.handle(**policy)
        return self.result(branch)


@pytest.fixture
def ran(tmp_path: Path) -> Path:
    """The file that exists once a job ran."""
    return tmp_path / "ran"


@pytest.fixture
def touching(presets: Callable[..., Path], ran: Path) -> Path:
    """A folder of presets that leave a trace when they run."""
    touch = ["/usr/bin/touch", str(ran)]
    number: dict[str, Any] = {"type": "int", "min": 1, "max": 50}
    return presets(
        touch={"steps": [{"argv": touch}]},
        count={
            "params": {
                "n": number,
                "word": {"type": "enum", "values": ["one", "two"], "default": "one"},
                "loud": {"type": "flag", "option": "--no-create"},
            },
            "steps": [{"argv": [*touch, "{loud}", "{n}", "{word}"]}],
        },
        where={
            "code": "request",
            "params": {"path": {"type": "path", "under": ["tests"]}},
            "steps": [{"argv": [*touch, "{path}"]}],
        },
        needs_setting={"steps": [{"argv": [*touch, "${ENV:KAKEYA_MAC_VERIFIER_PATH}"]}]},
        elsewhere={"labels": ["gpu"], "steps": [{"argv": touch}]},
    )


@pytest.fixture
def host(runners: Any, touching: Path, ran: Path, bus: Path) -> Host:
    """A host in this process, with presets that leave a trace."""

    def policy(name: str, **overrides: object) -> Path:
        return runners.policy(name, **{"preset_folder": str(touching), **overrides})

    return Host(ran, policy, bus)


@pytest.fixture
def kakeya(
    clone: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str]]:
    """Run the command line in this process; return its exit code and what it printed."""

    def run(*args: object) -> tuple[int, str]:
        code, out, err = run_kakeya(clone, monkeypatch, capsys, *args)
        return code, out + err

    return run


def run_kakeya(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    *args: object,
    program: str = "bridge",
) -> tuple[int, str, str]:
    """Run `kakeya` in a folder, in this process; return its exit code, its output and its errors."""
    main = importlib.import_module(f"{program}.cli").main
    capsys.readouterr()
    with monkeypatch.context() as patch:
        patch.chdir(folder)
        patch.setattr(sys, "argv", ["kakeya", *map(str, args)])
        with pytest.raises(SystemExit) as ended:
            main()
    return int(ended.value.code or 0), *capsys.readouterr()


def run_check(policy: Path, cwd: Path | None = None) -> tuple[int, dict[str, Any]]:
    """Run `kakeya-runner check --json`, and return its exit code and its report."""
    done = programs.run("--policy", policy, "check", "--json", cwd=cwd)
    return done.returncode, json.loads(done.stdout)


@pytest.fixture
def python() -> str:
    """The interpreter that jobs of the tests use."""
    return sys.executable


@pytest.fixture
def ends() -> Callable[..., bool]:
    """Say whether a process is gone, or nothing but a zombie, before a time has passed."""

    def gone(pid: int, within: float = 30.0) -> bool:
        deadline = time.monotonic() + within
        while time.monotonic() < deadline:
            try:
                state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
            except (FileNotFoundError, ProcessLookupError):
                return True
            if state in "ZX":
                return True
            time.sleep(0.02)
        return False

    return gone
