import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch")

from engine.codec.classic import ClassicCodec  # noqa: E402
from engine.codec.classic_store import pack  # noqa: E402
from engine.codec.cpu import decoder as numpy_decoder  # noqa: E402
from engine.codec.cpu import encoder as numpy_encoder  # noqa: E402
from engine.codec.spec import EFFORTS, Layout  # noqa: E402
from engine.errors import BadInput  # noqa: E402
from engine.mx import mx  # noqa: E402
from engine.torch import decoder, encoder, hadamard  # noqa: E402
from engine.torch.classic import ClassicRows  # noqa: E402
from engine.torch.codecs import Coder, VoronoiRows, rows_of, sides_of  # noqa: E402

DIMS = (8, 24, 64, 80, 96, 112, 128, 160, 256, 512)


def vectors(dim, count=24, seed=0):
    """Return ordinary vectors, and ones that are zero, huge, tiny, flat, or not finite."""
    draw = np.random.default_rng(seed)
    x = np.concatenate([draw.standard_normal((count, dim)), draw.standard_t(3, (count, dim))]).astype(
        np.float32
    )
    x[0], x[1], x[2], x[3], x[4] = 0, x[1] * 1e30, x[2] * 1e-25, 1, 0
    x[4, 3], x[5, 0], x[6, 1], x[7, 2] = 1, np.nan, np.inf, -np.inf
    return x


def both(x, dim, bits, effort):
    """Return the rows that NumPy and torch write, and assert that both read the same numbers."""
    layout, search = Layout(dim, bits), EFFORTS[effort][bits]
    ours, theirs = (
        encoder.encode(torch.from_numpy(x), layout, search).numpy(),
        numpy_encoder.encode(x, layout, search),
    )
    read = decoder.decode(torch.from_numpy(theirs), layout).numpy()
    assert np.array_equal(read, numpy_decoder.decode(theirs[None], layout)[0])
    return ours, theirs


@pytest.mark.rows(5)
@pytest.mark.parametrize("effort", ["normal", "fast", "best"])
@pytest.mark.parametrize("bits", [2, 3, 4, 5, 6])
@pytest.mark.parametrize("dim", DIMS)
def test_the_rows_are_the_bytes_that_numpy_writes(dim, bits, effort):
    ours, theirs = both(vectors(dim), dim, bits, effort)
    assert np.array_equal(ours, theirs)


@settings(max_examples=25, deadline=None)
@given(
    st.sampled_from([8, 16, 48, 64, 80, 96]),
    st.integers(2, 6),
    st.sampled_from(["fast", "normal"]),
    st.lists(st.floats(width=32, allow_nan=True), min_size=8, max_size=96),
)
def test_any_float32_gives_the_bytes_that_numpy_writes(dim, bits, effort, values):
    x = np.resize(np.array(values, np.float32), (3, dim))
    ours, theirs = both(x, dim, bits, effort)
    assert np.array_equal(ours, theirs)


@pytest.mark.long
@given(st.integers(0, 1 << 30), st.sampled_from(DIMS), st.integers(2, 6), st.sampled_from([*EFFORTS["fast"]]))
def test_random_vectors_of_any_scale_give_the_same_bytes(seed, dim, bits, exponent):
    draw = np.random.default_rng(seed)
    x = (draw.standard_normal((16, dim)) * 2.0 ** draw.integers(-90, 90, (16, 1)) * exponent).astype(
        np.float32
    )
    for effort in EFFORTS:
        ours, theirs = both(x, dim, bits, effort)
        assert np.array_equal(ours, theirs)


@pytest.mark.parametrize("dim", [*DIMS, 20, 28, 40, 320])
def test_the_rotation_is_orthonormal_and_undone(dim):
    x = torch.from_numpy(np.random.default_rng(1).standard_normal((7, dim)).astype(np.float32))
    there = hadamard.rotate_last(x)
    assert torch.allclose(there.square().sum(-1), x.square().sum(-1), rtol=1e-5)
    assert (hadamard.unrotate_last(there) - x).abs().max() < 1e-5


def test_no_vectors_and_one_vector_are_encoded_too():
    rows = VoronoiRows(64, 4, "normal")
    assert rows.encode(torch.zeros(0, 64)).shape == (0, 35)
    x = torch.from_numpy(vectors(64))
    assert torch.equal(rows.encode(x[9:10]), rows.encode(x)[9:10])


@pytest.mark.rows(4)
@pytest.mark.parametrize("q", [38, 1, 4, 10, 152, 9999])
@pytest.mark.parametrize(("lattice", "dim"), [("e8", 64), ("e8", 128), ("d4", 64), ("d4", 4)])
def test_the_published_channels_store_the_points_that_mlx_finds(lattice, dim, q):
    """Two float32 implementations add norms in different orders, so a point on a wall may fall to either side."""
    x = vectors(dim, 200)[8:]
    codec, rows = ClassicCodec(lattice, dim, q), ClassicRows(lattice, dim, q)
    ours, theirs = rows.encode(torch.from_numpy(x)).numpy(), np.array(pack(codec, mx.array(x)))
    assert ours.shape == theirs.shape
    assert (ours != theirs).any(1).mean() < (0.02 if q < 1000 else 0.5)
    back = hadamard.unrotate(rows.decode(torch.from_numpy(theirs))).T.numpy()
    expected = np.array(codec.roundtrip(mx.array(x)))
    assert np.abs(back - expected).max() <= 2e-6 * np.abs(x).max() * dim**0.5


@pytest.mark.parametrize("lattice", ["e8", "d4"])
def test_the_published_package_decodes_to_the_same(lattice):
    package = pytest.importorskip("kakeyalattice")
    name = {"e8": "V15KakeyaZamirE8GPU", "d4": "V14KakeyaZamirLatticeGPU"}[lattice]
    x = torch.from_numpy(vectors(128, 200)[8:])
    coder = Coder(ClassicRows(lattice, 128, 38), torch.float32)
    apart = (coder.decode(coder.encode(x)) - getattr(package, name)(128, 38, device="cpu").roundtrip(x)).abs()
    assert ((apart.amax(1) > 1e-5 * x.norm(dim=1)).float().mean()) < 0.02


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("spec", ["raw", "e8v@4.25", "e8@q38"])
def test_half_types_come_back_in_their_type(spec, dtype):
    x = torch.from_numpy(vectors(64)[8:]).to(dtype).reshape(2, 4, -1, 64)
    coder = Coder(rows_of(sides_of(spec)[0], 64), dtype)
    back = coder.decode(coder.encode(x))
    assert back.dtype == dtype
    assert back.shape == x.shape
    assert (back.float() - x.float()).norm() < 0.15 * x.float().norm()


@pytest.mark.parametrize(
    ("spec", "dim", "reason"),
    [("affine@4g64", 64, "is a format of MLX"), ("k=affine@4g64,v=raw", 64, "is a format of MLX"),
     ("e8v@4.25", 72, "no Hadamard rotation"), ("e8@q38", 80, "no dim 80"), ("e9@q1", 64, "no cache spec"),
     ("e8v@4.25", 4, "no whole blocks")],
)  # fmt: skip
def test_what_has_no_codec_is_refused_with_the_reason(spec, dim, reason):
    with pytest.raises(BadInput, match=reason):
        rows_of(sides_of(spec)[0], dim)
