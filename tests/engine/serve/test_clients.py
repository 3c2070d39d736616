"""Clients that people use, against a real server: a chat, a stream that is left, a tool, a structured answer.

Only `openai` is among the locked packages; each other client is tried if it is installed.
"""

import time

import pytest
from pydantic import BaseModel

from tests.engine.serve.world import serving

pytestmark = [pytest.mark.long, pytest.mark.filterwarnings("ignore")]  # warnings of the clients' own
COUNT, COUNTED = "Count from 1 to 5.", "1, 2, 3, 4, 5"
WEATHER = "What is the weather in San Francisco?"
MODEL = "tiny-chat"
GREEDY = {"temperature": 0}


class Person(BaseModel):
    """What a structured answer has to be."""

    name: str


def get_weather(location: str) -> str:
    """Get the weather of a city."""
    return f"It is sunny in {location}."


TOOL = {
    "name": "get_weather",
    "description": "Get the weather of a city.",
    "parameters": {
        "type": "object",
        "properties": {"location": {"type": "string"}},
        "required": ["location"],
    },
}


@pytest.fixture(scope="module")
def chatting(tmp_path_factory):
    with serving(tmp_path_factory.mktemp("clients"), "--model", MODEL) as server:
        yield server


@pytest.fixture(autouse=True)
def no_key(monkeypatch):
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY"):
        monkeypatch.setenv(name, "none")


def left(server):
    """Wait until an answer whose client has gone is no longer made."""
    end = time.monotonic() + 60
    while server.stats()["active"]:
        assert time.monotonic() < end
        time.sleep(0.05)


def test_anthropic(chatting):
    anthropic = pytest.importorskip("anthropic")
    client = anthropic.Anthropic(base_url=chatting.url, api_key="none", max_retries=0)
    asked = {"model": MODEL, "max_tokens": 80, "messages": [{"role": "user", "content": COUNT}]}
    asked["extra_body"] = GREEDY
    assert client.messages.create(**asked).content[0].text == COUNTED
    with client.messages.stream(**asked) as stream:
        assert "".join(stream.text_stream) == COUNTED
        assert stream.get_final_message().stop_reason == "end_turn"
    with client.messages.stream(**asked) as stream:
        next(iter(stream))
    left(chatting)
    tool = {"name": "get_weather", "description": TOOL["description"], "input_schema": TOOL["parameters"]}
    turns = [{"role": "user", "content": WEATHER}]
    called = client.messages.create(**{**asked, "messages": turns}, tools=[tool])
    call = next(block for block in called.content if block.type == "tool_use")
    assert (call.name, call.input) == ("get_weather", {"location": "San Francisco"})
    results = [{"type": "tool_result", "tool_use_id": call.id, "content": "sunny"}]
    turns += [{"role": "assistant", "content": called.content}, {"role": "user", "content": results}]
    assert client.messages.create(**{**asked, "messages": turns}, tools=[tool]).stop_reason
    with pytest.raises(anthropic.NotFoundError):
        client.messages.create(**{**asked, "model": "claude"})


@pytest.mark.parametrize("provider", ["openai", "anthropic"])
def test_litellm(chatting, provider):
    litellm = pytest.importorskip("litellm")
    base = f"{chatting.url}/v1" if provider == "openai" else chatting.url
    asked = {"model": f"{provider}/{MODEL}", "api_base": base, "api_key": "none", "max_tokens": 80, **GREEDY}

    def complete(text, **more):
        return litellm.completion(messages=[{"role": "user", "content": text}], **asked, **more)

    assert complete(COUNT).choices[0].message.content == COUNTED
    pieces = [each.choices[0].delta.content or "" for each in complete(COUNT, stream=True)]
    assert "".join(pieces) == COUNTED
    next(iter(complete(COUNT, stream=True)))
    left(chatting)
    (call,) = complete(WEATHER, tools=[{"type": "function", "function": TOOL}]).choices[0].message.tool_calls
    assert (call.function.name, call.function.arguments) == ("get_weather", '{"location": "San Francisco"}')


@pytest.mark.parametrize("api", ["chat", "responses", "messages"])
def test_langchain(chatting, api):
    if api == "messages":
        made = pytest.importorskip("langchain_anthropic").ChatAnthropic
        model = made(model=MODEL, base_url=chatting.url, api_key="none", max_tokens=80, **GREEDY)
    else:
        made = pytest.importorskip("langchain_openai").ChatOpenAI
        model = made(
            model=MODEL,
            base_url=f"{chatting.url}/v1",
            api_key="none",
            use_responses_api=api == "responses",
            **GREEDY,
        )
    assert model.invoke(COUNT).text == COUNTED
    assert "".join(each.text for each in model.stream(COUNT)) == COUNTED
    (call,) = model.bind_tools([get_weather]).invoke(WEATHER).tool_calls
    assert (call["name"], call["args"]) == ("get_weather", {"location": "San Francisco"})
    assert isinstance(model.with_structured_output(Person).invoke("My name is Alice."), Person)


@pytest.mark.parametrize("made", ["OpenAIChatModel", "OpenAIResponsesModel"])
def test_pydantic_ai(chatting, made):
    ai = pytest.importorskip("pydantic_ai")
    models = pytest.importorskip("pydantic_ai.models.openai")
    provider = pytest.importorskip("pydantic_ai.providers.openai").OpenAIProvider(
        base_url=f"{chatting.url}/v1", api_key="none"
    )
    model = getattr(models, made)(MODEL, provider=provider, settings=GREEDY)
    assert ai.Agent(model).run_sync(COUNT).output == COUNTED
    called = set()

    def weather(location: str) -> str:
        """Get the weather of a city."""
        called.add(location)
        return get_weather(location)

    ai.Agent(model, tools=[ai.Tool(weather, name="get_weather")]).run_sync(WEATHER)
    assert called == {"San Francisco"}
    assert isinstance(ai.Agent(model, output_type=Person).run_sync("My name is Alice.").output, Person)


@pytest.mark.parametrize("mode", ["TOOLS", "JSON_SCHEMA"])
def test_instructor(chatting, mode):
    instructor = pytest.importorskip("instructor")
    client = instructor.from_openai(chatting.ai, mode=instructor.Mode[mode])
    turns = [{"role": "user", "content": "My name is Alice."}]
    person = client.chat.completions.create(
        model=MODEL, messages=turns, response_model=Person, max_tokens=80, max_retries=0, **GREEDY
    )
    assert isinstance(person, Person)
