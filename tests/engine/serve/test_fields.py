"""Fields that a route does not declare: other servers' options are refused, harmless and unknown ones pass."""

import json

import pytest

from engine.serve.dialects.messages import CountRequest, MessagesRequest
from engine.serve.dialects.responses import ResponsesRequest
from engine.serve.errors import ApiError
from engine.serve.protocol import ChatRequest, CompletionRequest, parse

ON_BOTH_BACKENDS = True

TURN = [{"role": "user", "content": "x"}]
ROUTES = {
    "chat/completions": (ChatRequest, {"messages": TURN, "max_tokens": 2}),
    "completions": (CompletionRequest, {"prompt": "x", "max_tokens": 2}),
    "messages": (MessagesRequest, {"messages": TURN, "max_tokens": 2}),
    "responses": (ResponsesRequest, {"input": "x", "max_output_tokens": 2}),
    "messages/count_tokens": (CountRequest, {"messages": TURN}),
}
# Options of mlx-lm, vLLM, llama.cpp, SGLang, Ollama, LM Studio and TGI: values that do something, and values that mean
# "off". None of our routes has them.
FOREIGN = [
    ("xtc_probability", 0.5, 0.0),
    ("typical_p", 0.5, 1.0),
    ("dry_multiplier", 0.8, 0),
    ("mirostat", 2, 0),
    ("repeat_penalty", 1.3, 1),
    ("top_n_sigma", 1.5, -1),
    ("dynatemp_range", 0.5, 0.0),
    ("adapters", "some/adapter", None),
    ("lora", [{"id": 0, "scale": 1.0}], []),
    ("role_mapping", {"user": "U"}, None),
    ("bad_words", ["a"], []),
    ("allowed_token_ids", [1], None),
    ("no_repeat_ngram_size", 2, 0),
    ("include_stop_str_in_output", True, False),
    ("truncate_prompt_tokens", 5, None),
    ("chat_template", "{{ 1 }}", ""),
    ("regex", "[a-z]", None),
    ("ebnf", "root ::= x", ""),
    ("structural_tag", {"a": 1}, None),
    ("guided_json", {}, None),
    ("guided_choice", ["a"], []),
    ("structured_outputs", {"regex": "a"}, None),
    ("grammar", "root ::= x", ""),
    ("json_schema", {"type": "object"}, None),
    ("thinking_token_budget", 10, 0),
    ("reasoning_budget", 10, -1),
    ("n_predict", 3, 2),
    ("num_predict", 3, -1),
    ("max_new_tokens", 3, None),
    ("format", "json", ""),
    ("ignore_eos", True, False),
    ("min_tokens", 5, 0),
    ("stop_token_ids", [5], []),
    ("skip_special_tokens", False, True),
    ("use_beam_search", True, False),
    ("length_penalty", 0.5, 1.0),
    ("guidance_scale", 2.0, 1),
    ("do_sample", False, True),
    ("return_token_ids", True, False),
    ("prompt_logprobs", 1, None),
    ("samplers", ["top_k"], None),
    ("logits_processors", ["x"], []),
    ("documents", [{"text": "x"}], []),
    ("think", True, None),
    ("enable_thinking", False, None),
    ("include_reasoning", False, True),
    ("raw", True, False),
    ("functions", [{"name": "f"}], []),
    ("web_search_options", {}, None),
    ("audio", {"voice": "x"}, None),
    ("modalities", ["text", "audio"], ["text"]),
    ("mcp_servers", [{"url": "http://x"}], []),
    ("repeatPenalty", 1.3, 1),  # as some clients spell it
    ("stop-token-ids", [5], []),
]
# Options that some of our routes apply, and others do not have.
OWN = [
    ("seed", 3, None, ("messages", "responses")),
    ("min_p", 0.3, 0, ("messages", "responses")),
    ("logit_bias", {"5": -100}, {}, ("messages", "responses")),
    ("presence_penalty", 1.0, 0.0, ("messages", "responses")),
    ("frequency_penalty", 1.0, 0, ("messages", "responses")),
    ("repetition_penalty", 1.3, 1.0, ("messages", "responses")),
    ("n", 2, 1, ("messages", "responses")),
    ("top_k", 3, -1, ("responses",)),
    ("stop", ["a"], [], ("messages", "responses")),
    ("stop_sequences", ["a"], [], ("chat/completions", "completions", "responses")),
    ("system", "Be brief.", "", ("chat/completions", "completions", "responses")),
    ("instructions", "Be brief.", "", ("chat/completions", "completions", "messages")),
    ("response_format", {"type": "json_object"}, {"type": "text"}, ("messages", "responses")),
    ("text", {"format": {"type": "json_object"}}, {}, ("chat/completions", "completions", "messages")),
    ("output_config", {"format": {"type": "json_schema"}}, None, ("chat/completions", "completions", "responses")),
    ("reasoning", {"effort": "low"}, None, ("chat/completions", "completions", "messages")),
    ("reasoning", {"effort": "low", "summary": "auto"}, {"summary": "auto"}, ("chat/completions", "messages")),
    ("reasoning_effort", "low", None, ("completions", "messages", "responses")),
    ("thinking", {"type": "enabled"}, None, ("chat/completions", "completions", "responses")),
    ("chat_template_kwargs", {"a": 1}, {}, ("completions", "messages", "responses")),
    ("continue_final_message", True, False, ("completions", "messages", "responses")),
    ("tools", [{"type": "function"}], [], ("completions",)),
    ("tool_choice", "required", "auto", ("completions",)),
    ("logprobs", True, False, ("messages", "responses")),
    ("max_tokens", 3, 2, ("responses",)),
    ("max_completion_tokens", 3, 2, ("completions", "messages", "responses")),
    ("max_output_tokens", 3, 2, ("chat/completions", "completions", "messages")),
    ("messages", TURN, [], ("completions", "responses")),
    ("input", "x", "", ("chat/completions", "completions", "messages")),
]  # fmt: skip
LIMITS = (
    "max_new_tokens",
    "n_predict",
    "num_predict",
    "max_tokens",
    "max_completion_tokens",
    "max_output_tokens",
)
ROWS = [
    (route, *row[:3])
    for row in [*((*each, ROUTES) for each in FOREIGN), *OWN]
    for route in row[3]
    if "count" not in route or row[0] not in LIMITS
]
# What OpenAI's and Anthropic's SDKs, Claude Code, Codex, litellm and others send beside.
HARMLESS = {
    "store": True, "metadata": {"a": "b"}, "user": "u", "service_tier": "auto", "parallel_tool_calls": True,
    "stream_options": {"include_usage": True}, "prompt_cache_key": "k", "prompt_cache_retention": "24h",
    "safety_identifier": "s", "prediction": {"type": "content", "content": "x"}, "verbosity": "low",
    "cache_control": {"type": "ephemeral"}, "betas": ["b"], "context_management": {"edits": []}, "truncation": "auto",
    "include": ["reasoning.encrypted_content"], "client_metadata": {"a": "b"}, "max_tool_calls": 3,
    "inference_geo": "eu", "speed": "fast", "cache_prompt": True, "keep_alive": "5m", "ttl": 60, "priority": 1,
}  # fmt: skip


