"""Clients that people use, against a real server: a chat, a stream that is left, a tool, a structured answer.

`openai` and `anthropic` are locked with the other packages for tests, and `make parity` adds the rest. Only instructor
is locked nowhere: it holds openai below the newest versions.
"""

import time
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from importlib import import_module, util
from multiprocessing import get_context

import httpx
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


@pytest.fixture(scope="module")
def alone():
    """Call a client in a process that its package has for itself: some leave event loops and connections behind.

    Each takes seconds to import. They are in release/requirements/parity.txt, but for instructor, which holds openai at
    an older version.
    """
    with ExitStack() as running:
        pools = {}

        def call(package, client, *args):
            if util.find_spec(package) is None:
                pytest.skip(f"{package} is not installed")
            if package not in pools:
                pool = ProcessPoolExecutor(1, mp_context=get_context("spawn"))
                pools[package] = running.enter_context(pool)
            pools[package].submit(client, *args).result(240)

        yield call


@pytest.fixture(autouse=True)
def no_key(monkeypatch):
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY"):
        monkeypatch.setenv(name, "none")


def left(url):
    """Wait until an answer whose client has gone is no longer made."""
    end = time.monotonic() + 60
    while httpx.get(f"{url}/v1/kakeya/stats").json()["active"]:
        assert time.monotonic() < end
        time.sleep(0.05)


def test_anthropic(chatting):
    anthropic = import_module("anthropic")
    client = anthropic.Anthropic(base_url=chatting.url, api_key="none", max_retries=0)
    asked = {"model": MODEL, "max_tokens": 80, "messages": [{"role": "user", "content": COUNT}]}
    asked["extra_body"] = GREEDY
    assert client.messages.create(**asked).content[0].text == COUNTED
    with client.messages.stream(**asked) as stream:
        assert "".join(stream.text_stream) == COUNTED
        assert stream.get_final_message().stop_reason == "end_turn"
    with client.messages.stream(**asked) as stream:
        next(iter(stream))
    left(chatting.url)
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
    client.close()


@pytest.mark.parametrize("provider", ["openai", "anthropic"])
def test_litellm(chatting, alone, provider):
    alone("litellm", with_litellm, chatting.url, provider)


def with_litellm(url, provider):
    litellm = import_module("litellm")
    base = f"{url}/v1" if provider == "openai" else url
    asked = {"model": f"{provider}/{MODEL}", "api_base": base, "api_key": "none", "max_tokens": 80, **GREEDY}

    def complete(text, **more):
        return litellm.completion(messages=[{"role": "user", "content": text}], **asked, **more)

    assert complete(COUNT).choices[0].message.content == COUNTED
    pieces = [each.choices[0].delta.content or "" for each in complete(COUNT, stream=True)]
    assert "".join(pieces) == COUNTED
    next(iter(complete(COUNT, stream=True)))
    left(url)
    (call,) = complete(WEATHER, tools=[{"type": "function", "function": TOOL}]).choices[0].message.tool_calls
    assert (call.function.name, call.function.arguments) == ("get_weather", '{"location": "San Francisco"}')


@pytest.mark.parametrize("api", ["chat", "responses", "messages"])
def test_langchain(chatting, alone, api):
    package = "langchain_anthropic" if api == "messages" else "langchain_openai"
    alone(package, with_langchain, chatting.url, api)


def with_langchain(url, api):
    if api == "messages":
        model = import_module("langchain_anthropic").ChatAnthropic(
            model=MODEL, base_url=url, api_key="none", max_tokens=80, **GREEDY
        )
    else:
        options = {"base_url": f"{url}/v1", "api_key": "none", "use_responses_api": api == "responses"}
        model = import_module("langchain_openai").ChatOpenAI(model=MODEL, **options, **GREEDY)
    assert model.invoke(COUNT).text == COUNTED
    assert "".join(each.text for each in model.stream(COUNT)) == COUNTED
    (call,) = model.bind_tools([get_weather]).invoke(WEATHER).tool_calls
    assert (call["name"], call["args"]) == ("get_weather", {"location": "San Francisco"})
    assert isinstance(model.with_structured_output(Person).invoke("My name is Alice."), Person)
    with pytest.raises(import_module("langchain_core.exceptions").ContextOverflowError):
        model.invoke("word " * 5000)


@pytest.mark.parametrize("kind", ["OpenAIChatModel", "OpenAIResponsesModel"])
def test_pydantic_ai(chatting, alone, kind):
    alone("pydantic_ai", with_pydantic_ai, chatting.url, kind)


def with_pydantic_ai(url, kind):
    ai, models, providers = map(
        import_module, ("pydantic_ai", "pydantic_ai.models.openai", "pydantic_ai.providers.openai")
    )
    provider = providers.OpenAIProvider(base_url=f"{url}/v1", api_key="none")
    model = getattr(models, kind)(MODEL, provider=provider, settings=GREEDY)
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
