"""Every answer and every event, against the types of the official SDKs in their strict form.

The SDKs take a null for each field that may be absent, and other clients do not: a null has to be listed here.
"""

import json
from importlib import import_module
from typing import Any

import pytest
from pydantic import TypeAdapter

from tests.engine.serve.world import serving

pytestmark = pytest.mark.long
TEXT = "What is the weather in Oslo?"
TURN = [{"role": "user", "content": TEXT}]
PLACE = {"type": "object", "properties": {"location": {"type": "string"}}, "required": ["location"]}
NAMED = {"name": "get_weather", "parameters": PLACE}
CHAT, TEXTS, RESPONSES, MESSAGES = (
    "/v1/chat/completions",
    "/v1/completions",
    "/v1/responses",
    "/v1/messages",
)
ASKED: dict[str, tuple[str, dict[str, Any]]] = {
    "chat": (CHAT, {"messages": TURN}),
    "chat, cut": (CHAT, {"messages": TURN, "max_tokens": 1}),
    "chat, several": (CHAT, {"messages": TURN, "n": 2, "stop": ["a"]}),
    "chat, thought": (CHAT, {"messages": TURN, "reasoning_effort": "low"}),
    "chat, call": (CHAT, {"messages": TURN, "tools": [{"type": "function", "function": NAMED}]}),
    "chat, logprobs": (CHAT, {"messages": TURN, "logprobs": True, "top_logprobs": 2}),
    "text": (TEXTS, {"prompt": TEXT}),
    "text, logprobs": (TEXTS, {"prompt": TEXT, "logprobs": 2}),
    "response": (RESPONSES, {"input": TEXT}),
    "response, cut": (RESPONSES, {"input": TEXT, "max_output_tokens": 1}),
    "response, thought": (RESPONSES, {"input": TEXT, "reasoning": {"effort": "low"}}),
    "response, call": (RESPONSES, {"input": TEXT, "tools": [{"type": "function", **NAMED}]}),
    "message": (MESSAGES, {"messages": TURN}),
    "message, cut": (MESSAGES, {"messages": TURN, "max_tokens": 1}),
    "message, thought": (MESSAGES, {"messages": TURN, "thinking": {"type": "enabled"}}),
    "message, call": (
        MESSAGES,
        {"messages": TURN, "tools": [{"name": "get_weather", "input_schema": PLACE}]},
    ),
}
# What the published descriptions of the APIs call nullable.
NULLS = {
    CHAT: "choices.logprobs choices.logprobs.refusal choices.message.content choices.message.refusal "
    "choices.finish_reason",
    TEXTS: "choices.logprobs choices.finish_reason",
    RESPONSES: "completed_at error incomplete_details instructions max_output_tokens max_tool_calls "
    "previous_response_id prompt_cache_key reasoning.effort reasoning.summary safety_identifier "
    "tools.description tools.strict usage",
    MESSAGES: "container stop_details stop_reason stop_sequence usage.cache_creation usage.inference_geo "
    "usage.output_tokens_details usage.server_tool_use",
}


@pytest.fixture(scope="module")
def chatting(tmp_path_factory):
    with serving(tmp_path_factory.mktemp("types"), "--model", "tiny-chat") as server:
        yield server


def types_of(path):
    """Return the types of whole answers and of events."""
    if path == MESSAGES:
        types = import_module("anthropic.types")
        return types.Message, types.RawMessageStreamEvent
    types = import_module("openai.types")
    return {
        CHAT: (types.chat.ChatCompletion, types.chat.ChatCompletionChunk),
        TEXTS: (types.Completion, types.Completion),
        RESPONSES: (types.responses.Response, types.responses.ResponseStreamEvent),
    }[path]


def asked(server, path, body):
    limit = "max_output_tokens" if path == RESPONSES else "max_tokens"
    return server.http.post(path, json={"model": "tiny-chat", "temperature": 0, limit: 80, **body})


def events(text):
    return [line[6:] for line in text.split("\n") if line.startswith("data: {")]


def nulls(value, at=()):
    """Return where nulls stand, below the answer itself."""
    if isinstance(value, dict):
        inner = ("response", "message", "delta") if not at and "type" in value else ()
        return {
            path
            for name, each in value.items()
            if name != "x_kakeya"
            for path in nulls(each, at if name in inner and isinstance(each, dict) else (*at, name))
        }
    if isinstance(value, list):
        return {path for each in value for path in nulls(each, at)}
    return {".".join(at)} if value is None else set()


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("name", ASKED)
def test_answer_has_the_sdk_type_and_null_only_where_the_api_allows_it(chatting, name, stream):
    path, body = ASKED[name]
    adapter = TypeAdapter(types_of(path)[stream])
    answer = asked(chatting, path, {**body, "stream": stream})
    assert answer.status_code == 200, answer.text
    texts = events(answer.text) if stream else [answer.text]
    assert texts
    for text in texts:
        assert nulls(json.loads(text)) <= set(NULLS[path].split())
        if path == TEXTS:  # OpenAI's own events have a null here, which its type leaves out
            text = text.replace('"finish_reason": null', '"finish_reason": "stop"')  # noqa: PLW2901
        adapter.validate_json(text, strict=True)
