import json

import pytest

from bridge.reports.digests import tokens_digest
from engine.lm import generate_step
from engine.models.target import load_target, load_tokenizer
from engine.mx import mx
from tests.engine import architectures, folders

pytestmark = pytest.mark.long


def expected(folder, prompt, count):
    """Return the tokens that one host decodes."""
    model, config = load_target(folder, None)
    ids = load_tokenizer(folder, config).encode(prompt)
    steps = generate_step(mx.array(ids), model, max_tokens=count)
    return [int(token) for token, _ in steps]


def write(folder, name):
    """Write a random model of an architecture, with the index that a pipeline needs."""
    model = architectures.build(name, vocab_size=folders.VOCAB)
    folder.mkdir()
    weights = dict(architectures.tree.tree_flatten(model.parameters()))
    mx.save_safetensors(str(folder / "model.safetensors"), weights)
    index = {"weight_map": dict.fromkeys(weights, "model.safetensors")}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    (folder / "config.json").write_text(json.dumps({**vars(model.args), "eos_token_id": 0}))
    folders.write_tokenizer(folder)
    return folder


@pytest.mark.parametrize(
    ("name", "split"), [("llama", "tensor"), ("glm4_moe", "pipeline"), ("deepseek_v2", "pipeline")]
)
def test_ranks_decode_the_tokens_of_one_host(ranks, tmp_path, name, split):
    ranks.folder = write(tmp_path / name, name)
    outcome = ranks.run(split=split, stop=[])
    first, second = outcome.ranks
    assert first["digest"] == second["digest"] == tokens_digest(ranks.ids)
    assert ranks.ids == expected(ranks.folder, "abc", 12)[: len(ranks.ids)]
    assert ranks.left == []
