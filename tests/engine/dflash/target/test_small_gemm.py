"""Products over few rows are what they were, whatever form they have, and models are left as they are."""

import gc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine import blas, dflash
from engine.dflash.target import small_gemm
from engine.dflash.target.small_gemm import (
    ROWS,
    TILES,
    Matrix,
    bytes_of_copies,
    forbid_copies,
    form_of,
    tile_of,
    with_products,
)
from engine.models import load
from engine.mx import mx, nn, tree
from tests.engine import small_models as models
from tests.engine.dflash.target.test_rotary import outputs
from tests.engine.dflash.target.test_taps import each_kind

FORMS = ("tiled", "turned")
each_form = pytest.mark.parametrize("form", FORMS)


@pytest.fixture(autouse=True)
def for_all_sizes(monkeypatch):
    """Give matrices of every size the form that is asked for."""
    monkeypatch.setattr(small_gemm, "LEAST", dict.fromkeys(small_gemm.LEAST, 0))


@pytest.fixture
def of_form(monkeypatch):
    """Say which form this machine's is."""
    return lambda form: monkeypatch.setattr(small_gemm, "form", lambda: form)


@pytest.mark.parametrize(("form", "least"), [("tiled", 256), ("turned", 32)])
def test_a_small_matrix_is_left_alone(form, least, monkeypatch):
    monkeypatch.undo()  # what is above
    assert Matrix(mx.zeros((least, 256)), form).form == form
    assert Matrix(mx.zeros((least - 1, 256)), form).form == "plain"


