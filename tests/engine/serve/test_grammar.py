"""Answers that follow a grammar: always valid JSON, whatever is drafted, sampled or cut short."""

import json
import queue
import time

import jsonschema
import pytest

from engine.mx import mx
from engine.serve.backend import Job, Options
from engine.serve.grammars import grammar
from engine.serve.metrics import Metrics
from engine.serve.resident import load_resident
from engine.serve.scheduler.guide import Guide
from engine.serve.scheduler.thread import EngineThread
from engine.serve.settings import Settings

ON_BOTH_BACKENDS = True

PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "age": {"type": "integer", "minimum": 0},
        "tags": {"type": "array", "items": {"enum": ["a", "b"]}, "maxItems": 3},
    },
    "required": ["name", "age", "tags"],
    "additionalProperties": False,
}
FORMAT = {"type": "json_schema", "json_schema": {"name": "person", "schema": PERSON}}
WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
            "required": ["city"],
            "additionalProperties": False,
        },
    },
}
TREE = {
    "type": "object",
    "properties": {"v": {"$ref": "#/$defs/n"}, "of": {"$ref": "#"}},
    "additionalProperties": False,
    "$defs": {"n": {"type": "integer"}},
}
CLOCKS = [{"name": "now"}, {"name": "grow", "parameters": TREE}]
CLOCK = {"type": "function", "function": {"name": "now"}}
TURN = [{"role": "user", "content": "Tell me of somebody."}]


def ask(server, draft="none", **fields):
    given = {"model": "tiny", "messages": TURN, "temperature": 0, "max_tokens": 64, **fields}
    return server.ai.chat.completions.create(**given, extra_body={"x_kakeya": {"draft": draft}})


@pytest.mark.rows(2)
@pytest.mark.parametrize(
    ("model", "draft", "most"),
    [
        ("tiny", "dflash", 24),
        ("tiny-hybrid", "none", 24),
        ("tiny", "none", 200),
        ("tiny", "auto", 24),
        ("tiny-hybrid", "lookup", 24),
        ("tiny-hybrid", "dflash", 200),
    ],
)
def test_schema_is_followed_even_when_cut_short(server, model, draft, most):
    found = ask(server, draft, model=model, max_tokens=most, response_format=FORMAT)
    jsonschema.validate(json.loads(found.choices[0].message.content), PERSON)
    assert found.usage.completion_tokens <= most
    plain = ask(server, "none", model=model, max_tokens=most, response_format=FORMAT)
    assert found.choices[0].message.content == plain.choices[0].message.content
    if draft == "dflash" and server.backend == "mlx":
        assert found.x_kakeya["rounds"] > 0


@pytest.mark.rows(4)
@pytest.mark.parametrize("draft", ["none", "dflash"])
@pytest.mark.parametrize("seed", range(3))
def test_hot_samples_are_json(server, draft, seed):
    found = ask(server, draft, temperature=1.8, seed=seed, response_format={"type": "json_object"})
    assert isinstance(json.loads(found.choices[0].message.content), dict)


def test_cut_short_is_said(server):
    text = {"type": "json_schema", "json_schema": {"schema": {"type": "string", "minLength": 60}}}
    found = ask(server, max_tokens=24, response_format=text, temperature=1.5, seed=3)
    assert len(json.loads(found.choices[0].message.content)) >= 60
    assert found.choices[0].finish_reason == "length"
    free = ask(
        server,
        max_tokens=8,
        response_format={"type": "json_schema", "json_schema": {"schema": {"enum": [1]}}},
    )
    assert (free.choices[0].message.content, free.choices[0].finish_reason) == ("1", "stop")


@pytest.mark.parametrize("draft", ["none", "lookup", "dflash"])
@pytest.mark.parametrize(
    "choice", ["required", {"type": "function", "function": {"name": "get_weather"}}], ids=["any", "named"]
)
def test_required_call(server, draft, choice):
    found = ask(server, draft, tools=[WEATHER, CLOCK], tool_choice=choice)
    message = found.choices[0].message
    (call,) = message.tool_calls
    assert message.content is None
    assert found.choices[0].finish_reason == "tool_calls"
    arguments = json.loads(call.function.arguments)
    if choice != "required":
        assert call.function.name == "get_weather"
    if call.function.name == "get_weather":
        jsonschema.validate(arguments, WEATHER["function"]["parameters"])
    assert isinstance(arguments, dict)


