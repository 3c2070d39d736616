"""Thoughts, content and calls are told apart however the text is cut."""

import json
from contextlib import suppress
from functools import partial
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mlx_lm.tool_parsers import mistral

from bridge.reports import cache_spec
from engine.cache.spec import parse
from engine.errors import BadInput
from engine.serve.channels import FORM as CHANNEL_FORM
from engine.serve.channels import Channel
from engine.serve.dialects.deltas import merge
from engine.serve.formats.call_forms import form_of, reader_of
from engine.serve.formats.calls import parse_json
from engine.serve.formats.output_parser import OutputParser

THINKING, CALLING = ("<think>", "</think>"), ("<tool_call>", "</tool_call>")


READER = partial(reader_of, parse_json, [{"name": "f"}])
CALL = '<tool_call>{"name": "f", "arguments": {"x": 1}}'


def told(text, size, *, cut=False, prompt="", **options):
    parts = OutputParser(**options)
    parts.begin(prompt)
    deltas = []
    for at in range(0, len(text), size):
        deltas += parts.add(text[at : at + size])
    deltas += parts.add("", last=True, cut=cut)
    message = {}
    for delta in deltas:
        merge(message, delta)
    return message.get("content", ""), message.get("reasoning_content", ""), message.get("tool_calls", [])


@pytest.mark.parametrize("size", [1, 2, 3, 7, 100])
def test_thoughts_are_split_off(size):
    assert told("<think>so <b></think>yes", size, thinking=THINKING)[:2] == ("yes", "so <b>")
    assert told("so</think>yes", size, thinking=THINKING, prompt="<think>")[:2] == ("yes", "so")
    assert told("a < b <thin", size, thinking=THINKING)[:2] == ("a < b <thin", "")
    assert told("<think>never ends", size, thinking=THINKING)[:2] == ("", "never ends")


@pytest.mark.parametrize("size", [1, 3, 100])
def test_calls_are_parsed_and_what_is_none_stays_text(size):
    call = json.dumps({"name": "f", "arguments": {"x": 1}})
    text, _, calls = told(f"hm <tool_call>{call}</tool_call>", size, calling=CALLING, call_text=READER)
    assert text == "hm "
    assert calls[0]["function"] == {"name": "f", "arguments": '{"x": 1}'}
    text, _, calls = told("<tool_call>nonsense</tool_call>!", size, calling=CALLING, call_text=READER)
    assert (text, calls) == ("nonsense!", [])


@pytest.mark.parametrize("size", [1, 3, 100])
@pytest.mark.parametrize(
    "text",
    [
        '[TOOL_CALLS][{"name": "f",\n "arguments": {"x": 1}},\n{"name": "f", "arguments": {"x": 2}}]\n',
        '[TOOL_CALLS]f[ARGS]{\n  "x": 1\n}[TOOL_CALLS]f[ARGS]{"x": 2}',
    ],
)
def test_calls_of_mistral_end_with_the_answer(text, size):
    tokenizer = SimpleNamespace(
        tool_call_start=mistral.tool_call_start,
        tool_call_end=mistral.tool_call_end,
        tool_parser=mistral.parse_tool_call,
    )
    start, end, parser = form_of(tokenizer)
    reading = partial(reader_of, parser, [{"name": "f"}])
    shown, _, calls = told(f"Let me see.\n{text}", size, calling=(start, end), call_text=reading)
    assert shown == "Let me see.\n"
    assert [json.loads(call["function"]["arguments"]) for call in calls] == [{"x": 1}, {"x": 2}]


@pytest.mark.parametrize("size", [1, 3, 100])
def test_empty_lines_between_calls_are_no_content(size):
    call = '<tool_call>\n{"name": "f", "arguments": {}}\n</tool_call>'
    text, _, calls = told(f"Both.\n{call}\n{call}\n\n", size, calling=CALLING, call_text=READER)
    assert (text, len(calls)) == ("Both.\n", 2)
    text, _, calls = told(f"{call}\nDone.\n\nBye.", size, calling=CALLING, call_text=READER)
    assert (text, len(calls)) == ("Done.\n\nBye.", 1)


@pytest.mark.parametrize("size", [1, 3, 100])
@pytest.mark.parametrize(
    ("written", "shown"),
    [
        (f"\n\n{CALL}", ""),
        (f"\n<think>a</think>\n{CALL}", ""),
        (f"\n{CALL}</tool_call>\n", ""),
        ("\n\nHello.\n", "\n\nHello.\n"),
        ("\n \n", "\n \n"),
    ],
)
def test_blank_lines_before_a_thought_or_a_call_are_no_content(written, shown, size):
    options = {"thinking": THINKING, "calling": CALLING, "call_text": READER}
    text, thought, calls = told(written, size, **options)
    assert (text, thought, len(calls)) == (
        shown,
        "a" * written.count("<think>"),
        written.count("<tool_call>"),
    )


