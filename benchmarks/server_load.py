"""Load the HTTP server on loopback with many clients at once, unruly ones among them, and check what it leaves.

    python benchmarks/server_load.py --seconds 600

Clients ask over all four APIs, whole and streamed, with drafts, packed caches and grammars; some leave in the middle,
read slowly, read nothing at all, or send too much or nonsense. Every answer that is completed has to equal the one
that a lone client got before. Only an answer from a packed cache may differ, and only if rounding explains it: each
distinct text is decoded again at the end (``ties.py``), and so are the lone client's texts from packed caches. At the
end no slot, cache or file may be held, memory may not have grown, and SIGTERM has to end the server while answers are
running, without cutting them off.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import psutil
from common import print_machine
from ties import Ties

CODE = ("import os\n", "def main(argv):\n", "class Reader:\n    def read(self):\n", "x = [1, 2, 3]\n" * 12)
SCHEMA = {
    "type": "object",
    "properties": {"path": {"type": "string", "maxLength": 8}, "lines": {"type": "integer", "maximum": 99}},
    "required": ["path", "lines"],
    "additionalProperties": False,
}
# How often a client does what. "silent" clients never read, "leave" disconnects after some events.
KINDS = {"whole": 4, "stream": 6, "slow": 2, "leave": 3, "silent": 1, "oversized": 1, "nonsense": 1}
PREFIXES = 16 << 20
REFUSED = 3  # texts that rounding does not explain, after which no other is decoded again: each takes seconds
SLACK = 8 << 20  # bytes of arrays beside weights and kept prefixes, such as masks
GROWTH = 96 << 20  # bytes of the process between a third of the time and the end: allocators keep some


# Drafters and caches of the requests, by backend.
OPTIONS = {
    "mlx": (("auto", "raw"), ("dflash", "e8v@4.25"), ("lookup", "affine@4g64"), ("none", "raw")),
    "torch": (("auto", "raw"), ("none", "e8v@4.25"), ("lookup", "raw"), ("none", "e8v@6.25")),
}


def requests(backend: str) -> list[tuple[str, dict[str, Any]]]:
    """Return paths and bodies: each API, cache, drafter and form once at least."""
    found: list[tuple[str, dict[str, Any]]] = []
    common = {"model": "tiny", "temperature": 0}
    for prompt, (draft, cache) in zip(CODE, OPTIONS[backend], strict=True):
        own = {**common, "x_kakeya": {"draft": draft, "cache": cache}}
        turns = [{"role": "user", "content": prompt}]
        found += [
            ("/v1/completions", {**own, "prompt": prompt * 3, "max_tokens": 24}),
            ("/v1/chat/completions", {**own, "messages": turns, "max_tokens": 12}),
            ("/v1/responses", {**own, "input": prompt, "max_output_tokens": 12}),
            ("/v1/messages", {**own, "messages": turns, "max_tokens": 12}),
        ]
        form = {"type": "json_schema", "json_schema": {"schema": SCHEMA}}
        body = {**own, "prompt": prompt, "max_tokens": 32, "response_format": form}
        found.append(("/v1/completions", body))
    return found


def text_of(path: str, found: dict[str, Any]) -> str:
    """Return the text of a whole answer."""
    if path == "/v1/completions":
        return str(found["choices"][0]["text"])
    if path == "/v1/chat/completions":
        return str(found["choices"][0]["message"]["content"])
    if path == "/v1/messages":
        return "".join(block["text"] for block in found["content"])
    return "".join(part["text"] for item in found["output"] for part in item["content"])


def piece_of(path: str, event: dict[str, Any]) -> str:
    """Return the text that an event adds."""
    if path == "/v1/completions":
        return str(event["choices"][0]["text"])
    if path == "/v1/chat/completions":
        return str(event["choices"][0]["delta"].get("content") or "")
    if path == "/v1/messages":
        return str(event.get("delta", {}).get("text", ""))
    return str(event["delta"]) if event["type"] == "response.output_text.delta" else ""


class Client:
    """One client, which asks again and again.

    Args:
        url: the server's.
        backend: the server's.
        alone: the answer to each request that a lone client got; filled in if it is empty.
        others: the texts that are not those, with their requests; filled in.
    """

    def __init__(self, url: str, backend: str, alone: dict[int, str], others: set[tuple[int, str]]) -> None:
        self.url, self.backend, self.alone, self.others, self.asked = (
            url,
            backend,
            alone,
            others,
            requests(backend),
        )
        self.http = httpx.Client(base_url=url, timeout=300, verify=False)
        self.counts: Counter[str] = Counter()

    def once(self, draw: random.Random) -> None:
        """Do one thing, and check what came of it."""
        kind = draw.choices(list(KINDS), list(KINDS.values()))[0]
        number = draw.randrange(len(self.asked))
        path, body = self.asked[number]
        if kind == "oversized":
            response = self.http.post("/v1/completions", json={"model": "tiny", "prompt": "x = 1\n" * 5000})
            assert response.status_code == 400, response.text
        elif kind == "nonsense":
            response = self.http.post(path, content=b"\xff{")
            assert response.status_code == 400, response.text
        elif kind == "silent":
            self.silent(path, body, draw.uniform(0.2, 2))
        elif kind == "whole":
            response = self.http.post(path, json=body)
            if response.status_code == 429:
                kind = "refused"
            else:
                assert response.status_code == 200, response.text
                self.check(number, text_of(path, response.json()))
        else:
            kind = self.stream(kind, number, draw)
        self.counts[kind] += 1

    def stream(self, kind: str, number: int, draw: random.Random) -> str:
        """Read a stream in one way or another."""
        path, body = self.asked[number]
        text, most = "", draw.randrange(6)
        with self.http.stream("POST", path, json={**body, "stream": True}) as response:
            if response.status_code == 429:
                return "refused"
            assert response.status_code == 200, response.status_code
            for i, line in enumerate(line for line in response.iter_lines() if line.startswith("data: {")):
                if kind == "leave" and i >= most:
                    return kind
                if kind == "slow":
                    time.sleep(0.03)
                text += piece_of(path, json.loads(line[6:]))
        self.check(number, text)
        return kind

    def silent(self, path: str, body: dict[str, Any], seconds: float) -> None:
        """Ask for a stream, read nothing of it, and leave."""
        host, port = self.url.removeprefix("http://").split(":")
        data = json.dumps({**body, "stream": True}).encode()
        head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(data)}\r\n\r\n".encode()
        with socket.create_connection((host, int(port))) as peer:
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            peer.sendall(head + data)
            time.sleep(seconds)

    def check(self, number: int, text: str) -> None:
        """Compare an answer with the lone client's. Another text from a packed cache is looked at later."""
        path, body = self.asked[number]
        if number not in self.alone:
            self.alone[number] = text
        elif text != self.alone[number]:
            # Over torch, packed answers are decoded row by row, as the lone client's was.
            assert packed(body), (path, body, text, self.alone[number])
            assert self.backend == "mlx", (path, body, text, self.alone[number])
            self.others.add((number, text))
            self.counts["near ties"] += 1
        self.counts["answered"] += 1

    def stats(self) -> dict[str, Any]:
        """Return the server's figures."""
        found: dict[str, Any] = self.http.get("/v1/kakeya/stats").json()
        return found


