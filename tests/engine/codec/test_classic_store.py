import math

import numpy as np
import pytest

from engine.codec.classic import ClassicCodec
from engine.codec.classic_store import pack
from engine.mx import mx
from tests.engine.codec.stored import row_bytes, unpack

CASES = [("e8", q) for q in (1, 2, 5, 10, 38, 152)] + [("d4", q) for q in (1, 3, 10, 38, 152)]


@pytest.mark.parametrize(("lattice", "q"), CASES)
@pytest.mark.parametrize("dim", [64, 128])
def test_every_reconstruction_comes_back(lattice, q, dim):
    """Among heavy tails there are vectors whose clamped points are not of the lattice."""
    rng = np.random.default_rng(q)
    x = mx.array(rng.standard_t(3, (300, dim)).astype(np.float32))
    codec = ClassicCodec(lattice, dim, q)
    rows = pack(codec, x.reshape(3, 100, dim))
    assert rows.shape == (3, 100, row_bytes(codec))
    assert rows.dtype == mx.uint8
    back = unpack(codec, rows)
    assert mx.array_equal(back.reshape(300, dim), codec.roundtrip(x)).item()


def test_points_off_the_lattice_are_among_them():
    rng = np.random.default_rng(0)
    codec = ClassicCodec("e8", 64, 2)
    _, _, point = codec.parts(mx.array(rng.standard_normal((300, 64)).astype(np.float32)))
    halves = (np.array(2 * point).reshape(-1, 8) % 2 == 1).sum(axis=1)
    assert ((halves > 0) & (halves < 8)).any()


@pytest.mark.parametrize(("lattice", "q"), CASES)
def test_the_store_is_near_the_formula_and_not_below_it(lattice, q):
    codec = ClassicCodec(lattice, 128, q)
    over = 8 * row_bytes(codec) - codec.bits_per_vector
    assert 0 <= over <= 0.65 * 128
    if q >= 10:
        assert over <= 0.375 * 128


def test_zero_vectors():
    codec = ClassicCodec("e8", 64, 10)
    back = unpack(codec, pack(codec, mx.zeros((2, 64))))
    assert not back.any().item()
    assert math.isclose(back.sum().item(), 0)
