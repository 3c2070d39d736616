"""Measure what an agent notices of `kakeya mcp`: how soon it answers, and how much of its context the tools take.

    python benchmarks/mcp.py [--runs N]

Real server processes over standard input and output, spoken to line by line. Prints the machine first, then a line a
figure. Tokens are taken as a quarter of the characters; the tokenizer o200k_base counts 2,138 where that says 2,133.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from common import make, measure, options_of, own_home, print_machine, serving, show

CHARACTERS_A_TOKEN = 4
MOST_TOKENS = 2500


class Server:
    """A server process, that has answered `initialize`."""

    def __init__(self, clone: Path) -> None:
        argv = [sys.executable, "-P", "-m", "bridge", "-C", str(clone), "mcp"]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(
            argv, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True, cwd="/"
        )
        info = {"name": "bench", "version": "1"}
        self.ask("initialize", protocolVersion="2025-11-25", capabilities={}, clientInfo=info)

    def ask(self, method: str, **params: object) -> dict[str, Any]:
        """Send a request and return its result."""
        stdin, stdout = self.process.stdin, self.process.stdout
        assert stdin is not None
        assert stdout is not None
        stdin.write(json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}) + "\n")
        stdin.flush()
        message = json.loads(stdout.readline())
        assert "error" not in message, message
        result: dict[str, Any] = message["result"]
        return result

    def call(self, tool: str, **args: object) -> dict[str, Any]:
        """Call a tool that must not fail."""
        result = self.ask("tools/call", name=tool, arguments=args)
        assert not result.get("isError"), result
        content: dict[str, Any] = result["structuredContent"]
        return content

    def end(self) -> None:
        """Close its input, which ends it."""
        self.process.communicate(timeout=30)


def main() -> int:
    runs = options_of(__doc__, runs=10).parse_args().runs
    print_machine()
    with own_home() as folder:
        place = make(folder / "place")
        starts, computing = [], []
        for _ in range(runs):
            began, before = time.perf_counter(), cpu_s()
            server = Server(place.clone)
            tools = server.ask("tools/list")["tools"]
            starts.append(time.perf_counter() - began)
            server.end()
            computing.append(cpu_s() - before)
        show(
            "from the start of the process to the list of tools", starts, goal="below 1 s on an idle machine"
        )
        show("the CPU time of it", computing)
        length = len(json.dumps(tools, ensure_ascii=False, separators=(",", ":")))
        tokens = round(length / CHARACTERS_A_TOKEN)
        print(
            f"{len(tools)} tools with all schemas: {length} characters, {tokens} tokens (goal below {MOST_TOKENS})"
        )
        server = Server(place.clone)
        show("the first call, which imports the client", measure(1, lambda: server.call("kakeya_list")))
        show("kakeya_list on an empty bus", measure(runs, lambda: server.call("kakeya_list")))
        show("kakeya_run", measure(runs, lambda: server.call("kakeya_run", preset="noop")))
        with serving(folder, place):
            show("kakeya_run and kakeya_wait, a whole run", measure(runs, lambda: whole(server)))
        server.end()
    return 0


def cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def whole(server: Server) -> None:
    branch = server.call("kakeya_run", preset="noop")["branch"]
    answer = server.call("kakeya_wait", request=branch)
    assert answer["exit_code"] == 0, answer


if __name__ == "__main__":
    sys.exit(main())
