"""Measure the HTTP server against itself, the library and mlx-lm's server, all in one run.

Figures are ratios. Those on the bundled model say what serving costs and gains, not how fast a large model is;
`--model smollm2-135m` measures a real one: `kakeya-engine models get smollm2-135m` gets it.
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
from functools import partial
from pathlib import Path
from typing import Any

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
    """Stream an answer; return the seconds to its first text, and its tokens.

    The client shares the cores with the server, so it only joins what comes, and reads it at the end.
    """
    body = {
        "prompt": prompt,
        "max_tokens": tokens,
        "temperature": 0,
        "stream": True,
        "stream_options": {"include_usage": True},
        **more,
    }
    began = time.perf_counter()
    first, data = 0.0, b""
    with client.stream("POST", "/v1/completions", json=body) as response:
        for part in response.iter_bytes():
            data += part
            if not first and b'"choices": [{' in data:
                first = time.perf_counter() - began
    events = [json.loads(line[6:]) for line in data.split(b"\n") if line.startswith(b"data: {")]
    return first, next(
        found["usage"]["completion_tokens"] for found in reversed(events) if found.get("usage")
    )


def prompt_of(tokens: int, tokenizer: object) -> str:
    ids = tokenizer.encode(TEXT * (tokens // 10))[:tokens]  # type: ignore[attr-defined]
    return tokenizer.decode(ids)  # type: ignore[attr-defined]


def repeated(runs: int, arms: dict[str, Callable[[], float]]) -> dict[str, list[float]]:
    """Measure arms in turn, again and again, so that what else the machine does meets all of them alike."""
    found: dict[str, list[float]] = {name: [] for name in arms}
    for call in arms.values():
        call()
    for i in range(runs):
        for name in sorted(arms, reverse=bool(i % 2)):
            found[name].append(arms[name]())
    return found


def show(label: str, over: list[float], under: list[float], goal: str = "") -> None:
    """Print the median of a ratio, with the least and the greatest of its repeats."""
    ratios = [a / b for a, b in zip(over, under, strict=True)]
    spread = f"{statistics.median(ratios):.3f} ({min(ratios):.3f} to {max(ratios):.3f})"
    print(f"{label}: {spread}{f', goal {goal}' if goal else ''}", flush=True)


def first_token(client: httpx.Client, model: str, prompt: str, draft: str) -> dict[str, Callable[[], float]]:
    """Return what measures the seconds to the first token after a kept prompt, and after one that is not."""
    ends = iter(range(10_000))

    def once(*, prefix: bool) -> float:
        end = f"\n# {next(ends)}\n"
        return ask(client, prompt + end, 2, model=model, x_kakeya={"draft": draft, "prefix": prefix})[0]

    return {"cold": lambda: once(prefix=False), "warm": lambda: once(prefix=True)}


def throughput(client: httpx.Client, clients: int, answer: int, **more: object) -> float:
    """Return tokens a second of so many clients together."""
    began = time.perf_counter()
    with ThreadPoolExecutor(clients) as pool:
        work = [pool.submit(ask, client, f"{TEXT}def f{i}(", answer, **dict(more)) for i in range(clients)]
        count = sum(each.result()[1] for each in work)
    return count / (time.perf_counter() - began)


class Library:
    """The library's own loop with its defaults."""

    def __init__(self, model: str, answer: int) -> None:
        self.pair = load(model, dtype="float32")
        self.answer = answer
        self.cpu: list[float] = []  # seconds of the processor for a token

    def rate(self) -> float:
        """Return tokens a second."""
        pair, began, used = self.pair, time.perf_counter(), time.process_time()
        prompt = f"{TEXT}def f0("
        steps = stream_generate(pair.target, pair.draft, pair.tokenizer, prompt, max_tokens=self.answer)
        count = sum(len(step.tokens) for step in steps)
        self.cpu.append((time.process_time() - used) / count)
        return count / (time.perf_counter() - began)


def rates(
    client: httpx.Client, other: httpx.Client, names: tuple[str, str], library: Library
) -> dict[str, Any]:
    """Return what measures tokens a second."""
    (model, stock), answer = names, library.answer
    arms: dict[str, Callable[[], float]] = {"library": library.rate}
    for clients in (1, 4):
        for draft in ("none", "auto"):
            arms[f"{draft} {clients}"] = partial(
                throughput, client, clients, answer, model=model, x_kakeya={"draft": draft}
            )
        arms[f"stock {clients}"] = partial(throughput, other, clients, answer, model=stock)
    return arms


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--runs", type=int, default=7, help="repeats of each ratio, all arms in turn (default 7)"
    )
    parser.add_argument(
        "--model", default="tiny", help="a bundled model, or one of `models get` (default tiny)"
    )
    parser.add_argument("--answer", type=int, default=ANSWER, help=f"tokens of an answer (default {ANSWER})")
    options = parser.parse_args()
    runs, model = options.runs, options.model
    print_machine()
    library = Library(model, options.answer)
    prompt = prompt_of(SHARED, library.pair.tokenizer)
    ours = ["engine", "serve", "--model", model, "--dtype", "float32", "--prewarm"]
    with tempfile.TemporaryDirectory() as folder:
        stock = Path(folder) / f"{model}-float32"
        _as_float32(Path(registry.find(model).target), stock)
        theirs = ["mlx_lm", "server", "--model", str(stock)]
        with served(ours, "/health") as client, served(theirs, "/v1/models") as other:
            print(f"medians of {runs} ratios, in brackets the least and the greatest")
            drafts = ("none", "dflash" if library.pair.draft is not None else "lookup")
            for draft in drafts:
                found = repeated(runs, first_token(client, model, prompt, draft))
                label = f"first token after {SHARED} shared tokens, draft {draft}, warm over cold"
                show(label, found["warm"], found["cold"], "at most 0.05")
            found = repeated(runs, rates(client, other, (model, str(stock)), library))
            for draft in ("none", "auto"):
                gain = found[f"{draft} 4"], found[f"{draft} 1"]
                show(f"draft {draft}, 4 clients over 1", *gain, "at least 1.8")
            for clients in (1, 4):
                drafted, plain = found[f"auto {clients}"], found[f"none {clients}"]
                show(f"speculation over plain, {clients} clients", drafted, plain, "at least 0.97")
            show("streaming over the library's rate", found["auto 1"], found["library"], "at least 0.95")
            for clients in (1, 4):
                for draft in ("none", "auto"):
                    rate, least = found[f"{draft} {clients}"], found[f"stock {clients}"]
                    show(f"draft {draft} over mlx-lm's server, {clients} clients", rate, least)
            for name, each in found.items():
                print(f"{name}: {statistics.median(each):.0f} tokens a second")
            print(f"library: {statistics.median(library.cpu) * 1e3:.2f} ms of processor time a token")
    print_machine()
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
