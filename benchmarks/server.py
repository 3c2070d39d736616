"""Measure the HTTP server against itself, the library and mlx-lm's server, all in one run.

Figures are ratios on the bundled model, so they say what serving costs and gains, not how fast a large model is.
"""

from __future__ import annotations

import argparse
import json
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import httpx
from common import print_machine

from engine.dflash import stream_generate
from engine.models import load, registry
from engine.mx import mx

SHARED = 2000
ANSWER = 96
TEXT = "import os\nimport sys\n\n\ndef main(argv):\n    return os.path.join(*argv)\n\n\n"


@contextmanager
def served(argv: list[str], ready: str) -> Iterator[httpx.Client]:
    """Run a server on a free port of loopback."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", *argv, "--port", str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=300) as client:
            for _ in range(300):
                try:
                    client.get(ready)
                    break
                except httpx.TransportError:
                    time.sleep(0.2)
            yield client
    finally:
        process.terminate()
        process.wait(30)


def ask(client: httpx.Client, prompt: str, tokens: int, **more: object) -> tuple[float, int]:
    """Stream an answer; return the seconds to its first text, and its tokens."""
    body = {
        "model": more.pop("model", "tiny"),
        "prompt": prompt,
        "max_tokens": tokens,
        "temperature": 0,
        "stream": True,
        "stream_options": {"include_usage": True},
        **more,
    }
    began = time.perf_counter()
    first, count = 0.0, 0
    with client.stream("POST", "/v1/completions", json=body) as response:
        for line in response.iter_lines():
            found = json.loads(line[6:]) if line.startswith("data: {") else {}
            if not first and found.get("choices"):
                first = time.perf_counter() - began
            if found.get("usage"):
                count = found["usage"]["completion_tokens"]
    return first, count


def prompt_of(tokens: int, tokenizer: object) -> str:
    ids = tokenizer.encode(TEXT * (tokens // 10))[:tokens]  # type: ignore[attr-defined]
    return tokenizer.decode(ids)  # type: ignore[attr-defined]


def median(runs: int, call: Callable[[], float]) -> float:
    return statistics.median(call() for _ in range(runs))


def first_token(client: httpx.Client, prompt: str, runs: int, draft: str) -> None:
    """Time to the first token with 2,000 shared tokens, warm over cold."""
    own = {"draft": draft}
    ends = iter(range(10_000))

    def once(*, prefix: bool) -> float:
        end = f"\n# {next(ends)}\n"
        return ask(client, prompt + end, 2, x_kakeya={**own, "prefix": prefix})[0]

    once(prefix=True)
    cold, warm = [], []
    for _ in range(runs):
        cold.append(once(prefix=False))
        warm.append(once(prefix=True))
    a, b = statistics.median(cold), statistics.median(warm)
    print(
        f"first token after {SHARED} shared tokens, draft {draft}: warm {b * 1e3:.0f} ms, cold {a * 1e3:.0f} ms, "
        f"ratio {b / a:.3f} (goal at most 0.05)"
    )


def throughput(client: httpx.Client, runs: int, clients: int, **more: object) -> float:
    """Return tokens a second of so many clients together."""

    def once() -> float:
        began = time.perf_counter()
        with ThreadPoolExecutor(clients) as pool:
            work = [
                pool.submit(ask, client, f"{TEXT}def f{i}(", ANSWER, **dict(more)) for i in range(clients)
            ]
            count = sum(each.result()[1] for each in work)
        return count / (time.perf_counter() - began)

    once()
    return median(runs, once)


def library(runs: int) -> float:
    """Return tokens a second of the library's own loop with its defaults."""
    pair = load("tiny", dtype="float32")

    def once() -> float:
        began = time.perf_counter()
        prompt = f"{TEXT}def f0("
        steps = stream_generate(pair.target, pair.draft, pair.tokenizer, prompt, max_tokens=ANSWER)
        count = sum(len(step.tokens) for step in steps)
        return count / (time.perf_counter() - began)

    once()
    return median(runs, once)


def show_rates(rates: dict[tuple[str, int], float]) -> None:
    """Print what four clients gain over one, and what drafts gain."""
    for draft in ("none", "auto"):
        one, four = rates[draft, 1], rates[draft, 4]
        print(f"draft {draft}: 1 client {one:.0f} tok/s, 4 clients {four:.0f} tok/s, ", end="")
        print(f"ratio {four / one:.2f} (goal at least 1.8)")
    for clients in (1, 4):
        ratio = rates["auto", clients] / rates["none", clients]
        print(f"speculation over plain, {clients} clients: {ratio:.2f} (goal at least 0.97)")


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=5, help="counted runs of each figure (default 5)")
    runs = parser.parse_args().runs
    print_machine()
    tokenizer = load("tiny", draft=False).tokenizer
    prompt = prompt_of(SHARED, tokenizer)
    ours = ["engine", "serve", "--model", "tiny", "--dtype", "float32", "--prewarm"]
    target = registry.data() / "tiny" / "target"
    with tempfile.TemporaryDirectory() as folder:
        stock = Path(folder) / "tiny-float32"
        _as_float32(target, stock)
        theirs = ["mlx_lm", "server", "--model", str(stock)]
        with served(ours, "/health") as client, served(theirs, "/v1/models") as other:
            for draft in ("none", "dflash"):
                first_token(client, prompt, runs, draft)
            rates = {
                (draft, clients): throughput(client, runs, clients, x_kakeya={"draft": draft})
                for draft in ("none", "auto")
                for clients in (1, 4)
            }
            show_rates(rates)
            alone = library(runs)
            print(f"streaming over the library's rate: {rates['auto', 1] / alone:.2f} (goal at least 0.95)")
            for clients in (1, 4):
                rate = throughput(other, runs, clients, model=str(stock))
                plain, drafted = (rates[draft, clients] / rate for draft in ("none", "auto"))
                print(f"mlx-lm's server, {clients} clients: {rate:.0f} tok/s; ours over it:", end=" ")
                print(f"{plain:.2f} plain, {drafted:.2f} with drafts")
    return 0


def _as_float32(source: Path, folder: Path) -> None:
    """Write a model's weights in float32, which is what both servers then compute in."""
    folder.mkdir()
    for path in source.iterdir():
        if path.suffix == ".json":
            text = path.read_text(encoding="utf-8")
            (folder / path.name).write_text(text.replace('"bfloat16"', '"float32"'), encoding="utf-8")
    weights = mx.load(str(source / "model.safetensors"))
    mx.save_safetensors(
        str(folder / "model.safetensors"), {k: v.astype(mx.float32) for k, v in weights.items()}
    )


if __name__ == "__main__":
    sys.exit(main())
