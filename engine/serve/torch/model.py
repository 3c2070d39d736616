"""Loads models of transformers for the server."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM

from engine.checkpoints import files, hub, settings
from engine.errors import BadInput, EngineError
from engine.models import catalogue, registry
from engine.models.fit import refuse_drafter
from engine.serve.torch.tokenizer import load_tokenizer
from engine.serve.turns.kit import LoadedModel
from engine.torch import cache_bytes, kakeya_cache, packed_layers

CONTEXT = 1 << 17  # assumed context length if the configuration names none
GRAIN = 16  # tokens of which a cache's bytes are measured


@dataclass(eq=False, kw_only=True)
class TorchModel(LoadedModel):
    """A loaded model of this backend."""

    net: Any = field(repr=False)  # transformers' model
    dtype: torch.dtype = torch.float32
    _token_bytes: dict[tuple[str, int], int] = field(default_factory=dict, init=False, repr=False)

    def release(self) -> None:
        """Drop the weights."""
        self.net = None

    def forward(self, tokens: list[int], cache: Any = None) -> torch.Tensor:
        """Return the logits after the last of some tokens, float32 ``[vocabulary]``; the cache takes them all."""
        with torch.inference_mode():
            ids = torch.tensor([tokens], device=self.net.device)
            out = self.net(ids, cache=cache, use_cache=cache is not None, logits_to_keep=1)
            logits: torch.Tensor = out.logits[0, -1].float()
        return logits

    def token_bytes(self, spec: str, boundary: int) -> int:
        """Return the bytes that a cache grows by with a token, and states that do not grow counted once a token."""
        key = spec, boundary
        if key not in self._token_bytes:
            cache = kakeya_cache(self.net, spec, boundary)
            self.forward([0] * GRAIN, cache)
            self._token_bytes[key] = -(-cache_bytes(cache) // GRAIN)
        return self._token_bytes[key]


def load_model(name: str, device: torch.device, dtype: torch.dtype | None) -> TorchModel:
    """Load a model by name, folder or hub id. With no ``dtype``, weights keep their stored types.

    Raises:
        BadInput: it is missing, incomplete, in a format of MLX, or of an architecture that transformers does not know.
    """
    folder = hub.folder_of(registry.find(name, False).target)
    config = files.read_config(folder)
    refuse_drafter(config)
    files.weight_files(folder)
    if "quantization" in config and "quantization_config" not in config:
        raise BadInput(f"{folder} is quantized in MLX's format", "take the checkpoint that it was made from")
    net = _net(folder, dtype).eval().to(device)
    text = net.config.get_text_config(decoder=True)
    head = net.get_output_embeddings()
    weights = {each.data_ptr(): each.nbytes for each in (*net.parameters(), *net.buffers())}
    return TorchModel(
        name,
        load_tokenizer(folder, config),
        context=int(getattr(text, "max_position_embeddings", None) or CONTEXT),
        tokens=int(net.get_input_embeddings().weight.shape[0]),
        vocabulary=int(head.weight.shape[0] if head is not None else text.vocab_size),
        nbytes=sum(weights.values()),
        layers=int(text.num_hidden_layers),
        caches=tuple(spec for spec in catalogue.offered(name) if _takes(net, name, spec)),
        sampling=settings.sampling(folder),
        net=net,
        dtype=net.dtype,
    )


def expected_bytes(name: str, dtype: torch.dtype | None) -> int:
    """Return the bytes of a model's weights in memory, from its files."""
    folder = hub.folder_of(registry.find(name, False).target)
    return files.loaded_bytes(folder, dtype.itemsize if dtype is not None else None)


def _net(folder: Path, dtype: torch.dtype | None) -> Any:
    try:
        net, loaded = AutoModelForCausalLM.from_pretrained(
            folder,
            dtype=dtype or "auto",
            local_files_only=True,
            trust_remote_code=False,
            output_loading_info=True,
        )
    except Exception as error:
        reason = " ".join(str(error).split()).rstrip(".")[:300]
        fix = "take a model that transformers knows, or the backend mlx"
        raise BadInput(f"transformers cannot load {folder}: {reason}", fix) from error
    if loaded["missing_keys"]:
        missing = ", ".join(sorted(loaded["missing_keys"])[:3])
        raise BadInput(
            f"the tensors in {folder} are not those of its configuration: {missing} missing", files.AGAIN
        )
    return net


def _takes(net: Any, name: str, spec: str) -> bool:
    boundary = catalogue.least_boundary(name, spec)
    try:
        cache = kakeya_cache(net, spec, boundary)
    except EngineError:
        return False
    return spec == catalogue.RAW or packed_layers(cache) > 0
