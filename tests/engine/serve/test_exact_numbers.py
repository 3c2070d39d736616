"""What a schema states about numbers is enforced to the last digit, or refused. Another validator judges."""

import json
from decimal import Decimal

import jsonschema
import pytest

from engine.serve.errors import ApiError
from engine.serve.formats.schemas import WrittenFloat
from engine.serve.grammars import grammar
from engine.serve.resident import load_resident

ON_BOTH_BACKENDS = True

DENSE, INT64 = 2**53, 2**63 - 1
# Schemas that a grammar can enforce, as JSON. Their numbers' neighbours are tried too.
ENFORCED = [
    *(
        f'{{"const": {n}}}'
        for n in (0, -1, 127, 2**31 - 1, -(2**31), 2**32, DENSE - 1, 1 - DENSE, DENSE, 10**18, INT64)
    ),
    *(
        f'{{"const": {n}}}'
        for n in ("1.0", "-0.0", "0.1", "0.30000000000000004", "1e-7", "1e22", "1E2", "12e-1", "0.10")
    ),
    *(f'{{"enum": [{n}, "a"]}}' for n in (5, 2**60, -(2**60), INT64, "19.99")),
    *(
        f'{{"type": "{kind}", "{bound}": {n}}}'
        for kind in ("integer", "number")
        for bound in ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")
        for n in (0, -5, 2**31, DENSE - 1, 1 - DENSE, "0.5", "-2.25")
    ),
    f'{{"type": "integer", "maximum": {INT64}}}',
    f'{{"type": "integer", "minimum": 0, "maximum": {INT64}}}',
    f'{{"type": "integer", "minimum": {1 - DENSE}, "maximum": {DENSE - 1}}}',
    '{"type": "integer", "multipleOf": 7}',
    '{"type": "number", "multipleOf": 0.1}',
    '{"type": "number", "multipleOf": 0.01, "minimum": 1}',
    '{"type": "integer", "minimum": 10, "maximum": 20, "multipleOf": 3}',
    '{"enum": [[1, {"a": 9007199254740991}], {"b": [0.25]}]}',
    '{"const": {"a": [9007199254740992, -0.5]}}',
    '{"type": "integer", "default": 9007199254740993, "examples": [9007199254740993]}',
]
# Schemas that state a number which a grammar would round, with the keyword that has it.
REFUSED = [
    *(("const", f'{{"const": {n}}}') for n in (DENSE + 1, -DENSE - 1, 1234567890123456789, 2**63, -(2**63), 2**64 - 1)),
    *(("const", f'{{"const": {n}}}') for n in (10**30, "1e23", "1e400", "-1e400", "1e-400", "9007199254740993.0")),
    *(("const", f'{{"const": {n}}}') for n in ("0.12345678901234567890", f"1e{10**20}", f"1e-{10**20}")),
    ("enum", f'{{"enum": [1, {DENSE + 1}]}}'),
    ("enum", f'{{"enum": [[{{"a": [{2**64 - 1}]}}]]}}'),
    ("const", f'{{"const": {{"maximum": {DENSE + 1}}}}}'),
    *(
        (bound, f'{{"type": "{kind}", "{bound}": {n}}}')
        for kind in ("integer", "number")
        for bound in ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")
        for n in (DENSE + 1, -DENSE - 1, 2**64 - 1, "1e400")
    ),
    ("minimum", f'{{"type": "integer", "minimum": {INT64}}}'),
    ("minimum", f'{{"type": "integer", "minimum": {-INT64 - 1}}}'),
    ("maximum", f'{{"type": "number", "maximum": {INT64}}}'),
    ("maximum", f'{{"maximum": {2**60}}}'),
    ("exclusiveMaximum", f'{{"type": "integer", "exclusiveMaximum": {DENSE}}}'),
    ("multipleOf", f'{{"type": "integer", "multipleOf": {DENSE + 1}}}'),
    *(
        ("maximum", text.replace("X", f'{{"type": "integer", "maximum": {DENSE + 1}}}'))
        for text in (
            '{"properties": {"a": X}}', '{"properties": {"default": X}}', '{"items": X}', '{"prefixItems": [X]}',
            '{"anyOf": [{}, X]}', '{"allOf": [X]}', '{"additionalProperties": X}', '{"patternProperties": {"^a": X}}',
            '{"$defs": {"x": X}}', '{"definitions": {"title": X}}', '{"some": {"where": X}, "$ref": "#/some/where"}',
        )
    ),
]  # fmt: skip


