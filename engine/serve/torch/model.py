"""Loads models of transformers for the server."""

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from math import isfinite
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM

from engine.checkpoints import files, hub, settings
from engine.dflash.propose.adaptive import Adaptive
from engine.dflash.propose.lookup import BLOCK
from engine.errors import BadInput, EngineError
from engine.models import catalogue, registry
from engine.models.block_agreement import COMPARED, CONTEXT, STRIDE, Agreement
from engine.models.fit import refuse_drafter
from engine.serve.torch.tokenizer import load_tokenizer
from engine.serve.turns.kit import LoadedModel
from engine.torch import cache_bytes, kakeya_cache, packed_layers
from engine.torch.cache import uses_caches

USUAL_CONTEXT = 1 << 17  # assumed context length if the configuration names none
POLICIES = 16  # the most kinds of answers whose policies are kept
TRIAL = 24  # tokens of the text that shows whether a model with states reads a text in parts
# The largest relative difference that counts as rounding. Read wrongly, models differ by 5e-4 or more.
ROUNDING = {torch.float32: 1e-4, torch.float16: 0.02, torch.bfloat16: 0.05}
GRAIN = 16  # tokens of which a cache's bytes are measured


@dataclass(eq=False, kw_only=True)
class TorchModel(LoadedModel):
    """A loaded model of this backend."""

    net: Any = field(repr=False)  # transformers' model
    dtype: torch.dtype = torch.float32
    chunked: bool = True  # whether a prompt may be read in parts
    _token_bytes: dict[tuple[str, int], int] = field(default_factory=dict, init=False, repr=False)
    # For each kind of answer, the policy with estimates about drafts. Only the engine's thread uses it.
    policy: Callable[[Hashable], Adaptive] = field(
        default_factory=lambda: lru_cache(POLICIES)(lambda _: Adaptive()), init=False, repr=False
    )

    def release(self) -> None:
        """Drop the weights."""
        self.net = None

    def forward(self, tokens: list[int], cache: Any = None, rows: int = 1) -> torch.Tensor:
        """Return the logits after each of the last ``rows`` tokens, float32 ``[rows, vocabulary]``.

        The cache takes all tokens.
        """
        with torch.inference_mode():
            ids = torch.tensor([tokens], device=self.net.device)
            out = self.net(ids, cache=cache, use_cache=cache is not None, logits_to_keep=rows)
            logits: torch.Tensor = out.logits[0, -rows:].float()
        return logits

    @cached_property
    def agreement(self) -> Agreement | None:
        """How a block of rows compares with single rows, over a raw cache; None if drafts are impossible."""
        ids = [i * STRIDE % self.vocabulary % self.tokens for i in range(CONTEXT + BLOCK)]
        cache = kakeya_cache(self.net, catalogue.RAW)
        self.forward(ids[:CONTEXT], cache)
        if not cache.is_croppable:
            return None
        cache.activate_past_recording()
        block = self.forward(ids[CONTEXT:], cache, BLOCK)[:COMPARED]
        cache.crop(-BLOCK)
        single = []
        for token in ids[CONTEXT : CONTEXT + COMPARED]:
            single.append(self.forward([token], cache))
            cache.crop(0)
        rows = torch.cat(single)
        same, difference = torch.equal(block.argmax(-1), rows.argmax(-1)), float((block - rows).abs().max())
        return Agreement(BLOCK, COMPARED, same, difference if isfinite(difference) else None)

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
    if not uses_caches(net):
        reason = f"{type(net).__name__} keeps what it has read in a form of its own, which this server does not pass on"
        raise BadInput(
            f"the backend torch cannot run {folder}: {reason}", "take another model, or the backend mlx"
        )
    text = net.config.get_text_config(decoder=True)
    head = net.get_output_embeddings()
    weights = {each.data_ptr(): each.nbytes for each in (*net.parameters(), *net.buffers())}
    return TorchModel(
        name,
        load_tokenizer(folder, config),
        context=int(getattr(text, "max_position_embeddings", None) or USUAL_CONTEXT),
        tokens=int(net.get_input_embeddings().weight.shape[0]),
        vocabulary=int(head.weight.shape[0] if head is not None else text.vocab_size),
        nbytes=sum(weights.values()),
        layers=int(text.num_hidden_layers),
        caches=tuple(spec for spec in catalogue.offered(name) if _takes(net, name, spec)),
        sampling=settings.sampling(folder),
        net=net,
        dtype=net.dtype,
        chunked=not net._is_stateful or reads_in_parts(net),  # noqa: SLF001 - as `generate` asks
    )


def reads_in_parts(net: Any) -> bool:
    """Return whether a model that reads a text in parts computes what it does if it reads it at once.

    Some with states (Mamba, Jamba and others) read each part of several tokens as if no text preceded it.
    """
    ids = torch.arange(TRIAL, device=net.device)[None] % net.get_input_embeddings().weight.shape[0]
    with torch.inference_mode():
        cache = kakeya_cache(net, catalogue.RAW)
        whole = net(ids, use_cache=False, logits_to_keep=1).logits.float()
        for part in ids.split(TRIAL // 3, dim=1):
            last = net(part, cache=cache, use_cache=True, logits_to_keep=1).logits.float()
    return bool((whole - last).norm() <= ROUNDING[net.dtype] * whole.norm())


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
