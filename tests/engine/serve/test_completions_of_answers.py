"""A token limit changes no JSON that fits, and cuts none that could be completed."""

import json

import jsonschema
import numpy as np
import pytest

from engine.serve.grammars import grammar
from engine.serve.resident import load_resident

TEXT = {"type": "string"}
SCHEMAS = {
    "object": {
        "type": "object",
        "properties": {"a": {"type": "integer"}},
        "required": ["a"],
        "additionalProperties": False,
    },
    "any object": {"type": "object"},
    "number": {"type": "number", "exclusiveMinimum": 10.5},
    "multiple": {"type": "integer", "multipleOf": 7, "minimum": 100},
    "choice": {"enum": ["international", "a b c d e f", ["x", {"y": None}], 12.5]},
    "text": TEXT,
    "long text": {**TEXT, "minLength": 60},
    "duration": {**TEXT, "format": "duration"},
    "date-time": {**TEXT, "format": "date-time"},
    "uuid": {**TEXT, "format": "uuid"},
    "email": {**TEXT, "format": "email"},
    "ipv6": {**TEXT, "format": "ipv6"},
    "uri": {**TEXT, "format": "uri"},
    "alternatives": {**TEXT, "pattern": "^[0-9]+(s|ms)$"},
    "a word anywhere": {**TEXT, "pattern": "foo"},
    "escapes": {**TEXT, "pattern": '^a\\\\"b\n+$'},
    "no ASCII": {**TEXT, "pattern": "^[^\\x00-\\x7f]+z$"},
    "words": {"type": "array", "items": {**TEXT, "pattern": "^(abc|de)+x$"}, "minItems": 2},
    "nested": {"type": "array", "items": {"type": "array", "items": {"type": "array", "items": TEXT}}},
    "several": {
        "type": "object",
        "properties": {"d": {**TEXT, "format": "duration"}, "e": {**TEXT, "format": "time"}, "f": {"type": "boolean"}},
        "required": ["d", "e", "f"],
    },
    "recursive": {
        "$defs": {
            "n": {
                "type": "object",
                "properties": {"v": {"type": "integer"}, "c": {"anyOf": [{"$ref": "#/$defs/n"}, {"type": "null"}]}},
                "required": ["v", "c"],
                "additionalProperties": False,
            }
        },
        "$ref": "#/$defs/n",
    },
    "much in an option": {
        "type": "object",
        "properties": {
            "o": {
                "type": "object",
                "properties": {f"p{i}": {"type": "boolean"} for i in range(12)},
                "required": [f"p{i}" for i in range(12)],
            }
        },
    },
}  # fmt: skip


@pytest.fixture(scope="module")
def resident():
    return load_resident("tiny", "none", "float32")


def answered(resident, compiled, limit, seed):
    """Return the tokens of an answer by chance, whether it ended by itself, and whether it was forced to end."""
    state, tokens, ends = compiled.start(), [], resident.tokenizer.eos_token_ids
    end, rare = min(ends), np.random.default_rng(seed)
    while len(tokens) < limit:
        (allowed,) = state.masks([])
        chosen = int(rare.choice(np.flatnonzero(allowed)))
        if chosen in ends:
            break
        (token,) = state.fit([chosen], limit - len(tokens), end)
        if token == end:
            break
        state.commit([token])
        tokens.append(token)
        if state.ended:
            break
    return tokens, len(tokens) < limit or state.ended, state.forced_to_end


def is_valid(text, schema):
    try:
        jsonschema.validate(json.loads(text), schema)
    except (ValueError, jsonschema.ValidationError):
        return False
    return True


@pytest.mark.rows(2)
@pytest.mark.parametrize("name", SCHEMAS)
def test_a_limit_changes_no_answer_that_fits(resident, name):
    schema = SCHEMAS[name]
    compiled = resident.grammars.compiled(grammar.schema_grammar(schema), "tools")
    free, by_itself, _ = answered(resident, compiled, 250, 0)
    found = {limit: answered(resident, compiled, limit, 0) for limit in range(1, 65, 3)}
    least = min((limit for limit in found if is_valid(resident.decode(found[limit][0]), schema)), default=65)
    for limit, (tokens, _, forced) in found.items():
        text = resident.decode(tokens)
        if by_itself and len(free) <= limit:
            assert (tokens, forced) == (free, False), limit
        elif limit >= least:  # the limit changes no token before something fits
            assert is_valid(text, schema), (limit, text)
            assert forced or tokens == free[:limit], (limit, text)


@pytest.mark.parametrize(
    ("name", "least"),
    [
        ("object", '{"a":0}'),
        ("alternatives", '"0s"'),
        ("duration", '"P1D"'),
        ("recursive", '{"v":0,"c":null}'),
    ],
)
def test_the_shortest_answer_fits_into_its_own_length(resident, name, least):
    compiled = resident.grammars.compiled(grammar.schema_grammar(SCHEMAS[name]), "tools")
    limit = len(resident.encode(least))
    for seed in range(8):
        assert is_valid(resident.decode(answered(resident, compiled, limit, seed)[0]), SCHEMAS[name]), (
            seed,
            limit,
        )


FORM = {"type": "json_schema", "json_schema": {"schema": SCHEMAS["object"]}}
TOOL = {"type": "function", "function": {"name": "f", "parameters": SCHEMAS["object"]}}


@pytest.mark.long
@pytest.mark.parametrize("draft", ["none", "dflash"])
@pytest.mark.parametrize(
    "fields",
    [{"response_format": FORM, "n": 2}, {"tools": [TOOL], "tool_choice": "required"}],
    ids=["format", "call"],
)
def test_answers_over_http_do_not_depend_on_the_limit(server, draft, fields):
    def asked(most, **more):
        given = {
            "model": "tiny",
            "messages": [{"role": "user", "content": "q"}],
            "temperature": 0,
            "max_tokens": most,
        }
        return server.ai.chat.completions.create(
            **given, **fields, **more, extra_body={"x_kakeya": {"draft": draft}}
        )

    def text_of(message):
        return message.tool_calls[0].function.arguments if message.tool_calls else message.content

    free = asked(200)
    length = free.usage.completion_tokens // len(free.choices)
    for most in range(1, 65, 9):
        found = asked(most)
        for choice, own in zip(found.choices, free.choices, strict=True):
            if most >= length:
                assert (text_of(choice.message), choice.finish_reason) == (
                    text_of(own.message),
                    own.finish_reason,
                ), most
            else:
                assert choice.finish_reason == "length", most
        pieces, reasons = ["" for _ in found.choices], [None for _ in found.choices]
        for chunk in asked(most, stream=True):
            for choice in chunk.choices:
                pieces[choice.index] += choice.delta.content or "".join(
                    c.function.arguments for c in choice.delta.tool_calls or []
                )
                reasons[choice.index] = choice.finish_reason or reasons[choice.index]
        assert reasons == [choice.finish_reason for choice in found.choices]
        if most >= length:
            assert pieces == [text_of(choice.message) for choice in found.choices]
