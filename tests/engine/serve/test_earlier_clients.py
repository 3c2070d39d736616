"""The calls that clients of the earlier programs make, and their neighbours, against the program of that name."""

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import click
import httpx
import pytest

from bridge.common.errors import KakeyaError
from engine.cli.sidecar import on_mlx as command
from tests.engine.serve.world import backends

PROGRAMS = {"mlx": "main", "torch": "main_on_torch"}
META = {
    "hf_repo_id", "head_dim", "num_hidden_layers", "variant", "q_range", "boundary", "est_compression",
    "est_delta_ppl_pct", "label", "is_default", "notes", "mlx_repo_id", "dflash_draft_repo", "dflash_available",
}  # fmt: skip
STATS = {"engine_loaded", "variant", "device", "resident_models", "max_resident", "dflash_enabled"}
SMALL, LARGE = "deepseek-r1-distill-qwen-1.5b", "deepseek-r1-distill-qwen-7b"
# The channels that the earlier lists put first.
DEFAULTS = {
    "qwen3-4b": "e8-q10", "qwen3-8b": "e8-q38", "qwen3.5-4b": "e8-q10", "qwen2-1.5b": "e8-q38",
    "llama-3.2-3b-instruct": "e8-q10", "llama-3.1-8b-instruct": "e8-q10", "mistral-7b-instruct-v0.3": "e8-q38",
    "gemma-4-e4b": "e8-q10", SMALL: "e8-q38-b2", LARGE: "e8-q10-b2", "glm-4-9b-chat": "e8-q10",
}  # fmt: skip
OTHERWISE = {"mistral-7b-instruct-v0.3": "e8-q10"}  # the list of the program over torch


@contextmanager
def sidecar(folder, *options, backend="mlx"):
    """Run the program; the supervisor of the earlier extension gave it these three options."""
    argv = [
        sys.executable,
        "-P",
        "-c",
        f"from engine.cli import sidecar; sidecar.{PROGRAMS[backend]}()",
        "--host",
        "127.0.0.1",
        "--port",
        "0",
        "--device",
        "auto",
        *options,
    ]
    with (folder / "log").open("wb") as log:
        # Several servers share few cores, on which torch's threads would wait for each other.
        env = {**os.environ, "OMP_NUM_THREADS": "1"} if backend == "torch" else None
        process = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=log, env=env)
    try:
        url = process.stdout.readline().decode().strip()
        assert url.startswith("http://"), (folder / "log").read_text()
        with httpx.Client(base_url=url, timeout=120) as http:
            yield http
    finally:
        process.terminate()
        process.wait(120)
        process.stdout.close()


@pytest.fixture(scope="module", params=backends())
def http(tmp_path_factory, request):
    folder, options = tmp_path_factory.mktemp("sidecar"), ("--log-level", "warning")
    with sidecar(folder, "--hf-cache-dir", str(folder / "hub"), *options, backend=request.param) as client:
        yield client


def post(http, model="tiny-chat", path="chat/completions", **more):
    turns = [{"role": "user", "content": "Count from 1 to 5."}]
    body = {"model": model, "messages": turns, "max_tokens": 48, "temperature": 0, **more}
    return http.post(f"/v1/{path}", json=body)


def on_torch(http):
    """Return whether this is the program over torch, by the earlier programs' own word."""
    return http.get("/health").json()["variant"] == "B1"


def weights_of(http):
    """Return what follows the names of models: torch does not read MLX's quantized weights."""
    return ("",) if on_torch(http) else ("", "-4bit")


def refusal(answer):
    return answer.status_code, answer.json()["error"]["param"]


@pytest.mark.long
def test_statistics_come_before_any_model_and_the_cache_of_the_command_line_comes_first(tmp_path):
    with sidecar(tmp_path, "--max-resident", "2", "--cache", "e8v@4.25") as client:
        stats, health = client.get("/v1/kakeya/stats").json(), client.get("/health").json()
        assert post(client).json()["x_kakeya"]["cache"] == "e8v@4.25"
    assert stats.keys() >= STATS
    assert (stats["engine_loaded"], stats["resident_models"], stats["max_resident"]) == (False, [], 2)
    assert (health["ok"], health["engine_loaded"], health["dflash_enabled"]) == (True, False, False)
    assert health.keys() >= {"variant", "milestone"}


def test_each_channel_has_an_entry(http):
    entries = {entry["id"]: entry for entry in http.get("/v1/models").json()["data"]}
    assert all(entry["x_kakeya"].keys() >= META for entry in entries.values())
    assert all("@" in name for name in entries)
    for name, channel in {**DEFAULTS, **(OTHERWISE if on_torch(http) else {})}.items():
        own = {key for key in entries if key.partition("@")[0] == name}
        assert [key for key in own if entries[key]["x_kakeya"]["is_default"]] == [f"{name}@{channel}"]
    assert {key for key in entries if key.startswith("deepseek")} == {
        f"{name}{weights}@e8-q{q}-b2"
        for name in (SMALL, LARGE)
        for weights in weights_of(http)
        for q in (10, 38)
    }
    for name in (f"qwen3-4b{weights}@e8-q10" for weights in weights_of(http)):
        own = entries[name]["x_kakeya"]
        assert (own["hf_repo_id"], own["mlx_repo_id"]) == ("Qwen/Qwen3-4B", "mlx-community/Qwen3-4B-4bit")
        assert own["dflash_draft_repo"] == "z-lab/Qwen3-4B-DFlash-b16"


