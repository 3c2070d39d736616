"""The definition of the Voronoi code: constants that the MLX codec, its NumPy twin and the kernels share.

A *packed row* holds one vector of ``dim`` values at ``bits`` bits: a 16-bit scale, one beta bit for each
block of eight, and eight ``bits``-bit fields for each block. ``docs/codec.md`` explains the mathematics.
"""

import math
from dataclasses import dataclass

from engine.errors import BadInput

BLOCK = 8
BITS = (2, 3, 4, 5, 6)

# Scales are powers of 2^(1/32), stored as the exponent: int16, little endian.
OCTAVE = 32
STEPS = tuple(2.0 ** (j / OCTAVE) for j in range(OCTAVE))
SCALE_ZERO = -32768  # the whole vector is zero
SCALE_MIN, SCALE_MAX = -120 * OCTAVE, 108 * OCTAVE
LARGEST = 2.0**100  # magnitudes saturate here, so that no sum over a vector overflows float32
BETA_GAP = 16  # a block with its beta bit set is coarser by this many steps: a factor of the square root of 2

# The shaping region is the Voronoi cell of q E8, shifted by SHIFT / 16 so that no lattice point lies on its
# boundary: the shift, distinct numbers of odd sum, has no integer inner product with any of the 240 minimal vectors.
SHIFT = (0, 1, 2, 3, 4, 5, 6, 8)
UNIT = 16  # the denominator of SHIFT: a half-integer point times UNIT, minus SHIFT, is an exact integer

# Codes are only looked for near blocks whose coordinates are below it. Larger ones are outside of any cell, and sums of
# eight of them times 16 would overflow int16.
LIMIT = 240

# How far beyond a wall of the cell a block is moved, as an inner product with the wall's minimal vector: much more than
# rounding, and much less than 1, the distance of the next lattice points.
INWARD = 2.0**-8

BLOCK_SIZES = {"d4": 4, "e8": 8}  # of the published codec's lattices
SIDE_BITS = 32  # the published codec's norm and maximum, in half precision each


def published_bits(lattice: str, dim: int, q_range: int) -> int:
    """Return the published codec's nominal bits of a vector.

    They are the logarithm of the number of points of each block, rounded up, and two halves.
    """
    size = BLOCK_SIZES[lattice]
    saved = 1 if lattice == "d4" else 0
    block = math.ceil(size * math.log2(2 * q_range + 1) - saved)
    return dim // size * block + SIDE_BITS


def safe_margin(q: int) -> int:
    """Return how many scale steps above a block's norm the block surely has a codeword near it. q: nesting ratio.

    The cell's inscribed sphere has radius q / sqrt 2, and a nearest point of E8 is at most 1 away.
    """
    return math.ceil(-OCTAVE * math.log2(q / math.sqrt(2) - 1.1)) + 1


@dataclass(frozen=True)
class Guess:
    """How to judge a scale without coding, and how to code at it.

    A block's largest inner product with a minimal vector, over the scale, says how far beyond the cell's walls it is.
    Up to ``q - room``, the block's squared error is that of its scale; beyond, it grows with the square of the rest.
    """

    room: float
    rise: float  # this growth, over the error of a block that fits
    near: float  # a block whose product exceeds q by more than this sets its beta bit without being tried otherwise
    # The scales that are tried, as offsets from the likeliest one.
    offsets: tuple[int, ...]
    # A vector whose error exceeds this share of its energy is also tried at a scale at which all its blocks surely fit.
    spare: float