def packed(body: dict[str, Any]) -> bool:
    """Return whether a request names a cache that rounds keys and values to codes."""
    return bool(body["x_kakeya"]["cache"] != "raw")


def unexplained(backend: str, alone: dict[int, str], others: set[tuple[int, str]]) -> list[str]:
    """Return which texts from packed caches, the lone client's among them, no rounding explains."""
    ties, asked, faults, seen = Ties(), requests(backend), [], set()
    for number, text in [*alone.items(), *sorted(others)]:
        path, body = asked[number]
        again = ties.asked(path, body)
        if not packed(body) or (again, text) in seen:
            continue
        seen.add((again, text))
        if not ties.explains(again, text):
            faults.append(f"rounding does not explain {text!r} as an answer to {path} {json.dumps(body)}")
        if len(faults) == REFUSED:
            break
    print(
        f"{len(seen)} texts from packed caches decoded again, {len(faults)} of them not explained by rounding"
    )
    return faults


@contextmanager
def served(log: Path, backend: str) -> Iterator[tuple[str, psutil.Process]]:
    """Run a server on a free port of loopback."""
    options = (
        "--max-queue",
        "24",
        "--prefix-cache",
        f"{PREFIXES >> 20}MB",
        "--dtype",
        "float32",
        "--backend",
        backend,
    )
    argv = [sys.executable, "-P", "-m", "engine", "serve", "--model", "tiny", "--port", "0", *options]
    # Torch's threads would wait for the clients, which share the cores.
    env = {**os.environ, "OMP_NUM_THREADS": "1"} if backend == "torch" else None
    with log.open("wb") as err:
        process = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=err, text=True, env=env)
    assert process.stdout is not None
    try:
        yield process.stdout.readline().strip(), psutil.Process(process.pid)
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def settled(client: Client) -> dict[str, Any]:
    """Return the figures as soon as nothing is running; they are the last ones if something never ends."""
    end = time.monotonic() + 30
    while (found := client.stats())["active"] or found["waiting"]:
        if time.monotonic() > end:
            break
        time.sleep(0.1)
    return found


