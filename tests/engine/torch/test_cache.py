import tomllib
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers", minversion="5.24")

from mlx_lm.models.llama import Model, ModelArgs  # noqa: E402

from engine import dflash  # noqa: E402
from engine.cache import make_caches  # noqa: E402
from engine.codec.spec import Layout  # noqa: E402
from engine.errors import BadInput, MissingPackage  # noqa: E402
from engine.live_bytes import live_bytes  # noqa: E402
from engine.models import load, registry  # noqa: E402
from engine.mx import mx  # noqa: E402
from engine.torch import FLOORS, _check_versions, cache_bytes, kakeya_cache, packed_layers, view  # noqa: E402
from engine.torch.view import PackedView  # noqa: E402
from tests.engine.torch.models import SIZES, gemma, llama, prompt  # noqa: E402

ROOT = Path(__file__).parents[3]
SPECS = (
    "e8v@4.25",
    "e8v@2.25",
    "e8@q38",
    "d4@q10",
    "k=e8v@6.25,v=e8v@3.25",
)


# Tests run with another home.
REAL = registry.fetched("smollm2-135m") if registry.is_fetched("smollm2-135m") else None


@pytest.fixture(scope="module")
def model():
    return llama()


def generate(model, ids, spec="e8v@4.25", tokens=12, boundary=0, **more):
    cache = kakeya_cache(model, spec, boundary)
    out = model.generate(
        ids, max_new_tokens=tokens, do_sample=False, cache=cache, pad_token_id=0, eos_token_id=-1, **more
    )
    return out, cache


@pytest.mark.rows(1)
@pytest.mark.parametrize("spec", SPECS)
def test_a_cache_stores_codes_and_generates(model, spec):
    out, cache = generate(model, prompt(), spec)
    assert out.shape == (1, 42)
    assert packed_layers(cache) == 4
    assert {layer.keys.dtype for layer in cache.layers} == {torch.uint8}
    assert cache.get_seq_length() == 41
    raw16 = 41 * 4 * 2 * 2 * 64 * 2
    assert cache_bytes(cache) == sum(x.nbytes for layer in cache.layers for x in (layer.keys, layer.values))
    assert cache_bytes(cache) < (0.275 if spec == "e8v@4.25" else 0.5) * raw16


