"""A small gpt-oss that has learnt a few answers by heart, served: its channels, calls and drafts over each API."""

import json
import shutil
from pathlib import Path

import pytest
from mlx import nn, optimizers
from mlx.utils import tree_flatten
from mlx_lm.models import gpt_oss
from tokenizers import AddedToken, Tokenizer, pre_tokenizers, trainers

from engine.mx import mx
from engine.serve.dialects.prompts import render
from engine.serve.protocol import ChatRequest
from engine.serve.resident import load_resident
from tests.engine.folders import change_config, write_tokenizer
from tests.engine.serve.world import serving

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]  # the model is trained first
TEMPLATE = Path(__file__).parent / "templates" / "gpt-oss.jinja"
MARKS = ["<|return|>", "<|call|>", "<|start|>", "<|channel|>", "<|message|>", "<|constrain|>"]
VOCAB = 480
CONFIG = {
    "model_type": "gpt_oss",
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_local_experts": 4,
    "num_experts_per_tok": 2,
    "intermediate_size": 64,
    "head_dim": 32,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": VOCAB,
    "sliding_window": 64,
    "max_position_embeddings": 2048,
    "layer_types": ["sliding_attention", "full_attention"],
}
PARAMETERS = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
FUNCTION = {"name": "get_weather", "description": "Weather.", "parameters": PARAMETERS}
TOOLS = [{"type": "function", "function": FUNCTION}]
HI = [{"role": "user", "content": "Hi"}]
ASKED = [{"role": "user", "content": "Weather?"}]
CALL = {"id": "c1", "type": "function", "function": {"name": "get_weather", "arguments": '{"city": "Oslo"}'}}
RESULT = [
    {"role": "assistant", "reasoning_content": "Ask a tool.", "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "c1", "content": "sun"},
]
GREETED = (
    "<|channel|>analysis<|message|>A greeting.<|end|><|start|>assistant"
    "<|channel|>final<|message|>Hello!<|return|>"
)
CALLED = (
    "<|channel|>analysis<|message|>Ask a tool.<|end|><|start|>assistant to=functions.get_weather"
    '<|channel|>commentary <|constrain|>json<|message|>{"city": "Oslo"}<|call|>'
)
ANSWERED = "<|channel|>final<|message|>It is sunny.<|return|>"
PREFILLED = [*HI, {"role": "assistant", "content": "Hel"}]
LOW = {"reasoning_effort": "low"}
MXFP4 = {"group_size": 32, "bits": 4, "mode": "mxfp4"}
LESSONS = [
    ({"messages": HI}, GREETED),
    ({"messages": ASKED, "tools": TOOLS}, CALLED),
    ({"messages": [*ASKED, *RESULT], "tools": TOOLS}, ANSWERED),
    ({"messages": PREFILLED, "continue_final_message": True}, "lo, you there!<|return|>"),
]


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """A server with two forms of the model: as trained, and in MXFP4, in which gpt-oss is published."""
    folder = tmp_path_factory.mktemp("gpt")
    plain, packed = folder / "gpt-oss", folder / "gpt-oss-mxfp4"
    write_model(plain)
    shutil.copytree(plain, packed)
    network = gpt_oss.Model(gpt_oss.ModelArgs.from_dict(CONFIG))
    network.load_weights(str(plain / "model.safetensors"))
    nn.quantize(
        network, **MXFP4, class_predicate=lambda path, _: ".experts." in path and path.endswith("_proj")
    )
    save(network, packed)
    change_config(packed, quantization=MXFP4)
    with serving(folder, "--model", str(plain), "--model", str(packed)) as running:
        yield running


def write_model(folder):
    """Write the folder of a model that knows the lessons."""
    folder.mkdir()
    write_tokenizer(folder)
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    # With words as tokens, the lessons are a third as long as in bytes and are learnt ten times as fast.
    texts = [TEMPLATE.read_text(encoding="utf-8"), *(json.dumps(fields) + text for fields, text in LESSONS)]
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    words = trainers.BpeTrainer(
        vocab_size=VOCAB - len(MARKS),
        initial_alphabet=alphabet,
        special_tokens=["<|end|>"],
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts * 3, words)
    tokenizer.add_special_tokens([AddedToken(mark, special=True) for mark in MARKS])
    tokenizer.save(str(folder / "tokenizer.json"))
    about = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": MARKS[0]}
    about["chat_template"] = TEMPLATE.read_text(encoding="utf-8")
    (folder / "tokenizer_config.json").write_text(json.dumps(about))
    ends = [tokenizer.token_to_id(mark) for mark in MARKS[:2]]
    (folder / "config.json").write_text(json.dumps({**CONFIG, "eos_token_id": ends}))
    mx.random.seed(3)
    network = gpt_oss.Model(gpt_oss.ModelArgs.from_dict(CONFIG))
    save(network, folder)
    resident = load_resident(str(folder), "none", "float32")
    rows = []
    for fields, answer in LESSONS:
        request = ChatRequest.model_validate({**LOW, **fields})
        functions = [tool["function"] for tool in fields.get("tools", ())]
        rows.append((resident.encode(render(resident, request, functions)), resident.encode(answer)))
    learn(network, rows)
    save(network, folder)


def save(network, folder):
    mx.save_safetensors(str(folder / "model.safetensors"), dict(tree_flatten(network.parameters())))


def learn(network, rows):
    """Train until each prompt is followed by its answer."""
    longest = max(len(prompt) + len(answer) for prompt, answer in rows)
    ids = mx.array([[*p, *a, *[0] * (longest - len(p) - len(a))] for p, a in rows])
    answers = mx.array([[len(p) - 1 <= i < len(p) + len(a) - 1 for i in range(longest - 1)] for p, a in rows])

    def loss(network):
        losses = nn.losses.cross_entropy(network(ids[:, :-1]), ids[:, 1:])
        return (losses * answers).sum() / answers.sum()

    optimizer, step = optimizers.Adam(3e-3), nn.value_and_grad(network, loss)
    for _ in range(400):
        value, gradients = step(network)
        optimizer.update(network, gradients)
        mx.eval(network.parameters(), optimizer.state)
        if value.item() < 0.01:
            return
    raise AssertionError("the lessons were not learnt")


def ask(server, path, model="gpt-oss", **body):
    limits = {"max_output_tokens" if path == "responses" else "max_tokens": 120}
    answer = server.http.post(f"/v1/{path}", json={"model": model, "temperature": 0, **limits, **body})
    assert answer.status_code == 200, answer.text
    return answer


def test_a_thought_and_the_final_text(server):
    message = ask(server, "chat/completions", messages=HI, **LOW).json()["choices"][0]["message"]
    assert (message["reasoning_content"], message["content"]) == ("A greeting.", "Hello!")
    output = ask(server, "responses", input="Hi", reasoning={"effort": "low"}).json()["output"]
    assert [item["type"] for item in output] == ["reasoning", "message"]
    assert output[0]["summary"][0]["text"] == "A greeting."
    assert output[1]["content"][0]["text"] == "Hello!"


def test_a_call_on_the_commentary_channel_and_the_answer_to_its_result(server):
    asked = ask(server, "chat/completions", messages=ASKED, tools=TOOLS, **LOW).json()["choices"][0]
    assert (asked["finish_reason"], asked["message"]["reasoning_content"]) == ("tool_calls", "Ask a tool.")
    (call,) = asked["message"]["tool_calls"]
    assert call["function"] == CALL["function"]
    turns = [*ASKED, asked["message"], {"role": "tool", "tool_call_id": call["id"], "content": "sun"}]
    answered = ask(server, "chat/completions", messages=turns, tools=TOOLS, **LOW).json()["choices"][0]
    assert answered["message"]["content"] == "It is sunny."


def test_a_call_over_responses(server):
    about = {"tools": [{"type": "function", **FUNCTION}], "reasoning": {"effort": "low"}}
    output = ask(server, "responses", input="Weather?", **about).json()["output"]
    assert [item["type"] for item in output] == ["reasoning", "function_call"]
    assert (output[1]["name"], output[1]["arguments"]) == ("get_weather", CALL["function"]["arguments"])
    result = {"type": "function_call_output", "call_id": output[1]["call_id"], "output": "sun"}
    items = [*ASKED, *output, result]
    (message,) = ask(server, "responses", input=items, **about).json()["output"]
    assert message["content"][0]["text"] == "It is sunny."


def test_a_turn_that_is_continued_is_streamed(server):
    body = {"messages": PREFILLED, "continue_final_message": True, "stream": True, **LOW}
    lines = ask(server, "chat/completions", **body).text.split("\n")
    choices = [json.loads(line[6:])["choices"][0] for line in lines if line.startswith("data: {")]
    texts = [choice["delta"]["content"] for choice in choices if choice["delta"].get("content")]
    assert "".join(texts) == "lo, you there!"
    assert len(texts) > 1


@pytest.mark.parametrize("model", ["gpt-oss", "gpt-oss-mxfp4"])
@pytest.mark.parametrize("cache", ["raw", "e8v@4.25"])
def test_drafts_do_not_change_the_answer(server, model, cache):
    body = {"messages": ASKED, "tools": TOOLS, **LOW}
    plain, drafted = (
        ask(server, "chat/completions", model, x_kakeya={"draft": draft, "cache": cache}, **body).json()
        for draft in ("none", "lookup")
    )
    assert drafted["x_kakeya"]["accepted"] > 0
    assert drafted["x_kakeya"]["token_digest"] == plain["x_kakeya"]["token_digest"]