@pytest.mark.parametrize(("cut", "calls"), [(False, 1), (True, 0)])
def test_only_the_model_ends_a_call_without_its_mark(cut, calls):
    text, _, found = told(CALL, 5, cut=cut, calling=CALLING, call_text=READER)
    assert len(found) == calls
    assert text == ("" if calls else CALL.removeprefix("<tool_call>"))


@pytest.mark.parametrize(("single", "calls"), [(False, 3), (True, 1)])
def test_a_single_call_is_the_first(single, calls):
    both = '<tool_call>[{"name": "f", "arguments": {"x": 2}}, {"name": "f", "arguments": {}}]</tool_call>'
    text, _, found = told(both + CALL, 7, single=single, calling=CALLING, call_text=READER)
    assert len(found) == calls
    assert (text, found[0]["function"]["arguments"]) == ("", '{"x": 2}')


@pytest.mark.parametrize("size", [1, 2, 5, 100])
def test_only_call_streams_its_arguments(size):
    text, _, calls = told('{"name":"f","arguments":{"x":{"y":"}"}}}', size, only_call=True)
    assert text == ""
    assert calls[0]["function"]["name"] == "f"
    assert json.loads("".join(call["function"]["arguments"] for call in calls)) == {"x": {"y": "}"}}


@pytest.mark.parametrize(
    ("name", "cache", "boundary"),
    [
        ("tiny@e8-q38", "e8@q38", 0),
        ("deepseek-r1-distill-qwen-1.5b@e8-q38-b2", "e8@q38", 2),
        ("a/b@d4-q10", "d4@q10", 0),
        ("tiny@e8v-4.25", "e8v@4.25", 0),
        ("tiny@e8v-2.25-best-b1", "e8v@2.25:best", 1),
        ("tiny@affine-4g64", "affine@4g64", 0),
        ("tiny@raw", "raw", 0),
        ("tiny@k-e8v-4.25-best-v-raw-b2", "k=e8v@4.25:best,v=raw", 2),
    ],
)
def test_channels_round_trip(name, cache, boundary):
    channel = Channel.parse(name)
    assert (channel.cache, channel.boundary, str(channel)) == (cache, boundary, name)
    assert parse(cache).text == cache


SIDES = st.one_of(
    st.just("raw"),
    st.builds("e8v@{}.25{}".format, st.integers(2, 6), st.sampled_from(["", ":fast", ":normal", ":best"])),
    st.builds("affine@{}g{}".format, st.sampled_from([2, 3, 4, 5, 6, 8]), st.sampled_from([32, 64, 128])),
)
SPECS = st.one_of(
    SIDES,
    st.builds("{}@q{}".format, st.sampled_from(["e8", "d4"]), st.integers(1, 9999)),
    st.builds("k={},v={}".format, SIDES.filter(lambda side: side != "raw"), SIDES),
)


@given(st.text(min_size=1).filter(str.isprintable), SPECS, st.integers(0, 999))
def test_every_channel_round_trips(short, spec, boundary):
    channel = Channel(short, cache_spec.canonical(spec), boundary)
    assert Channel.parse(str(channel)) == channel


@given(st.from_regex(CHANNEL_FORM, fullmatch=True))
def test_every_name_of_this_form_round_trips_or_is_refused(name):
    with suppress(BadInput):
        assert str(Channel.parse(name)) == name


@pytest.mark.parametrize(
    "name", ["tiny", "tiny@", "@e8-q38", "tiny@e8-q0", "tiny@e8-q38-b0", "tiny@zip-3", ""]
)
def test_no_channel(name):
    with pytest.raises(BadInput):
        Channel.parse(name)


def test_empty_lines_behind_a_thought_are_no_content():
    for texts in (["<think>a</think>\n\nb\n\nc"], ["<think>a</think>", "\n", "\n", "b\n\nc"]):
        parts = OutputParser(thinking=("<think>", "</think>"))
        found = [delta for i, text in enumerate(texts) for delta in parts.add(text, last=i == len(texts) - 1)]
        assert "".join(delta.get("content", "") for delta in found) == "b\n\nc"
        assert {} not in found
        assert {"content": ""} not in found


def test_empty_lines_before_any_thought_stay():
    assert OutputParser(thinking=("<think>", "</think>")).add("\n\na", last=True) == [{"content": "\n\na"}]


def test_text_that_may_begin_a_stop_string_comes_before_the_call_behind_it():
    parser = OutputParser(calling=CALLING, call_text=READER, stop=("STOP",))

    deltas = parser.add(f"so ST{CALL}</tool_call>", last=True)

    kinds = ["call" if "tool_calls" in delta else "text" for delta in deltas]
    assert kinds == sorted(kinds, reverse=True)
    assert "".join(delta.get("content") or "" for delta in deltas) == "so ST"
