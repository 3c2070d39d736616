"""A target with its restorer: which layers are restored, and a source for each."""

from collections.abc import Callable, Sequence

from engine.dflash.taps import find_layers
from engine.dflash.target import TargetEnds
from engine.errors import BadInput
from engine.lm import cache as lm_cache
from engine.mx import mx, nn
from engine.restore.restorer import Embed, Reconstruction, Restorer, RestorerConfig
from engine.restore.sources import Learned, Like

TRY = 2  # tokens that show how a model's caches hold keys and values


def shape_of(target: nn.Module) -> tuple[dict[int, tuple[Like, Like]], int]:
    """Return how each full-attention layer of a model holds keys and values, and its hidden size.

    Raises:
        BadInput: it has no full-attention layer.
    """
    caches = lm_cache.make_prompt_cache(target)
    full = [i for i, cache in enumerate(caches) if type(cache) is lm_cache.KVCache]
    if not full:
        raise BadInput("this model has no full-attention layer with a cache of its own")
    tokens = mx.zeros((1, TRY), mx.int32)
    mx.eval(target(tokens, cache=caches))
    likes = {i: tuple(Like.of(x) for x in caches[i].keys_and_values()) for i in full}
    return likes, embed_of(target)(tokens).shape[-1]


def embed_of(target: nn.Module) -> Embed:
    """Return a target's table, from ids to rows."""
    return TargetEnds.of(target).embed


def attentions(target: nn.Module, layers: Sequence[int]) -> list[nn.Module]:
    """Return the attention modules of some layers.

    Raises:
        BadInput: they are not where mlx-lm's models have them.
    """
    found = [getattr(find_layers(target)[1][i], "self_attn", None) for i in layers]
    if not all(hasattr(module, "rope") for module in found):
        raise BadInput(f"{type(target).__module__} has no self_attn with a rope in each layer")
    return found


def config_for(target: nn.Module, digest: str, *, width: int, dilations: Sequence[int]) -> RestorerConfig:
    """Return the shape of a restorer for all full-attention layers of a model, whose weights have ``digest``."""
    likes, hidden = shape_of(target)
    return RestorerConfig(
        hidden_size=hidden,
        layers=tuple(likes),
        key_sizes=tuple(key.heads * key.dim for key, _ in likes.values()),
        value_sizes=tuple(value.heads * value.dim for _, value in likes.values()),
        width=width,
        dilations=tuple(dilations),
        target=digest,
    )


def check(restorer: Restorer, target: nn.Module) -> None:
    """Refuse a restorer that is not of all full-attention layers of a model, in their sizes.

    Raises:
        BadInput: naming what does not fit.
    """
    config = restorer.config
    wanted = config_for(target, config.target, width=config.width, dilations=config.dilations)
    for name in ("hidden_size", "layers", "key_sizes", "value_sizes"):
        has, wants = getattr(config, name), getattr(wanted, name)
        if has != wants:
            raise BadInput(
                f"the restorer's {name} is {has}, and the target's {wants}",
                "train one for this target: kakeya-engine train restorer",
            )


def learned_sources(restorer: Restorer, target: nn.Module, ids: Sequence[int]) -> Callable[[int], Learned]:
    """Return a fresh source for each restored layer of a model that reads one prompt.

    Args:
        restorer: checked to fit the model; see :func:`check`.
        target: an mlx-lm model.
        ids: of the prompt. What comes after it is kept as it is.

    Returns:
        From the index of a layer to its source.
    """
    layers = restorer.config.layers
    made = Reconstruction(restorer, embed_of(target), ids)
    modules = dict(zip(layers, attentions(target, layers), strict=True))

    def source(i: int) -> Learned:
        place = layers.index(i)
        # The states are those of all layers: one of them counts their bytes.
        return Learned(modules[i], made.layer(place), len(ids), held=(made,) if place == 0 else ())

    return source
