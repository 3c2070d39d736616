"""The text that a trial compiled under limits is the only one that the server compiles."""

import json
import resource
import sys
from pathlib import Path
from unittest.mock import Mock

import pytest

import engine.serve
from engine.serve.errors import ApiError
from engine.serve.grammars import compiled, grammar, trial
from engine.serve.resident import load_resident

COSTLY = {"type": "integer", "multipleOf": 9_999_991}
# Keys of definitions, and references to them, whose spelling a rewritten text would change.
SPELLINGS = [
    ("<[0]>", "#/$defs/%3C%5B0%5D%3E"),
    ("<[^0-9, 5]>", "#/$defs/%3C%5B%5E0-9%2C%205%5D%3E"),
    ("<[0]>/~", "#/$defs/%3C%5B0%5D%3E~1~0"),
    ("/x/", "#/$defs/~1x~1"),
    ("\u00e9<[1]>", "#/$defs/%C3%A9%3C%5B1%5D%3E"),
    ("a%25b", "#/$defs/a%2525b"),
    ("%json", "#/$defs/%25json"),
]


def costly(key, ref):
    return {"type": "object", "properties": {"a": {"$ref": ref}}, "required": ["a"], "$defs": {key: COSTLY}}


@pytest.fixture(scope="module")
def resident():
    found = load_resident("tiny", "none", "float32")
    found.grammars.compiled(grammar.schema_grammar({"type": "string"}), "tools")  # loads what compiling needs
    return found


def texts(resident, schema):
    """Return the grammars of all forms in which a client's schema can stand."""
    tools, answer = [{"name": "f", "parameters": schema}], grammar.schema_grammar({"type": "string"})
    own = grammar.schema_grammar(schema)
    return {
        "format": own,
        "call": grammar.tools_grammar(tools),
        "behind a thought": grammar.after_thought(own, [5, 7]),
        "beside calls": grammar.with_calls(answer, *resident.grammars.marks(), tools),
        "on channels": grammar.on_channels(answer, resident.grammars.mark, tools),
    }


def refuse(resident, text):
    before = resource.getrusage(resource.RUSAGE_SELF)
    with pytest.raises(ApiError) as refused:
        resident.grammars.compiled(text, "tools")
    after = resource.getrusage(resource.RUSAGE_SELF)
    assert (refused.value.status, refused.value.code) == (400, "invalid_schema")
    assert after.ru_utime - before.ru_utime < 1
    assert after.ru_maxrss - before.ru_maxrss < 64 << 10


@pytest.mark.rows(1)
@pytest.mark.parametrize("form", ["format", "on channels"])
def test_row_136_a_costly_schema_is_refused(resident, form):
    refuse(resident, texts(resident, costly(*SPELLINGS[2]))[form])


def test_row_136_what_is_compiled_is_what_was_tried(resident, monkeypatch):
    """However a schema is spelled, and wherever it stands."""
    given = [text for each in SPELLINGS for text in texts(resident, costly(*each)).values()]
    seen, broken = [], Mock(get_error=lambda: "a substitute")
    monkeypatch.setattr(trial, "outcome", lambda text, *_: seen.append(text) or trial.Outcome(0, ""))
    monkeypatch.setattr(compiled.llguidance, "LLMatcher", lambda _, text, **__: seen.append(text) or broken)
    for text in given:
        with pytest.raises(ApiError, match="a substitute"):
            resident.grammars.compiled(text, "tools")
        assert seen[-2:] == [text, text]


FAULTS = {
    "absent": "/nonexistent/python",
    "failing": "/bin/false",
    "silent": "/bin/true",
    "speaking": "/bin/echo",
}


@pytest.mark.parametrize("fault", FAULTS)
def test_row_136_without_a_trial_nothing_is_compiled(resident, monkeypatch, fault):
    monkeypatch.setattr(sys, "executable", FAULTS[fault])
    monkeypatch.setattr(compiled.llguidance, "LLMatcher", None)
    with pytest.raises(ApiError) as refused:
        resident.grammars.compiled(json.dumps({"never": fault}), "response_format")
    assert (refused.value.status, refused.value.param) == (400, "response_format")


@pytest.mark.parametrize(
    "text",
    [
        "start: /(/",
        "start: x",
        grammar.schema_grammar({"$ref": "#/nowhere"}),
        grammar.schema_grammar({"not": {}}),
        grammar.schema_grammar(False),
    ],
)
def test_row_136_an_error_of_the_trial_is_a_refusal(resident, monkeypatch, text):
    monkeypatch.setattr(compiled.llguidance, "LLMatcher", None)
    with pytest.raises(ApiError) as refused:
        resident.grammars.compiled(text, "response_format")
    assert refused.value.status == 400
    assert "too complex" not in refused.value.message


def test_row_136_a_number_that_ends_the_trials_process_ends_no_server(resident):
    """llguidance overflows its stack on this number: the text is written without our own check of numbers."""
    text = grammar.schema_grammar({"const": 1}).replace('"const": 1', f'"const": {-(2**63)}')
    assert str(2**63) in text
    assert trial.outcome(text, 2048) is None


def test_row_136_the_engine_has_no_function_that_compiles():
    folder = Path(engine.serve.__file__).parent
    makers = {path.name for path in folder.rglob("*.py") if "LLMatcher(" in path.read_text("utf-8")}
    assert makers == {"compiled.py", "trial.py"}
    users = {path.name for path in folder.rglob("*.py") if "grammars.compiled" in path.read_text("utf-8")}
    assert users <= {"backend.py", "chat.py", "compiled.py", "position.py", "grammar.py"}
    assert not [
        path for path in (folder / "scheduler").glob("*.py") if ".compiled(" in path.read_text("utf-8")
    ]


def test_waiting_grammars_take_bounded_memory(resident, monkeypatch):
    grammars = compiled.Grammars(resident.pair.tokenizer, resident.vocabulary)
    monkeypatch.setattr(trial, "outcome", lambda *_: trial.Outcome(compiled.MOST_BYTES // 2, ""))
    held = [grammars.compiled(grammar.schema_grammar({"const": i}), "tools") for i in range(2)]
    with pytest.raises(ApiError) as refused:
        grammars.compiled(grammar.schema_grammar({"const": 2}), "tools")
    assert refused.value.status == 429
    assert grammars.compiled(held[0].text, "tools") is held[0]
    held.clear()
    assert grammars.compiled(grammar.schema_grammar({"const": 2}), "tools")