def test_figures_are_measured_or_said_to_be_unmeasured(http):
    entries = {entry["id"]: entry["x_kakeya"] for entry in http.get("/v1/models").json()["data"]}
    figures = {
        name: own["est_delta_ppl_pct"]
        for name, own in entries.items()
        if own["est_delta_ppl_pct"] is not None
    }
    assert figures == {
        "qwen3-4b@e8-q10": 3.85, "qwen3-4b@e8-q4": 17.0, "gemma-4-e4b@e8-q10": 1.56, "gemma-4-e4b@e8-q4": 5.79,
        "glm-4-9b-chat@e8-q10": 6.96, "glm-4-9b-chat@e8-q4": 32.36,
    }  # fmt: skip
    for name, own in entries.items():
        assert own["est_delta_ppl_pct_source"] == ("measured" if name in figures else "unmeasured")
        if on_torch(http):  # its caches store the codes
            assert 1 < own["stored_compression"] <= own["est_compression"]
        else:
            assert own["stored_compression"] == 1.0
    published = {"qwen3-4b@e8-q10": 3.37, "gemma-4-e4b@e8-q10": 3.47, f"{SMALL}@e8-q38-b2": 2.01}
    assert {name: entries[name]["est_compression"] for name in published} == published


def test_a_channel_is_looked_up_by_its_name(http):
    for name, q in (("tiny-chat", 38), ("tiny-chat@e8-q10", 10), ("tiny-chat@d4-q152-b1", 152)):
        entry = http.get(f"/v1/models/{name}").json()
        assert (entry["id"], entry["x_kakeya"]["q_range"]) == (name, q)
        assert entry["x_kakeya"].keys() >= META
    assert http.get("/v1/models/tiny-chat@e8v-4.25").json()["x_kakeya"]["variant"] is None
    assert http.get("/v1/models/tiny-chat@zip").status_code == 404


@pytest.mark.parametrize(
    ("model", "cache"),
    [("tiny-chat", "e8@q38"), ("tiny-chat@e8-q10-b1", "e8@q10-b1"), ("tiny-chat@raw", "raw")],
)
def test_the_name_chooses_the_cache(http, model, cache):
    answer = post(http, model).json()
    assert answer["model"] == model
    assert answer["x_kakeya"]["cache"] == cache
    assert answer["x_kakeya"].keys() >= {"dflash_used", "injection_strategy", "acceptance_length_mean"}


@pytest.mark.parametrize(
    ("model", "override", "cache"),
    [
        ("tiny-chat", {"variant": "d4", "q_range": 10, "boundary": 1}, "d4@q10-b1"),
        ("tiny-chat", {"variant": "d4"}, "d4@q38"),
        ("tiny-chat@e8-q10-b1", {"q_range": 4}, "e8@q4-b1"),
        ("tiny-chat@e8-q10-b1", {"boundary": 0}, "e8@q10"),
        ("tiny-chat@raw", {"variant": "e8", "q_range": 152}, "e8@q152"),
        ("tiny-chat", {}, "e8@q38"),
        ("tiny-chat", None, "e8@q38"),
        ("tiny-chat@raw", {"variant": None}, "raw"),
    ],
)
def test_an_override_changes_what_it_names(http, model, override, cache):
    assert post(http, model, x_kakeya_override=override).json()["x_kakeya"]["cache"] == cache


@pytest.mark.parametrize(
    ("model", "override", "param"),
    [
        ("tiny-chat", {"variant": "e9"}, ".variant"),
        ("tiny-chat", {"q_range": 0}, ".q_range"),
        ("tiny-chat", {"q_range": "38"}, ".q_range"),
        ("tiny-chat", {"q_range": True}, ".q_range"),
        ("tiny-chat", {"boundary": 3}, ".boundary"),  # of six layers
        ("tiny-chat", {"bits": 4}, ".bits"),
        ("tiny-chat", ["e8"], ""),
        ("tiny-chat@raw", {"q_range": 38}, ".variant"),
        ("tiny-chat@e8v-4.25", {"variant": "e8"}, ".q_range"),
        (SMALL, {"boundary": 1}, ".boundary"),  # it is not even on this machine
    ],
)
def test_an_override_that_cannot_be_had_is_refused(http, model, override, param):
    assert refusal(post(http, model, x_kakeya_override=override)) == (422, f"x_kakeya_override{param}")


