import hashlib
import json
import shutil
import sys

import huggingface_hub
import pytest

from engine import models
from engine.checkpoints import digests, files
from engine.errors import BadInput
from engine.models import registry
from engine.mx import mx
from tests.engine import folders

PROMPT = mx.array([[5, 9, 40, 7]])


@pytest.fixture(scope="session")
def made(tmp_path_factory):
    return folders.write_pair(tmp_path_factory.mktemp("made") / "pair")


@pytest.fixture
def pair(made, tmp_path):
    """A pair's folder that a test may damage."""
    return shutil.copytree(made, tmp_path / "pair")


def test_a_pair_loads_with_its_identity(made):
    pair = models.load(made)
    target, draft, tokenizer = pair
    assert (target, draft, tokenizer) == (pair.target, pair.draft, pair.tokenizer)
    assert tokenizer.decode(tokenizer.encode("def f():")) == "def f():"
    about, drafter = pair.describe()
    weights = hashlib.sha256((made / "target" / "model.safetensors").read_bytes()).hexdigest()
    line = f"{weights} model.safetensors\n".encode()
    assert about["weights"] == f"sha256:{hashlib.sha256(line).hexdigest()}"
    assert about["tokenizer"].startswith("sha256:")
    assert (about["role"], about["architecture"], about["layers"]) == ("target", "Qwen3ForCausalLM", 4)
    assert (
        about["parameters"]
        == sum(
            x["data_offsets"][1] - x["data_offsets"][0]
            for x in files.read_header(made / "target" / "model.safetensors").values()
        )
        // 2
    )
    assert (drafter["role"], drafter["layers"]) == ("draft", 1)
    assert drafter["weights"] != about["weights"]


@pytest.mark.parametrize(
    ("asked", "dtype"), [(None, mx.float32), ("stored", mx.float16), ("bfloat16", mx.bfloat16)]
)
def test_the_cpu_computes_in_single_precision_unless_told(made, asked, dtype, monkeypatch):
    monkeypatch.setattr(mx, "default_device", lambda: mx.Device(mx.cpu))
    pair = models.load(made, dtype=asked)
    assert pair.target(PROMPT).dtype == dtype
    assert pair.draft.fc.weight.dtype == dtype
    assert [part["dtype"] for part in pair.describe()] == [str(dtype).removeprefix("mlx.core.")] * 2
    assert pair.describe()[0]["stored_dtypes"] == ["F16"]


def test_a_gpu_computes_in_the_stored_type(made, monkeypatch):
    monkeypatch.setattr(mx, "default_device", lambda: mx.Device(mx.gpu))
    assert models.load(made, draft=False).describe()[0]["dtype"] == "float16"


def test_drafters_can_be_exchanged_and_left_out(made, tmp_path):
    other = folders.write_pair(tmp_path / "other", seed=7)
    assert models.load(made, draft=False).draft is None
    assert models.load(made / "target").draft is None
    for named in (other, other / "draft"):
        drafts = [models.load(made, draft=named), models.load(other)]
        assert len({pair.describe()[1]["weights"] for pair in drafts}) == 1


def test_another_target_shares_arrays_and_no_hooks(made):
    pair = models.load(made, draft=False)
    other = pair.another_target()
    other.model.layers[0] = other.model.layers[1]
    assert not mx.array_equal(other(PROMPT), pair.target(PROMPT))
    assert mx.array_equal(pair.another_target()(PROMPT), pair.target(PROMPT))


def test_sharded_weights_load_whole_or_not_at_all(pair):
    target = pair / "target"
    tensors = mx.load(str(target / "model.safetensors"))
    mx.eval(tensors)
    names = sorted(tensors)
    shards = {"model-1.safetensors": names[:9], "model-2.safetensors": names[9:]}
    for file, held in shards.items():
        mx.save_safetensors(str(target / file), {name: tensors[name] for name in held})
    (target / "model.safetensors").unlink()
    index = {name: file for file, held in shards.items() for name in held}
    (target / files.INDEX).write_text(json.dumps({"weight_map": index}))
    loaded = models.load(pair)
    assert loaded.describe()[0]["weights"] == digests.digest([target / name for name in shards], target)
    (target / "model-2.safetensors").unlink()
    with pytest.raises(BadInput, match=r"lacks model-2\.safetensors"):
        models.load(pair)


def _cut(path, keep):
    path.write_bytes(path.read_bytes()[:keep])


def _pointer(path):
    path.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 3\n")


def _tensors(part, change):
    return lambda pair: folders.change_tensors(pair / part, change)


def _config(part, **changes):
    return lambda pair: folders.change_config(pair / part, **changes)


