"""Matrix products over few rows, as in decoding and verification, in the form that is fastest with OpenBLAS.

MLX computes ``x @ W.T``. With few rows, OpenBLAS spends most of the time on copying ``W`` into another order, for each
product again. Two forms avoid that. Both are for float32 on an x86 CPU; everything else is computed as before.

``tiled``: a second copy of ``W`` in tiles, ``[outputs / n, inputs, n]``. The product with a tile is small enough for
    kernels of OpenBLAS that read the factors without copying them, and reads the tile in the order of memory. Only
    cores with AVX-512 have these kernels.
``turned``: ``(W @ x.T).T``, which copies less and needs no memory.
"""

import math
import platform
import threading
from typing import Any

from bridge.common import host
from engine import blas
from engine.dflash.target.clones import as_kind, with_replaced
from engine.mx import mx, nn, on_cpu

ROWS = 32  # at most this many rows count as few
TILES = (64, 32, 16)  # outputs of a tile
# Up to `_SMALL` multiplications, OpenBLAS uses its kernels for small products. Tiles are sized to stay below
# that with `_USUAL` rows, as most rounds have.
_SMALL, _USUAL = 100**3, 16
_X86 = ("x86_64", "AMD64")
SHARE = 8  # a copy may take an eighth of the machine's memory
# The smallest matrix, in elements, for which each form is used: below it, the overhead exceeds the gain.
LEAST = {"tiled": 1 << 16, "turned": 1 << 13, "plain": 0}

_COPYING = threading.Lock()


def form() -> str:
    """Return ``tiled``, ``turned``, or ``plain`` if no gain is known."""
    if not on_cpu() or platform.machine() not in _X86 or not blas.core():
        return "plain"
    return "tiled" if blas.has_small_kernels() else "turned"


class Matrix:
    """A matrix ``[outputs, inputs]`` that rows are multiplied with; for the form of products see ``form``."""

    def __init__(self, weight: mx.array, form: str) -> None:
        self.weight, self.asked = weight, form
        self.form = form if weight.size >= LEAST[form] else "plain"  # a small one gains nothing
        # The tiles, and the last outputs, which do not fill a tile; None until a product needs the tiles.
        self.tiles: tuple[mx.array, mx.array] | None = None

    def __call__(self, x: mx.array) -> mx.array:
        """Return ``x @ weight.T``, ``[..., outputs]`` of ``[..., inputs]``."""
        *lead, inputs = x.shape
        rows = math.prod(lead)
        if self.form == "plain" or not 0 < rows <= ROWS or not x.dtype == self.weight.dtype == mx.float32:
            return x @ self.weight.T
        flat = x.reshape(rows, inputs)
        product = self._by_tiles(flat) if self.form == "tiled" else (self.weight @ flat.T).T
        return product.reshape(*lead, -1)

    def _by_tiles(self, x: mx.array) -> mx.array:
        tiles, rest = self.tiles or self._cut()
        product = (x @ tiles).swapaxes(0, 1).reshape(len(x), -1)
        return mx.concatenate([product, x @ rest.T], axis=-1) if rest.size else product

    def _cut(self) -> tuple[mx.array, mx.array]:
        """Keep the tiles, and the last outputs, which do not fill one."""
        outputs, inputs = self.weight.shape
        size = tile_of(inputs)
        end = outputs // size * size
        with _COPYING:  # in MLX, no other thread can finish what one thread has begun
            tiles = mx.contiguous(self.weight[:end].reshape(-1, size, inputs).swapaxes(1, 2))
            rest = self.weight[end:]
            mx.eval(tiles, rest)
        self.tiles = tiles, rest
        return self.tiles


def tile_of(inputs: int) -> int:
    """Return the number of outputs in a tile of a matrix with this many inputs."""
    return next((n for n in TILES if n * inputs * _USUAL <= _SMALL), TILES[-1])


class _Linear(nn.Linear):
    def __call__(self, x: mx.array) -> mx.array:
        product: mx.array = self.matrix(x)
        return product + self["bias"] if "bias" in self else product


class _Embedding(nn.Embedding):
    def as_linear(self, x: mx.array) -> mx.array:
        product: mx.array = self.matrix(x)
        return product


_KINDS: dict[type[nn.Module], type[nn.Module]] = {nn.Linear: _Linear, nn.Embedding: _Embedding}


def form_of(model: nn.Module) -> str:
    """Return the form of a model's products over few rows. Marked or too large models keep only one copy of weights."""
    once = vars(model).get("_kept_once", False) or _matrix_bytes(model) > host.memory_bytes() // SHARE
    return "turned" if form() == "tiled" and once else form()


def forbid_copies(model: nn.Module) -> None:
    """Mark a model so that its weights are never copied, because memory is scarce."""
    model._kept_once = True  # noqa: SLF001 - not an array, so no parameter


def bytes_of_copies(model: nn.Module) -> int:
    """Return the most bytes that the tiles of a model can take."""
    return _matrix_bytes(model) if form_of(model) == "tiled" else 0


def _matrix_bytes(model: nn.Module) -> int:
    matrices = (module["weight"] for module in model.modules() if type(module) in (*_KINDS, *_KINDS.values()))
    return sum(x.nbytes for x in matrices if x.dtype == mx.float32 and x.size >= LEAST["tiled"])


def with_products(model: nn.Module) -> nn.Module:
    """Return a model with the same weights whose products over few rows have the form of ``form_of``.

    Its results differ from the given model's only by rounding. The given model does not change, but keeps the tiles for
    the next copy. If nothing is gained, it is returned itself.
    """
    own = form_of(model)
    if own == "plain":
        return model

    def replace(module: nn.Module) -> nn.Module:
        kind = _KINDS.get(type(module))
        if kind is None:
            return module
        wrapped = as_kind(module, kind)
        wrapped.matrix = _matrix_of(module, own)
        return wrapped

    replaced: nn.Module = with_replaced(model, replace)
    return replaced


def _matrix_of(module: Any, form: str) -> Matrix:
    """Return a module's weight as a matrix; the same as long as the weight is."""
    matrix = vars(module).get("_matrix")
    if not isinstance(matrix, Matrix) or matrix.weight is not module["weight"] or matrix.asked != form:
        matrix = module._matrix = Matrix(module["weight"], form)  # noqa: SLF001 - not an array, so no parameter
    return matrix
