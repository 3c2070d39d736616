"""Measure what trust costs: signing an answer, verifying it, and checking a requester's signature.

    python benchmarks/signing.py [--runs N]

Real keys, real git and real ssh-keygen in a temporary folder. Prints the machine first, then a line a figure.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from common import git, make, measure, options_of, own_home, policy_for, print_machine, show

from bridge.client import Client
from bridge.verify import attestation
from bridge.verify.public_keys import read_public_keys
from runner.admit.signature import read_signed, signer_of
from runner.context import open_runner
from runner.policy import load_policy
from runner.serve.compose import Composer
from runner.state import signing_key

FILES, FILE_BYTES = 20, 256 * 1024
IMPORT = "import time; t = time.perf_counter(); import securesystemslib.dsse, securesystemslib.signer; "


def main() -> int:
    runs = options_of(__doc__, runs=50).parse_args().runs
    print_machine()
    with own_home() as folder:
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / "id")], check=True)
        git(folder, "config", "--global", "user.signingkey", str(folder / "id.pub"))
        measure_all(folder, runs)
    return 0


def measure_all(folder: Path, runs: int) -> None:
    client, policy = set_up(folder)
    state = policy.parent / "state"
    pinned = Client(folder / "clone", public_key=state / signing_key.PUBLIC)
    run = client.run("noop", sign=True)
    with open_runner(load_policy(policy), lambda _: None) as context:
        Composer(context).poller().poll()
        signer = context.keys.signer
        allowed = folder / "allowed"
        key = " ".join((folder / "id.pub").read_text(encoding="utf-8").split()[:2])
        allowed.write_text(f"bench@localhost {key}\n", encoding="utf-8")
        store = context.bus.git
        assert signer is not None

        def trust() -> None:
            signed = read_signed(store, run.commit or "")
            assert signed is not None
            assert signer_of(signed, allowed) == "bench@localhost"

        branch = client.view(run.branch)
        result = client.result(run.branch)
        files = {f"results/research/{i}.json": os.urandom(FILE_BYTES) for i in range(FILES)}
        digests = attestation.digests(files)
        statement = attestation.make_statement(result, digests, branch.tip)
        envelope = attestation.sign(statement, signer)
        public = read_public_keys((state / signing_key.PUBLIC).read_text(encoding="utf-8"), "")
        show_ms("loading the library, once a process", [cold() for _ in range(min(runs, 10))])
        what = f"{FILES} files of {FILE_BYTES >> 10} KiB"

        def state_all() -> None:
            attestation.make_statement(result, attestation.digests(files), "")

        show_ms(f"a statement on {what}", measure(runs, state_all))
        show_ms("signing it", measure(runs, lambda: attestation.sign(statement, signer)))
        show_ms("opening its envelope", measure(runs, lambda: attestation.open_envelope(envelope, public)))
        show_ms("kakeya verify without a pin, in process", measure(runs, lambda: client.verify(run.branch)))
        show_ms("kakeya verify with a pin, in process", measure(runs, lambda: pinned.verify(run.branch)))
        show_ms("a requester's signature, checked by ssh-keygen", measure(runs, trust))
    show_ms("kakeya run, unsigned, in process", measure(min(runs, 20), lambda: client.run("noop")))
    show_ms("kakeya run --sign, in process", measure(min(runs, 20), lambda: client.run("noop", sign=True)))


def set_up(folder: Path) -> tuple[Client, Path]:
    """Make a bus, a clone, and a policy for a runner with a key."""
    place = make(folder)
    host = folder / "host"
    host.mkdir()
    signing_key.make_key(host / "state")
    return Client(place.clone), policy_for(host, place, sandbox="off")


def show_ms(what: str, times: list[float]) -> None:
    show(what, times, scale=1e3, unit="ms")


def cold() -> float:
    argv = [sys.executable, "-c", IMPORT + "print(time.perf_counter() - t)"]
    return float(subprocess.run(argv, check=True, capture_output=True, text=True).stdout)


if __name__ == "__main__":
    sys.exit(main())
