"""Decoded vectors of a layer's first tokens, so that a step need not decode them again."""

from collections.abc import Iterator

import torch

from engine.torch.codecs import Coder

LEAST = 64  # tokens that the first array has room for
WIDTH = 4  # bytes of a value in float32


class Decoded:
    """Vectors with the rotation still on, float32 ``[batch, heads, tokens, dim]``, in at most ``most`` bytes.

    ``arrays`` holds the array once there is one. A cache's layer has this list among its variables, so that the bytes
    count as its own. The vectors equal what decoding the rows gives, bit for bit.
    """

    def __init__(self, most: int, arrays: list[torch.Tensor]) -> None:
        self._most, self._arrays = most, arrays
        self._count = 0  # tokens that are decoded
        self._rows: torch.Tensor | None = None  # their rows are the first of these

    def follow(self, before: torch.Tensor, after: torch.Tensor) -> None:
        """Record that rows got more tokens or lost their last ones. Rows that changed otherwise are decoded again."""
        if self._rows is not before:
            self._count = 0
        self._count = min(self._count, after.shape[-2])
        self._rows = after

    def first(self, rows: torch.Tensor, coder: Coder, dim: int) -> torch.Tensor | None:
        """Return vectors of the first tokens of rows, uint8 ``[batch, heads, tokens, bytes]``; None without room."""
        batch, heads, tokens, _ = rows.shape
        most = self._most // (batch * heads * dim * WIDTH)
        count = min(tokens, most)
        if not count:
            return None
        if (
            not self._arrays
            or self._arrays[0].shape[:2] != (batch, heads)
            or self._arrays[0].shape[2] < count
        ):
            room = min(most, max(LEAST, count + count // 4))
            with torch.inference_mode(False):  # else it could not be written to outside of that mode
                array = torch.empty((batch, heads, room, dim), device=rows.device)
            if self._count:
                array[:, :, : self._count] = self._arrays[0][:, :, : self._count]
            self._arrays[:] = [array]
        if count > self._count:
            self._arrays[0][:, :, self._count : count] = coder.decode_rotated(rows[:, :, self._count : count])
            self._count = count
        return self._arrays[0][:, :, : self._count]


def tiles(
    rows: torch.Tensor, coder: Coder, dim: int, size: int, decoded: Decoded | None
) -> Iterator[torch.Tensor]:
    """Yield the vectors of rows with the rotation still on, in parts of consecutive tokens."""
    first = decoded.first(rows, coder, dim) if decoded is not None else None
    if first is not None:
        yield first
        rows = rows[:, :, first.shape[2] :]
    for tile in rows.split(size, dim=2) if rows.shape[2] else ():
        yield coder.decode_rotated(tile)
