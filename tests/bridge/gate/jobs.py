"""Programs for jobs that leave a report as the engine does: with the run's id, and its digests in the log."""

from __future__ import annotations

import base64
import json

from tests.bridge.gate.reports import Report, copy, derived

PATH = "results/research/report.json"

# It needs the standard library alone, as any interpreter of a host has it.
_PROGRAM = """
import datetime, hashlib, json, os, pathlib, sys
path, report = pathlib.Path({path!r}), json.loads({report!r})

def canonical(value):
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()

def log(line):
    print(line, file=sys.stderr, flush=True)

report["run"] = {{"id": os.environ["KAKEYA_RUN_ID"]}}
report["created_at"] = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
header = {{name: value for name, value in report.items() if name not in ("rows", "claims", "seconds", "created_at")}}
header["identity"] = {{name: v for name, v in header["identity"].items() if name not in ("load", "power")}}
digest = hashlib.sha256(canonical(header)).hexdigest()
short = digest[:16]
log(f"kakeya-report {{digest}}")
for row in report["rows"]:
    digest = hashlib.sha256(digest.encode() + b"\\n" + canonical(row)).hexdigest()
log(f"kakeya-rows {{short}} {{len(report['rows'])}} {{digest}}")
log(f"kakeya-end {{short}} {{hashlib.sha256(canonical(report)).hexdigest()}}")
path.parent.mkdir(parents=True, exist_ok=True)
path.write_text(json.dumps(report))
"""
_TIMES = ("prefill_s", "decode_s", "e2e_s", "seconds", "started_s")


def on_any_host(report: Report) -> Report:
    """Return a report of an unnamed machine whose rows take a hundredth of their time, so that a short job fits it."""
    report = copy(report)
    for row in report["rows"]:
        row |= {name: row[name] / 100 for name in _TIMES if name in row}
    report["seconds"] /= 100
    report["identity"] |= {"memory_bytes": None, "versions": {"python": "3"}}
    return derived(report)


def program(report: Report, path: str = PATH) -> str:
    """Return a program that writes a report in its run, without braces, which are placeholders in a preset's argv."""
    source = _PROGRAM.format(path=path, report=json.dumps(report))
    return f"import base64; exec(base64.b64decode('{base64.b64encode(source.encode()).decode()}'))"
