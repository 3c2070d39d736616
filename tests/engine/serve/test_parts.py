"""Thoughts, content and calls are told apart however the text is cut."""

import json

import pytest

from engine.cache.spec import parse
from engine.errors import BadInput
from engine.serve.channels import Channel
from engine.serve.parts import Parts

THINKING, CALLING = ("<think>", "</think>"), ("<tool_call>", "</tool_call>")


def told(text, size, **options):
    parts = Parts(**options)
    deltas = []
    for at in range(0, len(text), size):
        deltas += parts.add(text[at : at + size])
    deltas += parts.add("", last=True)
    joined = {name: "".join(d.get(name, "") for d in deltas) for name in ("content", "reasoning_content")}
    calls = [call for d in deltas for call in d.get("tool_calls", ())]
    return joined["content"], joined["reasoning_content"], calls


@pytest.mark.parametrize("size", [1, 2, 3, 7, 100])
def test_thoughts_are_split_off(size):
    assert told("<think>so <b></think>yes", size, thinking=THINKING)[:2] == ("yes", "so <b>")
    assert told("so</think>yes", size, thinking=THINKING, open_thought=True)[:2] == ("yes", "so")
    assert told("a < b <thin", size, thinking=THINKING)[:2] == ("a < b <thin", "")
    assert told("<think>never ends", size, thinking=THINKING)[:2] == ("", "never ends")


@pytest.mark.parametrize("size", [1, 3, 100])
def test_calls_are_parsed_and_what_is_none_stays_text(size):
    call = json.dumps({"name": "f", "arguments": {"x": 1}})
    text, _, calls = told(f"hm <tool_call>{call}</tool_call>", size, calling=CALLING, parse_call=json.loads)
    assert text == "hm "
    assert calls[0]["function"] == {"name": "f", "arguments": '{"x": 1}'}
    text, _, calls = told("<tool_call>nonsense</tool_call>!", size, calling=CALLING, parse_call=json.loads)
    assert (text, calls) == ("nonsense!", [])


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
    ],
)
def test_channels_round_trip(name, cache, boundary):
    channel = Channel.parse(name)
    assert (channel.cache, channel.boundary, str(channel)) == (cache, boundary, name)
    assert parse(cache).text == cache


@pytest.mark.parametrize(
    "name", ["tiny", "tiny@", "@e8-q38", "tiny@e8-q0", "tiny@e8-q38-b0", "tiny@zip-3", ""]
)
def test_no_channel(name):
    with pytest.raises(BadInput):
        Channel.parse(name)
