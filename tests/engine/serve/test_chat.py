"""Chat and text completions as clients see them, against a real server process."""

import json

import pytest

from bridge.gate.checks.served import digest_of
from engine.dflash import stream_generate
from engine.models import load

ON_BOTH_BACKENDS = True

TURN = [{"role": "user", "content": "def read_lines(path):"}]


@pytest.fixture(scope="module")
def tiny():
    return load("tiny", dtype="float32")


def plainly(pair, prompt, max_tokens, **options):
    """The library's own answer, decoded without drafts."""
    steps = list(
        stream_generate(
            pair.target, None, pair.tokenizer, prompt, max_tokens=max_tokens, lookup=False, **options
        )
    )
    tokens = sum(len(step.tokens) for step in steps)
    return "".join(step.text for step in steps), steps[-1].finish_reason, tokens


def ask(server, **fields):
    given = {"model": "tiny", "messages": TURN, "temperature": 0, "max_tokens": 24, **fields}
    return server.ai.chat.completions.create(**given)


def joined(stream):
    chunks = list(stream)
    text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
    return text, chunks


@pytest.mark.rows(1)
@pytest.mark.parametrize(("most", "reason"), [(4, "length"), (24, "stop")])
def test_answer_is_the_librarys(server, tiny, most, reason):
    prompt = tiny.tokenizer.apply_chat_template(TURN, tokenize=False, add_generation_prompt=True)
    text, ended, tokens = plainly(tiny, prompt, most)
    found = ask(server, max_tokens=most)
    assert found.choices[0].message.content == text
    assert found.choices[0].finish_reason == ended == reason
    assert found.usage.prompt_tokens == len(tiny.tokenizer.encode(prompt, add_special_tokens=False))
    assert found.usage.completion_tokens == tokens
    assert found.usage.total_tokens == found.usage.prompt_tokens + tokens
    assert found.object == "chat.completion"
    assert found.choices[0].message.role == "assistant"


@pytest.mark.parametrize("draft", ["none", "auto"])
def test_token_ids_are_returned_if_asked_for(server, tiny, draft):
    prompt = tiny.tokenizer.apply_chat_template(TURN, tokenize=False, add_generation_prompt=True)
    steps = stream_generate(tiny.target, None, tiny.tokenizer, prompt, max_tokens=24, lookup=False)
    tokens = [token for step in steps for token in step.tokens]

    found = ask(server, extra_body={"x_kakeya": {"draft": draft, "token_ids": True}}).x_kakeya

    assert found["token_ids"] == tokens
    assert found["token_digest"] == digest_of(tokens)
    assert "token_ids" not in ask(server, extra_body={"x_kakeya": {"draft": draft}}).x_kakeya


def test_stream_is_the_whole_answer(server):
    text, chunks = joined(ask(server, stream=True, stream_options={"include_usage": True}))
    whole = ask(server)
    assert text == whole.choices[0].message.content
    assert len({c.id for c in chunks}) == 1
    assert {c.object for c in chunks} == {"chat.completion.chunk"}
    assert chunks[0].choices[0].delta.role == "assistant"
    assert [c.choices[0].delta.role for c in chunks[1:-1]] == [None] * (len(chunks) - 2)
    assert [c.choices[0].finish_reason for c in chunks[:-1]] == [None] * (len(chunks) - 2) + ["stop"]
    assert chunks[-1].choices == []
    assert chunks[-1].usage == whole.usage


def test_stream_ends_with_done_and_has_no_usage_unasked(server):
    body = {"model": "tiny", "messages": TURN, "max_tokens": 3, "stream": True}
    with server.http.stream("POST", "/v1/chat/completions", json=body) as response:
        assert response.headers["content-type"].startswith("text/event-stream")
        events = [line for line in response.iter_lines() if line]
    assert events[-1] == "data: [DONE]"
    assert all("usage" not in json.loads(line[6:]) for line in events[:-1])


