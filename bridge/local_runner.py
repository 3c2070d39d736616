"""A bus, a clone and a runner on this machine, in a folder that is removed afterwards unless the caller keeps it."""

import importlib.util
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import yaml

from bridge.bus.branch_names import DEFAULT_PREFIX
from bridge.client import Client
from bridge.common import environment, install
from bridge.errors import InfrastructureError, UsageError
from bridge.system.bound_process import BoundProcess
from bridge.system.git import Git
from bridge.system.process import run
from bridge.verify.public_keys import SETTING, Pin

PUBLIC_KEY, PRIVATE_KEY = "runner.pub", "runner.key"
_STATE = "state"
_START_S = 60
# Published runs name their requester. Use this name instead of the user's own address.
_REQUESTER = {"user.name": "A requester", "user.email": "requester@localhost"}


@dataclass(frozen=True)
class Stage:
    """The folders and files of a bus and a runner on this machine."""

    folder: Path
    bus: Path
    clone: Path
    policy: Path
    log: Path
    process: BoundProcess

    def client(self, presets: Path | None = None) -> Client:
        """Return a client of the clone, which trusts the runner's key alone."""
        return client_of(self.clone, presets, self.folder / _STATE / PUBLIC_KEY)


def client_of(clone: Path, presets: Path | None, public_key: Path | Pin) -> Client:
    """Return a client of a bus of this process's own: what the user sets for other buses does not count."""
    return Client(clone, presets=presets, prefix=DEFAULT_PREFIX, suffix="", public_key=public_key)


@contextmanager
def stage(
    runner: str, presets: Sequence[str], env: Mapping[str, str], *,
    keep: Path | None = None, key_folder: Path | None = None, preset_folder: Path | None = None,
    needs_engine: bool = True,
) -> Iterator[Stage]:  # fmt: skip
    """Create a bus, a clone that trusts the runner's key, and the runner's policy; remove them without ``keep``.

    Args:
        runner: the runner's id.
        presets: names of presets that it runs.
        env: values for ``${ENV:NAME}`` in presets.
        keep: an empty or new folder to use and keep.
        key_folder: the folder of the runner's key pair, which is created if missing; by default a new key, not kept.
        preset_folder: a folder with the presets, to use instead of the installed ones.
        needs_engine: whether the presets use the engine.

    Raises:
        UsageError: the engine is not installed, or ``keep`` is not an empty folder.
    """
    if needs_engine and any(importlib.util.find_spec(name) is None for name in ("mlx", "mlx_lm")):
        message = "this runs real MLX jobs, but the engine is not installed here"
        raise UsageError(message, fix=install.engine(python=sys.executable))
    if keep and keep.exists() and (not keep.is_dir() or any(keep.iterdir())):
        raise UsageError(f"{keep} is not an empty folder", fix="Name an empty or new folder.")
    folder = keep.absolute() if keep else Path(tempfile.mkdtemp(prefix="kakeya-"))
    process = BoundProcess(None if keep else folder, env=environment.for_user_git())
    folder.mkdir(parents=True, exist_ok=True)
    made_stage = Stage(
        folder, folder / "bus.git", folder / "clone", folder / "runner.yaml", folder / "runner.log", process
    )
    state = folder / _STATE
    policy: dict[str, object] = {
        "schema_version": 1, "id": runner, "bus": {"url": str(made_stage.bus)}, "state": str(state),
        "presets": [*presets], "interpreter": sys.executable, "env": dict(env),
        **({"preset_folder": str(preset_folder.absolute())} if preset_folder else {}),
    }  # fmt: skip
    try:
        make_repositories(made_stage.bus, made_stage.clone, {SETTING: str(state / PUBLIC_KEY)})
        _write_policy(made_stage.policy, policy)
        _provide_key(made_stage, state, key_folder, policy)
        yield made_stage
    finally:
        process.close()


def make_repositories(bus: Path, clone: Path, settings: Mapping[str, str]) -> None:
    """Create an empty bus, and a repository with one commit and this bus as its remote, whatever git's defaults are."""
    for argv in (("--bare", str(bus)), (str(clone),)):
        Git.of_user(clone.parent)("init", "--quiet", "--object-format=sha1", *argv)
    git = Git.of_user(clone)
    git("remote", "add", "origin", str(bus))
    for name, value in {**_REQUESTER, **settings}.items():
        git("config", name, value)
    (clone / "README.md").write_text("A workload, as any repository could be.\n", encoding="utf-8")
    git("add", "--force", "README.md")
    git("commit", "--quiet", "--no-gpg-sign", "--message", "A workload")


def _write_policy(path: Path, policy: Mapping[str, object]) -> None:
    path.write_text(yaml.safe_dump(dict(policy), sort_keys=False), encoding="utf-8")
    path.chmod(0o600)


def _provide_key(
    stage: Stage, state_folder: Path, key_folder: Path | None, policy: Mapping[str, object]
) -> None:
    """Put the key pair into the runner's state folder; make a key pair first if there is none."""
    if key_folder is None:
        _make_key(stage.policy)
        return
    if not (key_folder / PRIVATE_KEY).exists():
        other = stage.folder / "key.yaml"
        _write_policy(other, {**policy, "state": str(key_folder.absolute())})
        _make_key(other)
    state_folder.mkdir(mode=0o700)
    for name in (PRIVATE_KEY, PUBLIC_KEY):
        shutil.copy2(key_folder / name, state_folder / name)


def _make_key(policy: Path) -> None:
    run(*_runner(policy), "keygen", env=environment.for_user_git())


def _runner(policy: Path) -> tuple[str, ...]:
    return sys.executable, "-P", "-m", "runner", "--policy", str(policy)


@contextmanager
def serving(stage: Stage) -> Iterator[None]:
    """Run a runner process beside the bus.

    Raises:
        InfrastructureError: the runner does not start serving.
    """
    stage.log.touch()
    stage.process.start([*_runner(stage.policy), "serve"], stage.log)
    try:
        _wait_until_serving(stage)
        yield
    finally:
        stage.process.stop()


def _wait_until_serving(stage: Stage) -> None:
    until = time.monotonic() + _START_S
    while "serving" not in (printed := stage.log.read_text(encoding="utf-8", errors="replace")):
        if stage.process.has_ended or time.monotonic() > until:
            raise InfrastructureError(f"the runner did not start: {printed.strip() or 'it printed nothing'}")
        time.sleep(0.05)
