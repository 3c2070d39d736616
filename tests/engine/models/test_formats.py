"""Whether a folder holds a whole model is judged by its tensors, and what is no model gets advice that helps."""

import json
import os
import shutil

import pytest

from engine import models
from engine.checkpoints import files
from engine.errors import BadInput
from engine.mx import mx
from tests.engine import folders

WEIGHTS = "model.safetensors"


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return folders.write_pair(tmp_path_factory.mktemp("formats") / "made") / "target"


@pytest.fixture
def folder(made, tmp_path):
    return shutil.copytree(made, tmp_path / "model")


def index(folder, file_of):
    names = files.read_header(folder / WEIGHTS)
    text = json.dumps({"weight_map": {name: file_of(i) for i, name in enumerate(sorted(names))}})
    (folder / files.INDEX).write_text(text)


def shards(folder, *kept):
    """Write the weights as two shards with an index, and keep some of them."""
    tensors = mx.load(str(folder / WEIGHTS))
    mx.eval(tensors)
    index(folder, lambda i: f"model-0000{1 + i % 2}-of-00002.safetensors")
    for n in kept:
        held = {name: tensors[name] for i, name in enumerate(sorted(tensors)) if 1 + i % 2 == n}
        mx.save_safetensors(str(folder / f"model-0000{n}-of-00002.safetensors"), held)
    (folder / WEIGHTS).unlink()


def linked(folder):
    """As the hub's cache holds a model: links to blobs of other names."""
    blobs = folder.parent / "blobs"
    blobs.mkdir()
    for i, path in enumerate(sorted(folder.iterdir())):
        path.rename(blobs / str(i))
        path.symlink_to(os.path.relpath(blobs / str(i), folder))


WHOLE = {
    "an index of other files": lambda f: index(f, lambda i: f"model-0000{1 + i % 2}-of-00002.safetensors"),
    "an index of other tensors": lambda f: (f / files.INDEX).write_text(
        json.dumps({"weight_map": {"transformer.h.0.weight": "pytorch_model-1-of-2.safetensors"}})
    ),
    "an index that is partly right": lambda f: index(f, lambda i: WEIGHTS if i else "model-00002.safetensors"),
    "an index of nothing": lambda f: (f / files.INDEX).write_text("{}"),
    "an index that is no JSON": lambda f: (f / files.INDEX).write_text("{"),
    "an index that is a pointer": lambda f: (f / files.INDEX).write_text("version https://git-lfs.github.com/spec/v1"),
    "two shards": lambda f: shards(f, 1, 2),
    "shards without an index": lambda f: shards(f, 1, 2) or (f / files.INDEX).unlink(),
    "links into the hub's cache": linked,
    "other formats beside it": lambda f: [
        (f / name).write_bytes(b"x") for name in ("pytorch_model.bin", "m.gguf", "adapter_config.json", "tf_model.h5")
    ],
    "another name of the only file": lambda f: (f / WEIGHTS).rename(f / "model-00001-of-00003.safetensors"),
}  # fmt: skip


@pytest.mark.parametrize("case", WHOLE)
def test_whole_models_load(case, folder):
    WHOLE[case](folder)
    assert files.weight_files(folder)
    assert models.load(folder, draft=False).target.layers


def emptied(name, content=b"x"):
    def change(folder):
        (folder / WEIGHTS).unlink()
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(content)

    return change


def without_config(name):
    return lambda folder: emptied(name)(folder) or (folder / "config.json").unlink()


def quantized(method):
    def change(folder):
        folders.change_tensors(folder, lambda t: t.update(extra=t["model.norm.weight"]))
        folders.change_config(folder, quantization_config={"quant_method": method})

    return change


def cached(folder):
    inner = folder / "snapshots" / "0123"
    inner.parent.mkdir()
    for path in list(folder.iterdir()):
        if path.is_file():
            inner.mkdir(exist_ok=True)
            path.rename(inner / path.name)


BROKEN = {
    "the second shard is missing": (
        lambda f: shards(f, 1), r"lacks model-00002-of-00002\.safetensors, .* for \w+\.", "again",
    ),
    "all shards are missing": (shards, "lacks model-00001-of-00002", "again"),
    "a shard is missing, without an index": (
        lambda f: shards(f, 1) or (f / files.INDEX).unlink(), r"Missing \d+ parameters: \w", "again",
    ),
    "a link to a blob that is gone": (
        lambda f: (f / WEIGHTS).unlink() or (f / WEIGHTS).symlink_to("../blobs/0"), "cannot be read", "again",
    ),
    "GGUF": (emptied("model-q4.gguf"), "is GGUF", "safetensors"),
    "GGUF alone": (without_config("model-q4.gguf"), r"has no config.json; model-q4.gguf is GGUF", "safetensors"),
    "pickles": (emptied("pytorch_model-00001-of-00002.bin"), "pickles", "save_pretrained"),
    "a checkpoint": (emptied("last.pth"), "pickles", "save_pretrained"),
    "TensorFlow": (emptied("tf_model.h5"), "TensorFlow", "safetensors"),
    "Flax": (emptied("flax_model.msgpack"), "Flax", "safetensors"),
    "ONNX": (emptied("onnx/model.onnx"), "ONNX", "safetensors"),
    "an adapter": (emptied("adapter_model.safetensors"), "an adapter", "mlx_lm.fuse"),
    "an adapter of mlx-lm": (emptied("adapters.safetensors"), "an adapter", "mlx_lm.fuse"),
    "Mistral's form": (emptied("consolidated.00.safetensors"), "Mistral", "model"),
    "an early MLX": (emptied("weights.npz"), "early MLX", "mlx_lm.convert"),
    "another name": (emptied("weights.safetensors"), "another name", "model.safetensors"),
    "an unfinished download": (emptied("model.safetensors.incomplete"), "unfinished", "finish"),
    "a cache of the hub": (cached, "has no config.json", "snapshots/0123"),
    "bitsandbytes": (quantized("bitsandbytes"), "tensors", "quantized by bitsandbytes"),
    "GPTQ": (quantized("gptq"), "cannot build|tensors", "quantized by gptq"),
}  # fmt: skip


@pytest.mark.parametrize("case", BROKEN)
def test_advice_fits_what_is_there(case, folder):
    change, words, fix = BROKEN[case]
    change(folder)
    with pytest.raises(BadInput, match=words) as refused:
        models.load(folder, draft=False)
    assert fix in refused.value.fix
    assert "\n" not in refused.value.message


def test_a_file_is_no_folder(folder):
    (folder / "model.gguf").write_bytes(b"x")
    with pytest.raises(BadInput, match=r"is not a folder; model\.gguf is GGUF"):
        models.load(folder / "model.gguf")


def test_a_template_in_a_file_of_its_own_is_used(folder):
    template = {"chat_template": "{% for m in messages %}{{ m.content }}!{% endfor %}"}
    (folder / "chat_template.json").write_text(json.dumps(template))
    tokenizer = models.load(folder, draft=False).tokenizer
    assert tokenizer.has_chat_template
    assert tokenizer.apply_chat_template([{"role": "user", "content": "a"}], tokenize=False) == "a!"
    (folder / "chat_template.jinja").write_text("own")
    tokenizer = models.load(folder, draft=False).tokenizer
    assert tokenizer.apply_chat_template([{"role": "user", "content": "a"}], tokenize=False) == "own"
