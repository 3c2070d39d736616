import numpy as np
import pytest

from engine.codec import hadamard
from engine.codec.cpu.hadamard import factor
from engine.errors import BadInput
from engine.mx import mx

SIZES = (8, 64, 80, 96, 112, 128, 256, 512)


@pytest.mark.parametrize("dim", SIZES)
def test_there_and_back(dim):
    x = np.random.default_rng(dim).standard_normal((50, dim)).astype(np.float32)
    there = hadamard.rotate(mx.array(x))
    assert np.abs(np.array(hadamard.unrotate(there)) - x).max() < 1e-5
    assert np.allclose((np.array(there) ** 2).sum(-1), (x**2).sum(-1), rtol=1e-5)


@pytest.mark.parametrize("dim", SIZES)
def test_the_matrices_are_orthogonal_and_hold_equal_sizes(dim):
    h = np.array(hadamard.rotate(mx.eye(dim)))
    assert np.allclose(h @ h.T, np.eye(dim), atol=1e-5)
    assert np.allclose(np.abs(h), dim**-0.5)


@pytest.mark.parametrize("dim", [0, -8, 36, 72, 88, 100, 104, 3, 6, 10**6])
def test_other_sizes_are_refused(dim):
    with pytest.raises(BadInput, match="no Hadamard rotation"):
        factor(dim)


@pytest.mark.parametrize("dim", [8, 32, 64, 128, 256, 512])
def test_products_rotate_too_and_each_row_by_itself(dim):
    x = mx.array(np.random.default_rng(dim).standard_normal((300, dim)).astype(np.float32))
    found = hadamard.rotate_quickly(x)
    assert np.abs(np.array(found - hadamard.rotate(x))).max() < 1e-5
    assert np.abs(np.array(hadamard.rotate_quickly(found) - x)).max() < 1e-5
    for rows in (1, 2, 7, 299):
        assert np.array_equal(np.array(hadamard.rotate_quickly(x[:rows])), np.array(found[:rows]))