def load(
    lone: Client,
    clients: int,
    seconds: float,
    server: psutil.Process,
) -> Counter[str]:
    """Run the clients; return what they did. Prints the server's figures now and then."""
    made = [
        Client(lone.url, lone.backend, lone.alone, lone.others) for _ in range(clients)
    ]  # before the clock starts: it takes seconds
    end = time.monotonic() + seconds
    failed = threading.Event()

    def work(number: int) -> None:
        draw = random.Random(number)
        try:
            while time.monotonic() < end and not failed.is_set():
                made[number].once(draw)
        except BaseException:
            failed.set()
            raise
        finally:
            made[number].http.close()

    with ThreadPoolExecutor(clients) as pool:
        work_of = [pool.submit(work, number) for number in range(clients)]
        while not failed.wait(min(60, max(0.1, end - time.monotonic()))) and time.monotonic() < end:
            count = sum(each.counts["answered"] for each in made)
            print(f"  {count} answered, {server.memory_info().rss / 2**20:.0f} MiB", flush=True)
        for each in work_of:
            each.result()
    total: Counter[str] = Counter()
    for client in made:
        total += client.counts
    return total


def leaks(figures: dict[str, Any], before: dict[str, int], after: dict[str, int]) -> list[str]:
    """Return what is still held although nothing runs."""
    weights = figures["models"]["tiny"]["weight_bytes"]
    kept = figures["prefixes"]["bytes"] if "prefixes" in figures else 0  # over MLX
    arrays = figures.get("mlx_active_bytes", 0)  # torch counts none on a CPU
    held = {
        "active answers": figures["active"],
        "waiting answers": figures["waiting"],
        "bytes of caches": figures["cache_bytes"],
        "bytes of prefixes over the budget": max(0, kept - PREFIXES),
        "bytes of arrays": max(0, arrays - weights - kept - SLACK),
        "bytes of the process": max(0, after["bytes"] - before["bytes"] - GROWTH),
        "files and sockets": max(0, after["files"] - before["files"] - 4),
        "threads": max(0, after["threads"] - before["threads"] - 4),
    }
    return [f"{count} {name}" for name, count in held.items() if count]


def of_process(server: psutil.Process) -> dict[str, int]:
    """Return the memory, files and threads of a process."""
    return {"bytes": server.memory_info().rss, "files": server.num_fds(), "threads": server.num_threads()}


def drained(url: str, server: psutil.Process) -> str:
    """End the server while streams run; return what went wrong, or nothing."""
    begun, texts = threading.Barrier(9), [""] * 8
    body = {"model": "tiny", "prompt": CODE[0], "max_tokens": 120, "temperature": 0, "stream": True}

    def read(number: int) -> None:
        with (
            httpx.Client(base_url=url, timeout=60) as http,
            http.stream("POST", "/v1/completions", json=body) as found,
        ):
            lines = found.iter_lines()
            next(lines)
            begun.wait(60)
            for line in lines:
                texts[number] = line or texts[number]

    threads = [threading.Thread(target=read, args=(i,)) for i in range(8)]
    for each in threads:
        each.start()
    begun.wait(60)
    server.send_signal(signal.SIGTERM)
    for each in threads:
        each.join(60)
    try:
        server.wait(30)
    except psutil.TimeoutExpired:
        return "the server did not end within 30 s"
    cut = sum(text != "data: [DONE]" for text in texts)
    return f"{cut} of 8 streams were cut off" if cut else ""


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=60, help="how long to load it (default 60)")
    parser.add_argument("--clients", type=int, default=32, help="clients at once (default 32)")
    parser.add_argument("--backend", choices=OPTIONS, default="mlx", help="of the server (default mlx)")
    options = parser.parse_args()
    print_machine()
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "server.log"
        with served(log, options.backend) as (url, server):
            alone: dict[int, str] = {}
            others: set[tuple[int, str]] = set()
            lone = Client(url, options.backend, alone, others)
            for number, (path, body) in enumerate(lone.asked):
                lone.check(number, text_of(path, lone.http.post(path, json=body).json()))
            warm = load(lone, options.clients, options.seconds / 3, server)
            settled(lone)
            before = of_process(server)
            total = warm + load(lone, options.clients, options.seconds * 2 / 3, server)
            figures, after = settled(lone), of_process(server)
            faults = leaks(figures, before, after)
            for number, (path, body) in enumerate(lone.asked):
                lone.check(number, text_of(path, lone.http.post(path, json=body).json()))
            lone.http.close()
            cut = drained(url, server)
        said = log.read_text()
    faults += [cut] if cut else []
    if options.backend == "mlx":
        faults += unexplained(options.backend, alone, others)
    faults += [f"the log has {word!r}" for word in ("err-", "Traceback") if word in said]
    print(
        f"{options.clients} clients, {options.seconds:g} s: "
        + ", ".join(f"{n} {k}" for k, n in sorted(total.items()))
    )
    print(
        f"memory {before['bytes'] / 2**20:.0f} -> {after['bytes'] / 2**20:.0f} MiB, files {after['files']}, ",
        end="",
    )
    arrays, peak = (figures.get(f"mlx_{name}_bytes", 0) / 2**20 for name in ("active", "peak"))
    print(f"arrays {arrays:.0f} MiB, peak {peak:.0f} MiB")
    if not total["answered"]:
        faults.append("no answer was completed")
    right = "every answer is the lone client's, or rounding explains it; nothing is held; the server drained"
    print("; ".join(faults) or right)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