NORM = "model.norm.weight"
REFUSALS = {
    "no folder": (shutil.rmtree, "there is no folder"),
    "a file": (lambda p: shutil.rmtree(p) or p.write_text(""), "is not a folder"),
    "no config": (lambda p: (p / "target/config.json").unlink(), "has no config.json"),
    "config no JSON": (lambda p: (p / "target/config.json").write_text("{"), "cannot be read"),
    "config no object": (lambda p: (p / "target/config.json").write_text("[]"), "names no model_type"),
    "config in Latin-1": (
        lambda p: (p / "target/config.json").write_bytes(b'{"a": "\xe9"}'),
        "cannot be read",
    ),
    "config lacks a field": (
        lambda p: (p / "target/config.json").write_text('{"model_type": "qwen3"}'),
        "mlx-lm cannot build .*TypeError",
    ),
    "unknown architecture": (
        _config("target", model_type="qwen99"),
        "does not know the architecture 'qwen99'",
    ),
    "architecture no name": (_config("target", model_type="../x"), "does not know the architecture"),
    "another architecture": (_config("target", model_type="llama"), "tensors .* not those of its config"),
    "code beside it": (_config("target", model_file="m.py"), "cannot build .* custom module"),
    "no weights": (lambda p: (p / "target/model.safetensors").unlink(), r"no model\*\.safetensors"),
    "missing tensor": (_tensors("target", lambda t: t.pop(NORM)), f"Missing 1 parameters: {NORM}"),
    "extra tensor": (
        _tensors("target", lambda t: t.update(extra=t[NORM])),
        "1 parameters not in model: extra",
    ),
    "wrong shape": (_tensors("target", lambda t: t.update({NORM: t[NORM][:8]})), r"shape \(64,\) .*\(8,\)"),
    "header cut": (lambda p: _cut(p / "target/model.safetensors", 100), "cut short"),
    "length cut": (lambda p: _cut(p / "target/model.safetensors", 5), "cut short"),
    "empty weights": (lambda p: _cut(p / "target/model.safetensors", 0), "cut short"),
    "data cut": (lambda p: _cut(p / "target/model.safetensors", -1), r"cut short: \d+ bytes of \d+"),
    "no header": (
        lambda p: (p / "target/model.safetensors").write_bytes(b"\2" + b"\0" * 7 + b"xx"),
        "header",
    ),
    "LFS pointer": (lambda p: _pointer(p / "target/model.safetensors"), "Git LFS pointer"),
    "no tokenizer": (lambda p: (p / "target/tokenizer.json").unlink(), "has no tokenizer"),
    "tokenizer cut": (lambda p: _cut(p / "target/tokenizer.json", 200), "tokenizer .* cannot be read"),
    "tokenizer too large": (lambda p: folders.write_tokenizer(p / "target", 324), "324 tokens, .* 320"),
    "tokenizer too small": (lambda p: folders.write_tokenizer(p / "target", 260), "260 tokens, .* 320"),
    "draft as target": (
        lambda p: shutil.copytree(p / "draft", p / "target", dirs_exist_ok=True),
        "holds a drafter",
    ),
    "target as draft": (
        lambda p: shutil.copytree(p / "target", p / "draft", dirs_exist_ok=True),
        "not a DFlash drafter",
    ),
    "draft of more layers": (_config("draft", num_target_layers=9), "a target with 9 layers, .* 4"),
    "draft of other width": (_config("draft", hidden_size=32), "32 values in a hidden state, .* 64"),
    "draft of other tokens": (_config("draft", vocab_size=500), "with 500 tokens, .* 320"),
    "draft of another architecture": (
        _config("draft", made_for={"model_type": "llama"}),
        "for a target of architecture llama, and this one is qwen3",
    ),
    "draft of another tokenizer": (
        _config("draft", made_for={"model_type": "qwen3", "vocabulary": "sha256:00"}),
        "a target with another tokenizer",
    ),
    "draft of nobody knows": (_config("draft", made_for=[1]), r"made_for is \[1\], not an object of strings"),
    "draft lacks a tensor": (_tensors("draft", lambda t: t.pop("norm.weight")), r"norm\.weight"),
    "draft has one more": (_tensors("draft", lambda t: t.update(extra=t["norm.weight"])), "extra"),
    "draft of wrong shape": (
        _tensors("draft", lambda t: t.update({"norm.weight": t["norm.weight"][:8]})),
        "64",
    ),
    "draft cut": (lambda p: _cut(p / "draft/model.safetensors", -1), "cut short|truncated"),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_what_does_not_fit_is_refused_with_its_reason(case, pair):
    damage, words = REFUSALS[case]
    damage(pair)
    with pytest.raises(BadInput, match=words) as refused:
        models.load(pair)
    assert "\n" not in refused.value.message
    assert refused.value.fix


def test_code_beside_a_tokenizer_is_not_run(pair):
    target, ran = pair / "target", pair / "ran"
    (target / "own.py").write_text(f"open({str(ran)!r}, 'w')\nclass Own:\n    pass\n")
    own = {"tokenizer_class": "Own", "auto_map": {"AutoTokenizer": ["own.Own", "own.Own"]}}
    (target / "tokenizer_config.json").write_text(json.dumps(own))
    assert models.load(pair).tokenizer.encode("def")
    assert not ran.exists()


def test_unknown_types_are_refused(made):
    with pytest.raises(BadInput, match="no such type: int4"):
        models.load(made, dtype="int4")


@pytest.mark.parametrize("name", registry.BUNDLED)
def test_a_bundled_pair_that_is_not_installed_says_where_to_get_it(name, monkeypatch, tmp_path):
    monkeypatch.setattr(registry, "DATA", tmp_path)
    with pytest.raises(BadInput, match="not part of this installation") as refused:
        models.load(name)
    assert refused.value.fix.endswith(f"{sys.executable} -m pip install ./release/weights")


def test_the_package_of_weights_is_found_without_a_source_tree(made, monkeypatch, tmp_path):
    package = tmp_path / "site" / registry.PACKAGE
    shutil.copytree(made, package / "tiny")
    (package / "__init__.py").touch()
    monkeypatch.setattr(registry, "DATA", tmp_path / "none")
    monkeypatch.syspath_prepend(tmp_path / "site")
    assert registry.is_bundled_here("tiny")
    assert not registry.is_bundled_here("tiny-hybrid")
    assert [part["id"] for part in models.load("tiny").describe()] == ["tiny", "tiny"]


@pytest.mark.parametrize(
    "lost",
    [
        "target/config.json",
        "target/model.safetensors",
        "target/tokenizer.json",
        "target/tokenizer_config.json",
        "draft/config.json",
        "draft/model.safetensors",
    ],
)
def test_a_bundled_pair_that_lacks_a_file_is_not_here(lost, made, monkeypatch, tmp_path):
    shutil.copytree(made, tmp_path / "tiny")
    monkeypatch.setattr(registry, "DATA", tmp_path)
    assert registry.is_bundled_here("tiny")
    (tmp_path / "tiny" / lost).unlink()
    assert not registry.is_bundled_here("tiny")


def test_a_bundled_pair_is_named_not_located(made, monkeypatch, tmp_path):
    shutil.copytree(made, tmp_path / "tiny")
    monkeypatch.setattr(registry, "DATA", tmp_path)
    assert [part["id"] for part in models.load("tiny").describe()] == ["tiny", "tiny"]
    with_other = models.load("tiny", draft=made / "draft").describe()
    assert [part["id"] for part in with_other] == ["tiny", str(made / "draft")]
    named = models.load("tiny", draft="tiny").describe()
    assert [part["id"] for part in named] == ["tiny", "tiny"]


def test_a_drafter_goes_by_the_name_of_its_pair(made, monkeypatch, tmp_path):
    shutil.copytree(made, tmp_path / "tiny")
    monkeypatch.setattr(registry, "DATA", tmp_path)
    assert registry.find("/some/model", "tiny").draft == str(tmp_path / "tiny" / "draft")
    assert registry.find("/some/model", "qwen3-8b").draft == registry.PUBLISHED["qwen3-8b"][1]
    with pytest.raises(BadInput, match="not part of this installation"):
        registry.find("/some/model", "tiny-hybrid")


@pytest.fixture
def hub(monkeypatch, tmp_path):
    """The hub's cache of this test alone, with the network off, as on a runner."""
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "hub"))

    def put(hub_id, source):
        at = tmp_path / "hub" / f"models--{hub_id.replace('/', '--')}"
        shutil.copytree(source, at / "snapshots" / "0123")
        (at / "refs").mkdir()
        (at / "refs" / "main").write_text("0123")

    return put


