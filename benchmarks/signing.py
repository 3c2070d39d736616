"""Measure what trust costs: signing an answer, verifying it, and checking a requester's signature.

    python benchmarks/signing.py [--runs N]

Real keys, real git and real ssh-keygen in a temporary folder. Prints the machine first, then a line a figure.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import yaml

from bridge import attestation
from bridge.client import Client
from bridge.keys import read_public_keys
from runner import keys
from runner.policy import load_policy
from runner.rounds import Rounds
from runner.session import open_session
from runner.signature import read_signed, signer_of

FILES, FILE_BYTES = 20, 256 * 1024
IMPORT = "import time; t = time.perf_counter(); import securesystemslib.dsse, securesystemslib.signer; "


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=50, help="counted runs of each figure (default 50)")
    runs = parser.parse_args().runs
    cores, python, load = os.cpu_count(), platform.python_version(), os.getloadavg()[0]
    print(f"{platform.platform()}, {cores} cores, Python {python}, load {load:.1f}")
    with tempfile.TemporaryDirectory(prefix="kakeya-bench-") as name:
        folder = Path(name)
        os.environ["HOME"] = str(folder)
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / "id")], check=True)
        (folder / ".gitconfig").write_text(
            f"[user]\n\tname = B\n\temail = b@localhost\n\tsigningkey = {folder}/id.pub\n", encoding="utf-8"
        )
        measure_all(folder, runs)
    return 0


def measure_all(folder: Path, runs: int) -> None:
    client, policy = set_up(folder)
    state = policy.parent / "state"
    pinned = Client(folder / "clone", public_key=state / keys.PUBLIC)
    run = client.run("noop", sign=True)
    with open_session(load_policy(policy), lambda _: None) as session:
        Rounds(session).next()
        signer = session.signer
        allowed = folder / "allowed"
        key = " ".join((folder / "id.pub").read_text(encoding="utf-8").split()[:2])
        allowed.write_text(f"b@localhost {key}\n", encoding="utf-8")
        git = session.bus.git
        assert signer is not None

        def trust() -> None:
            signed = read_signed(git, run.commit or "")
            assert signed is not None
            assert signer_of(signed, allowed) == "b@localhost"

        view = client.view(run.branch)
        result = client.result(run.branch)
        files = {f"results/research/{i}.json": os.urandom(FILE_BYTES) for i in range(FILES)}
        statement = attestation.make_statement(result, files, view.tip)
        envelope = attestation.sign(statement, signer)
        public = read_public_keys((state / keys.PUBLIC).read_text(encoding="utf-8"), "")
        show("loading the library, once a process", [cold() for _ in range(min(runs, 10))])
        what = f"{FILES} files of {FILE_BYTES >> 10} KiB"
        show(f"a statement on {what}", measure(runs, lambda: attestation.make_statement(result, files, "")))
        show("signing it", measure(runs, lambda: attestation.sign(statement, signer)))
        show("opening its envelope", measure(runs, lambda: attestation.open_envelope(envelope, public)))
        show("kakeya verify without a pin, in process", measure(runs, lambda: client.verify(run.branch)))
        show("kakeya verify with a pin, in process", measure(runs, lambda: pinned.verify(run.branch)))
        show("a requester's signature, checked by ssh-keygen", measure(runs, trust))
    show("kakeya run, unsigned, in process", measure(min(runs, 20), lambda: client.run("noop")))
    show("kakeya run --sign, in process", measure(min(runs, 20), lambda: client.run("noop", sign=True)))


def set_up(folder: Path) -> tuple[Client, Path]:
    """Make a bus, a clone, and a policy for a runner with a key."""
    git = ["git", "-C", str(folder)]
    for command in (
        ["init", "--quiet", "--bare", "--initial-branch=main", "bus.git"],
        ["init", "--quiet", "--initial-branch=main", "clone"],
        ["-C", "clone", "commit", "--quiet", "--allow-empty", "-m", "A workload"],
        ["-C", "clone", "remote", "add", "origin", str(folder / "bus.git")],
    ):
        subprocess.run([*git, *command], check=True)
    policy = folder / "host" / "runner.yaml"
    policy.parent.mkdir()
    settings = {"schema_version": 1, "bus": {"url": str(folder / "bus.git")}, "sandbox": "off",
                "state": str(policy.parent / "state")}  # fmt: skip
    policy.write_text(yaml.safe_dump(settings), encoding="utf-8")
    policy.chmod(0o600)
    keys.make_key(policy.parent / "state")
    return Client(folder / "clone"), policy


def cold() -> float:
    argv = [sys.executable, "-c", IMPORT + "print(time.perf_counter() - t)"]
    return float(subprocess.run(argv, check=True, capture_output=True, text=True).stdout)


def measure(runs: int, call: Callable[[], object]) -> list[float]:
    times = []
    for _ in range(runs):
        began = time.perf_counter()
        call()
        times.append(time.perf_counter() - began)
    return times


def show(what: str, times: list[float]) -> None:
    ordered = sorted(t * 1e3 for t in times)
    p95 = ordered[round(0.95 * (len(ordered) - 1))]
    print(f"{what}: p50 {statistics.median(ordered):.2f} ms, p95 {p95:.2f} ms "
          f"({len(times)} runs, {ordered[0]:.2f} to {ordered[-1]:.2f} ms)")  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
