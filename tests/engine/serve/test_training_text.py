"""What a model is trained on and what the server gives it are the same tokens, chat by chat."""

import json
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.serve.dialects.prompts import render
from engine.serve.protocol import ChatRequest, parse
from engine.serve.resident import load_resident
from training import conversations
from training.tokenizer import CALL, CALL_END, TURN_END


@pytest.fixture(scope="module")
def resident():
    return load_resident("tiny-chat", "none", "float32")


def turn_of(role, text):
    """A turn as a client sends it: a call of a tool in the API's own form."""
    if not text.startswith(CALL):
        return {"role": role, "content": text}
    call = json.loads(text.removeprefix(CALL).removesuffix(CALL_END))
    function = {"name": call["name"], "arguments": json.dumps(call["arguments"])}
    return {
        "role": role,
        "content": None,
        "tool_calls": [{"id": "1", "type": "function", "function": function}],
    }


def served(resident, turns, tools, *, thinking):
    """The tokens of a request's prompt, from the request's bytes on."""
    body = {
        "messages": [turn_of(*turn) for turn in turns],
        "tools": [{"type": "function", "function": tool} for tool in tools],
        "reasoning_effort": "low" if thinking else "none",
    }
    request = parse(ChatRequest, json.dumps(body).encode())
    functions = [tool.function.model_dump(exclude_none=True) for tool in request.tools]
    return resident.encode(render(resident, request, functions))


@given(
    maker=st.sampled_from([maker for maker, _ in conversations.MAKERS]),
    seed=st.integers(0, 1 << 32),
    thinking=st.booleans(),
)
def test_prompt_is_what_training_gave(resident, maker, seed, thinking):
    chat = maker(random.Random(seed))
    (head, _), _ = conversations.pieces(chat, thinking=thinking)
    assert served(resident, chat.turns, chat.tools, thinking=thinking) == resident.encode(head)


@given(maker=st.sampled_from([maker for maker, _ in conversations.MAKERS]), seed=st.integers(0, 1 << 32))
def test_answer_in_the_history_is_what_training_gave(resident, maker, seed):
    """The next prompt repeats the trained answer, and goes on behind it as a trained chat would."""
    chat = maker(random.Random(seed))
    (head, _), (answer, _) = conversations.pieces(chat, thinking=False)
    turns = [*chat.turns, ("assistant", chat.answer), ("user", "Go on.")]
    longer = conversations.Chat(turns, "", tools=chat.tools)
    (trained, _), _ = conversations.pieces(longer, thinking=False)
    ours = served(resident, turns, chat.tools, thinking=False)
    assert ours == resident.encode(trained)
    before = [*resident.encode(head), *resident.encode(answer)]
    assert ours[: len(before)] == before


def test_answers_end_with_a_token_that_ends_them(resident):
    ends = resident.pair.tokenizer.eos_token_ids
    assert {resident.encode(TURN_END)[0]} <= set(ends)
