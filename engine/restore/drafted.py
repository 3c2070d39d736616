"""f_theta: reconstructs the keys and values of a target's layers from those that its drafter computes for the text.

The drafter's layers run only over the token embeddings, without the target's layer outputs; each position sees earlier
ones. Their raw keys and values, side by side, are mapped to a state that all restored layers share, and this state to
each layer's raw keys and values. Both maps are linear.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from engine.checkpoints import files, tensors
from engine.checkpoints.tensors import CONFIG
from engine.dflash.drafter.model import BoundDFlash
from engine.errors import BadInput
from engine.mx import mx, nn
from engine.restore.cache import layers_of
from engine.restore.learned import layer_sources
from engine.restore.sources import Learned, Pair
from engine.restore.weights import check_digest, read_restorer_config

AGAIN = "train one for this pair: kakeya-engine train restorer --from-drafter"


@dataclass(frozen=True, kw_only=True)
class DraftedConfig:
    """A restorer's shape, and the pair that it was trained for."""

    layers: tuple[int, ...]  # the target's layers that are restored, counted from 0
    inputs: int  # values of the drafter's keys and values at one position
    rank: int  # values of one position's state
    sizes: tuple[int, ...]  # values of each restored layer's raw keys, and of its values, which are as many
    target: str  # `sha256:...` of the target's weights
    draft: str  # the same of the drafter's

    def __post_init__(self) -> None:
        if min(self.inputs, self.rank, *self.sizes) < 1 or len(self.sizes) != len(self.layers):
            raise BadInput("inputs, rank and sizes are 1 or more, and each layer has one of the sizes")


class DraftedRestorer(nn.Module):
    """The weights, and the drafter whose outputs they read (its weights are separate)."""

    kind = "kakeya-drafted-restorer"

    def __init__(self, config: DraftedConfig, drafter: BoundDFlash) -> None:
        super().__init__()
        self.config = config
        self.features = partial(features, drafter)
        self.reduce = nn.Linear(config.inputs, config.rank)
        self.expand = [nn.Linear(config.rank, 2 * size, bias=False) for size in config.sizes]

    def states(self, ids: Sequence[int]) -> mx.array:
        """Return the states of a text's positions, ``[1, length, rank]``."""
        tapped = self.features(mx.array(list(ids), mx.int32)).astype(self.reduce.weight.dtype)
        states: mx.array = self.reduce(tapped)[None]
        return states

    def pair(self, i: int, states: mx.array) -> Pair:
        """Return the ``i``-th restored layer's raw keys and values, ``[1, length, size]`` each."""
        keys, values = mx.split(self.expand[i](states), 2, axis=-1)
        return keys, values


def features(drafter: BoundDFlash, ids: mx.array) -> mx.array:
    """Return the raw keys and values of all of a drafter's layers, ``[length, layers * 2 * kv heads * head_dim]``.

    The ids must start at the first position of a text.
    """
    config, length = drafter.config, ids.shape[0]
    width = 2 * config.num_key_value_heads * config.head_dim
    cos, sin = drafter.rotations.at(0, length)
    x, update, tapped = drafter.embeddings.embed(ids), None, []
    for i, layer in enumerate(drafter.drafter.layers):

        def attend(normed: mx.array, i: int = i) -> mx.array:
            tapped.append(drafter.fused.block[i](normed)[:, :width])
            keys, values, queries = drafter.heads(i, normed, cos, sin)
            out = mx.fast.scaled_dot_product_attention(
                queries, keys, values, scale=drafter.scale, mask="causal"
            )
            return out.transpose(0, 2, 1, 3).reshape(length, -1)

        x, update = layer(x, update, attend, drafter.fused.gate_up[i])
    return mx.concatenate(tapped, axis=-1)


class Drafted:
    """One prompt in a restorer's form: one state for each position."""

    def __init__(self, restorer: DraftedRestorer, ids: Sequence[int]) -> None:
        # Keep the restorer in a closure, because its weights must not count as bytes of a cache.
        self._restorer = lambda: restorer
        self._ids = list(ids)
        self.states: mx.array | None = None

    def pair(self, i: int, start: int, stop: int) -> Pair:
        """Return the ``i``-th restored layer's raw keys and values at some positions."""
        if not 0 <= start < stop <= len(self._ids):
            raise BadInput(f"positions {start} to {stop} are not all among the prompt's {len(self._ids)}")
        if self.states is None:
            self.states = self._restorer().states(self._ids)
            mx.eval(self.states)
        return self._restorer().pair(i, self.states[:, start:stop])


def drafted_sources(
    restorer: DraftedRestorer, target: nn.Module, ids: Sequence[int]
) -> Callable[[int], Learned]:
    """Return a fresh source for each restored layer, as ``engine.restore.learned.learned_sources`` does."""
    drafted = Drafted(restorer, ids)
    return layer_sources(target, restorer.config.layers, drafted, len(ids), drafted.pair)


def is_drafted(folder: str | Path) -> bool:
    """Return whether a folder contains such a restorer, which needs the target's drafter."""
    path = Path(folder) / CONFIG
    return path.is_file() and files.read_config(Path(folder))["model_type"] == DraftedRestorer.kind


def load_drafted(
    folder: Path, drafter: BoundDFlash, target: nn.Module, digests: tuple[str, str], dtype: mx.Dtype | None
) -> DraftedRestorer:
    """Load a restorer strictly, in ``dtype``; None keeps the file's type.

    ``digests`` of the target's weights and of the drafter's have to be those that the restorer was made for. BadInput
    if they are not, or if weights or configuration are damaged or do not fit.
    """
    config = read_restorer_config(folder, DraftedConfig, DraftedRestorer.kind, AGAIN)
    check_digest(folder, "target", config.target, digests[0], AGAIN)
    check_digest(folder, "drafter", config.draft, digests[1], AGAIN)
    if config.layers not in [layers_of(target, sliding=sliding) for sliding in (False, True)]:
        message = f"the restorer's layers are {config.layers}, not those of one kind of the target's"
        raise BadInput(message, AGAIN)
    restorer = DraftedRestorer(config, drafter)
    tensors.load_into(restorer, folder, dtype)
    restorer.eval()
    return restorer
