"""A tokenizer that has a token more than the model has embeddings, as Gemma 3 1B's has for images."""

import pytest
from tokenizers import Tokenizer

from engine.serve.grammars.grammar import schema_grammar
from engine.serve.resident import load_resident
from tests.engine import folders
from tests.engine.serve.world import serving


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = folders.write_pair(tmp_path_factory.mktemp("pair") / "extra") / "target"
    path = str(folder / "tokenizer.json")
    tokenizer = Tokenizer.from_file(path)
    tokenizer.add_special_tokens(["<image>"])
    tokenizer.save(path)
    return folder


@pytest.mark.long
def test_the_model_serves_and_refuses_the_token_that_it_lacks(folder, tmp_path):
    with serving(tmp_path, "--model", str(folder)) as server:
        assert server.chat("plain", model="target").status_code == 200
        form = {"type": "json_schema", "json_schema": {"schema": {"enum": [["a", 1]]}}}
        answer = server.chat("plain", model="target", response_format=form, max_tokens=20)
        assert answer.json()["choices"][0]["message"]["content"] == '["a",1]'
        assert server.chat("an <image>", model="target").status_code == 200  # plain text in a message
        for path, body in (
            ("completions", {"prompt": "an <image>"}),
            ("completions", {"prompt": [1, folders.VOCAB]}),
        ):
            refused = server.http.post(f"/v1/{path}", json={"model": "target", **body})
            assert refused.status_code == 400
            assert "does not have" in refused.json()["error"]["message"]


def test_masks_have_as_many_columns_as_logits(folder):
    resident = load_resident(str(folder), "none", "float32")
    state = resident.grammars.compiled(schema_grammar({"type": "string"}), "tools").start()
    assert resident.vocabulary == resident.tokens == folders.VOCAB
    assert state.masks([]).shape == (1, folders.VOCAB)