def test_codes_of_four_bits_are_counted_as_mlx_counts_them():
    """The same vectors take the same bytes in both engines' caches, by the same function."""
    sizes = {name: size for name, size in SIZES.items() if not name.endswith("token_id")}
    args = ModelArgs(model_type="llama", head_dim=64, rms_norm_eps=1e-5, **sizes)
    target = Model(args)
    caches = make_caches(target, "e8v@4.25")
    target(mx.array(prompt(41).tolist()), cache=caches)
    rows = sum(cache.keys.nbytes // cache.keys.shape[2] * 41 * 2 for cache in caches)
    _, cache = generate(llama(), prompt())
    assert live_bytes(cache.layers) == rows == 4 * 2 * 2 * 41 * Layout(64, 4).nbytes


def test_raw_layers_count_their_values(model):
    _, cache = generate(model, prompt(), "raw")
    assert packed_layers(cache) == 0
    assert cache_bytes(cache) == 41 * 4 * 2 * 2 * 64 * 4


@pytest.mark.parametrize("boundary", [0, 1, 2, 3])
def test_a_boundary_leaves_layers_raw_at_either_end(model, boundary):
    _, cache = generate(model, prompt(), boundary=boundary)
    packed = [layer.keys.dtype == torch.uint8 for layer in cache.layers]
    assert packed == [boundary <= i < 4 - boundary for i in range(4)]


def test_tiles_attend_as_decoded_vectors_do(model, monkeypatch):
    """A new token reads the cache tile by tile; eager attention decodes all of it."""
    tiled = []
    attend = view.attend
    monkeypatch.setattr(view, "attend", lambda *args: tiled.append(args) or attend(*args))
    monkeypatch.setattr(view, "COLUMNS", 16 * 16)
    ids = prompt(70)
    caches = [kakeya_cache(model) for _ in range(2)]
    with torch.inference_mode():
        model(ids, cache=caches[0])
        assert not tiled
        first = model(ids[:, :1], cache=caches[0]).logits
        assert len(tiled) == 4
        assert len([*tiled[0][1].tiles()]) > 2
        model.set_attn_implementation("eager")
        try:
            model(ids, cache=caches[1])
            second = model(ids[:, :1], cache=caches[1]).logits
        finally:
            model.set_attn_implementation("sdpa")
    assert len(tiled) == 4
    assert (first - second).abs().max() < 1e-4 * second.abs().max()


def test_no_decoded_copy_is_kept(model):
    _, cache = generate(model, prompt())
    assert {type(value) for layer in cache.layers for value in vars(layer).values()}.isdisjoint({PackedView})


def test_the_chunks_of_a_prompt_do_not_matter(model):
    ids = prompt(40)
    whole, parts = kakeya_cache(model), kakeya_cache(model)
    with torch.inference_mode():
        at_once = model(ids, cache=whole).logits[:, -1]
        for part in ids.split(13, dim=1):
            last = model(part, cache=parts).logits[:, -1]
    assert (at_once - last).abs().max() < 1e-4 * last.abs().max()
    assert torch.equal(whole.layers[0].keys, parts.layers[0].keys)


@pytest.mark.rows(1)
@pytest.mark.parametrize("spec", ["e8v@4.25", "raw", "e8@q38"])
def test_prompt_lookup_changes_no_token(model, spec):
    ids = prompt(8).repeat(1, 4)
    plain, _ = generate(model, ids, spec, 24)
    looked_up, cache = generate(model, ids, spec, 24, prompt_lookup_num_tokens=4)
    assert torch.equal(plain, looked_up)
    assert cache.get_seq_length() == 55


@pytest.mark.long
def test_an_assistant_drafts_over_packed_codes(model):
    plain, _ = generate(model, prompt(), tokens=16)
    assisted, _ = generate(model, prompt(), tokens=16, assistant_model=model)
    assert torch.equal(plain, assisted)


@pytest.mark.long
def test_beams_reorder_the_rows(model):
    out, cache = generate(model, prompt(), num_beams=3, num_return_sequences=3)
    assert out.shape == (3, 42)
    assert len({tuple(row.tolist()) for row in out}) == 3
    kept = cache.layers[1].keys.clone()
    cache.reorder_cache(torch.tensor([2, 0, 1]))
    assert torch.equal(cache.layers[1].keys, kept[[2, 0, 1]])


def test_rows_of_a_batch_are_chosen_and_repeated(model):
    ids = prompt(20, rows=3)
    cache = kakeya_cache(model)
    with torch.inference_mode():
        model(ids, cache=cache)
        cache.batch_select_indices(torch.tensor([2, 0]))
        assert cache.layers[0].keys.shape[0] == 2
        chosen = model(ids[[2, 0], :1], cache=cache).logits
        own = kakeya_cache(model)
        model(ids[[2]], cache=own)
        alone = model(ids[[2], :1], cache=own).logits
        cache.batch_repeat_interleave(2)
    assert (chosen[:1] - alone).abs().max() < 1e-4 * alone.abs().max()
    assert cache.layers[0].values.shape[0] == 4


def test_cropped_tokens_are_forgotten_and_their_memory_released(model):
    cache = kakeya_cache(model)
    with torch.inference_mode():
        model(prompt(30), cache=cache)
        before = cache_bytes(cache)
        cache.crop(-20)
        assert cache_bytes(cache) == before // 3
        assert cache.layers[0].keys.untyped_storage().nbytes() == cache.layers[0].keys.nbytes
        again = model(prompt(30)[:, 10:], cache=cache).logits[:, -1]
        fresh = model(prompt(30), cache=kakeya_cache(model)).logits[:, -1]
    assert (again - fresh).abs().max() < 1e-4 * fresh.abs().max()


@pytest.mark.long
def test_a_padded_batch_answers_as_its_rows_alone(model):
    long, short = prompt(24), prompt(24)[:, 6:]
    ids = torch.cat([long, torch.cat([torch.zeros(1, 6, dtype=torch.long), short], dim=1)])
    mask = torch.ones_like(ids)
    mask[1, :6] = 0
    together, _ = generate(model, ids, attention_mask=mask)
    assert torch.equal(together[:1], generate(model, long)[0])
    assert torch.equal(together[1:, 6:], generate(model, short)[0])


def test_sliding_layers_keep_the_codes_of_their_window():
    model = gemma(layer_types=["sliding_attention", "full_attention"] * 2)
    out, cache = generate(model, prompt(40), tokens=8)
    assert out.shape == (1, 48)
    assert packed_layers(cache) == 4
    assert [layer.keys.shape[-2] for layer in cache.layers] == [15, 47, 15, 47]
    looked_up, _ = generate(model, prompt(40), tokens=8, prompt_lookup_num_tokens=3)
    assert torch.equal(out, looked_up)


@pytest.mark.long
def test_layers_without_keys_and_values_stay_the_models_own():
    config = transformers.Qwen3NextConfig(
        **{**SIZES, "num_hidden_layers": 4, "num_experts": 0, "head_dim": 64},
        layer_types=["linear_attention", "full_attention"] * 2, mlp_only_layers=[0, 1, 2, 3],
        linear_num_value_heads=2, linear_num_key_heads=2, linear_key_head_dim=16, linear_value_head_dim=16,
    )  # fmt: skip
    torch.manual_seed(0)
    model = transformers.Qwen3NextForCausalLM(config).eval()
    out, cache = generate(model, prompt())
    assert out.shape == (1, 42)
    assert packed_layers(cache) == 2
    assert cache_bytes(cache) > 2 * 2 * 2 * 41 * 35  # the states count too


def test_a_cache_that_was_reset_starts_over(model):
    out, cache = generate(model, prompt())
    cache.reset()
    assert (cache.get_seq_length(), cache_bytes(cache)) == (0, 0)
    again = model.generate(
        prompt(), max_new_tokens=12, do_sample=False, cache=cache, pad_token_id=0, eos_token_id=-1
    )
    assert torch.equal(out, again)


@pytest.mark.parametrize(
    ("more", "spec", "boundary", "reason"),
    [({"head_dim": 72}, "e8v@4.25", 0, "no Hadamard rotation of size 72"),
     ({"head_dim": 80}, "e8@q38", 0, "no dim 80"), ({}, "affine@4g64", 0, "format of MLX"),
     ({}, "e8v@4.25", -1, "boundary is -1"), ({}, "nonsense", 0, "no cache spec")],
)  # fmt: skip
def test_what_a_model_cannot_use_is_refused_before_it_runs(more, spec, boundary, reason):
    with pytest.raises(BadInput, match=reason):
        kakeya_cache(llama(**more), spec, boundary)


def test_models_with_an_encoder_are_refused():
    config = transformers.T5Config(
        vocab_size=64, d_model=16, num_layers=1, num_heads=2, d_kv=8, d_ff=16, decoder_start_token_id=0
    )
    with pytest.raises(BadInput, match="encoder"):
        kakeya_cache(transformers.T5ForConditionalGeneration(config))


@pytest.mark.long
def test_it_needs_no_mlx(python):
    """A machine without MLX and mlx-lm has the cache."""
    blocked = "import sys; sys.modules.update(dict.fromkeys(('mlx', 'mlx.core', 'mlx_lm'))); "
    done = python(
        "-c",
        f"{blocked}import engine.torch; print(sorted(n for n in sys.modules if n.startswith('engine.mx')))",
    )
    assert done.stdout.strip() == "[]", done.stderr


@pytest.mark.long
@pytest.mark.skipif(REAL is None, reason="smollm2-135m is not on this machine")
def test_a_real_model_gives_the_tokens_of_transformers_and_of_mlx():
    """Raw tokens are transformers' own and MLX's; packed codes take 27.4 % of bfloat16."""
    folder = REAL / "target"
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    target = load(REAL, False, dtype="float32").target
    for text in ("The capital of France is", "import os\nimport sys\n\n\ndef main():\n"):
        ids = tokenizer(text, return_tensors="pt").input_ids
        own = model.generate(ids, max_new_tokens=24, do_sample=False, pad_token_id=0)[
            0, ids.shape[1] :
        ].tolist()
        raw, _ = generate(model, ids, "raw", 24)
        steps = dflash.stream_generate(target, None, tokenizer, ids[0].tolist(), max_tokens=24)
        mlx = [token for step in steps for token in step.tokens]
        assert raw[0, ids.shape[1] :].tolist()[: len(own)] == own == mlx[: len(own)]
        out, cache = generate(model, ids, tokens=24)
        assert cache_bytes(cache) <= 0.275 * 30 * 3 * 64 * 2 * 2 * (out.shape[1] - 1)
        looked_up, _ = generate(model, ids, tokens=24, prompt_lookup_num_tokens=5)
        assert torch.equal(out, looked_up)


WIDE = {**SIZES, "hidden_size": 128, "num_hidden_layers": 2, "num_attention_heads": 2}
ARCHITECTURES = {
    "GPT2": {"vocab_size": 128, "n_embd": 128, "n_layer": 2, "n_head": 2},
    "GPTNeoX": {name: size for name, size in WIDE.items() if name != "num_key_value_heads"},
    "Phi3": WIDE,
    "Mistral": {**WIDE, "sliding_window": 8},
    "Gemma2": {**WIDE, "head_dim": 64, "sliding_window": 8},
    "GptOss": {**WIDE, "head_dim": 64, "num_local_experts": 2, "num_experts_per_tok": 1, "sliding_window": 8},
    "Lfm2": {**WIDE, "layer_types": ["conv", "full_attention"]},
    "DeepseekV3": {
        **WIDE, "q_lora_rank": 32, "kv_lora_rank": 32, "qk_rope_head_dim": 32, "qk_nope_head_dim": 32, "v_head_dim": 64,
        "n_routed_experts": 2, "n_group": 1, "topk_group": 1, "num_experts_per_tok": 1, "moe_intermediate_size": 32,
    },
    "Jamba": {
        **WIDE, "num_experts": 2, "num_experts_per_tok": 1, "attn_layer_period": 2, "attn_layer_offset": 1,
        "use_mamba_kernels": False, "mamba_d_state": 8,
    },
    "FalconH1": {
        **WIDE, "head_dim": 64, "mamba_d_ssm": 64, "mamba_n_heads": 4, "mamba_d_head": 16, "mamba_d_state": 8,
        "mamba_n_groups": 1,
    },
}  # fmt: skip


@pytest.mark.long
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_every_architecture_reads_its_codes_as_it_reads_its_values(name):
    """Six bits a value change the logits by a few percent; codes that are read wrongly change all of them."""
    torch.manual_seed(0)
    config = getattr(transformers, f"{name}Config")(**ARCHITECTURES[name])
    causal = f"{name}LMHeadModel" if name == "GPT2" else f"{name}ForCausalLM"
    model, ids, rows = getattr(transformers, causal)(config).eval(), prompt(24), []
    for spec in ("raw", "e8v@6.25"):
        cache = kakeya_cache(model, spec)
        with torch.inference_mode():
            parts = [model(part, cache=cache, use_cache=True).logits for part in ids.split([18, 1, 5], dim=1)]
        rows.append(torch.cat(parts, dim=1))
    assert packed_layers(cache) > 0
    assert (rows[0] - rows[1]).norm() < 0.05 * rows[0].norm()
    beams, _ = generate(model, ids, tokens=4, num_beams=2)
    assert beams.shape == (1, 28)


@pytest.mark.rows(1)
@pytest.mark.parametrize("spec", ["e8v@4.25", "k=e8v@6.25,v=e8v@3.25"])
def test_a_model_whose_layers_have_different_head_sizes_stores_codes(spec):
    """Gemma 4's layers share keys and values, and its configuration has no head size of all layers."""
    config = transformers.Gemma4TextConfig(
        **{**SIZES, "head_dim": 64, "sliding_window": 8, "global_head_dim": 128, "num_kv_shared_layers": 2},
        vocab_size_per_layer_input=128, hidden_size_per_layer_input=16,
        layer_types=["sliding_attention", "full_attention"] * 2,
    )  # fmt: skip
    torch.manual_seed(0)
    model, rows = transformers.Gemma4ForCausalLM(config).eval(), []
    for attention in ("sdpa", "eager"):
        model.set_attn_implementation(attention)
        cache = kakeya_cache(model, spec)
        with torch.inference_mode():
            rows.append(
                [model(part, cache=cache).logits[:, -1] for part in prompt(24).split([18, 1, 5], dim=1)]
            )
    assert packed_layers(cache) == 2
    assert all((a - b).norm() < 1e-4 * a.norm() for a, b in zip(*rows, strict=True))


STATES = {"vocab_size": 128, "hidden_size": 64, "num_hidden_layers": 2}


@pytest.mark.parametrize(
    ("name", "reason"), [("Mamba", "none of its layers keeps keys"), ("Rwkv", "in a form of its own")]
)
def test_a_model_that_keeps_no_keys_and_values_has_raw_caches_only(name, reason):
    config = getattr(transformers, f"{name}Config")(**STATES)
    model = getattr(transformers, f"{name}ForCausalLM")(config)
    with pytest.raises(BadInput, match=reason) as refused:
        kakeya_cache(model)
    assert refused.value.fix == "caches that it can use: raw"
    assert packed_layers(kakeya_cache(model, "raw")) == 0


def test_versions_that_are_too_old_are_named_with_the_remedy(monkeypatch):
    extra = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]["torch"]
    for name, (major, minor) in FLOORS.items():
        assert f"{name}>={major}.{minor}" in extra
    present = {"torch": "2.13.0+cpu", "transformers": "5.24.0.dev0"}
    monkeypatch.setattr("engine.torch.metadata.version", present.get)
    _check_versions()
    for name, old in (("torch", "2.9.1"), ("transformers", "5.23.9"), ("transformers", "4.57.1")):
        monkeypatch.setattr("engine.torch.metadata.version", {**present, name: old}.get)
        with pytest.raises(MissingPackage, match=rf"{name} {old} is too old: \d+\.\d+ or newer") as refused:
            _check_versions()
        assert "pip install '.[torch]'" in refused.value.fix
