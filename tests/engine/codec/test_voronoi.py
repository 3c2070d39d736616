import hashlib
import json
from pathlib import Path

import numpy as np
import pytest

from engine.codec import cosets, graph, scales, search, spec, voronoi
from engine.codec.lattice import nearest_e8
from engine.codec.voronoi import VoronoiCodec
from engine.errors import BadInput
from engine.evals.rate_distortion.sources import draw
from engine.evals.rate_distortion.table import rel_errors
from engine.mx import mx

cpu_only = pytest.mark.skipif(mx.default_device() != mx.cpu, reason="GPUs round in another order")
GOLDEN_FILE = Path(__file__).parent / "data" / "golden_voronoi.npz"
# Digests of `digests`. A change of the format is a new version of it, and not a new file here.
RECORDED = Path(__file__).parent / "data" / "rows.json"
GOALS = {2: 0.0812, 3: 0.0191, 4: 0.00467, 6: 2.9e-4}


def _awkward(dim):
    x = np.concatenate([draw(d, 40, dim, seed=dim) for d in ("gaussian", "t4", "outliers")])
    x[0], x[1], x[2], x[3], x[4] = 0, x[1] * 1e30, x[2] * 1e-25, 1, 0
    x[4, 3], x[5, 0], x[6, 1], x[7, 2] = 1, np.nan, np.inf, -np.inf
    # Without the last bits, in which two machines may draw differently.
    return (x.astype(np.float32).view(np.uint32) & 0xFFFF0000).view(np.float32)


@pytest.fixture(params=["numpy", "graph"])
def encoder(request, monkeypatch):
    """Encode and decode as CPUs do, in NumPy, or as GPUs do."""
    monkeypatch.setattr(voronoi, "computes_on_cpu", lambda: request.param == "numpy")


def digests(dim, bits, effort):
    """Return the digests of the rows that are written of awkward vectors, and of what they decode to."""
    x = _awkward(dim)
    codec = VoronoiCodec(dim, bits, effort)
    rows = codec.encode(mx.array(x if effort == "fast" else x[:20]))
    arrays = (np.array(rows), np.array(codec.decode_rotated(rows)))
    return [hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()[:24] for array in arrays]


# Of the vectors that differ between efforts, the first.
ROWS = [(dim, bits, "fast") for dim in (8, 64, 80, 96, 112, 128, 256, 512) for bits in (2, 3, 4, 5, 6)]
ROWS += [(64, bits, effort) for bits in (2, 3, 4, 6) for effort in ("normal", "best")]


@pytest.mark.rows(24)
@cpu_only
@pytest.mark.usefixtures("encoder")
@pytest.mark.parametrize(("dim", "bits", "effort"), ROWS)
def test_both_forms_write_the_recorded_rows_and_read_the_same_numbers(dim, bits, effort):
    assert digests(dim, bits, effort) == json.loads(RECORDED.read_text())[f"{dim} {bits} {effort}"]


@cpu_only
@pytest.mark.usefixtures("encoder")
@pytest.mark.parametrize("effort", ["fast", "normal", "best"])
@pytest.mark.parametrize("bits", [2, 3, 4])
def test_a_vector_is_encoded_alone_as_among_many(bits, effort):
    """Few vectors are tried at several scales together, and many at one after the other."""
    x = mx.array(draw("t4", 300, 64, seed=3))
    codec = VoronoiCodec(64, bits, effort)
    together = np.array(codec.encode(x))
    for i in range(0, 300, 37):
        assert np.array_equal(np.array(codec.encode(x[i : i + 1])), together[i : i + 1])


@cpu_only
@pytest.mark.parametrize("effort", ["fast", "normal", "best"])
@pytest.mark.parametrize("bits", [2, 3, 4, 5, 6])
def test_rounding_seldom_changes_a_code(bits, effort):
    """A forward pass over more rows rounds otherwise, and should store the same codes."""
    x = draw("gaussian", 2000, 64, seed=5).astype(np.float32)
    noise = np.random.default_rng(0).uniform(-(2.0**-21), 2.0**-21, x.shape).astype(np.float32)
    moved = x + noise * np.abs(x).max(axis=1, keepdims=True)
    codec = VoronoiCodec(64, bits, effort)
    rows, again = (np.array(codec.encode(mx.array(each))) for each in (x, moved))
    assert (rows != again).any(axis=1).mean() < 0.002


