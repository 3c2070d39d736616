"""A restored prefill's forward for training: all chunks of whole rows at once, and differentiable.

When a prompt is read in chunks as long as the window, a token sees its own chunk and the one before it as they
are, and the sink; what lies between is what a source gives. Here one forward does the same: a layer's cache
returns every position twice, as it is and as it is given, and the mask chooses.
"""

from engine.errors import BadInput
from engine.mx import mx
from engine.restore.sources import Pair


class WholeRows:
    """One layer's cache, in mlx-lm's protocol, for one forward over rows from their beginning.

    Args:
        given: keys and values of all positions as the layer would hold them, ``[rows, heads, length, dim]``.
        sink: first positions that stay.
        window: last positions that stay, and the length of a chunk.
    """

    offset = 0

    def __init__(self, pair: Pair, sink: int, window: int) -> None:
        self.pair, self.sink, self.window = pair, sink, window

    def update_and_fetch(self, keys: mx.array, values: mx.array) -> Pair:
        """Return both as they are and, behind them, as they are given."""
        given_keys, given_values = self.pair
        return mx.concatenate([keys, given_keys], axis=2), mx.concatenate([values, given_values], axis=2)

    def make_mask(
        self,
        rows: int,
        window_size: int | None = None,
        return_array: bool = True,  # noqa: ARG002 - it is always one
    ) -> mx.array:
        """Return which of the doubled positions each one sees, ``[length, 2 * length]``."""
        if window_size is not None:
            raise BadInput("a sliding layer cannot be restored", "leave its own cache to it")
        at = mx.arange(rows)
        chunk_before = (at // self.window - 1)[:, None] * self.window
        causal = at[None] <= at[:, None]
        in_window = (at < self.sink)[None] | (at[None] >= chunk_before)
        return mx.concatenate([causal & in_window, causal & ~in_window], axis=1)