def test_a_published_pair_loads_from_the_cache_by_its_short_name(made, hub):
    target, draft = registry.PUBLISHED["qwen3-8b"]
    hub(target, made / "target")
    hub(draft, made / "draft")
    pair = models.load("qwen3-8b")
    assert pair.draft is not None
    assert [part["id"] for part in pair.describe()] == [target, draft]
    assert models.load(target).draft is None


@pytest.mark.parametrize("name", ["qwen3-8b", "somebody/a-model", "models/mine"])
def test_without_a_network_the_cache_is_all_there_is(name, hub):
    with pytest.raises(BadInput, match="not in the hub's cache, and the hub is out of reach") as refused:
        models.load(name)
    hub_id = registry.PUBLISHED["qwen3-8b"][0] if name == "qwen3-8b" else name
    assert refused.value.fix == f"download it with: hf download {hub_id}"


@pytest.mark.parametrize("name", ["no/such/folder", "./models/mine", "~/models", "mine", "a b/c"])
def test_what_cannot_be_a_hub_id_is_a_missing_folder(name, hub):
    with pytest.raises(BadInput, match="there is no folder"):
        models.load(name)


def test_a_name_that_cannot_be_a_path_is_refused(made):
    with pytest.raises(BadInput, match="there is no folder ~nobody-of-that-name/model"):
        models.load("~nobody-of-that-name/model")
    with pytest.raises(BadInput, match="cannot be looked at: File name too long"):
        models.load("a" * 5000)
    with pytest.raises(BadInput, match="cannot be looked at: File name too long"):
        models.load(made, draft="a" * 5000)


def test_an_empty_name_is_refused():
    with pytest.raises(BadInput, match="the name of the draft is empty"):
        models.load("tiny", draft=" ")
    with pytest.raises(BadInput, match="empty"):
        models.load(" ")
