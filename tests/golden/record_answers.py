"""Records answers of a real runner process over a real git bus: exported folders, the bus, and the runner's key.

They are recorded once, at the commit whose answers later versions have to verify. ``answers/`` then contains
``runner.pub``, ``bus.bundle`` (the whole bus, to clone) and ``NAME.tar.gz`` (a folder as ``kakeya fetch --out`` writes
it) for each name in ``ANSWERS``.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from bridge.client import Client

FOLDER = Path(__file__).with_name("answers")


@dataclass(frozen=True)
class Answer:
    """A request to record, and the state in which it must end."""

    preset: str
    state: str = "succeeded"
    params: Mapping[str, object] = field(default_factory=dict)


# Of the measurements, about the fewest samples of which the gate accepts claims.
ANSWERS = {
    "codec-rd": Answer("kv-codec-rd", params={"n_vectors": 64}),
    "failed": Answer("k3-evidence-gate", "failed"),
    "refused": Answer("pytest-path", "refused", {"path": "tests/test_ok.py"}),
    "recall": Answer("k3-kv-quant-eval", params={"n_samples": 1, "max_new_tokens": 16}),
    # Recorded on a busy machine: the times varied too much to claim a speed.
    "spec-bench": Answer("k3-step2-fused", "gate_rejected", {"n_samples": 3, "max_new_tokens": 48}),
}
# A busy machine can disturb a measurement so much that it ends in another state.
_ATTEMPTS = 2
# The request's tree: a test that the runner does not trust, and a report that no gate accepts.
_WORKLOAD = {
    "tests/test_ok.py": "def test_ok():\n    pass\n",
    "results/research/false.json": json.dumps({"kind": "kakeya.native", "schema_version": 3, "claims": []}),
}
_MODELS = {"KAKEYA_MAC_VERIFIER_PATH": "tiny", "KAKEYA_MAC_DRAFTER_ID": "tiny"}


def main() -> None:
    """Record all answers anew. The exit code is 1 if one of them ended in another state."""
    unexpected = []
    with tempfile.TemporaryDirectory(prefix="kakeya-golden-") as name:
        folder = Path(name)
        _isolate_git(folder)
        shutil.rmtree(FOLDER, ignore_errors=True)
        FOLDER.mkdir()
        with _runner(folder) as (clone, public_key):
            client = Client(clone, public_key=public_key)
            for answer_name, answer in ANSWERS.items():
                exported = folder / answer_name
                if not _request(client, answer, exported):
                    unexpected.append(answer_name)
                _pack(exported, FOLDER / f"{answer_name}.tar.gz")
            shutil.copy(public_key, FOLDER / "runner.pub")
        _git(folder / "bus.git", "bundle", "create", "--quiet", str(FOLDER / "bus.bundle"), "--all")
    if unexpected:
        raise SystemExit(f"ended in another state: {', '.join(unexpected)}")


def _request(client: Client, answer: Answer, exported: Path) -> bool:
    """Request and export an answer. Returns whether it ended in its state, if necessary at a later attempt."""
    for attempt in range(1, _ATTEMPTS + 1):
        run = client.run(answer.preset, answer.params)
        state = run.wait(timeout=900).state
        result = client.result(run.branch)
        faults = [f"{fault.code}: {fault.message}" for fault in result.gate.violations] if result.gate else []
        print(f"{answer.preset}: {state} after {result.seconds:.0f} s", *faults[:4], sep="\n  ", flush=True)
        if state == answer.state or attempt == _ATTEMPTS:
            run.fetch(exported)
            return state == answer.state
        client.git("push", "--quiet", "origin", f":refs/heads/{run.branch}")
    raise AssertionError("there is at least one attempt")


@contextmanager
def _runner(folder: Path) -> Iterator[tuple[Path, Path]]:
    """Serve a new bus. Yields a clone of it and the runner's public key."""
    bus, clone, policy = folder / "bus.git", folder / "clone", folder / "runner.yaml"
    _make_bus(bus, clone)
    # Answers contain paths of the interpreter and its libraries, which must not be this machine's own.
    shutil.copytree(sys.prefix, folder / "venv", symlinks=True)
    settings = {
        "schema_version": 1,
        "id": "golden",
        "bus": {"url": str(bus), "presence_s": None},
        "state": str(folder / "state"),
        "interpreter": str(folder / "venv" / "bin" / "python"),
        "env": _MODELS,
    }
    policy.write_text(yaml.safe_dump(settings), encoding="utf-8")
    policy.chmod(0o600)
    argv = [sys.executable, "-P", "-m", "runner", "--policy", str(policy)]
    subprocess.run([*argv, "keygen"], check=True, capture_output=True)
    log = folder / "runner.log"
    with log.open("wb") as out:
        process = subprocess.Popen([*argv, "serve"], stdout=out, stderr=subprocess.STDOUT)
    try:
        while "serving" not in log.read_text(encoding="utf-8"):
            assert process.poll() is None, log.read_text(encoding="utf-8")
            time.sleep(0.05)
        yield clone, folder / "state" / "runner.pub"
    finally:
        process.terminate()
        process.wait(30)


def _make_bus(bus: Path, clone: Path) -> None:
    bus.mkdir()
    _git(bus, "init", "--quiet", "--bare", "--initial-branch=main")
    clone.mkdir()
    _git(clone, "init", "--quiet", "--initial-branch=main")
    for path, text in _WORKLOAD.items():
        (clone / path).parent.mkdir(parents=True, exist_ok=True)
        (clone / path).write_text(text, encoding="utf-8")
    _git(clone, "add", "--all")
    _git(clone, "commit", "--quiet", "-m", "A workload")
    _git(clone, "remote", "add", "origin", str(bus))
    _git(clone, "push", "--quiet", "origin", "main")
    _git(clone, "fetch", "--quiet")


def _isolate_git(folder: Path) -> None:
    """Give git no configuration of this machine and a requester without a real name."""
    config = folder / ".gitconfig"
    config.write_text("[user]\n\tname = A Requester\n\temail = requester@example.invalid\n", encoding="utf-8")
    os.environ |= {"GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": str(config), "HOME": str(folder)}


def _git(folder: Path, *args: str) -> None:
    subprocess.run(["git", *args], cwd=folder, check=True)


def _pack(folder: Path, archive: Path) -> None:
    """Store a folder's content without owners and times of files."""

    def plain(info: tarfile.TarInfo) -> tarfile.TarInfo:
        info.uid = info.gid = info.mtime = 0
        info.uname = info.gname = ""
        return info

    with tarfile.open(archive, "w:gz") as tar:
        tar.add(folder, arcname=".", filter=plain)
