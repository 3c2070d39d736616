"""Real servers on loopback, and clients for them."""

import importlib.util
import os
import re
import subprocess
import sys
import time
from contextlib import contextmanager
from functools import cached_property

import httpx
import pytest

from tests.programs import Program

STARTS = 60


class Process:
    """A running `kakeya-engine serve`."""

    def __init__(self, process, log):
        self.process, self.log = process, log
        line = process.stdout.readline().decode().strip()
        assert line.startswith("http://"), self.said()
        self.url = line
        self.http = httpx.Client(base_url=line, timeout=120)

    @cached_property
    def backend(self):
        return self.http.get("/health").json()["backend"]

    @cached_property
    def ai(self):
        import openai  # noqa: PLC0415 - takes a second, and collecting the tests needs no client

        return openai.OpenAI(base_url=f"{self.url}/v1", api_key="none", timeout=120, max_retries=0)

    def said(self):
        return self.log.read_text()

    def chat(self, text="def main(argv):", **fields):
        body = {
            "model": "tiny",
            "messages": [{"role": "user", "content": text}],
            "temperature": 0,
            "max_tokens": 16,
            **fields,
        }
        return self.http.post("/v1/chat/completions", json=body)

    def stats(self):
        return self.http.get("/v1/kakeya/stats").json()


TORCH = importlib.util.find_spec("torch") is not None


def backends():
    """Return the parameters of what runs over both backends. What was seen over MLX is long over torch."""
    marks = [pytest.mark.skipif(not TORCH, reason="torch is not installed"), pytest.mark.long]
    return ["mlx", pytest.param("torch", marks=marks)]


@contextmanager
def serving(folder, *options):
    """Run a server until the end of the block."""
    log = folder / "server.log"
    named = () if "--model" in options else ("--model", "tiny")
    argv = ["serve", "--port", "0", "--dtype", "float32", *named, *options]
    with log.open("wb") as err:
        if sys.platform == "linux":
            read, write = os.pipe()
            program = "engine on torch" if "torch" in options else "engine"
            process = Program(*argv, out=write, err=err.fileno(), program=program)
            os.close(write)
            process.stdout = os.fdopen(read, "rb")
        else:  # a process that has looked for Apple's GPU cannot be forked
            argv = [sys.executable, "-P", "-m", "engine", *argv]
            env = {**os.environ, "OMP_NUM_THREADS": "1"} if "torch" in options else None
            process = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=err, env=env)
    server = None
    try:
        server = Process(process, log)
        yield server
    finally:
        if server:
            server.http.close()
            if "ai" in vars(server):  # was used: importing it takes a second
                server.ai.close()
        process.terminate()
        try:
            process.wait(120)
        finally:
            process.kill()
            process.stdout.close()


def until(check, seconds=120):
    end = time.monotonic() + seconds
    while not check():
        assert time.monotonic() < end, "it never happened"
        time.sleep(0.01)


def cancelled(server):
    """Return how many answers were ended because nobody waited for them."""
    counted = re.search(r'kakeya_answers_total\{reason="cancelled"\} (\S+)', server.http.get("/metrics").text)
    return float(counted[1]) if counted else 0