def evaluations(search):
    """Return at how many scales a vector is coded, at most; with a guess also one that surely holds all blocks."""
    if search.guess:
        return len(search.guess.offsets) + 1
    return search.count + spec.BETA_GAP // search.stride + 3


@pytest.mark.rows(1)
@pytest.mark.parametrize("distribution", ["gaussian", "t4", "outliers"])
@pytest.mark.parametrize("bits", [2, 3, 4, 5, 6])
def test_more_effort_errs_less_and_the_fast_one_not_much_more(bits, distribution):
    x = mx.array(draw(distribution, 1500, 128, seed=1))
    fast, normal, best = (
        rel_errors(x, VoronoiCodec(128, bits, effort).roundtrip(x)).mean().item()
        for effort in ("fast", "normal", "best")
    )
    assert best < normal < fast < 1.035 * normal
    tries = [evaluations(spec.EFFORTS[effort][bits]) for effort in ("fast", "normal", "best")]
    assert 2 * tries[0] <= tries[1] < tries[2] / 2


@pytest.mark.parametrize(("size", "coded_share", "excess"), [(1.0, 0.99, 1.08), (1.4, 0.97, 1.23)])
def test_a_block_outside_gets_nearly_the_nearest_of_all_codewords(size, coded_share, excess):
    """All 65,536 codewords of two bits are known, so the search for a codeword can be compared with the best one."""
    z = (np.random.default_rng(0).standard_normal((8, 300)) * size).astype(np.float32)
    labels = np.stack([(np.arange(1 << 16) >> (2 * i)) & 3 for i in range(8)]).astype(np.int16)
    codewords = np.array(cosets.point_of(mx.array(labels), 2)).astype(np.float32) / np.float32(spec.UNIT)
    nearest = ((z * z).sum(0) + (codewords * codewords).sum(0)[:, None] - 2 * codewords.T @ z).min(0)
    points, far, fits = (np.array(part) for part in search.best_points(mx.array(z), 4, 3))
    coded = far[0] < search.OUTSIDE
    assert coded.mean() > coded_share
    assert not fits.all()
    assert cosets.inside(mx.array(points[:, coded]), 4).all().item()
    assert np.allclose(((z - points) ** 2).sum(0)[coded], far[0, coded], atol=1e-4)
    assert (far[0, coded] > nearest[coded] - 1e-4).all()
    assert far[0, coded].mean() < excess * nearest[coded].mean()


def test_the_scale_of_a_square_is_the_largest_that_is_not_above_its_root():
    squares = np.array([2.0 ** (k / 16) for k in range(-200, 200)], np.float32)
    below = np.nextafter(squares, np.float32(0))
    assert np.array_equal(np.array(scales.scale_of_square(mx.array(squares))), np.arange(-200, 200))
    assert np.array_equal(np.array(scales.scale_of_square(mx.array(below))), np.arange(-201, 199))


