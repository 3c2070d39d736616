"""A host under attack: a real bus, a real runner, and jobs that are scripts of the attacker's."""

from __future__ import annotations

import os
import sys
import textwrap
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from bridge.bus import objects, wire
from bridge.bus.wire import Result
from bridge.client import Client, Run
from bridge.system.git import Git
from runner.context import open_runner
from runner.job.sandbox import bubblewrap
from runner.policy import load_policy
from runner.serve.compose import Composer
from tests.system import ABSENT, program


@dataclass(frozen=True)
class Answer:
    """What the runner put on the bus."""

    bus: Path
    run: Run

    def file(self, path: str) -> bytes:
        """Return one file of the answer."""
        ref = f"refs/heads/{self.run.branch}"
        blob = objects.read_blob(Git.isolated(self.bus), ref, path, max_bytes=1 << 26)
        assert blob is not None, path
        return blob

    @property
    def result(self) -> Result:
        """The result."""
        return wire.parse_result(self.file(wire.RESULT))

    @property
    def log(self) -> str:
        """What the job printed."""
        return self.file(f"{wire.LOGS}/attack-0.log").decode()

    def everything(self) -> bytes:
        """Return all that is reachable from the branch: commits with their messages, trees, and every file."""
        git = Git.isolated(self.bus)
        ids = git.text("rev-list", "--objects", "--no-object-names", self.run.branch).encode()
        return git("cat-file", "--batch", stdin=ids).stdout


@dataclass
class Attacked:
    """A runner, asked to run what an attacker wrote."""

    repo: Path
    bus: Path
    folder: Path
    policy: Callable[..., Path]
    presets: Callable[..., Path]
    told: list[str] = field(default_factory=list)

    def by(self, script: str, *args: str, policy: dict[str, Any] | None = None, **preset: Any) -> Answer:
        """Run a Python script as an installed job, confined where nothing else is said, and return the answer."""
        path = self.folder / "attack.py"
        path.write_text(textwrap.dedent(script))
        argv = ["${ENV:KAKEYA_MAC_PYTHON}", "-I", "${ENV:ATTACK}", *args]
        folder = self.presets(attack={"steps": [{"argv": argv}], **preset})
        given: dict[str, Any] = {"sandbox": "require", "preset_folder": str(folder), **(policy or {})}
        given["env"] = {"ATTACK": str(path), **given.get("env", {})}
        run = Client(self.repo, presets=folder).run("attack")
        with open_runner(load_policy(self.policy("attacked", **given)), self.told.append) as context:
            assert Composer(context).poller().poll(), self.told
        return Answer(self.bus, run)


@pytest.fixture
def attacked(clone: Path, bus: Path, tmp_path: Path, runners: Any, presets: Any) -> Attacked:
    """A runner under attack."""
    folder = tmp_path / "attacker"
    folder.mkdir()
    return Attacked(clone, bus, folder, runners.policy, presets)


@pytest.fixture
def confined() -> None:
    """Ask for a sandbox. In CI, which installs bubblewrap, a missing one is a failure and no reason to skip."""
    if sys.platform == "linux" and program(*bubblewrap.PROGRAMS) is None:
        if os.environ.get("CI") and not ABSENT:
            pytest.fail("bubblewrap is missing, and CI installs it")
        pytest.skip("bubblewrap is not installed")
