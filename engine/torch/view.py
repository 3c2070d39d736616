"""What a packed layer hands to attention: packed keys or values, which look like a tensor.

Transformers' ``sdpa`` attention passes keys and values of a single new token straight to torch's function. Then they
are decoded tile by tile, and no decoded copy of the cache exists but for the tokens that the cache has room to keep
decoded. Every other use decodes one layer's keys or values.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

import torch

from engine.torch.codecs import Coder
from engine.torch.decoded import Decoded, tiles

COLUMNS = 12288  # blocks of eight values in a tile, so that its arrays stay in a core's cache
ON_GPU = 64  # times as many on other devices
_SDPA = torch.nn.functional.scaled_dot_product_attention


class PackedView:
    """Rows, uint8 ``[batch, heads, tokens, bytes]``, that look like keys or values ``[batch, heads, tokens, dim]``."""

    def __init__(self, packed: torch.Tensor, coder: Coder, dim: int, decoded: Decoded | None = None) -> None:
        self.packed, self.coder, self.decoded = packed, coder, decoded
        self.shape = torch.Size((*packed.shape[:-1], dim))

    @cached_property
    def dense(self) -> torch.Tensor:
        """The decoded vectors."""
        return self.coder.decode(self.packed)

    @property
    def dtype(self) -> torch.dtype:
        """The type of the decoded vectors."""
        return self.coder.dtype

    @property
    def device(self) -> torch.device:
        """The device of the rows."""
        return self.packed.device

    def tiles(self) -> Iterator[torch.Tensor]:
        """Yield the vectors with the rotation still on, float32, in parts of consecutive tokens."""
        batch, heads, _, dim = self.shape
        columns = COLUMNS if self.device.type == "cpu" else ON_GPU * COLUMNS
        size = max(16, 8 * columns // (batch * heads * dim))
        return tiles(self.packed, self.coder, dim, size, self.decoded)

    def size(self, dim: int | None = None) -> Any:
        """Return the shape or one of its sizes."""
        return self.shape if dim is None else self.shape[dim]

    def __getattr__(self, name: str) -> Any:
        """Return what the decoded vectors have under this name."""
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.dense, name)

    def __getitem__(self, index: Any) -> torch.Tensor:
        return self.dense[index]

    def __len__(self) -> int:
        return int(self.shape[0])

    @classmethod
    def __torch_function__(
        cls,
        func: Any,
        types: Any,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Attend to packed rows, or decode the views among the arguments of any other function."""
        options = dict(kwargs or {})
        if func is _SDPA and len(args) == 3 and _can_attend(args, options):  # noqa: PLR2004
            query, key, value = args
            return attend(query, key, value, options.get("attn_mask"), options.get("scale"))
        return func(*map(_decoded, args), **{name: _decoded(value) for name, value in options.items()})


def _decoded(value: Any) -> Any:
    if isinstance(value, PackedView):
        return value.dense
    return type(value)(map(_decoded, value)) if type(value) in (list, tuple) else value


def _can_attend(args: Sequence[Any], options: Mapping[str, Any]) -> bool:
    """Return whether ``attend`` computes what torch's function would, without a larger mask."""
    query, key, value = args
    if type(key) is not PackedView or type(value) is not PackedView or options.get("dropout_p"):
        return False
    alone = query.shape[2] == 1 or query.shape[1] == key.shape[1]
    return alone and not options.get("is_causal") and query.shape[1] % key.shape[1] == 0


def attend(
    query: torch.Tensor, key: PackedView, value: PackedView, mask: torch.Tensor | None, scale: float | None
) -> torch.Tensor:
    """Return ``softmax(query key^T scale + mask) value`` over packed rows, in float32 inside.

    ``query`` is ``[batch, heads, rows, dim]``. It may have several heads for each of the keys' if it has one row.
    """
    batch, heads, rows, dim = query.shape
    grouped = query.reshape(batch, key.shape[1], -1, dim)
    turned = key.coder.rotate(grouped) * (1 / math.sqrt(dim) if scale is None else scale)
    scores = torch.cat([turned @ tile.transpose(-1, -2) for tile in key.tiles()], dim=-1)
    if mask is not None:
        wide = mask.expand(batch, heads, rows, mask.shape[-1]).reshape(scores.shape)
        scores = scores.masked_fill(~wide, -torch.inf) if wide.dtype == torch.bool else scores + wide
    weights, total, start = scores.softmax(-1), None, 0
    for tile in value.tiles():
        part = weights[..., start : start + tile.shape[2]] @ tile
        total = part if total is None else total + part
        start += tile.shape[2]
    return value.coder.unrotate(total).to(query.dtype).reshape(batch, heads, rows, -1)