def numbers_in(value):
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    own = [value] if isinstance(value, int | Decimal) and not isinstance(value, bool) else []
    return own + [number for each in inner for number in numbers_in(each)]


def texts_near(number):
    """Return numbers as JSON, near another one, and the same in other spellings."""
    exact, whole = Decimal(number), int(number)
    step = Decimal(1).scaleb(min(0, exact.as_tuple().exponent))
    steps = [-exact, *(exact + by * step for by in (-1024, -2, -1, 0, 1, 2, 1024))]
    return {"-0", *(f"{each:f}" for each in steps), *(str(whole + by) for by in (-1, 0, 1))}


def test_each_number_that_a_grammar_allows_is_valid():
    resident = load_resident("tiny", "none", "float32")
    parsed = [json.loads(text, parse_float=WrittenFloat) for text in ENFORCED]
    made = {"type": "object", "properties": {f"k{i}": each for i, each in enumerate(parsed)}}
    matcher = resident.grammars.compiled(grammar.schema_grammar(made), "tools").matcher()
    for i, text in enumerate(ENFORCED):
        exact, allowed = json.loads(text, parse_float=Decimal), set()
        validator = jsonschema.Draft202012Validator(exact)
        own = [exact["const"]] if "const" in exact else exact.get("enum", [])
        whole = [json.dumps(each, default=float, separators=(",", ":")) for each in own]
        tried = {near for number in numbers_in(exact) for near in texts_near(number)}
        for value in {*tried, *whole}:
            tokens = resident.encode(f'{{"k{i}":{value}}}')
            if matcher.validate_tokens(tokens) == len(tokens):
                allowed.add(value)
                assert validator.is_valid(json.loads(value, parse_float=Decimal)), (text, value)
        whole_numbers = {value for value in tried if value.lstrip("-").isdigit()}
        expected = {value for value in whole_numbers if validator.is_valid(int(value)) and value != "-0"}
        assert expected <= allowed or allowed == {"-0"}, (text, expected - allowed)
        assert allowed, text


@pytest.mark.parametrize(("keyword", "text"), REFUSED)
def test_a_number_that_would_be_rounded_is_refused(keyword, text):
    schema = json.loads(text, parse_float=WrittenFloat)
    for make in (grammar.schema_grammar, lambda s: grammar.tools_grammar([{"name": "f", "parameters": s}])):
        with pytest.raises(ApiError, match=rf"keyword {keyword}\b.* cannot be enforced exactly") as refused:
            make(schema)
        assert (refused.value.status, refused.value.code) == (400, "invalid_schema")


BODIES = [
    ("/v1/chat/completions", {"response_format": {"type": "json_schema", "json_schema": {"schema": "S"}}}),
    ("/v1/completions", {"response_format": {"type": "json_schema", "json_schema": {"schema": "S"}}}),
    ("/v1/responses", {"text": {"format": {"type": "json_schema", "name": "x", "schema": "S"}}}),
    (
        "/v1/chat/completions",
        {"tools": [{"type": "function", "function": {"name": "f", "parameters": "S"}}], "tool_choice": "required"},
    ),
    ("/v1/responses", {"tools": [{"type": "function", "name": "f", "parameters": "S"}], "tool_choice": "required"}),
    ("/v1/messages", {"tools": [{"name": "f", "input_schema": "S"}], "tool_choice": {"type": "any"}}),
]  # fmt: skip


@pytest.mark.parametrize(("path", "fields"), BODIES)
@pytest.mark.parametrize("number", ["1234567890123456789", "0.12345678901234567890", "9007199254740993.0"])
def test_all_routes_keep_a_number_as_it_was_written(server, path, fields, number):
    body = {"model": "tiny", "max_tokens": 40, "temperature": 0, **fields}
    asked = {"/v1/completions": {"prompt": "x"}, "/v1/responses": {"input": "x"}}
    body |= asked.get(path, {"messages": [{"role": "user", "content": "x"}]})
    if path == "/v1/responses":
        body["max_output_tokens"] = body.pop("max_tokens")
    schema = f'{{"type": "object", "properties": {{"id": {{"const": {number}}}}}, "required": ["id"]}}'
    text = json.dumps(body).replace('"S"', schema)
    answer = server.http.post(path, content=text, headers={"Content-Type": "application/json"})
    assert answer.status_code == 400, answer.text
    assert f"keyword const has a number that cannot be enforced exactly: {number}" in answer.text