def test_an_override_and_own_options(http):
    override = {"q_range": 10}
    own = {"draft": "none", "token_ids": True}
    assert post(http, x_kakeya_override=override, x_kakeya=own).json()["x_kakeya"]["cache"] == "e8@q10"
    assert refusal(post(http, x_kakeya_override=override, x_kakeya={"cache": "raw"})) == (
        422,
        "x_kakeya_override",
    )
    assert refusal(post(http, x_kakeya_overrides=override)) == (422, "x_kakeya_overrides")
    for path in ("messages", "responses"):  # the earlier programs had neither
        assert post(http, path=path, input="x", x_kakeya_override=override).status_code in (400, 422)


def test_names_of_no_model_or_channel(http):
    assert refusal(post(http, f"{SMALL}@e8-q38")) == (404, "model")
    for model in ("nope", "nope@e8-q38", "tiny-chat@zip", "tiny-chat@e8"):
        assert refusal(post(http, model, x_kakeya_override={"q_range": 10})) == (404, "model")
    assert refusal(post(http, None, x_kakeya_override={"q_range": 10})) == (400, "model")


def test_a_stream_has_deltas_and_the_earlier_fields(http):
    text, done, reports = "", False, []
    for line in post(http, stream=True, x_kakeya_override={"variant": "e8", "q_range": 10}).text.splitlines():
        data = line.removeprefix("data: ")
        if data == "[DONE]":
            done = True
        elif line.startswith("data: "):
            (choice,) = json.loads(data)["choices"]
            text += choice["delta"].get("content", "")
            reports += [choice["x_kakeya"]] if choice["finish_reason"] else []
    assert done
    assert text
    assert [(each["cache"], each["dflash_used"]) for each in reports] == [("e8@q10", False)]


def test_a_stop_string_stays_out_of_the_answer(http):
    whole = post(http).json()["choices"][0]["message"]["content"]
    cut = post(http, stop=whole[2:4]).json()["choices"][0]
    assert (cut["message"]["content"], cut["finish_reason"]) == (whole[:2], "stop")


def test_other_apis_use_the_default_channel_too(http):
    for path in ("completions", "messages"):
        answer = http.post(f"/v1/{path}", json={
            "model": "tiny-chat", "max_tokens": 4,
            **({"prompt": "Hello"} if path == "completions" else {"messages": [{"role": "user", "content": "Hi."}]}),
        })  # fmt: skip
        assert answer.json()["x_kakeya"]["cache"] == "e8@q38"


@pytest.mark.long
def test_models_take_turns_in_memory(tmp_path):
    """An override of a model that is not loaded; the one that is goes first, because one may be loaded."""
    with sidecar(
        tmp_path, "--model", "tiny", "--model", "tiny-chat", "--prewarm", "tiny-chat@e8-q10"
    ) as client:
        for model, override in (("tiny-chat", None), ("tiny", {"q_range": 10}), ("tiny-chat@e8-q4", None)):
            assert post(client, model, x_kakeya_override=override).status_code == 200
            stats = client.get("/v1/kakeya/stats").json()
            assert stats["resident_models"] == [model.partition("@")[0]]
        assert stats["unloaded"]["pressure"] == 2
        with ThreadPoolExecutor(4) as pool:  # no request's model is unloaded before its answer began
            answers = list(pool.map(lambda model: post(client, model), ["tiny", "tiny-chat"] * 4))
        assert [answer.status_code for answer in answers] == [200] * 8
        assert len(client.get("/v1/kakeya/stats").json()["resident_models"]) == 1


@pytest.mark.long
def test_dflash_is_used_by_models_that_have_a_drafter(tmp_path):
    prompt = {"prompt": "import os\n" * 8, "max_tokens": 12, "temperature": 0}
    options = ("--model", "tiny", "--model", "tiny-chat", "--enable-dflash", "--max-resident", "2")
    with sidecar(tmp_path, *options) as client:
        assert client.get("/health").json()["dflash_enabled"] is True
        told = [
            client.post("/v1/completions", json={"model": model, **prompt}).json()["x_kakeya"]
            for model in ("tiny", "tiny-chat")
        ]
        assert [(each["dflash_used"], each["fallback"]) for each in told] == [(True, None), (False, None)]
        assert told[0]["acceptance_length_mean"] == told[0]["accept_length"] > 0
        entries = client.get("/v1/models").json()["data"]
    assert {(entry["id"].partition("@")[0], entry["x_kakeya"]["dflash_available"]) for entry in entries} == {
        ("tiny", True),
        ("tiny-chat", False),
    }


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--prewarm", "tiny-chat@zip"), "no such model or channel"),
        (("--prewarm", "nope@e8-q38"), "no such model or channel"),
        (("--device", "mps" if sys.platform != "darwin" else "cuda"), "MLX has no such device"),
        (("--device", "tpu"), "is not one of"),
        (("--log-level", "loud"), "is not one of"),
        (("--max-resident", "0"), "not in the range"),
        (("--enable-dflash", "--draft", "none"), "exclude each other"),
    ],
)
def test_wrong_options_are_refused_at_the_start(options, said):
    with pytest.raises((click.UsageError, KakeyaError)) as refused:
        command.main(["--port", "0", *options], standalone_mode=False)
    assert said in refused.value.message
