"""Each model of the catalogue, and architectures like them, over torch: small, with random weights."""

import math
import shutil

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers", minversion="5.24")

from engine.errors import BadInput  # noqa: E402
from engine.models import catalogue, registry  # noqa: E402
from engine.serve.backend import Job, Options  # noqa: E402
from engine.serve.torch.answer import TorchAnswer  # noqa: E402
from engine.serve.torch.model import load_model  # noqa: E402
from engine.torch import kakeya_cache, packed_layers  # noqa: E402

pytestmark = pytest.mark.long
torch.set_num_threads(1)

SIZES = {
    "vocab_size": 512, "hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 6, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 64, "pad_token_id": 0, "bos_token_id": 2, "eos_token_id": 1,
    "max_position_embeddings": 512,
}  # fmt: skip
LLAMA3 = {
    "rope_type": "llama3", "rope_theta": 5e5, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 128,
}  # fmt: skip
DELTA = {
    "layer_types": ["linear_attention", "linear_attention", "full_attention"] * 2, "linear_num_value_heads": 4,
    "linear_num_key_heads": 2, "linear_key_head_dim": 16, "linear_value_head_dim": 16,
}  # fmt: skip
EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
SLIDING = ["sliding_attention", "full_attention"] * 3
GEMMA4 = {
    "layer_types": SLIDING, "sliding_window": 8, "global_head_dim": 128, "num_kv_shared_layers": 2,
    "vocab_size_per_layer_input": 512, "hidden_size_per_layer_input": 16,
}  # fmt: skip
# By the folder's name, which is that of the hub id for a model of the catalogue: the architecture and its sizes, how
# many layers keep keys and values, and how many of them store codes with a cache for which nothing is asked.
MODELS = {
    "Qwen3-4B": ("Qwen3", {}, 6, 6),
    "Qwen3-8B": ("Qwen3", {"tie_word_embeddings": False}, 6, 6),
    "Qwen3.5-4B": ("Qwen3_5", DELTA, 2, 2),
    "Qwen2-1.5B": ("Qwen2", {"tie_word_embeddings": True}, 6, 6),
    "Llama-3.2-3B-Instruct": ("Llama", {"rope_parameters": LLAMA3, "tie_word_embeddings": True}, 6, 6),
    "Llama-3.1-8B-Instruct": ("Llama", {"rope_parameters": LLAMA3}, 6, 6),
    "Mistral-7B-Instruct-v0.3": ("Mistral", {"sliding_window": None}, 6, 6),
    "gemma-4-E4B": ("Gemma4", GEMMA4, 4, 4),
    "DeepSeek-R1-Distill-Qwen-1.5B": ("Qwen2", {}, 6, 2),
    "DeepSeek-R1-Distill-Qwen-7B": ("Qwen2", {"num_hidden_layers": 7}, 7, 3),
    "glm-4-9b-chat-hf": ("Glm", {"partial_rotary_factor": 0.5, "attention_bias": True}, 6, 6),
    # Drafters were published for these targets.
    "Qwen3-Coder-30B-A3B-Instruct": ("Qwen3Moe", EXPERTS, 6, 6),
    "Qwen3-Coder-Next": ("Qwen3Next", {**DELTA, **EXPERTS, "shared_expert_intermediate_size": 32}, 2, 2),
    "Qwen3.5-35B-A3B": ("Qwen3_5Moe", {**DELTA, **EXPERTS, "shared_expert_intermediate_size": 32}, 2, 2),
    "gpt-oss-20b": (
        "GptOss",
        {"num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": 8, "layer_types": SLIDING},
        6,
        6,
    ),
    # Others that people have.
    "mistral-with-windows": ("Mistral", {"sliding_window": 8}, 6, 6),
    "phi": ("Phi3", {"head_dim": None, "hidden_size": 256}, 6, 6),
    "glm-4": ("Glm4", {}, 6, 6),
    "inkling": (
        "Inkling",
        {
            "swa_num_attention_heads": 4, "swa_num_key_value_heads": 2, "swa_head_dim": 64, "sliding_window_size": 8,
            "local_layer_ids": [0, 1, 3, 4], "d_rel": 8, "rel_extent": 16, "n_routed_experts": 4,
            "num_experts_per_tok": 2, "n_shared_experts": 1, "moe_intermediate_size": 32,
        },
        6,
        6,
    ),
}  # fmt: skip
TEXT_OF = ("Qwen3_5", "Qwen3_5Moe", "Gemma4", "Inkling")  # their text part has a configuration of its own


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    return tmp_path_factory.mktemp("models")


@pytest.fixture(params=MODELS)
def loaded(request, folders):
    """A model as the server loads it, and what is promised of it."""
    kind, sizes, *layers = MODELS[request.param]
    folder = folders / request.param
    torch.manual_seed(0)
    text = "Text" if kind in TEXT_OF else ""
    sizes = {
        name: value for name, value in {**SIZES, **sizes}.items() if value is not None or "window" in name
    }
    config = getattr(transformers, f"{kind}{text}Config")(**sizes)
    getattr(transformers, f"{kind}ForCausalLM")(config).eval().save_pretrained(folder)
    for path in (registry.data() / "tiny" / "target").glob("tokenizer*"):
        shutil.copy(path, folder)
    yield load_model(str(folder), torch.device("cpu"), torch.float32), *layers
    shutil.rmtree(folder)


def answered(model, ids, tokens=10, **options):
    """Return the tokens and the last report of an answer."""
    job = Job(
        0,
        model.name,
        ids,
        Options(tokens, token_ids=True, temperature=0.0, **options),
        lambda _: None,
        math.inf,
    )
    answer, report = TorchAnswer(job, model, 16), {}
    while not answer.done:
        piece = answer.turn()
        report = piece.report if piece is not None else report
    return report["token_ids"], report


def test_a_model_gives_transformers_own_tokens_and_packs_what_it_promises(loaded):
    model, holding, packing = loaded
    ids = torch.randint(3, 512, (1, 40), generator=torch.Generator().manual_seed(1))[0].tolist()
    own = model.net.generate(
        torch.tensor([ids]), max_new_tokens=10, do_sample=False, pad_token_id=0, eos_token_id=1
    )
    tokens, report = answered(model, ids, draft="none")
    assert tokens == own[0, 40:].tolist()
    assert report["cache"] == "raw"
    assert answered(model, ids, draft="lookup")[0] == tokens
    for spec in model.caches:  # as in /v1/models, with the boundary of its channel
        boundary = catalogue.least_boundary(model.name, spec)
        cache = kakeya_cache(model.net, spec, boundary)
        assert packed_layers(cache) == (0 if spec == "raw" else packing), spec
        if spec in ("e8v@4.25", model.caches[-1]):
            tokens, report = answered(model, ids, 3, draft="none", cache=spec, boundary=boundary)
            assert tokens
            assert report["fallback"] is None
    assert "e8v@4.25" in model.caches
    with pytest.raises(BadInput, match="format of MLX"):
        kakeya_cache(model.net, "affine@4g64")
    assert "affine@4g64" not in model.caches
    assert packed_layers(kakeya_cache(model.net, "e8v@4.25")) == holding


def test_every_model_of_the_catalogue_is_here():
    full = {
        entry.target.rpartition("/")[2] for name, entry in catalogue.ENTRIES.items() if "-4bit" not in name
    }
    assert full <= MODELS.keys()