@dataclass(frozen=True)
class Search:
    """The encoder's effort. It affects quality and cost, never the meaning of a row."""

    first: int  # the finest scale tried, in steps above rms / 2^bits
    stride: int  # steps between scales; divides BETA_GAP
    count: int  # how many scales are tried
    # A block whose nearest point is outside the region moves onto the wall that the point is behind, at most so often.
    walls: int
    guess: Guess | None = None  # if given, scales are judged by it, and only the likeliest are tried

    def judged(self, q: int) -> tuple[tuple[float, float], ...]:
        """Return the product from which the error grows, and the error of a block that fits, at each scale of the grid.

        Products and errors are relative to the finest scale; errors are also divided by their growth. The grid
        includes the scales of blocks with their beta bit set.
        """
        assert self.guess is not None  # noqa: S101 - only a guess judges
        units = [2.0 ** (i * self.stride / OCTAVE) for i in range(self.count + BETA_GAP // self.stride)]
        return tuple((unit * (q - self.guess.room), unit * unit / self.guess.rise) for unit in units)


EFFORTS = {
    "fast": {
        2: Search(42, 2, 20, 3, Guess(0.8, 1.5, 1.0, (-4, -1, 2, 5), 0.3)),
        3: Search(44, 2, 20, 2, Guess(1.0, 1.5, 1.0, (-3, 0, 3), 0.08)),
        4: Search(46, 4, 12, 1, Guess(0.6, 1.5, 1.25, (-2, 0, 2), 0.02)),
        5: Search(46, 4, 12, 1, Guess(0.8, 1.5, 1.0, (-2, -1, 0, 2), 0.005)),
        6: Search(46, 4, 12, 1, Guess(0.8, 1.5, 1.0, (-2, -1, 0, 2), 0.0012)),
    },
    "normal": {
        2: Search(42, 2, 24, 3, Guess(0.8, 1.5, 1.5, (-8, -6, -4, -2, -1, 0, 1, 2, 4, 6), 0.3)),
        3: Search(42, 2, 24, 2, Guess(1.0, 1.5, 1.25, (-7, -5, -4, -3, -2, -1, 0, 1, 3, 5), 0.08)),
        4: Search(42, 2, 24, 1, Guess(0.6, 1.5, 1.25, tuple(range(-5, 5)), 0.02)),
        5: Search(42, 2, 24, 1, Guess(0.8, 1.5, 1.0, tuple(range(-5, 5)), 0.005)),
        6: Search(42, 2, 24, 1, Guess(0.8, 1.5, 1.0, tuple(range(-5, 5)), 0.0012)),
    },
    "best": {
        2: Search(45, 1, 25, 3),
        3: Search(48, 1, 27, 2),
        **dict.fromkeys((4, 5, 6), Search(48, 1, 28, 1)),
    },
}


@dataclass(frozen=True)
class Layout:
    """The layout of a packed row of bytes."""

    dim: int  # values in a vector; a multiple of 8
    bits: int  # bits of a field; q = 2^bits

    def __post_init__(self) -> None:
        if self.bits not in BITS:
            raise BadInput(f"no Voronoi code of {self.bits} bits", f"bits are {', '.join(map(str, BITS))}")
        if self.dim < BLOCK or self.dim % BLOCK:
            raise BadInput(f"a vector of {self.dim} values has no whole blocks of {BLOCK}")

    @property
    def q(self) -> int:
        """The nesting ratio: a block has q^8 codewords."""
        return 1 << self.bits

    @property
    def blocks(self) -> int:
        """Blocks in a vector. Block j holds the values j, j + blocks, j + 2 blocks and so on."""
        return self.dim // BLOCK

    @property
    def beta_bytes(self) -> int:
        """Bytes of the beta bits: block j is bit j % 8 of byte j // 8."""
        return -(-self.blocks // 8)

    @property
    def planes(self) -> tuple[tuple[int, int], ...]:
        """The fields' bits, split into widths that divide a byte: pairs (width, lowest bit), widest first.

        A plane of width w has ``dim w / 8`` bytes; value i is at bits ``w (i // bytes)`` of byte ``i %
        bytes``.
        """
        widths = [width for width in (4, 2, 1) if self.bits & width]
        lows = [sum(widths[i + 1 :]) for i in range(len(widths))]
        return tuple(zip(widths, lows, strict=True))

    @property
    def nbytes(self) -> int:
        """Bytes of a row: scale, beta bits, planes."""
        return 2 + self.beta_bytes + self.dim * self.bits // 8
