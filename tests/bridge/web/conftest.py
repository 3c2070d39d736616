"""The pages of a real bus, asked for as a browser would, without a socket between."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import anyio
import pytest

pytest.importorskip("starlette", reason="needs the extra [web]")

import httpx

from bridge.client import Client
from bridge.web.app import make_app
from bridge.web.figures import Figures
from bridge.web.runs import Runs
from bridge.web.watch import Watch

HOST = "127.0.0.1:1340"


@dataclass
class Web:
    """The server's application over a watched bus."""

    client: Client

    def __post_init__(self) -> None:
        self.watch = Watch(self.client)
        self.runs = Runs(self.watch)
        self.figures = Figures(self.runs, lambda: self.watch.snapshot)
        self.app = make_app(self.watch, self.runs, self.figures, frozenset({HOST, "localhost:1340"}))

    def ask(self, path: str, method: str = "GET", **headers: str) -> httpx.Response:
        """Return the answer to one request."""

        async def whole() -> httpx.Response:
            transport = httpx.ASGITransport(self.app)
            async with httpx.AsyncClient(transport=transport, base_url=f"http://{HOST}") as client:
                named = {name.replace("_", "-"): value for name, value in headers.items()}
                return await client.request(method, path, headers=named)

        return anyio.run(whole)

    def page(self, path: str = "/") -> str:
        """Look at the bus, and return a page."""
        self.watch.refresh()
        answer = self.ask(path)
        assert answer.status_code == 200, answer.text
        return answer.text


@pytest.fixture
def jobs(presets, monkeypatch, tmp_path) -> Path:
    """Presets that runner and reader know; what two of them run is written by the tests."""
    folder = presets(
        noop={"steps": [{"argv": ["/bin/echo", "done"]}]},
        talk={"steps": [{"argv": ["${ENV:KAKEYA_MAC_PYTHON}", str(tmp_path / "talk.py")]}]},
        count={
            "params": {"n": {"type": "int", "min": 1, "max": 9, "default": 1, "help": "how many"}},
            "steps": [{"argv": ["/bin/echo", "{n}"]}],
        },
        measure={
            "steps": [{"argv": ["${ENV:KAKEYA_MAC_PYTHON}", str(tmp_path / "measure.py")]}],
            "collect": ["results/research/speed.json"],
        },
    )
    monkeypatch.setenv("KAKEYA_PRESETS", str(folder))
    return folder


@pytest.fixture
def web(clone: Path, jobs: Path) -> Web:
    """Pages of the bus that the clone's remote is."""
    client = Client(clone)
    assert client.presets.keys() >= {path.stem for path in jobs.iterdir()}
    return Web(client)
