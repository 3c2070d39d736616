"""Times how long a C compiler takes on one file, with and without optimization."""

import json
import statistics
import subprocess
import sys
import time
from pathlib import Path

from vouch import vouch

SOURCE = Path(__file__).parent / "program.c"
REPORT = Path("results/research/compile-time.json")


def compile_once(compiler: str, level: str) -> float:
    """Return the seconds that one compilation takes."""
    began = time.perf_counter()
    subprocess.run([compiler, level, "-c", str(SOURCE), "-o", "program.o"], check=True)
    return time.perf_counter() - began


def main() -> None:
    """Write the report, and let the run vouch for it."""
    compiler, repeats = sys.argv[1], int(sys.argv[2])
    compile_once(compiler, "-O0")  # The first run reads the compiler from the disk.
    plain, optimized = [], []
    for _ in range(repeats):
        plain.append(compile_once(compiler, "-O0"))
        optimized.append(compile_once(compiler, "-O2"))
    report = {
        "kind": "compile-time",
        "compiler": compiler,
        "samples": {"-O0": plain, "-O2": optimized},
        "plain_s": statistics.median(plain),
        "optimized_s": statistics.median(optimized),
        "slowdown": statistics.median(optimized) / statistics.median(plain),
    }
    REPORT.parent.mkdir(parents=True, exist_ok=True)
    REPORT.write_text(json.dumps(report, indent=1) + "\n")
    vouch(str(REPORT))


if __name__ == "__main__":
    main()