@pytest.mark.parametrize("bits", [2.25, 3.25, 4.25, 5.25, 6.25])
def test_stored_bits_are_the_bytes(bits):
    codec = VoronoiCodec(128, bits)
    packed = codec.encode(mx.zeros((2, 3, 5, 128)))
    assert packed.shape == (2, 3, 5, codec.bits_per_vector // 8)
    assert packed.nbytes * 8 / (30 * 128) == bits == codec.bits_per_vector / 128


@pytest.mark.rows(6)
@pytest.mark.parametrize(("bits", "goal"), GOALS.items())
@pytest.mark.parametrize("distribution", ["gaussian", "t4", "outliers"])
def test_rate_distortion(bits, goal, distribution):
    x = mx.array(draw(distribution, 600, 128, seed=7))
    errors = rel_errors(x, VoronoiCodec(128, bits).roundtrip(x))
    assert errors.mean().item() < goal


@pytest.mark.parametrize("bits", [2, 3, 4, 5, 6])
def test_encoding_again_changes_nothing(bits):
    """The decoded vector in the rotated domain is on the lattice at its own scale: nothing is off it."""
    codec = VoronoiCodec(128, bits, "fast")
    packed = codec.encode(mx.array(draw("t4", 200, 128, seed=0)))
    scale, beta, fields = graph.unpack(packed, codec.layout)
    steps = scales.step(scale + spec.BETA_GAP * beta)[:, None]
    points = mx.round(codec.decode_rotated(packed).reshape(200, 8, 16) / steps * 2) / 2
    assert mx.array_equal(cosets.label(points, bits).astype(mx.int16), fields)
    assert cosets.inside(points, 1 << bits).all().item()
    assert mx.array_equal(nearest_e8(points)[0], points)
    again = graph.pack(scale.T, beta.T, fields.transpose(1, 2, 0).astype(mx.int32), codec.layout)
    assert mx.array_equal(again, packed)


def test_any_bytes_decode():
    """No pattern is invalid: random rows decode to finite vectors, and each to its own."""
    for bits in spec.BITS:
        codec = VoronoiCodec(128, bits)
        rows = np.random.default_rng(bits).integers(0, 256, (500, codec.layout.nbytes), dtype=np.uint8)
        out = codec.decode(mx.array(rows))
        assert mx.isfinite(out).all().item()
        assert len(np.unique(np.array(out), axis=0)) == 500


@pytest.mark.parametrize("dim", [8, 80, 128])
@pytest.mark.parametrize("bits", spec.BITS)
def test_both_forms_decode_any_bytes_to_the_same_numbers(dim, bits, monkeypatch):
    codec = VoronoiCodec(dim, bits)
    rows = np.random.default_rng(bits).integers(0, 256, (2, 3, 400, codec.layout.nbytes), dtype=np.uint8)
    rows[0, 0, 0, :2] = 0, 128  # the scale of a zero vector
    decoded = []
    for on_cpu in (True, False):
        monkeypatch.setattr(voronoi, "computes_on_cpu", lambda on_cpu=on_cpu: on_cpu)
        decoded.append(np.array(codec.decode_rotated(mx.array(rows))))
        assert np.array_equal(
            np.array(codec.decode_rotated(mx.array(rows[1, 2, 399]))), decoded[0][1, 2, 399]
        )
    assert np.array_equal(*decoded)
    assert not decoded[0][0, 0, 0].any()


@cpu_only
@pytest.mark.usefixtures("encoder")
@pytest.mark.parametrize("bits", [2, 3, 4, 6])
def test_a_vector_that_the_fast_search_would_lose_is_coded_at_a_safe_scale(bits):
    y = np.random.default_rng(bits).standard_normal((40, 128)).astype(np.float32) * 1e-3
    y.reshape(40, 8, 16)[np.arange(40), :, np.arange(40) % 16] += np.float32(20)
    x = mx.array(y)
    rows = VoronoiCodec(128, bits, "fast").encode(mx.hadamard_transform(x))
    error = rel_errors(x, VoronoiCodec(128, bits).decode_rotated(rows))
    assert error.max().item() < 0.6 * 4.0 ** (2 - bits)


def test_scaling_by_a_power_of_two_scales_the_result():
    codec = VoronoiCodec(128, 4.25, "fast")
    x = mx.array(draw("gaussian", 50, 128, seed=0))
    for factor in (2.0**-60, 2.0**-14, 2.0, 2.0**17, 2.0**90):
        assert mx.array_equal(codec.roundtrip(x * factor), codec.roundtrip(x) * factor).item()


def test_what_has_no_number():
    codec = VoronoiCodec(128, 4.25)
    x = draw("gaussian", 4, 128, seed=0)
    same = x.copy()
    x[0, 5], same[0, 5] = np.nan, 0
    x[1, 5], same[1, 5] = np.inf, 2.0**100
    x[2, 5], same[2, 5] = -3e38, -(2.0**100)
    x[3], same[3] = np.nan, 0
    out = codec.roundtrip(mx.array(x))
    assert mx.array_equal(out, codec.roundtrip(mx.array(same))).item()
    assert mx.isfinite(out).all().item()
    assert mx.abs(out[3]).max().item() == 0


@pytest.mark.usefixtures("encoder")
def test_a_vector_is_zero_below_the_smallest_scale_and_coded_above():
    codec = VoronoiCodec(128, 4.25, "fast")
    x = mx.array(draw("gaussian", 4, 128, seed=0))
    size = mx.array([[2.0**-126], [2.0**-125], [2.0**-100], [2.0**-99]])
    out = codec.roundtrip(x * size)
    assert not out[:2].any().item()
    assert rel_errors(x[2:] * size[2:] * 2.0**90, out[2:] * 2.0**90).max().item() < 0.02


@pytest.mark.parametrize("dtype", [mx.float16, mx.bfloat16, mx.float32])
def test_types(dtype):
    x = (mx.array(draw("gaussian", 30, 128, seed=0)) * 9000).astype(dtype)
    out = VoronoiCodec(128, 4.25).roundtrip(x)
    assert out.dtype == dtype
    assert mx.isfinite(out).all().item()
    assert rel_errors(x.astype(mx.float32), out.astype(mx.float32)).mean().item() < 0.006


def test_half_saturates_instead_of_overflowing():
    x = mx.full((1, 128), 65504.0, mx.float16)
    assert mx.isfinite(VoronoiCodec(128, 2.25).roundtrip(x)).all().item()


def test_vectors_of_one_loud_block_have_a_codeword():
    codec = VoronoiCodec(128, 2.25)
    y = np.zeros((16, 8, 16), np.float32)
    y[np.arange(16), :, np.arange(16)] = np.random.default_rng(0).standard_normal((16, 8))
    y += 1e-3
    x = mx.hadamard_transform(mx.array(y.reshape(16, 128)))
    assert rel_errors(x, codec.roundtrip(x)).max().item() < 0.6


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        ((100,), "Hadamard"),
        ((36,), "Hadamard"),
        ((12, 4), "whole blocks"),
        ((128, 7.25), "7 bits"),
        ((128, 4.5), "4.5 bits"),
        ((128, 1.25), "1 bits"),
        ((128, 4.25, "heroic"), "heroic"),
    ],
)
def test_no_such_codec(argv, words):
    with pytest.raises(BadInput, match=words):
        VoronoiCodec(*argv)


