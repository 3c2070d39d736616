"""The MTP head of a whole checkpoint as Qwen publishes it: mlx-lm drops its tensors, the engine reads them."""

import json
from importlib import import_module

import pytest

from engine import cli, models
from engine.dflash.loop import stream_generate
from engine.errors import BadInput
from engine.lm import mlx_lm  # noqa: F401 - its models come after it
from engine.mx import mx, tree
from engine.serve.resident import expected_weights, load_resident
from tests.engine import folders, heads
from tests.engine import small_models as small

CONFIG = {
    "architectures": ["Qwen3_5ForConditionalGeneration"],
    "model_type": "qwen3_5",
    "text_config": {
        **heads.QWEN, "model_type": "qwen3_5_text", "mtp_num_hidden_layers": 1, "vocab_size": folders.VOCAB,
        "eos_token_id": 0,
    },
}  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A checkpoint with raw names, shapes and norms."""
    folder = tmp_path_factory.mktemp("qwen")
    module = import_module("mlx_lm.models.qwen3_5")
    target = small.seeded(module.Model(module.ModelArgs.from_dict(CONFIG)))
    head = heads.mtp(vocab_size=folders.VOCAB)
    tensors = {}
    for name, x in tree.tree_flatten(target.parameters()):
        raw = x - 1 if "norm.weight" in name and "linear_attn" not in name else x
        published = name.replace("language_model.model.", "model.language_model.")
        tensors[published.removeprefix("language_model.")] = raw.moveaxis(2, 1) if "conv1d" in name else raw
    for name, x in tree.tree_flatten(head.parameters()):
        tensors[f"mtp.{name}"] = x - 1 if x.ndim == 1 else x
    (folder / "config.json").write_text(json.dumps(CONFIG))
    mx.save_safetensors(str(folder / "model.safetensors"), tensors, {"format": "pt"})
    folders.write_tokenizer(folder)
    return folder


def _tokens(steps):
    return [token for step in steps for token in step.tokens]


def test_the_head_is_loaded_with_its_target_and_drafts_for_it(folder):
    pair = models.load(str(folder), "mtp", dtype="float32")
    assert (pair.draft.kind, pair.draft.layer_ids(pair.target)) == ("mtp", (3,))
    assert abs(pair.draft.norm.weight - heads.mtp(vocab_size=folders.VOCAB).norm.weight).max().item() < 1e-6
    prompt, options = (
        list(range(5, 25)),
        {"max_tokens": 16, "lookup": False, "adaptive": False, "stop_tokens": ()},
    )
    plain = _tokens(stream_generate(pair.target, None, None, prompt, **options))
    steps = list(stream_generate(pair.target, pair.draft, None, prompt, **options))
    assert _tokens(steps) == plain
    assert {step.drafter for step in steps if step.proposed} == {"mtp"}
    assert [each["role"] for each in pair.describe()] == ["target", "draft"]
    assert models.load(str(folder), dtype="float32").draft is None  # nobody asked for it
    assert models.load(str(folder), str(folder), dtype="float32").draft.kind == "mtp"


def test_the_server_loads_it_and_counts_the_files_once(folder):
    assert load_resident(str(folder), "mtp", "float32").pair.draft.kind == "mtp"
    assert expected_weights(str(folder), "mtp", None) == expected_weights(str(folder), "none", None)
    with pytest.raises(BadInput, match="no drafter belongs to"):
        load_resident(str(folder), "eagle3", "float32")


def test_the_commands_say_what_they_use(folder, capsys):
    model = ["--model", str(folder), "--draft", "mtp"]
    for argv in (
        ["models", "--check", str(folder), "--draft", "mtp"],
        ["generate", *model, "--prompt", "ab", "--max-tokens", "3"],
    ):
        with pytest.raises(SystemExit) as ended:
            cli.main(argv)
        assert ended.value.code == 0, capsys.readouterr()
    with pytest.raises(SystemExit):
        cli.main(["generate", "--model", "tiny", "--draft", "mtp", "--prompt", "ab"])
    assert "no MTP head is known for the model type qwen3" in capsys.readouterr().err