def test_streamed_call_is_the_whole_one(server):
    fields = {"tools": [WEATHER], "tool_choice": "required"}
    whole = ask(server, "dflash", **fields).choices[0].message.tool_calls[0].function
    chunks = list(ask(server, "dflash", stream=True, **fields))
    deltas = [call for c in chunks if c.choices for call in c.choices[0].delta.tool_calls or []]
    assert deltas[0].function.name == "get_weather"
    assert deltas[0].id.startswith("call_")
    assert all(delta.id is None and delta.index == 0 for delta in deltas[1:])
    assert len(deltas) > 2
    assert "".join(delta.function.arguments for delta in deltas) == whole.arguments
    assert not any(c.choices[0].delta.content for c in chunks[1:] if c.choices)


def test_a_function_without_parameters_gets_no_arguments(server):
    (call,) = ask(server, tools=[CLOCK], tool_choice="required").choices[0].message.tool_calls
    assert (call.function.name, call.function.arguments) == ("now", "{}")


@pytest.mark.parametrize("format_", ["date-time", "email"])
def test_formats_are_closed_within_the_limit(server, format_):
    schema = {"type": "object", "properties": {"a": {"type": "string", "format": format_}}, "required": ["a"]}
    wanted = {"type": "json_schema", "json_schema": {"schema": {**schema, "additionalProperties": False}}}
    found = ask(server, max_tokens=60, temperature=2, seed=1, response_format=wanted).choices[0].message
    assert set(json.loads(found.content)) == {"a"}


ENDLESS = {
    "$defs": {"a": {"type": "object", "properties": {"x": {"$ref": "#/$defs/a"}}, "required": ["x"]}},
    "$ref": "#/$defs/a",
}


@pytest.mark.parametrize(
    "schema", [{"type": "string", "pattern": "^(a{1000}){1000}$"}, ENDLESS], ids=["pattern", "recursion"]
)
def test_a_schema_that_proves_too_complex_is_no_bug_and_no_answer(server, schema):
    body = {"model": "tiny", "messages": TURN, "max_tokens": 200, "temperature": 0}
    wanted = {"type": "json_schema", "json_schema": {"schema": schema}}
    found = server.http.post("/v1/chat/completions", json={**body, "response_format": wanted})
    assert (found.status_code, found.json()["error"]["code"]) == (400, "invalid_schema"), found.text
    assert "too complex" in found.json()["error"]["message"]


def test_tools_may_be_left_alone(server):
    found = ask(server, tools=[WEATHER], tool_choice="none", max_tokens=8)
    assert found.choices[0].message.tool_calls is None
    assert found.choices[0].message.content


def test_tool_turns_are_read(server):
    turns = [
        *TURN,
        {
            "role": "assistant",
            "tool_calls": [{"id": "c", "type": "function", "function": {"name": "now", "arguments": "{}"}}],
        },
        {"role": "tool", "tool_call_id": "c", "content": "noon"},
    ]
    assert ask(server, messages=turns, tools=[CLOCK], max_tokens=4).choices[0].message.role == "assistant"


@pytest.fixture(scope="module")
def tiny():
    return load_resident("tiny", "none", "float32")


def test_drafts_are_cut_at_the_first_refused_token(tiny):
    made = grammar.schema_grammar({"enum": [["a", 1]]})
    guide = Guide(
        Options(64, grammar="x"),
        [1],
        tiny.vocabulary,
        tiny.grammars.compiled(made, "tools").start(),
        frozenset({0, 2}),
    )
    right, wrong = tiny.encode('["a",1]'), tiny.encode("[[")
    assert guide.cut(right) == len(right)
    assert guide.cut([*right[:2], *wrong]) == 2
    assert guide.cut(wrong[:1] * 2) <= 1
    shaped = guide.shape(mx.zeros((1, 3, tiny.vocabulary)), right[:2])
    allowed = (shaped[0] > -mx.inf).sum(axis=-1).tolist()
    assert all(1 <= count < 40 for count in allowed)
    assert guide.until_end([*right, 0, 5], 1000) == right
    guide.commit(tuple(right))
    assert guide.ended
    assert guide.cut([right[0]]) == 0


