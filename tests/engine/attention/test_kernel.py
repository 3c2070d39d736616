"""The kernel that ships for Metal and CUDA, compiled for the CPU and compared with the MLX path."""

import ctypes
import re
import shutil
import subprocess
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest

from engine.attention import kernel as decode
from engine.attention.kernel_source import FILE, THREADS, Shape, body, core, header, source
from engine.attention.packed import attend
from engine.attention.views import PackedView
from engine.codec import cosets, graph, hadamard
from engine.codec.voronoi import VoronoiCodec
from engine.mx import mx

CPP = Path(__file__).parent / "kernel_on_cpu.cpp"
compiler = shutil.which("c++") or shutil.which("g++") or shutil.which("clang++")
needs_compiler = pytest.mark.skipif(compiler is None, reason="no C++ compiler")


@pytest.fixture(scope="module")
def compiled(tmp_path_factory):
    """A library for each shape, compiled once."""
    libraries = {}

    def get(shape):
        if shape not in libraries:
            out = tmp_path_factory.mktemp("kernel") / "kernel.so"
            core = files("engine.attention").joinpath(FILE)
            defines = {"DIM": shape.dim, "VALUE_DIM": shape.value_dim, "BITS": shape.bits, "THREADS": THREADS}
            flags = [f"-DKK_{name}={number}" for name, number in defines.items()] + [f'-DKK_FILE="{core}"']
            argv = [
                compiler,
                "-std=c++20",
                "-O2",
                "-Wall",
                "-Wno-sign-compare",
                "-Werror",
                "-shared",
                "-fPIC",
            ]
            subprocess.run([*argv, "-fPIC", "-pthread", *flags, str(CPP), "-o", str(out)], check=True)
            libraries[shape] = ctypes.CDLL(str(out))
        return libraries[shape]

    return get


def _launch(library, value_dim):
    """The kernel on the CPU, in the shape that ``engine.attention.kernel`` launches."""

    def launch(queries, keys, values, sizes):
        arrays = [np.ascontiguousarray(np.array(x)) for x in (queries, keys, values, sizes)]
        rows, splits = len(arrays[0]), int(arrays[3][1])
        outs = [np.full((rows, splits, n), np.nan, np.float32) for n in (value_dim, 2)]
        library.run(rows, *(x.ctypes.data_as(ctypes.c_void_p) for x in (*arrays, *outs)))
        return tuple(mx.array(x) for x in outs)

    return launch


def _views(rng, shape, batch, heads, length):
    views = []
    for width in (shape.dim, shape.value_dim):
        codec = VoronoiCodec(width, shape.bits, "fast")
        x = rng.standard_normal((batch, heads, length, width)).astype(np.float32)
        x[:, :, :1] = 0
        views.append(PackedView(codec.encode(mx.array(x)), codec, mx.float32))
    return views


@pytest.mark.rows(1)
@needs_compiler
@pytest.mark.parametrize("bits", [2, 3, 4, 5, 6])
def test_codewords_are_the_codecs(compiled, bits):
    """Bit for bit, on random rows: every pattern is a codeword."""
    shape = Shape(64, 64, bits)
    codec = VoronoiCodec(64, bits)
    rows = np.random.default_rng(bits).integers(0, 256, (2000, codec.layout.nbytes), dtype=np.uint8)
    out = np.zeros((2000, 8, 8), np.int32)
    pointers = (x.ctypes.data_as(ctypes.c_void_p) for x in (rows, out))
    compiled(shape).points(len(rows), *pointers)
    _, _, fields = graph.unpack(mx.array(rows), codec.layout)
    assert np.array_equal(out.swapaxes(1, 2), np.array(cosets.point_of(fields, bits)))


@pytest.mark.rows(1)
@needs_compiler
@pytest.mark.parametrize(
    ("shape", "length", "rows", "causal"),
    [
        (Shape(64, 64, 4), 150, 1, False),
        (Shape(64, 64, 4), 150, 3, True),
        (Shape(128, 128, 4), 70, 2, True),
        (Shape(128, 128, 2), 1, 1, False),
        (Shape(128, 64, 6), 65, 1, False),
        (Shape(80, 80, 3), 64, 1, False),
        (Shape(256, 256, 5), 30, 1, True),
    ],
)
def test_the_kernel_attends_as_the_tiles_do(compiled, monkeypatch, shape, length, rows, causal):
    monkeypatch.setattr(decode, "TOKENS_A_SPLIT", 64)
    rng = np.random.default_rng(length)
    keys, values = _views(rng, shape, 1, 2, length)
    queries = mx.array(rng.standard_normal((1, 4, rows, shape.dim)).astype(np.float32))
    rotated = hadamard.rotate(queries) * 0.3
    launch = _launch(compiled(shape), shape.value_dim)
    ours = hadamard.unrotate(decode.attend_rows(rotated, keys, values, causal=causal, launch=launch))
    tiles = attend(queries, keys, values, scale=0.3, mask="causal" if causal else None)
    assert mx.abs(ours - tiles).max().item() < 2e-5


def test_when_the_kernel_is_taken():
    keys, values = _views(np.random.default_rng(0), Shape(64, 64, 4), 1, 1, 4)
    few, many = mx.zeros((1, 1, 2, 64)), mx.zeros((1, 1, 65, 64))
    assert decode.fits(few, keys, values, None)
    assert decode.fits(few, keys, values, "causal")
    assert not decode.fits(few, keys, values, mx.zeros((2, 4)))
    assert not decode.fits(many, keys, values, None)
    if mx.default_device() == mx.Device(mx.cpu):
        assert decode.backend() is None


@pytest.mark.parametrize("backend", ["metal", "cuda"])
def test_the_text_of_each_backend(backend):
    shape = Shape(128, 128, 4)
    text = header(backend, shape) + source(backend)
    assert "#define KK_DIM 128" in text
    assert text.count("KK_BODY") == 1  # in the comment that explains it
    assert text.count("{") == text.count("}")
    assert ("threadgroup_position_in_grid" in source(backend)) == (backend == "metal")


def test_no_name_is_a_keyword_of_metal_or_cuda():
    """What compiles here has to compile there, too: Metal wants address spaces, and reserves more words."""
    text = re.sub(r"//.*", "", core() + body())
    assert not re.findall(
        r"\b(thread|threadgroup|device|constant|half|kernel|vertex|fragment|sampler|this)\b", text
    )
    pointers = re.findall(r"(\w+)\s+\w+\s*\*", text)
    assert set(pointers) == {"KK_LOCAL"}


@pytest.mark.metal
@pytest.mark.cuda
@pytest.mark.skipif(decode.backend() is None, reason="no GPU")
@pytest.mark.parametrize("rows", [1, 4])
@pytest.mark.parametrize(("dtype", "most"), [("float32", 1e-4), ("float16", 2e-3)])
def test_on_the_gpu(rows, dtype, most):
    shape = Shape(128, 128, 4)
    rng = np.random.default_rng(0)
    keys, values = _views(rng, shape, 2, 2, 3000)
    queries = mx.array(rng.standard_normal((2, 8, rows, 128)).astype(np.float32)).astype(getattr(mx, dtype))
    assert decode.fits(queries, keys, values, "causal")
    ours = attend(queries, keys, values, scale=0.1, mask="causal")
    assert ours.dtype == queries.dtype
    with mx.stream(mx.cpu):
        exact = queries.astype(mx.float32)
        tiles = attend(exact, keys, values, scale=0.1, mask=mx.tri(rows, 3000, 3000 - rows, dtype=mx.bool_))
    assert mx.abs(ours.astype(mx.float32) - tiles).max().item() < most
