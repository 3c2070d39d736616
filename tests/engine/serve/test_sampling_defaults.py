"""A model's own sampling settings count where a request does not say."""

import asyncio
import json
import re
import shutil
from pathlib import Path

import pytest

from engine.checkpoints import settings
from engine.models import registry
from engine.serve import listing
from engine.serve.dialects import chat, completions, messages, responses
from engine.serve.dialects.messages import MessagesRequest
from engine.serve.dialects.responses import ResponsesRequest
from engine.serve.protocol import ChatRequest, CompletionRequest, parse
from engine.serve.scheduler.thread import EngineThread
from engine.serve.server import Server
from engine.serve.settings import Settings
from tests.engine.serve.world import serving

TURN = [{"role": "user", "content": "x"}]
ROUTES = {
    "chat": (chat, ChatRequest, {"messages": TURN}),
    "completions": (completions, CompletionRequest, {"prompt": "x"}),
    "messages": (messages, MessagesRequest, {"messages": TURN, "max_tokens": 1}),
    "responses": (responses, ResponsesRequest, {"input": "x"}),
}
STATED = {"temperature": 0.6, "top_k": 20, "top_p": 0.95, "min_p": 0.05, "repetition_penalty": 1.05}


@pytest.mark.parametrize(
    ("stated", "followed"),
    [
        (STATED, STATED),
        ({**STATED, "do_sample": True}, STATED),
        ({"do_sample": False, "top_k": 20}, {"top_k": 20, "temperature": 0.0}),
        ({"do_sample": False, "temperature": 0.6}, {"temperature": 0.0}),
        ({"do_sample": None, "temperature": None, "top_p": None}, {}),
        ({"temperature": "0.6", "top_p": True, "top_k": [1], "min_p": -1, "repetition_penalty": 0}, {}),
        ({"temperature": 1e999, "top_p": 2}, {}),
        ({"top_k": 64.0, "max_new_tokens": 5, "eos_token_id": [1, 2], "num_beams": 4}, {"top_k": 64}),
        ([], {}),
        (None, {}),
    ],
)
def test_which_settings_are_followed(stated, followed, tmp_path):
    if stated is not None:
        (tmp_path / "generation_config.json").write_text(json.dumps(stated))
    assert settings.sampling(tmp_path) == followed
    (tmp_path / "generation_config.json").write_bytes(b"\xff{")
    assert settings.sampling(tmp_path) == {}


def test_the_page_lists_the_settings_that_are_followed():
    page = (Path(__file__).parents[3] / "docs" / "server.md").read_text(encoding="utf-8")
    (row,) = (line for line in page.splitlines() if line.startswith("| `generation_config.json`"))
    named = re.findall(r"`(\w+)`", row.split("|")[2])
    assert sorted(named) == sorted([*settings.RANGES, "do_sample", "eos_token_id"])


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("stated") / "stated"
    shutil.copytree(registry.data() / "tiny-chat" / "target", folder)
    (folder / "generation_config.json").write_text(json.dumps({"do_sample": True, **STATED}))
    return folder


@pytest.fixture(scope="module")
def server(folder):
    server = Server(Settings(models=(str(folder),), draft="none"), EngineThread)
    server.engine.start()
    yield server
    server.engine.stop()


def sampled(server, route, **fields):
    module, kind, body = ROUTES[route]

    async def begin():
        begun = await module.begin(
            server, parse(kind, json.dumps({"model": "stated", **body, **fields}).encode())
        )
        begun.pending.cancel()
        return begun.pending.jobs[0].options

    options = asyncio.run(begin())
    values = (options.temperature, options.top_k, options.top_p, options.min_p, options.repetition)
    return dict(zip(STATED, values, strict=True))


@pytest.mark.parametrize("route", ROUTES)
def test_all_routes_follow_the_model_unless_the_request_says_more(server, route):
    assert sampled(server, route) == STATED
    assert sampled(server, route, temperature=None, top_p=None) == STATED
    assert sampled(server, route, temperature=0) == {**STATED, "temperature": 0}
    assert sampled(server, route, temperature=1.0, top_p=1.0) == {**STATED, "temperature": 1, "top_p": 1}
    if route in ("chat", "completions"):
        off = {"temperature": 1, "top_k": 0, "top_p": 1, "min_p": 0, "repetition_penalty": 1}
        assert sampled(server, route, **off) == off
        assert sampled(server, route, top_k=-1)["top_k"] == 0


def test_the_list_of_models_shows_them(server):
    for _ in range(2):  # before and after the model is loaded
        (entry,) = listing.models(server)["data"]
        assert entry["x_kakeya"]["sampling"] == STATED
        sampled(server, "chat")


@pytest.mark.long
def test_answers_say_how_they_were_sampled(folder, tmp_path):
    with serving(tmp_path, "--model", str(folder)) as served:
        for path, body in (
            ("chat/completions", {"messages": TURN}),
            ("responses", {"input": "x"}),
            ("messages", {"messages": TURN}),
            ("completions", {"prompt": "x"}),
        ):
            answer = served.http.post(f"/v1/{path}", json={"model": "stated", "max_tokens": 2, **body}).json()
            assert answer["x_kakeya"]["sampling"] == STATED, path
            assert answer.get("temperature", 0.6) == 0.6
