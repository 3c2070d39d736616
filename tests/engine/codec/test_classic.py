from pathlib import Path

import numpy as np
import pytest

from engine.codec import hadamard
from engine.codec.classic import ClassicCodec
from engine.errors import BadInput
from engine.evals.rate_distortion.sources import draw
from engine.mx import mx

GOLDEN = Path(__file__).parent / "data" / "golden_classic.npz"
CASES = [
    (lattice, dim, q) for lattice in ("e8", "d4") for dim in (64, 128, 256, 512) for q in (2, 10, 38, 152)
]


def _apart(ours, theirs, x):
    """Return the rows that differ by more than 1e-5 of the vector's length (or 1e-5): unexplained, and ties.

    Two float32 implementations add in different orders. Where a norm or a maximum lies between two halves, or
    a point on the wall between two lattice cells, within that noise, they may pick different sides.
    """
    length = np.maximum(np.linalg.norm(x, axis=-1), 1)
    differ = np.abs(ours - theirs).max(-1) > 1e-5 * length
    norm = np.linalg.norm(x.astype(np.float64), axis=-1)
    kept = x * (norm.astype(np.float16) / np.maximum(norm, 1e-30))[:, None]  # what the codec aims at
    first, second = (((kept - y) ** 2).sum(-1) for y in (ours, theirs))
    noise = 1e-6 * length  # moving x by this much changes the gap between the squared distances by twice ...
    wall = np.abs(first - second) <= 2 * noise * np.linalg.norm(ours - theirs, axis=-1)
    y = np.array(hadamard.rotate(mx.array((x / np.maximum(norm, 1e-7)[:, None]).astype(np.float32))))
    tie = wall | _between_halves(norm) | _between_halves(np.abs(y).max(-1).astype(np.float64))
    return int((differ & ~tie).sum()), int((differ & tie).sum())


def _between_halves(value):
    return (value * (1 - 1e-6)).astype(np.float16) != (value * (1 + 1e-6)).astype(np.float16)


@pytest.mark.parametrize(("lattice", "dim", "q"), CASES)
def test_golden_vectors(lattice, dim, q):
    """Written by the published package, so that parity stays tested where torch is absent."""
    golden = np.load(GOLDEN)
    x, expected = golden[f"x_{dim}"].astype(np.float32), golden[f"{lattice}_{dim}_{q}"]
    length = np.maximum(np.linalg.norm(x, axis=-1, keepdims=True), 1)
    ours = np.array(ClassicCodec(lattice, dim, q).roundtrip(mx.array(x)))
    assert (np.abs(ours - expected) / length).max() < 1e-5


@pytest.mark.parametrize("lattice", ["e8", "d4"])
@pytest.mark.parametrize("dim", [64, 128, 256, 512])
@pytest.mark.parametrize("q", [2, 4, 10, 38, 152])
def test_parity_with_the_published_package(lattice, dim, q):
    torch = pytest.importorskip("torch")
    package = pytest.importorskip("kakeyalattice")
    name = {"e8": "V15KakeyaZamirE8GPU", "d4": "V14KakeyaZamirLatticeGPU"}[lattice]
    published = getattr(package, name)(dim, q, device="cpu")
    codec = ClassicCodec(lattice, dim, q)
    assert codec.bits_per_vector == published.bits_per_token_per_head
    x = np.concatenate([draw(d, 100, dim, seed=q) for d in ("gaussian", "t4", "outliers")])
    x[0], x[1], x[2], x[3] = 0, x[1] * 1e-4, x[2] * 100, x[3] * 1e-7
    theirs = published.roundtrip(torch.tensor(x)).numpy()
    wrong, ties = _apart(np.array(codec.roundtrip(mx.array(x))), theirs, x)
    assert wrong == 0
    assert ties <= 6
    huge = published.roundtrip(torch.tensor(x * 1e6)).numpy()
    assert np.array_equal(np.isfinite(huge), np.isfinite(np.array(codec.roundtrip(mx.array(x * 1e6)))))


@pytest.mark.parametrize(
    ("lattice", "dim", "q", "bits"),
    [
        ("e8", 128, 38, 848),
        ("e8", 128, 10, 608),
        ("e8", 128, 4, 448),
        ("e8", 128, 152, 1104),
        ("e8", 64, 38, 440),
        ("e8", 512, 2, 1248),
        ("d4", 128, 4, 416),
        ("d4", 128, 10, 576),
        ("d4", 128, 38, 832),
        ("d4", 128, 152, 1088),
        ("d4", 512, 76, 3744),
    ],
)
def test_bit_accounting(lattice, dim, q, bits):
    assert ClassicCodec(lattice, dim, q).bits_per_vector == bits


def test_zero_gives_zero_and_the_type_is_kept():
    codec = ClassicCodec()
    assert mx.abs(codec.roundtrip(mx.zeros((2, 3, 128)))).max().item() == 0
    half = codec.roundtrip(mx.ones((2, 3, 128), mx.bfloat16))
    assert (half.dtype, half.shape) == (mx.bfloat16, (2, 3, 128))


def test_beyond_half_precision_is_infinite_as_published():
    out = ClassicCodec().roundtrip(mx.array(draw("gaussian", 2, 128, 0)) * 1e5)
    assert not mx.isfinite(out).all().item()


@pytest.mark.parametrize("bad", [("e6", 128, 4), ("e8", 96, 4), ("e8", 4, 4), ("d4", 128, 0), ("d4", 0, 4)])
def test_no_such_codec(bad):
    with pytest.raises(BadInput):
        ClassicCodec(*bad)


def test_wrong_width():
    with pytest.raises(BadInput, match="64 values"):
        ClassicCodec().roundtrip(mx.zeros((1, 64)))
