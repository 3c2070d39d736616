"""The target's embedding table and output head, which its drafter shares, and how the drafter uses them."""

import operator
from collections.abc import Callable
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from engine.dflash.config import DraftConfig
from engine.dflash.target.taps import LayerWrapper, find_layers, with_layers
from engine.errors import BadInput
from engine.mx import mx, nn, number

_TOKENS = (1, 2, 3, 4)  # tokens with which the factor is computed
_NEAR, _DIGITS = 0.01, 3  # tolerance and precision: half types round each value by up to 0.4 %


@dataclass(frozen=True)
class TargetEmbeddings:
    """The parts of a target that its drafter uses."""

    # A function from token ids to embedding rows, without the factor that some models apply afterwards.
    embed: Callable[[mx.array], mx.array]
    embed_scale: float  # that factor, where the model keeps it as an attribute of that name, else 1
    head: Callable[[mx.array], mx.array]  # from hidden rows, already normed, to logits, without a soft cap
    layers: int  # how many layers the target has
    norm: Callable[[mx.array], mx.array] | None = (
        None  # the norm before the head, if it stands beside the layers
    )

    @classmethod
    def of(cls, target: nn.Module) -> "TargetEmbeddings":
        """Find these parts in an mlx-lm model.

        Raises:
            BadInput: the model has no layers or no embedding table where mlx-lm's models have them.
        """
        path, layers = find_layers(target)
        *_, inner = on_the_way = [*accumulate(path[:-1], operator.getitem, initial=target)]
        embed = getattr(inner, "embed_tokens", None)
        if embed is None:
            raise BadInput(
                f"{type(target).__module__} keeps no embed_tokens beside its layers", "another target"
            )
        heads = [module["lm_head"] for module in on_the_way if module.get("lm_head") is not None]
        # Only one factor applies: the table's own if it has one, otherwise the model's.
        scales = [module.embed_scale for module in (embed, inner) if hasattr(module, "embed_scale")]
        return cls(
            embed,
            float(scales[0]) if scales else 1.0,
            heads[0] if heads else embed.as_linear,
            len(layers),
            inner.get("norm"),
        )

    def check(self, config: DraftConfig) -> None:
        """Refuse a drafter that was made for other layers, another hidden size or another vocabulary (BadInput)."""
        self.check_sizes(config.num_target_layers, config.hidden_size, config.vocab_size)

    def check_sizes(self, layers: int | None, hidden: int, vocabulary: int) -> None:
        """Refuse a drafter that was made for a target of other sizes (BadInput); None if it does not say."""
        rows = self.embed(mx.zeros((1,), mx.uint32))  # only the shape is looked at, nothing is computed
        shape = (self.layers, rows.shape[-1], self.head(rows).shape[-1])
        wanted = (layers, hidden, vocabulary)
        for name, has, wants in zip(("layers", "hidden size", "vocabulary"), shape, wanted, strict=True):
            if wants is not None and has != wants:
                raise BadInput(
                    f"the drafter is for another target: {name} {wants}, this target has {has}",
                    "take the drafter that was published for this target, or train one",
                )


def embed_scale_of(config: DraftConfig, embeddings: TargetEmbeddings) -> float:
    """Return the factor by which a drafter reads the target's embedding rows.

    If the checkpoint has a factor (``dflash_config.embed_scale``), it counts. Otherwise a drafter that was trained by
    this engine was trained with the target's own factor, and a published one reads plain rows: of the drafts of the
    published drafters for Gemma, 0.158 were accepted with plain rows, and 0.003 with scaled rows.
    """
    if config.embed_scale is not None:
        return config.embed_scale
    return embeddings.embed_scale if config.made_for is not None else 1.0


class DraftEmbeddings:
    """The target's embeddings and head, adapted to a drafter's configuration.

    ``embed_scale`` replaces the factor from ``embed_scale_of``.
    """

    def __init__(
        self, embeddings: TargetEmbeddings, config: DraftConfig, embed_scale: float | None = None
    ) -> None:
        self.embeddings, self.config = embeddings, config
        self.scale = embed_scale_of(config, embeddings) if embed_scale is None else embed_scale
        self.scale *= config.input_embedding_scale

    def embed(self, ids: mx.array) -> mx.array:
        """Return the rows that the drafter starts from."""
        rows = self.embeddings.embed(ids)
        return rows if self.scale == 1 else rows * self.scale

    def logits(self, states: mx.array) -> mx.array:
        """Return the logits of normed states, without the soft cap, which does not change their order."""
        logits = self.embeddings.head(states)
        return logits if self.config.output_multiplier == 1 else logits * self.config.output_multiplier

    def cap(self, logits: mx.array) -> mx.array:
        """Apply the soft cap to the logits, if there is one."""
        cap = self.config.final_logit_softcapping
        return mx.tanh(logits / cap) * cap if cap and cap > 0 else logits


class _First(LayerWrapper):
    """Replaces the first layer, and records its input."""

    received: mx.array | None = None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        arrays = (value for value in (*args, *kwargs.values()) if isinstance(value, mx.array))
        self.received = next(arrays, None)
        return self._layer(*args, **kwargs)


def factor_of(target: nn.Module) -> float:
    """Return the target's factor: its attribute if it has one, otherwise the factor in its first layer's input.

    Most models with a factor, such as Gemma 2 and 3, have no attribute for it. Returns 1 if the first layer's input is
    not a multiple of the embedding rows.
    """
    embeddings = TargetEmbeddings.of(target)
    if embeddings.embed_scale != 1:
        return embeddings.embed_scale
    tokens = mx.array([_TOKENS])
    rows, first_input = embeddings.embed(tokens).astype(mx.float32), _first_input(target, tokens)
    if first_input is None or first_input.shape != rows.shape:
        return 1.0
    first_input = first_input.astype(mx.float32)
    factor = number((first_input * rows).sum() / mx.square(rows).sum())
    beside = number(mx.abs(first_input - factor * rows).max() / mx.abs(first_input).max())
    return round(factor, _DIGITS) if beside <= _NEAR else 1.0


def _first_input(target: nn.Module, tokens: mx.array) -> mx.array | None:
    path, layers = find_layers(target)
    first = _First(layers[0])
    with_layers(target, path, [first, *layers[1:]])(tokens)  # the rest of the pass is never computed
    return first.received


def drafter_scale(config: DraftConfig, target: nn.Module) -> float:
    """Return the factor by which a drafter reads the rows of a target's embeddings, all factors together."""
    return DraftEmbeddings(TargetEmbeddings.of(target), config).scale