@given(
    st.sampled_from(FORMS),
    st.integers(1, ROWS),
    st.integers(1, 200),
    st.integers(1, 300),
    st.sampled_from([(), (1,), (2,)]),
    st.integers(0, 9),
)
@settings(max_examples=150)
def test_a_product_is_the_usual_one(form, rows, outputs, inputs, lead, seed):
    """Against float64: outputs that do not fill their tiles and several sequences included."""
    draw = np.random.default_rng(seed)
    count = -(-rows // lead[0]) if lead else rows
    x, weight = (
        draw.standard_normal(shape).astype(np.float32)
        for shape in ((*lead, count, inputs), (outputs, inputs))
    )
    found = Matrix(mx.array(weight), form)(mx.array(x))
    assert found.shape == (*lead, count, outputs)
    wanted = x.astype(np.float64) @ weight.T.astype(np.float64)
    scale = np.linalg.norm(x, axis=-1, keepdims=True) * np.linalg.norm(weight, axis=-1)
    assert (np.abs(np.array(found) - wanted) <= 1e-6 * scale).all()


@each_form
@pytest.mark.parametrize(
    ("rows", "dtype"), [(0, mx.float32), (ROWS + 1, mx.float32), (8, mx.bfloat16), (8, mx.float16)]
)
def test_no_rows_many_rows_and_half_types_are_left_alone(form, rows, dtype):
    x, weight = (
        mx.random.normal((count, 96), key=mx.random.key(count)).astype(dtype) for count in (rows, 130)
    )
    matrix = Matrix(weight, form)
    assert mx.array_equal(matrix(x), x @ weight.T)
    assert matrix.tiles is None


@pytest.mark.parametrize(
    ("inputs", "outputs"), [(64, 64), (976, 64), (977, 32), (1953, 32), (1954, 16), (9999, 16)]
)
def test_a_tile_fits_the_kernels_for_small_products(inputs, outputs):
    """OpenBLAS uses them up to 100 ** 3 multiplications; a tile has at least as many outputs as the last."""
    assert tile_of(inputs) == outputs
    assert outputs == TILES[-1] or 16 * inputs * outputs <= 100**3


@pytest.mark.rows(6)
@each_form
@each_kind
def test_logits_are_the_models_own(kind, form, of_form):
    """But for rounding; caches are filled alike."""
    of_form(form)
    model, lengths = kind(layers=4), (7, 20, 1, 2, 15)
    both = (outputs(run, model, lengths) for run in (with_products(model), model))
    for mine, theirs in zip(*both, strict=True):
        np.testing.assert_allclose(
            np.array(mine), np.array(theirs), rtol=0, atol=1e-4 * float(mx.abs(theirs).max())
        )


@each_form
def test_the_model_is_left_as_it_is(form, of_form):
    of_form(form)
    model = models.qwen3()
    kinds = [type(module) for _, module in model.named_modules()]
    names = [name for name, _ in tree.tree_flatten(model.parameters())]
    made = with_products(model)
    mx.eval(made(models.tokens(8)))
    assert [type(module) for _, module in model.named_modules()] == kinds
    for each in (model, made):
        assert [name for name, _ in tree.tree_flatten(each.parameters())] == names
    assert made.layers[0].mlp.up_proj.weight is model.layers[0].mlp.up_proj.weight


def test_tiles_are_cut_once_and_anew_for_another_weight(of_form):
    of_form("tiled")
    linear = nn.Linear(64, 64, bias=True)
    first = with_products(linear).matrix
    assert with_products(linear).matrix is first
    x = mx.random.normal((4, 64), key=mx.random.key(0))
    for factor in (1, 2):
        linear.weight = linear.weight * factor
        made = with_products(linear)
        np.testing.assert_allclose(np.array(made(x)), np.array(linear(x)), rtol=1e-4, atol=1e-4)
    assert made.matrix is not first


def test_a_large_model_is_not_copied(of_form, monkeypatch):
    of_form("tiled")
    model = models.qwen3()
    size = sum(weight.nbytes for name, weight in tree.tree_flatten(model.parameters()) if "norm" not in name)
    monkeypatch.setattr(small_gemm.host, "memory_bytes", lambda: 8 * size)
    assert form_of(model) == "tiled"
    monkeypatch.setattr(small_gemm.host, "memory_bytes", lambda: 8 * size - 1)
    assert form_of(model) == "turned"
    made = with_products(model)
    mx.eval(made(models.tokens(8)))
    matrices = [vars(module)["matrix"] for _, module in made.named_modules() if "matrix" in vars(module)]
    assert len(matrices) == 2 * 7 + 1
    assert all(matrix.tiles is None for matrix in matrices)


def test_a_marked_pair_is_kept_once(of_form):
    """The drafter has made its matrices by then."""
    of_form("tiled")
    pair = load("tiny", dtype="float32")
    for model in (pair.target, pair.draft):
        size = sum(m.weight.nbytes for m in model.modules() if type(m) in (nn.Linear, nn.Embedding))
        assert bytes_of_copies(model) == size
        forbid_copies(model)
        assert bytes_of_copies(model) == 0
    gc.collect()  # what earlier tests left
    before = mx.get_active_memory()
    list(dflash.stream_generate(pair.target, pair.draft, pair.tokenizer, "def f(", max_tokens=20))
    assert mx.get_active_memory() - before < 1 << 20


def test_what_is_kept_twice_is_no_more_than_was_said(of_form):
    of_form("tiled")
    pair = load("tiny", dtype="float32")
    gc.collect()  # what earlier tests left
    before = mx.get_active_memory()
    list(dflash.stream_generate(pair.target, pair.draft, pair.tokenizer, "def f(", max_tokens=20))
    said = sum(map(bytes_of_copies, (pair.target, pair.draft)))
    assert said * 0.9 < mx.get_active_memory() - before < said + (1 << 20)


def test_where_nothing_is_gained_the_model_is_itself(of_form):
    of_form("plain")
    model = models.qwen3()
    assert with_products(model) is model


@pytest.mark.parametrize(
    ("device", "machine", "core", "form"),
    [
        (mx.cpu, "x86_64", "Haswell", "turned"),
        (mx.cpu, "x86_64", "Zen", "turned"),
        (mx.cpu, "x86_64", "SkylakeX", "tiled"),
        (mx.cpu, "x86_64", "Cooperlake", "tiled"),
        (mx.cpu, "x86_64", "", "plain"),
        (mx.cpu, "aarch64", "NEOVERSEN1", "plain"),
        (mx.gpu, "x86_64", "SkylakeX", "plain"),
    ],
)
def test_the_form_follows_from_the_device_and_its_cores(device, machine, core, form, monkeypatch):
    monkeypatch.setattr(blas, "core", lambda: core)
    monkeypatch.setattr(small_gemm.platform, "machine", lambda: machine)
    monkeypatch.setattr(small_gemm.mx, "default_device", lambda: mx.Device(device))
    assert small_gemm.form() == form


@pytest.mark.skipif(blas.in_use().name != "openblas", reason="MLX is bound to another BLAS")
def test_openblas_names_its_cores():
    assert blas.core().isalnum()


@pytest.mark.skipif(
    small_gemm.form() != "tiled", reason="OpenBLAS has no kernels for small products on these cores"
)
@pytest.mark.parametrize(
    ("outputs", "inputs"), [(256, 256), (512, 256), (256, 512), (2048, 256), (768, 2048)]
)
def test_tiles_give_a_row_the_same_bits_in_any_company(outputs, inputs):
    """So of all that a block computes, only attention rounds otherwise than in single rows."""
    matrix = Matrix(mx.random.normal((outputs, inputs), key=mx.random.key(0)), "tiled")
    x = mx.random.normal((16, inputs), key=mx.random.key(1))
    alone = mx.concatenate([matrix(x[i : i + 1]) for i in range(16)])
    for rows in (2, 3, 5, 8, 13, 16):
        assert mx.array_equal(matrix(x[:rows]), alone[:rows])
