"""A drafter's context: the keys and values of the accepted tokens, in each of its layers.

Only accepted tokens are kept, so nothing has to be taken back. While a block is computed, its own keys and values
are written after the kept ones, and the next write overwrites them.
"""

from engine.mx import mx

STEP = 256  # positions by which a layer's buffer grows


class LayerContext:
    """Keys and values of one layer, ``[1, heads, positions, head_dim]``, oldest first.

    Args:
        window: the window of a sliding layer, which keeps the ``window - 1`` positions that a block's first row
            sees besides itself. None keeps all positions.
    """

    def __init__(self, window: int | None) -> None:
        self.keep = None if window is None else window - 1
        self.buffers: list[mx.array] = []  # keys and values, once there are any
        self.start = self.end = 0  # the kept positions within the buffers

    def put(self, keys: mx.array, values: mx.array, n_new: int) -> tuple[mx.array, mx.array]:
        """Append ``n_new`` positions, with the rest after them for this call only; return all visible positions.

        Keys, rotated, and values are ``[1, heads, n_new + rows of the block, head_dim]``.
        """
        if self.keep is not None and n_new > self.keep:
            keys, values = keys[:, :, n_new - self.keep :], values[:, :, n_new - self.keep :]
            n_new = self.keep
        stop = self.end + keys.shape[2]
        if not self.buffers or stop > self.buffers[0].shape[2]:
            self._grow(keys, values)
        else:
            for buffer, new in zip(self.buffers, (keys, values), strict=True):
                buffer[:, :, self.end : stop] = new
        stop = self.end + keys.shape[2]
        self.end += n_new
        if self.keep is not None:
            self.start = max(self.start, self.end - self.keep)
        visible_keys, visible_values = (buffer[:, :, self.start : stop] for buffer in self.buffers)
        return visible_keys, visible_values

    def _grow(self, keys: mx.array, values: mx.array) -> None:
        """Move to buffers with room for these and ``STEP`` more; positions that left the window are dropped."""
        grown = []
        for i, new in enumerate((keys, values)):
            room = mx.zeros((*new.shape[:2], STEP, new.shape[3]), new.dtype)
            live = [buffer[:, :, self.start : self.end] for buffer in self.buffers[i : i + 1]]
            grown.append(mx.concatenate([*live, new, room], axis=2))
        self.buffers = grown
        self.start, self.end = 0, self.end - self.start

    def saved(self, start: int, end: int) -> list[mx.array]:
        """Return copies of the positions ``start`` to ``end``, or of the window, for the prefix cache."""
        if self.keep is not None:
            start, end = self.start, self.end
        return [copied(x, start, end) for x in self.buffers]

    def restore(self, saved: list[list[mx.array]]) -> None:
        """Continue after what ``saved`` returned for each block, one after another."""
        blocks = saved if self.keep is None else saved[-1:]
        self.buffers = [joined([block[i] for block in blocks]) for i in range(2)]
        self.start, self.end = 0, self.buffers[0].shape[2]

    def copy(self) -> "LayerContext":
        """Return an independent copy of this context."""
        copied = LayerContext(None if self.keep is None else self.keep + 1)
        copied.start, copied.end = self.start, self.end
        copied.buffers = [mx.array(buffer) for buffer in self.buffers]
        return copied


class DraftContext:
    """The context of all layers, for one generation. ``windows`` has one entry a layer, None for full attention."""

    def __init__(self, windows: list[int | None], offset: int = 0) -> None:
        self.offset = offset  # the position of the next token; what is before the first one is never seen
        self.layers = [LayerContext(window) for window in windows]

    def copy(self) -> "DraftContext":
        """Return an independent copy."""
        copied = DraftContext([], self.offset)
        copied.layers = [layer.copy() for layer in self.layers]
        return copied

    @property
    def state(self) -> list[mx.array]:
        """All buffers, to be evaluated."""
        return [buffer for layer in self.layers for buffer in layer.buffers]

    @property
    def nbytes(self) -> int:
        """Bytes of all buffers."""
        return sum(x.nbytes for x in self.state)


def copied(x: mx.array, start: int, end: int) -> mx.array:
    """Copy some positions of an array, which are on axis 2, so that the rest can be freed."""
    if end - start < 2:  # noqa: PLR2004 - nothing to join
        return mx.contiguous(x[:, :, start:end])
    return mx.concatenate([x[:, :, start : start + 1], x[:, :, start + 1 : end]], axis=2)


def joined(parts: list[mx.array]) -> mx.array:
    """Return the positions of several arrays, or their bytes in NumPy's, one after another."""
    return mx.concatenate(parts, axis=2) if len(parts) > 1 else mx.array(parts[0])
