"""Many clients at once, the unruly ones among them: nothing leaks, and every answer is the lone client's."""

import json
import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from tests.engine.serve.world import serving

PROMPTS = ("import os\n", "def main(argv):\n", "class Reader:\n    def read(self):\n", "x = [1, 2, 3]\n" * 12)
KINDS = ("whole", "stream", "leave", "oversized", "nonsense", "slow")
CLIENTS, SECONDS = 32, 15


def body(prompt, **fields):
    return {"model": "tiny", "prompt": prompt, "max_tokens": 16, "temperature": 0, **fields}


def one(client, kind, prompt):
    """Make one request; return its text if it was answered, None if not."""
    path = "/v1/completions"
    if kind == "whole":
        response = client.post(path, json=body(prompt))
        assert response.status_code in (200, 429)
        return response.json()["choices"][0]["text"] if response.status_code == 200 else None
    if kind == "oversized":
        assert client.post(path, json=body("x = 1\n" * 5000)).status_code == 400
    elif kind == "nonsense":
        assert client.post(path, content=b"\xff{").status_code == 400
    else:
        with client.stream("POST", path, json=body(prompt, stream=True)) as response:
            if response.status_code == 429:
                return None
            text = ""
            for line in response.iter_lines():
                if kind == "leave":
                    return None
                if kind == "slow":
                    time.sleep(0.05)
                if line.startswith("data: {"):
                    text += json.loads(line[6:])["choices"][0]["text"]
            return text
    return None


@pytest.mark.slow
def test_many_clients(tmp_path):
    with serving(tmp_path, "--max-queue", "24", "--prefix-cache", "8MB") as server:
        alone = {prompt: one(server.http, "whole", prompt) for prompt in PROMPTS}
        end, answered, lock = time.monotonic() + SECONDS, [0], threading.Lock()

        def client(number):
            draw = random.Random(number)
            with httpx.Client(base_url=server.url, timeout=120) as own:
                while time.monotonic() < end:
                    prompt = draw.choice(PROMPTS)
                    text = one(own, draw.choice(KINDS), prompt)
                    assert text is None or text == alone[prompt]
                    with lock:
                        answered[0] += text is not None

        with ThreadPoolExecutor(CLIENTS) as pool:
            for each in [pool.submit(client, number) for number in range(CLIENTS)]:
                each.result()
        assert answered[0] > CLIENTS
        deadline = time.monotonic() + 20
        while (stats := server.stats())["active"] or stats["waiting"]:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert stats["cache_bytes"] == 0
        assert stats["prefixes"]["bytes"] <= 8 << 20
        weights = stats["models"]["tiny"]["weight_bytes"]
        assert stats["mlx_active_bytes"] < weights + stats["prefixes"]["bytes"] + (4 << 20)
        assert "err-" not in server.said()
        assert one(server.http, "whole", PROMPTS[0]) == alone[PROMPTS[0]]
        server.process.terminate()
        server.process.wait(20)
        assert "Traceback" not in server.said()
