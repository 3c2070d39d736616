"""Show every edit of a report to the gate, push at a real runner, and run every fuzz target.

Run it as `python tests/fuzz/run.py [SECONDS]`.

Each but the edits takes so many seconds. Without atheris it says so, and runs no target.

atheris is not among the locked requirements, because it has no wheel for every system that this is developed on:
`pip install atheris`. What makes a target fail is left as `crash-*` in the folder that is printed.
"""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
# A shorter turn is a test of this program; the edits take a minute.
EDITS_S = 10


def main() -> int:
    """Run the targets one after the other, each in a process of its own."""
    seconds = int(sys.argv[1]) if len(sys.argv) > 1 else 30
    failing = edits() | pushes(seconds) if seconds >= EDITS_S else 0
    if importlib.util.find_spec("atheris") is None:
        print("atheris is not installed: nothing else was fuzzed (pip install atheris)")
        return failing
    failed = []
    folder = Path(tempfile.mkdtemp(prefix="kakeya-fuzz-"))
    for target in sorted(HERE.glob("fuzz_*.py")):
        corpus = folder / target.stem
        corpus.mkdir()
        for i, seed in enumerate(seeds(target)):
            (corpus / f"seed-{i}").write_bytes(seed)
        options = [f"-max_total_time={seconds}", f"-artifact_prefix={corpus}/", "-max_len=8192", "-verbosity=0",
                   "-print_final_stats=1", "-rss_limit_mb=2048", "-timeout=10"]  # fmt: skip
        argv = [sys.executable, "-P", str(target), *options, str(corpus)]
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
        counted = re.search(r"number_of_executed_units: *([0-9]+)", done.stderr)
        word = "FAILED" if done.returncode else "held"
        print(f"{target.stem}: {word} after {counted[1] if counted else '?'} inputs", flush=True)
        if done.returncode:
            failed.append(target.stem)
            print(done.stderr[-4000:], f"\nfound in {corpus}", flush=True)
    return 1 if failed or failing else 0


def edits() -> int:
    """Show the gate every edit of every kind of report. Return 1 if it accepts one."""
    argv = [sys.executable, "-m", "tests.bridge.gate.edits"]
    return subprocess.run(argv, cwd=HERE.parents[1], check=False).returncode


def pushes(seconds: int) -> int:
    """Push what chance brings at a real runner and a real client; return 1 if something does not hold."""
    argv = [sys.executable, "-m", "tests.fuzz.push", str(seconds)]
    return subprocess.run(argv, cwd=HERE.parents[1], check=False).returncode


def seeds(target: Path) -> list[bytes]:
    """Return inputs to start from."""
    if target.stem == "fuzz_manifest":
        text = target.read_text(encoding="utf-8")
        return [
            text.encode()[:1000],
            b'{"schema_version": 1}',
            b'{"schema_version": 2, "params": {"a": 1e5}}',
        ]
    return [b"plain text\n", b"::set-env name=x::y\n", b"\x1b[31mred\x1b[0m ##[group]\r\n"]


if __name__ == "__main__":
    sys.exit(main())
