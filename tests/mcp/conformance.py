"""Runs the public MCP conformance suite against `kakeya mcp --http`: `make conformance`. Needs npm and its registry.

The suite asks servers for tools, resources and prompts of its own, which a server of real tools does not have. Those
scenarios are listed with what they need; every other one must pass, and one that is new to this file is run too.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

# The suite needs Node 22; the package `node` brings it along.
SUITE = (
    "npx",
    "--yes",
    "--package",
    "node@22",
    "--package",
    "@modelcontextprotocol/conformance@0.1.16",
    "--",
)
CONFORMANCE = (*SUITE, "conformance")

# What a scenario needs that this server does not offer, by how its name begins.
NEEDS = {
    "tools-call-": "a test tool of the suite's own",
    "json-schema-2020-12": "a test tool of the suite's own",
    "server-sse-polling": "a test tool of the suite's own",
    "elicitation-": "a test tool of the suite's own",
    "resources-": "the capability resources",
    "prompts-": "the capability prompts",
    "logging-": "the capability logging",
    "completion-": "the capability completions",
}


def main() -> int:
    if shutil.which("npx") is None:
        print("npx is not on the PATH: install Node.js with npm")
        return 3
    listed = subprocess.run([*CONFORMANCE, "list"], capture_output=True, text=True, check=True).stdout
    servers = listed.partition("Client scenarios")[0]
    scenarios = re.findall(r"^ +- (\S+)", servers, re.MULTILINE)
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(["git", "init", "--quiet", folder], check=True)
        argv = [sys.executable, "-P", "-m", "bridge", "-C", folder, "mcp", "--http", "0"]
        with (Path(folder) / "log").open("w+") as log, subprocess.Popen(argv, stderr=log) as server:
            try:
                url = address(server, Path(log.name))
                for scenario in scenarios:
                    failed += not passes(scenario, url, folder)
            finally:
                server.terminate()
    return 1 if failed or not scenarios else 0


def address(server: subprocess.Popen[bytes], log: Path) -> str:
    while server.poll() is None:
        found = re.search(r"http://\S+", log.read_text(encoding="utf-8"))
        if found:
            return found[0]
    raise SystemExit(f"the server did not start: {log.read_text(encoding='utf-8')}")


def passes(scenario: str, url: str, folder: str) -> bool:
    reason = next((need for name, need in NEEDS.items() if scenario.startswith(name)), None)
    if reason:
        print(f"needs {reason:<32} {scenario}")
        return True
    argv = [*CONFORMANCE, "server", "--url", url, "--scenario", scenario]
    done = subprocess.run(argv, cwd=folder, capture_output=True, text=True, check=False)
    result = re.search(r"Passed: .*", done.stdout)
    good = done.returncode == 0 and result is not None and ", 0 failed" in result[0]
    print(f"{'passed' if good else 'FAILED':<38} {scenario}: {result[0] if result else done.stderr[-500:]}")
    return good


if __name__ == "__main__":
    sys.exit(main())
