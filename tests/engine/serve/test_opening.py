"""Text that no chat template wrote: it begins with the tokenizer's opening token, as everywhere in the engine."""

import json
import shutil

import pytest

from engine.models import load, registry
from tests.engine.serve.world import serving

OPENING = "<|im_start|>"
TEXT = "def read_lines(path):"
pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def opening(tmp_path_factory):
    """A server of a model whose tokenizer puts an opening token before a text, and which has no chat template."""
    folder = tmp_path_factory.mktemp("opening") / "opening"
    shutil.copytree(registry.data() / "tiny" / "target", folder)
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    number = next(each["id"] for each in tokenizer["added_tokens"] if each["content"] == OPENING)
    special = {OPENING: {"id": OPENING, "ids": [number], "tokens": [OPENING]}}
    begun = [{"SpecialToken": {"id": OPENING, "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}]
    tokenizer["post_processor"] = {
        "type": "TemplateProcessing",
        "single": begun,
        "pair": [*begun, {"Sequence": {"id": "B", "type_id": 0}}],
        "special_tokens": special,
    }
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    about = json.loads((folder / "tokenizer_config.json").read_text())
    about.pop("chat_template", None)
    (folder / "tokenizer_config.json").write_text(json.dumps({**about, "bos_token": OPENING}))
    with serving(folder.parent, "--model", str(folder)) as server:
        yield server, load(str(folder), False).tokenizer


def prompt_tokens(server, path, **fields):
    found = server.http.post(path, json={"model": "opening", "max_tokens": 1, **fields}).json()
    return found["usage"]["prompt_tokens"]


def test_text_prompt_begins_with_the_opening_token_once(opening):
    server, tokenizer = opening
    length = len(tokenizer.encode(TEXT))
    assert length == 1 + len(tokenizer.encode(TEXT, add_special_tokens=False))
    assert prompt_tokens(server, "/v1/completions", prompt=TEXT) == length
    assert prompt_tokens(server, "/v1/completions", prompt=OPENING + TEXT) == length
    assert prompt_tokens(server, "/v1/completions", prompt=[TEXT, TEXT]) == 2 * length
    assert prompt_tokens(server, "/v1/completions", prompt=tokenizer.encode(TEXT)) == length


def test_conversation_without_a_template_begins_with_it_too(opening):
    server, tokenizer = opening
    turns = [{"role": "user", "content": TEXT}]
    shown = len(tokenizer.encode(f"user: {TEXT}\nassistant:"))
    assert prompt_tokens(server, "/v1/chat/completions", messages=turns) == shown


@pytest.mark.parametrize("n", [1, 3])
@pytest.mark.parametrize("stream", [False, True])
def test_cached_tokens_are_at_most_those_of_the_prompts(server, n, stream):
    body = {"model": "tiny", "prompt": [TEXT * 30, "x = 1\n" * 90], "n": n, "max_tokens": 2, "stream": stream}
    body |= {"stream_options": {"include_usage": True}} if stream else {}
    server.http.post("/v1/completions", json=body)  # fills the prefix cache
    answer = server.http.post("/v1/completions", json=body)
    last = answer.text.split("data: ")[-2] if stream else answer.text
    usage = json.loads(last)["usage"]
    cached = usage["prompt_tokens_details"]["cached_tokens"]
    assert usage["prompt_tokens"] - 2 * 64 <= cached < usage["prompt_tokens"]  # whole blocks of 64 tokens