JSON_CALL = '<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>'
TREE_CALL = JSON_CALL.replace("now", "grow").replace("{}", '{"v": 1, "of": {"v": 2}}')
OTHER_CALL = "<tool_call>\n<function=now>\n</function>\n</tool_call>"


@pytest.mark.rows(4)
@pytest.mark.parametrize(
    ("text", "in_json", "free"),
    [
        ('["a",1]', True, True),
        (JSON_CALL, True, True),
        (f"{JSON_CALL}\n{TREE_CALL}", True, True),
        (TREE_CALL.replace("2", '"2"'), False, True),
        (OTHER_CALL, False, True),
        (JSON_CALL.replace("now", "other"), False, True),
        ('["a",1]' + JSON_CALL, False, False),
        (JSON_CALL + '["a",1]', False, False),
        ("now", False, False),
    ],
)
@pytest.mark.parametrize("name", ["tiny", "tiny-chat"])  # marks of several tokens, and of one
def test_a_format_beside_tools_allows_an_answer_or_calls(name, text, in_json, free):
    resident = load_resident(name, "none", "float32")
    answer, marks = grammar.schema_grammar({"enum": [["a", 1]]}), resident.grammars.marks()
    for tools, allowed in ((CLOCKS, in_json), (None, free)):
        matcher = resident.grammars.compiled(grammar.with_calls(answer, *marks, tools), "tools").matcher()
        tokens = resident.encode(text)
        whole = matcher.validate_tokens(tokens) == len(tokens)
        assert (whole and matcher.consume_tokens(tokens) and matcher.is_accepting()) == allowed


@pytest.mark.long
def test_sampled_rounds_keep_the_guided_distribution(tiny):
    """A refused draft is replaced from the residual: over many seeds drafts leave the frequencies as they are."""
    from engine.dflash.sampling import Sampler, Sampling  # noqa: PLC0415 - MLX first

    p = mx.array([[[0.5, 0.3, 0.2, 0.0], [0.5, 0.3, 0.2, 0.0]]])  # the grammar refuses token 3
    q = mx.array([[[0.1, 0.1, 0.1, 0.7]]])
    counts = [0, 0, 0, 0]
    for seed in range(1500):
        sampler = Sampler(Sampling(1.0), seed)
        draft = mx.random.categorical(mx.log(q[:, 0]), key=mx.random.key(seed + 9999))[None]
        accepted, following = sampler.accept(mx.log(p), draft.reshape(1, 1), q)
        counts[draft.item() if accepted.item() else following.item()] += 1
    assert counts[3] == 0
    for count, share in zip(counts, (0.5, 0.3, 0.2), strict=False):
        assert abs(count / 1500 - share) < 0.05


def test_drafts_that_a_grammar_cuts_are_not_counted_as_verified(monkeypatch):
    from engine.dflash.generation import Run  # noqa: PLC0415 - MLX first

    verified, forward = [], Run.forward

    def counted(self, tokens):
        verified.append(tokens.shape[1] - 1)
        return forward(self, tokens)

    monkeypatch.setattr(Run, "forward", counted)
    engine, events = EngineThread(Settings(dtype="float32"), Metrics()), queue.Queue()
    engine.start()
    resident = engine.load("tiny").result(60)
    given = Options(
        60,
        temperature=0.0,
        draft="dflash",
        grammar=resident.grammars.compiled(grammar.schema_grammar(PERSON), "tools"),
    )
    engine.submit(
        [Job(0, "tiny", resident.encode("def main(argv):"), given, events.put, time.monotonic() + 60)]
    )
    while (piece := events.get(timeout=60)).finish_reason is None:
        pass
    engine.stop()
    assert piece.report["proposed"] == sum(verified)
    assert piece.report["accepted"] <= piece.report["proposed"]
