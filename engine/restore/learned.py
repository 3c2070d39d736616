"""A target with its restorer: the restored layers, and a source for each."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from engine.dflash.target.embeddings import TargetEmbeddings
from engine.dflash.target.taps import find_layers
from engine.errors import BadInput
from engine.mx import mx, nn
from engine.restore.cache import restored_layers
from engine.restore.restorer import Embed, Reconstruction, Restorer, RestorerConfig
from engine.restore.sources import Learned, Pair

PARTS = ("input_layernorm", "self_attn")


def embed_of(target: nn.Module) -> Embed:
    """Return a target's embedding function, from ids to rows."""
    return TargetEmbeddings.of(target).embed


def blocks(target: nn.Module, layers: Sequence[int]) -> list[nn.Module]:
    """Return some layers; BadInput if their norm and attention are not where mlx-lm's models have them."""
    modules = [find_layers(target)[1][i] for i in layers]
    if not all(hasattr(block, name) for block in modules for name in PARTS):
        raise BadInput(f"{type(target).__module__} has no {' and '.join(PARTS)} in each layer")
    return modules


def project(block: nn.Module, x: mx.array) -> Pair:
    """Return a layer's raw keys and values, ``[rows, length, heads * dim]``, for its input ``x``."""
    x, attention = block.input_layernorm(x), block.self_attn
    keys, to_values = attention.k_proj(x), attention.get("v_proj")
    return keys, keys if to_values is None else to_values(x)


def config_for(target: nn.Module, digest: str, *, width: int, dilations: Sequence[int]) -> RestorerConfig:
    """Return the shape of a restorer for all full-attention layers of a model with weights of this ``digest``."""
    return RestorerConfig(
        hidden_size=embed_of(target)(mx.zeros((1,), mx.int32)).shape[-1],
        layers=restored_layers(target),
        width=width,
        dilations=tuple(dilations),
        target=digest,
    )


def check(restorer: Restorer, target: nn.Module) -> None:
    """Raise BadInput unless a restorer is for all full-attention layers of a model, and has its hidden size."""
    config = restorer.config
    wanted = config_for(target, config.target, width=config.width, dilations=config.dilations)
    for name in ("hidden_size", "layers"):
        has, wants = getattr(config, name), getattr(wanted, name)
        if has != wants:
            fix = "train one for this target: kakeya-engine train restorer"
            raise BadInput(f"the restorer's {name} is {has}, and the target's {wants}", fix)


def learned_sources(restorer: Restorer, target: nn.Module, ids: Sequence[int]) -> Callable[[int], Learned]:
    """Return a function from the index of a restored layer to a fresh source for it.

    The restorer has to fit the model (``check``). Positions after the prompt ``ids`` are kept unchanged.
    """
    layers = restorer.config.layers
    reconstruction, modules = Reconstruction(restorer, embed_of(target), ids), blocks(target, layers)

    def raw(index: int, start: int, stop: int) -> Pair:
        return project(modules[index], reconstruction.inputs(index, start, stop))

    return layer_sources(target, layers, reconstruction, len(ids), raw)


def layer_sources(
    target: nn.Module, layers: Sequence[int], reconstruction: Any, length: int, raw: Callable[..., Pair]
) -> Callable[[int], Learned]:
    """Return a function from the index of a restored layer to a fresh source for it.

    ``reconstruction`` is kept of the prompt, once for all layers. Tokens after the prompt's ``length`` tokens are kept
    unchanged. ``raw`` returns raw keys and values, given a layer's index in ``layers``, the first position and the
    one after the last.
    """
    block_of = dict(zip(layers, blocks(target, layers), strict=True))

    def source(i: int) -> Learned:
        index = layers.index(i)
        # All layers share these states: the first one counts their bytes.
        owned = (reconstruction,) if index == 0 else ()
        return Learned(block_of[i].self_attn, partial(raw, index), length, owned)

    return source
