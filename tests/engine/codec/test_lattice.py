import itertools

import numpy as np
import pytest

from engine.codec import cosets, lattice
from engine.codec.cpu import lattice as on_cpu
from engine.mx import mx


def _columns(rng, n, count):
    """Ordinary points, points on the grid and points half way: [1, n, count]."""
    z = rng.standard_normal((count, n)) * 3
    z[: count // 4] = np.round(z[: count // 4])
    z[count // 4 : count // 2] = np.round(z[count // 4 : count // 2] * 2) / 2
    return z.T[None].astype(np.float32)


@pytest.mark.parametrize("n", [4, 8])
def test_nearest_d_is_nearest(n):
    z = _columns(np.random.default_rng(n), n, 40)
    found = np.array(lattice.nearest_d(mx.array(z)))[0].T
    offsets = np.array([o for o in itertools.product((-1, 0, 1), repeat=n) if sum(o) % 2 == 0])
    for column, point in zip(z[0].T, found, strict=True):
        assert point.sum() % 2 == 0
        every = ((column - (point + offsets)) ** 2).sum(-1)
        assert ((column - point) ** 2).sum() <= every.min() + 1e-6


def test_nearest_e8_is_nearest():
    """Against its 240 minimal vectors and its 2160 next ones: a point with none closer is the nearest."""
    z = _columns(np.random.default_rng(1), 8, 400)
    point, distance = (np.array(a) for a in lattice.nearest_e8(mx.array(z)))
    roots = _vectors_of_e8(2) + _vectors_of_e8(4)
    assert len(roots) == 240 + 2160
    for column, found in zip(z[0].T, point[0].T, strict=True):
        assert _is_e8(found)
        assert ((column - found) ** 2).sum() <= ((column - found - np.array(roots)) ** 2).sum(-1).min() + 1e-5
    assert np.allclose(((z - point) ** 2).sum(1), distance[:, 0], atol=1e-5)


def test_both_forms_find_the_same_point_also_where_several_are_as_near():
    """Half of these are on a grid of quarters, where ties are common."""
    rng = np.random.default_rng(2)
    z = np.concatenate(
        [_columns(rng, 8, 4000)[0], rng.integers(-20, 20, (8, 4000)).astype(np.float32) / 4], axis=1
    )
    point, distance = (np.array(a)[0] for a in lattice.nearest_e8(mx.array(z[None])))
    twice, other = on_cpu.nearest(z)
    assert np.array_equal(2 * point, twice)
    assert np.array_equal(distance[0], other)


@pytest.mark.parametrize("bits", [2, 3, 4, 5, 6])
def test_every_label_is_one_codeword_and_back(bits):
    if bits == 2:
        every = np.arange(1 << 16)
        fields = np.stack([(every >> (2 * i)) & 3 for i in range(8)])[None].astype(np.uint8)
    else:
        fields = np.random.default_rng(bits).integers(0, 1 << bits, (1, 8, 20000)).astype(np.uint8)
    point = (np.array(cosets.point_of(mx.array(fields).astype(mx.int16), bits)) / 16).astype(np.float32)
    assert all(_is_e8(column) for column in point[0].T[:2000])
    assert np.array_equal(np.array(cosets.label(mx.array(point), bits)), fields)
    assert np.array(cosets.inside(mx.array(point), 1 << bits)).all()


def test_outside_is_outside():
    z = np.random.default_rng(0).standard_normal((1, 8, 5000)).astype(np.float32) * 1.2
    point, _ = lattice.nearest_e8(mx.array(z))
    inside = np.array(cosets.inside(point, 4))[:, 0]
    assert 0.1 < inside.mean() < 0.9
    again = cosets.point_of(cosets.label(point, 2).astype(mx.int16), 2) / 16
    assert np.array_equal(np.array((again == point).all(axis=1)), inside)


def _vectors_of_e8(norm):
    """All of E8's vectors of this squared length, by extending coordinate by coordinate."""
    found = []
    for parity in (0, 1):
        stack = [()]
        while stack:
            head = stack.pop()
            rest = 4 * norm - sum(v * v for v in head)
            if len(head) == 8:
                if rest == 0 and sum(head) % 4 == 0:
                    found.append(np.array(head) / 2)
                continue
            stack += [(*head, v) for v in range(-4, 5) if v % 2 == parity and v * v <= rest]
    return found


def _is_e8(point):
    doubled = np.rint(2 * point)
    same = len(set(np.mod(doubled, 2))) == 1
    return np.array_equal(doubled, 2 * point) and same and point.sum() % 2 == 0