def test_wrong_arrays():
    codec = VoronoiCodec(128, 4.25)
    with pytest.raises(BadInput, match="64 values"):
        codec.encode(mx.zeros((1, 64)))
    with pytest.raises(BadInput, match="rows of 67 bytes"):
        codec.decode(mx.zeros((1, 67), mx.uint8))
    assert codec.roundtrip(mx.zeros((0, 128))).shape == (0, 128)


@cpu_only
@pytest.mark.parametrize("bits", [2, 3, 4, 5, 6])
def test_the_format_does_not_drift(bits):
    """Rows written by earlier versions still decode to the same numbers; rows written now stay what they are."""
    golden = np.load(GOLDEN_FILE)
    x, rows, decoded = golden["x"], golden[f"rows_{bits}"], golden[f"rotated_{bits}"]
    for name in ("earlier", "guessed", "shrunk"):  # encoders that searched otherwise
        earlier = mx.array(golden[f"{name}_{bits}"])
        again = VoronoiCodec(128, bits).decode_rotated(earlier)
        assert np.array_equal(np.array(again), golden[f"{name}_rotated_{bits}"])
    for effort in ("fast", "normal"):
        written = VoronoiCodec(128, bits, effort).encode(mx.array(x.astype(np.float32)))
        assert np.array_equal(np.array(written), golden[f"{effort}_{bits}"])
    codec = VoronoiCodec(128, bits)
    assert np.array_equal(np.array(codec.decode_rotated(mx.array(rows))), decoded)


@pytest.mark.parametrize("dim", [64, 80])
def test_numpy_changes_no_vector_that_it_encodes(dim):
    """A single vector was once scaled in place."""
    x = draw("gaussian", 1, dim, seed=2).astype(np.float32)
    before = x.copy()
    encoder = voronoi.encoder.encode(x, spec.Layout(dim, 4), spec.EFFORTS["normal"][4])
    assert encoder.shape == (1, spec.Layout(dim, 4).nbytes)
    assert np.array_equal(x, before)
