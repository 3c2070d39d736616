"""Seconds to judge reports of each kind, grown to several sizes.

    python benchmarks/judging.py [--runs 3] [--only NAME]

A report grows by copies of its prompts, with other names, and of the rows on them (kinds without prompts: of
their rows), up to each size. The copies break laws, so most large reports are rejected; the gate holds every law
against them all the same. `docs/results/spec-tiny.json`, which is accepted, is measured as it is too. The figures
are the median, the least and the greatest of processor seconds, and the growth of the median from one size to the
next. The goal is less than 2 s for 2 MB.
"""

from __future__ import annotations

import argparse
import copy
import gzip
import json
import statistics
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.common import print_machine
from bridge import gate

ROOT = Path(__file__).resolve().parents[1]
REAL, PUBLISHED = ROOT / "tests" / "bridge" / "gate" / "real", ROOT / "docs" / "results"
SIZES = (0.5, 1.0, 2.0, 4.0)
MB = 1_000_000
# One real report of each kind.
REPORTS = {
    "spec-bench": PUBLISHED / "spec-tiny.json",
    "acceptance": REAL / "acceptance.json.gz",
    "native": REAL / "native.json.gz",
    "recall": PUBLISHED / "recall-tiny.json",
    "restored-prefill": PUBLISHED / "restored-tiny.json",
    "verify-l": PUBLISHED / "verify-l-tiny.json",
    "kv-quant": PUBLISHED / "kv-quant-tiny.json",
    "parity": PUBLISHED / "parity-half-tiny.json",
    "codec-rd": PUBLISHED / "codec-rd.json",
    "serve-conformance": REAL / "served.json.gz",
}


def read(path: Path) -> dict[str, Any]:
    """Return a report of the tests, or a published one."""
    data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    found: dict[str, Any] = json.loads(data)
    return found


def grown(report: dict[str, Any], size: float) -> bytes:
    """Return a report of about so many bytes, made of copies of this one's prompts and rows."""
    made = copy.deepcopy(report)
    prompts, rows = report.get("prompts", []), report["rows"]
    fixed = len(json.dumps({**report, "prompts": [], "rows": []}))
    share = max(size - fixed, 0) / (len(json.dumps(prompts)) + len(json.dumps(rows)))
    if prompts:
        ids = [f"{prompt['id']}-{i}" for i in range(int(share) + 1) for prompt in prompts]
        ids = ids[: max(round(share * len(prompts)), 1)]
        known = {name: prompts[i % len(prompts)] for i, name in enumerate(ids)}
        made["prompts"] = [{**prompt, "id": name} for name, prompt in known.items()]
        made["rows"] = [
            {**row, "prompt": f"{row['prompt']}-{i}"}
            for i in range(int(share) + 1) for row in rows if f"{row['prompt']}-{i}" in known
        ]  # fmt: skip
    else:
        count = max(round(share * len(rows)), 1)
        made["rows"] = [rows[i % len(rows)] for i in range(count)]
    return json.dumps(made).encode()


def judged(data: bytes) -> tuple[str, float]:
    """Return the verdict on a report, and the processor seconds that it took."""
    began = time.process_time()
    verdict = gate.judge({"a.json": data}).verdict
    return verdict, time.process_time() - began


def figure(name: str, data: bytes, runs: int, before: float | None) -> float:
    """Print what judging took, and its growth over the size before; return the median."""
    found = [judged(data) for _ in range(runs)]
    times = sorted(seconds for _, seconds in found)
    middle = statistics.median(times)
    growth = f"{middle / before:7.2f}" if before else f"{'':7}"
    spread = f"{times[0]:.2f} to {times[-1]:.2f}"
    print(f"{name:18} {len(data) / MB:6.2f} {middle:7.2f} {spread:>13} {growth}  {found[0][0]}", flush=True)
    return middle


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--runs", type=int, default=3, help="counted runs of each figure (default 3)")
    parser.add_argument("--only", choices=sorted(REPORTS), help="one kind instead of all")
    options = parser.parse_args()
    print_machine()
    print(f"processor seconds, {options.runs} runs (goal: under 2 s for 2 MB)")
    print(f"{'kind':18} {'MB':>6} {'median':>7} {'spread':>13} {'growth':>7}  verdict")
    for name in [options.only] if options.only else REPORTS:
        report, before = read(REPORTS[name]), None
        judged(json.dumps(report).encode())  # the tables of bundled models and words are read once
        if name == "spec-bench":
            figure("as published", REPORTS[name].read_bytes(), options.runs, None)
        for size in SIZES:
            before = figure(name, grown(report, size * MB), options.runs, before)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