@pytest.mark.parametrize("draft", ["none", "lookup", "dflash", "auto"])
def test_drafts_change_no_token(server, draft):
    plain = ask(server, max_tokens=48, extra_body={"x_kakeya": {"draft": "none"}})
    found = ask(server, max_tokens=48, extra_body={"x_kakeya": {"draft": draft}})
    assert found.choices[0].message.content == plain.choices[0].message.content
    told = found.x_kakeya
    if server.backend == "torch" and draft == "dflash":
        assert told["draft"] == "none"
        assert f"makes no drafts by {draft}" in told["fallback"]
        return
    assert told["fallback"] is None
    if draft in ("none", "lookup", "dflash"):
        assert told["draft"] in (draft, "none")
        assert (told["rounds"] > 0) == (told["draft"] != "none")
    if draft == "dflash":
        assert told["draft"] == "dflash"


def test_stop_strings_end_before_they_begin(server):
    whole = ask(server, max_tokens=40).choices[0].message.content
    middle = whole[len(whole) // 2 :]
    stop = middle[1:4]
    found = ask(server, max_tokens=40, stop=["never this", stop])
    assert found.choices[0].message.content == whole[: whole.index(stop)]
    assert found.choices[0].finish_reason == "stop"
    text, chunks = joined(ask(server, max_tokens=40, stop=stop, stream=True))
    assert text == whole[: whole.index(stop)]
    assert chunks[-1].choices[0].finish_reason == "stop"


def test_seed_repeats_and_differs_by_answer(server):
    def texts(seed):
        found = ask(server, temperature=1.0, seed=seed, n=3)
        return [choice.message.content for choice in found.choices]

    first = texts(7)
    assert first == texts(7)
    assert len(set(first)) == 3
    assert first != texts(8)
    assert [c.index for c in ask(server, n=2).choices] == [0, 1]
    alone = ask(server, temperature=1.0, seed=7).choices[0].message.content
    assert alone == first[0]  # whoever else is served


def test_streamed_answers_are_told_apart(server):
    chunks = list(ask(server, n=2, temperature=1.0, seed=7, stream=True))
    texts = ["", ""]
    for chunk in chunks:
        texts[chunk.choices[0].index] += chunk.choices[0].delta.content or ""
    assert texts == [c.message.content for c in ask(server, n=2, temperature=1.0, seed=7).choices]
    assert sorted(c.choices[0].index for c in chunks if c.choices[0].finish_reason) == [0, 1]


def test_logit_bias_forces_and_forbids(server, tiny):
    (token,) = tiny.tokenizer.encode("import", add_special_tokens=False)
    found = ask(server, max_tokens=4, logit_bias={str(token): 100})
    assert found.choices[0].message.content == "import" * 4
    first = ask(server, max_tokens=1, logprobs=True).choices[0].logprobs.content[0].token
    (banned,) = tiny.tokenizer.encode(first, add_special_tokens=False)
    assert ask(server, max_tokens=1, logit_bias={str(banned): -100}).choices[0].message.content != first


@pytest.mark.parametrize("draft", ["none", "lookup", "dflash"])
def test_frequency_penalty_ends_a_loop_whatever_is_drafted(server, draft):
    own = {"x_kakeya": {"draft": draft}}
    with_loop = ask(server, max_tokens=64).choices[0].message.content
    found = ask(server, max_tokens=64, frequency_penalty=2, presence_penalty=1, extra_body=own)
    plain = ask(
        server,
        max_tokens=64,
        frequency_penalty=2,
        presence_penalty=1,
        extra_body={"x_kakeya": {"draft": "none"}},
    )
    assert found.choices[0].message.content == plain.choices[0].message.content != with_loop


def test_logprobs_are_those_of_the_model(server):
    found = ask(server, max_tokens=6, logprobs=True, top_logprobs=3)
    content = found.choices[0].logprobs.content
    assert "".join(entry.token for entry in content) == found.choices[0].message.content
    for entry in content:
        assert entry.logprob <= 0
        assert [top.logprob for top in entry.top_logprobs] == sorted(
            (top.logprob for top in entry.top_logprobs), reverse=True
        )
        assert entry.top_logprobs[0].token == entry.token  # greedy
        assert bytes(entry.bytes).decode() == entry.token
    _, chunks = joined(ask(server, max_tokens=6, logprobs=True, stream=True))
    streamed = [e.token for c in chunks if c.choices[0].logprobs for e in c.choices[0].logprobs.content]
    assert streamed == [entry.token for entry in content]


@pytest.mark.parametrize("field", ["max_tokens", "max_completion_tokens"])
def test_limits(server, field):
    fields = {"max_tokens": None, field: 5}
    found = ask(server, **{k: v for k, v in fields.items() if v})
    assert found.usage.completion_tokens == 5
    assert found.choices[0].finish_reason == "length"


def test_sampling_filters_leave_the_likeliest(server):
    greedy = ask(server).choices[0].message.content
    for one in ({"top_p": 0.0001}, {"extra_body": {"top_k": 1}}, {"extra_body": {"min_p": 1.0}}):
        assert ask(server, temperature=1.5, **one).choices[0].message.content == greedy


def test_unknown_fields_pass_and_parts_are_joined(server):
    parts = [{"type": "text", "text": "def read_"}, {"type": "text", "text": "lines(path):"}]
    found = ask(
        server,
        messages=[{"role": "user", "content": parts}],
        extra_body={"cache_prompt": True, "some": {"thing": [1]}},
    )
    assert found.choices[0].message.content == ask(server).choices[0].message.content


def test_text_completions(server, tiny):
    text, _, _ = plainly(tiny, "import os\n", 12)
    given = {"model": "tiny", "prompt": "import os\n", "max_tokens": 12, "temperature": 0}
    found = server.ai.completions.create(**given, logprobs=2)
    assert found.choices[0].text == text
    told = found.choices[0].logprobs
    assert "".join(told.tokens) == text
    assert all(len(best) <= 2 for best in told.top_logprobs)
    assert "".join(c.choices[0].text for c in server.ai.completions.create(**given, stream=True)) == text
    ids = tiny.tokenizer.encode("import os\n", add_special_tokens=False)
    several = server.ai.completions.create(**{**given, "prompt": [ids, ids]})
    assert [choice.text for choice in several.choices] == [text, text]
    assert several.usage.prompt_tokens == 2 * len(ids)


def test_models_and_channels(server):
    listed = server.ai.models.list().data
    assert [model.id for model in listed] == ["tiny", "tiny-hybrid"]
    assert "tiny@e8-q38" in listed[0].x_kakeya["channels"]
    assert server.ai.models.retrieve("tiny").id == "tiny"
    found = ask(server, model="tiny-hybrid@e8v-4.25-b1", max_tokens=4)
    assert found.model == "tiny-hybrid@e8v-4.25-b1"
    assert found.x_kakeya["cache"] == "e8v@4.25-b1"
    if server.backend == "torch":
        assert "tiny@affine-4g64" not in listed[0].x_kakeya["channels"]
        assert "DFlash drafts" in listed[0].x_kakeya["lacks"]
        return
    assert ask(server, model="tiny@affine-4g64", max_tokens=4).x_kakeya["cache"] == "affine@4g64"


@pytest.mark.long
def test_own_options_override_the_channel(server):
    found = ask(server, model="tiny@raw", max_tokens=4, extra_body={"x_kakeya": {"cache": "e8@q10"}})
    assert found.x_kakeya["cache"] == "e8@q10"


@pytest.mark.long
def test_figures(server):
    before = server.http.get("/metrics").text
    ask(server, max_tokens=32, extra_body={"x_kakeya": {"draft": "dflash"}})
    after = server.http.get("/metrics").text

    def of(text, name):
        return sum(float(line.split()[-1]) for line in text.splitlines() if line.startswith(name + " "))

    drafted = [
        "vllm:spec_decode_num_drafts",
        "vllm:spec_decode_num_draft_tokens",
        "vllm:spec_decode_num_accepted_tokens",
    ]
    for name in drafted if server.backend == "mlx" else ["kakeya_fallbacks", "kakeya_generation_tokens"]:
        full = f"{name}_total"
        assert of(after, full) > of(before, full)
    assert server.stats()["active"] == 0
    assert server.http.get("/health").json()["status"] == "ok"