def asked(route, **fields):
    kind, body = ROUTES[route]
    return parse(kind, json.dumps({"model": "m", **body, **fields}).encode())


@pytest.mark.parametrize("route", ROUTES)
def test_what_would_change_the_answer_is_refused_and_its_off_passes(route):
    for field, value, off in (row[1:] for row in ROWS if row[0] == route):
        assert asked(route, **{field: off}).ignored == []
        for within in (lambda x: x, lambda x: {"extra_body": x}, lambda x: {"options": x}):
            with pytest.raises(ApiError) as raised:
                asked(route, **within({field: value}))
            assert (raised.value.status, raised.value.code) == (400, "unsupported")
            assert field in raised.value.param
            assert field in raised.value.message


@pytest.mark.parametrize("route", ROUTES)
def test_options_that_a_client_nests_are_refused(route):
    for container in (
        "extra_body",
        "options",
        "sampling_params",
        "generation_config",
        "generationConfig",
        "parameters",
    ):
        for field, value in (
            ("temperature", 0.1),
            ("top_p", 0.5),
            ("max_tokens", 7),
            ("x_kakeya", {"draft": "none"}),
        ):
            with pytest.raises(ApiError, match=f"{container}.{field}") as raised:
                asked(route, **{container: {field: value}})
            assert raised.value.param == f"{container}.{field}"
        assert asked(route, **{container: {"num_ctx": 4096, "top_p": 1, "own": 1}}).ignored == [
            f"{container}.own"
        ]
        assert asked(route, **{container: None}).ignored == []


