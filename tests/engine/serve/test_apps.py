"""The calls of desktop and web applications, with the settings that docs/apps.md names. No application runs."""

import json
import re
import shlex
from pathlib import Path

import httpx
import pytest

from tests.engine.serve.world import serving

PAGE = (Path(__file__).parents[3] / "docs" / "apps.md").read_text(encoding="utf-8")
MODEL, ANOTHER = "tiny-chat", "https://evil.example"
COUNT = [{"role": "user", "content": "Count from 1 to 5."}]
WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather in a city.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}
PIXEL = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}
SOUND = {"type": "input_audio", "input_audio": {"data": "UklGRg==", "format": "wav"}}


def rows(heading):
    """Return the rows of the table whose first column has this heading, as lists of cells."""
    lines = PAGE[PAGE.index(f"| {heading} |") :].split("\n\n")[0].splitlines()[2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


APPS = {
    name: (address.strip("`"), shlex.split(options.strip("`")))
    for name, _, address, options in rows("application")
}
ORIGINS = {name: [o for o in options if "://" in o] for name, (_, options) in APPS.items()}
CALLS = [(call, answer) for call, _, answer in rows("call") if "OPTIONS" not in call]  # see the preflights


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    allowed = dict.fromkeys(origin for origins in ORIGINS.values() for origin in origins)
    options = [word for origin in allowed for word in ("--allow-origin", origin)]
    with serving(tmp_path_factory.mktemp("apps"), "--model", MODEL, *options) as running:
        yield running


@pytest.fixture(params=APPS)
def app(request, server):
    """A client as one application is: at its address, but for the port; with its origin and a key that is any word."""
    address = re.sub(r":\d+", f":{httpx.URL(server.url).port}", APPS[request.param][0])
    headers = {"Authorization": "Bearer none", "x-api-key": "none"}
    if origins := ORIGINS[request.param]:
        headers["Origin"] = origins[0]
    with httpx.Client(base_url=address.removesuffix("/v1"), headers=headers, timeout=120) as http:
        yield http


def chunks(answer):
    lines = [line.removeprefix("data: ") for line in answer.text.splitlines() if line.startswith("data: ")]
    assert lines[-1] == "[DONE]"
    return [json.loads(line) for line in lines[:-1]]


def sent(call):
    """Return the bodies of a row of the page's second table."""
    chat = {"model": MODEL, "messages": COUNT, "temperature": 0}
    if "stream_options" in call:
        usage = {
            "stream": True,
            "stream_options": {"include_usage": True},
            "top_k": 40,
            "top_p": 0.95,
            "max_tokens": 99,
        }
        return [{**chat, **usage}, {**chat, **usage, "tools": [WEATHER], "tool_choice": "auto"}]
    if "titles" in call:
        return [{**chat, "stream": False, "max_completion_tokens": 1000}]
    if "image" in call:
        return [{**chat, "messages": [{"role": "user", "content": [part]}]} for part in (PIXEL, SOUND)]
    if "repeat_penalty" in call:
        return [{**chat, "repeat_penalty": 1.1}]
    return [{"model": MODEL, "input": "text"}] if call.startswith("`POST") else [None]


@pytest.mark.rows(1)
@pytest.mark.parametrize("origin", sorted({origin for origins in ORIGINS.values() for origin in origins}))
def test_each_origin_of_the_page_gets_its_preflight(server, origin):
    asks = {
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": "authorization,content-type,x-api-key",
    }
    for path in ("/v1/models", "/v1/chat/completions"):
        answer = server.http.options(path, headers={"Origin": origin, **asks})
        assert answer.status_code == 200
        assert answer.headers["access-control-allow-origin"] == origin
        assert "authorization" in answer.headers["access-control-allow-headers"].lower()
        refused = server.http.options(path, headers={"Origin": ANOTHER, **asks})
        assert refused.status_code == 400
        assert "access-control-allow-origin" not in refused.headers


@pytest.mark.rows(1)
@pytest.mark.parametrize(("call", "answer"), CALLS, ids=[call for call, _ in CALLS])
def test_each_call_has_the_answer_that_the_page_says(app, call, answer):
    method, path = re.match(r"`([A-Z]+) (\S+?)`", call).groups()
    status, code = re.match(r"(\d+)(?: `(\w+)`)?", answer).groups()
    for body in sent(call):
        got = app.request(method, path, json=body)
        assert got.status_code == int(status), got.text
        if "Origin" in app.headers:
            assert got.headers["access-control-allow-origin"] == app.headers["Origin"]
        if code:
            assert got.json()["error"]["code"] == code
        elif path == "/v1/models":
            assert [each["id"] for each in got.json()["data"]] == [MODEL]
        elif body.get("stream"):
            *pieces, last = chunks(got)
            assert last["usage"]["completion_tokens"] > 0
            assert pieces[-1]["choices"][0]["finish_reason"] in ("stop", "tool_calls")
        else:
            assert got.json()["choices"][0]["message"]["content"] == "1, 2, 3, 4, 5"


def test_an_origin_that_the_page_does_not_name_is_refused(server):
    answer = server.http.get("/v1/models", headers={"Origin": ANOTHER, "Authorization": "Bearer none"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (403, "origin_not_allowed")
