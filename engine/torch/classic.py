"""The published lattice codec (D4 and E8) in torch, stored as ``engine.codec.classic_store`` lays rows out.

The steps are those of ``engine.codec.classic``. Norms are added by halves and the rotation is by butterflies, so the
row of a vector depends neither on the BLAS nor on its neighbours.
"""

import math

import torch

from engine.codec.spec import BLOCK_SIZES
from engine.errors import BadInput
from engine.torch import hadamard
from engine.torch.lattice import ROUNDER, column, fold, nearest

EPS = 2.0**-23  # float32's machine epsilon; as a half it is subnormal but not zero
MOST_RANGE = 9999  # so that twice a coordinate fits into 16 bits
FOUR, SIDE_BYTES = 4, 4  # coordinates in a number; bytes of norm and maximum, a half each


class ClassicRows:
    """Rows of the published codec: points within a cube, norms and maxima.

    Raises:
        BadInput: there is no such code.
    """

    def __init__(self, lattice: str, dim: int, q_range: int) -> None:
        if dim < BLOCK_SIZES[lattice] or dim & (dim - 1):
            raise BadInput(f"the published codec has no dim {dim}", "a power of two, at least one block")
        if not 1 <= q_range <= MOST_RANGE:
            raise BadInput(f"q_range is {q_range}, it has to be from 1 to {MOST_RANGE}")
        self.lattice, self.dim, self.q_range = lattice, dim, q_range
        self._base = 2 * q_range + (2 if lattice == "e8" else 1)
        self._width = math.ceil(FOUR * math.log2(self._base))
        self._cosets = dim // BLOCK_SIZES["e8"] if lattice == "e8" else 0
        self.row_bytes = SIDE_BYTES + math.ceil((dim // FOUR * self._width + self._cosets) / 8)

    def encode(self, x: torch.Tensor) -> torch.Tensor:
        """Return rows, uint8 ``[n, row_bytes]``, of float32 ``[n, dim]``."""
        norm, largest, twice = self._parts(x.T.contiguous())
        side = 2 * self.q_range
        words = torch.div(twice + side, 2, rounding_mode="floor")
        cosets = twice.new_zeros((0, twice.shape[1]))
        if self.lattice == "e8":
            cosets = (twice & 1).reshape(-1, BLOCK_SIZES["e8"], twice.shape[1]).amax(1)
            inner = torch.div(twice + side - 1, 2, rounding_mode="floor")
            half = torch.where(twice == -side, side, torch.where(twice == side, side + 1, inner))
            words = torch.where(cosets.repeat_interleave(BLOCK_SIZES["e8"], 0).bool(), half, words)
        powers = column(tuple(self._base**i for i in range(FOUR)), words)
        numbers = (words.reshape(-1, FOUR, words.shape[1]) * powers).sum(1)
        shifts = column(tuple(range(self._width)), numbers)
        bits = ((numbers[:, None] >> shifts) & 1).reshape(-1, words.shape[1])
        packed = _to_bytes(torch.cat([bits, cosets]))
        halves = [half[:, None].contiguous().view(torch.uint8) for half in (norm, largest)]
        return torch.cat([*halves, packed.T], dim=1)

    def decode(self, rows: torch.Tensor) -> torch.Tensor:
        """Return vectors with the rotation still on, float32 ``[dim, n]``, of rows, uint8 ``[n, row_bytes]``."""
        norm, largest = (rows[:, i : i + 2].contiguous().view(torch.float16)[:, 0].float() for i in (0, 2))
        words, bits = self._unpacked(_reversed(rows[:, SIDE_BYTES:]).T.contiguous())
        side = 2 * self.q_range
        twice = 2 * words - side
        if self.lattice == "e8":
            cosets = bits.repeat_interleave(BLOCK_SIZES["e8"], 0).bool()
            half = torch.where(words < side, twice + 1, side).masked_fill_(words == side, -side)
            twice = torch.where(cosets, half, twice)
        return 0.5 * twice.float() * (largest / self.q_range) * norm

    def _unpacked(self, stream: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return words, int32 ``[dim, n]``, and cosets, uint8 ``[cosets, n]``, of bytes, uint8 ``[count, n]``.

        Bit i of the stream is bit i % 8 of byte i // 8.
        """
        count = self.dim // FOUR
        starts = [self._width * i for i in range(count)]
        numbers = stream.new_zeros((count, stream.shape[1]), dtype=torch.int64)
        for k in range(1 + (self._width + 6) // 8):  # the bytes that a number may touch
            at = torch.tensor(
                [min(start // 8 + k, len(stream) - 1) for start in starts], device=stream.device
            )
            part, shift = stream[at].long(), [8 * k - start % 8 for start in starts]
            if k == 0:
                numbers |= part >> column(tuple(-by for by in shift), part)
            else:  # what lies behind the number's last bit is masked below
                numbers |= part << column(tuple(min(by, self._width) for by in shift), part)
        numbers &= (1 << self._width) - 1
        if self._width < 32:  # noqa: PLR2004 - bits of the type, whose division is faster
            numbers = numbers.int()
        digits = []
        for _ in range(FOUR - 1):
            rest = torch.div(numbers, self._base, rounding_mode="trunc")
            digits.append((numbers - rest * self._base).int())
            numbers = rest
        words = torch.stack([*digits, numbers.int()], dim=1).reshape(self.dim, -1)
        last = [count * self._width + i for i in range(self._cosets)]
        whole = stream[torch.tensor([i // 8 for i in last], dtype=torch.int64, device=stream.device)]
        return words, (whole >> column(tuple(i % 8 for i in last), whole)) & 1

    def _parts(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return norms and maxima, float16 ``[n]``, and twice the points, int64 ``[dim, n]``, of ``[dim, n]``."""
        norm = fold(torch.add, x * x).sqrt().clamp(min=EPS)
        y = hadamard.rotate(x / norm)
        largest = y.abs().amax(0).clamp(min=EPS).to(torch.float16)
        z = y / (largest.float() / self.q_range)
        blocks = (
            z.reshape(-1, BLOCK_SIZES[self.lattice], z.shape[1])
            .movedim(1, 0)
            .reshape(BLOCK_SIZES[self.lattice], -1)
        )
        points = nearest(blocks)[0].long() if self.lattice == "e8" else 2 * _nearest_d4(blocks)
        points = points.reshape(BLOCK_SIZES[self.lattice], -1, z.shape[1]).movedim(0, 1).reshape(z.shape)
        return norm.to(torch.float16), largest, points.clamp(-2 * self.q_range, 2 * self.q_range)


def _nearest_d4(z: torch.Tensor) -> torch.Tensor:
    """Return the nearest integer vectors of even sum, int64, to ``[4, columns]``."""
    point = (z + ROUNDER) - ROUNDER
    rest = z - point
    size = rest.abs()
    # The first of the coordinates that rounding hurt most moves to its second nearest integer.
    moves = torch.zeros_like(z).scatter_(0, size.argmax(0, keepdim=True), 1.0)
    odd = point.long().sum(0) & 1
    return point.long() + (moves * torch.where(rest >= 0, 1.0, -1.0)).long() * odd


def _to_bytes(bits: torch.Tensor) -> torch.Tensor:
    """Return bits ``[count, n]`` as bytes, the first in the highest bit; the last byte is padded with zeros."""
    padded = bits.new_zeros((8 * math.ceil(len(bits) / 8), bits.shape[1]))
    padded[: len(bits)] = bits
    shifts = column(tuple(range(7, -1, -1)), padded)
    return (padded.reshape(-1, 8, bits.shape[1]) << shifts).sum(1).to(torch.uint8)


def _reversed(rows: torch.Tensor) -> torch.Tensor:
    """Return bytes with the order of their bits reversed."""
    for low, shift in ((0x55, 1), (0x33, 2), (0x0F, 4)):
        rows = ((rows >> shift) & low) | ((rows & low) << shift)
    return rows