def test_a_limit_under_another_name_counts_if_the_own_one_is_missing():
    for kind, body, own in (
        (ResponsesRequest, {"input": "x"}, "max_output_tokens"),
        (ChatRequest, {"messages": TURN}, "max_tokens"),
        (CompletionRequest, {"prompt": "x"}, "max_tokens"),
    ):
        for name in LIMITS:
            request = parse(kind, json.dumps({"model": "m", **body, name: 7}).encode())
            assert 7 in (getattr(request, own), getattr(request, "max_completion_tokens", None))
            with pytest.raises(ApiError):
                parse(kind, json.dumps({"model": "m", **body, name: "7"}).encode())
    assert asked("messages/count_tokens", **dict.fromkeys(LIMITS, 7)).ignored == []


@pytest.mark.parametrize(("field", "off", "value"), [("typical_p", 1, True), ("do_sample", True, 1)])
def test_true_is_not_the_number_one(field, off, value):
    assert asked("chat/completions", **{field: off}).ignored == []
    with pytest.raises(ApiError):
        asked("chat/completions", **{field: value})


@pytest.mark.parametrize("route", ROUTES)
def test_what_clients_send_without_effect_passes(route):
    request = asked(route, **HARMLESS)
    assert request.ignored == []


@pytest.mark.parametrize("route", ROUTES)
def test_unknown_fields_pass_and_are_named(route):
    assert asked(route, some={"thing": [1]}, other=None, tau=0.5).ignored == ["some", "tau"]
    many = asked(route, **{f"f{i}": i for i in range(1000)}).ignored
    assert many[31:] == ["f31", "and 968 more"]
    assert all(len(name) <= 100 for name in asked(route, **{"x" * 9000: 1}).ignored)


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize(
    "name", ["x_kakeya_override", "x_kakeya_cache", "X-Kakeya-Draft", "xKakeyaDraft", "x_kakeyas"]
)
def test_unknown_options_of_ours_are_refused(route, name):
    with pytest.raises(ApiError) as raised:
        asked(route, **{name: {"variant": "e8"}})
    assert (raised.value.status, raised.value.param) == (422, name)


def test_the_window_of_a_penalty_counts_only_with_the_penalty():
    assert asked("chat/completions", repetition_context_size=20, repetition_penalty=1.0).ignored == []
    for field in ("repetition_context_size", "repeat_last_n"):
        with pytest.raises(ApiError, match=field):
            asked("chat/completions", repetition_penalty=1.2, **{field: 20})


@pytest.mark.rows(3)
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("route", [route for route in ROUTES if "count" not in route])
def test_answers_name_what_they_ignored(server, route, stream):
    body = {
        "model": "tiny",
        **ROUTES[route][1],
        "novelty": 1,
        "options": {"num_ctx": 1, "novel": 2},
        "stream": stream,
    }
    answer = server.http.post(f"/v1/{route}", json=body)
    assert answer.status_code == 200, answer.text
    assert '"ignored":["novelty","options.novel"]' in answer.text.replace(" ", "")
    again = server.http.post(f"/v1/{route}", json={**body, "x_kakeya_override": {"variant": "d4"}})
    assert again.status_code == 422


def test_arguments_of_the_template(server):
    def asked_with(**arguments):
        body = {"model": "tiny", **ROUTES["chat/completions"][1], "chat_template_kwargs": arguments}
        return server.http.post("/v1/chat/completions", json=body)

    report = asked_with(novel=[1], documents=None).json()["x_kakeya"]
    assert report["ignored"] == ["chat_template_kwargs.novel"]
    for name in ("tools", "messages", "add_generation_prompt", "tokenize", "return_dict", "truncation"):
        refused = asked_with(**{name: True})
        assert (refused.status_code, refused.json()["error"]["param"]) == (
            400,
            f"chat_template_kwargs.{name}",
        )
