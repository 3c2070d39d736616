import json

import pytest

from engine import known_answers, probe
from engine.mx import mx

BLOCK = """
import sys
class Block:
    def find_spec(self, name, path=None, target=None):
        if name.split('.')[0] in {blocked}:
            raise ImportError('libmissing.so: cannot open shared object file')
sys.meta_path.insert(0, Block())
from engine.cli import main
main(['probe', '--json'])
"""


@pytest.mark.long
def test_a_healthy_machine(python):
    done = python("-m", "engine", "probe", "--json")
    facts = json.loads(done.stdout)
    assert done.returncode == 0, done.stderr
    assert facts["healthy"]
    assert facts["check"]["ok"]
    assert facts["problems"] == []
    assert facts["device"] in {"cpu", "gpu"}
    assert facts["blas"]["gflops"] > 0
    assert set(facts["versions"]) == {"python", "mlx", "mlx_lm", "numpy", "kakeya_bridge"}
    assert isinstance(facts["ring"], bool)


@pytest.mark.long
def test_people_get_a_table(python):
    done = python("-m", "engine", "probe")
    assert "healthy" in done.stdout
    assert "blas" in done.stdout


@pytest.mark.parametrize(("blocked", "name"), [({"mlx"}, "MLX"), ({"mlx_lm"}, "mlx-lm")])
def test_a_missing_package_fails_and_says_what_to_do(python, blocked, name):
    done = python("-c", BLOCK.format(blocked=blocked))
    facts = json.loads(done.stdout)
    assert done.returncode == 1
    assert not facts["healthy"]
    assert [problem["what"] for problem in facts["problems"]] == [f"{name} cannot be loaded"]
    assert "pip install" in done.stderr
    assert "libmissing.so" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_wrong_result_is_a_problem(monkeypatch):
    monkeypatch.setattr(mx, "hadamard_transform", lambda row: 2 * row)
    found = probe.probe()
    assert not found.healthy
    assert "came out wrong" in found.problems[0].why


def _of_contiguous_views_only(dequantize):
    """Read a view as if its rows lay one after another, as MLX 0.32.1 does on Metal."""

    def wrong(codes, scales, biases, **options):
        whole = dequantize(codes, scales, biases, **options)
        return mx.roll(whole, 1, axis=-2) if whole.shape[-2] == known_answers.TOKENS else whole

    return wrong


def _of_the_first_head(quantized_matmul):
    """Give every key-value head the first one's vectors, as a kernel does that ignores a stride."""

    def wrong(x, *args, **options):
        if x.shape[-2] == 1:
            args = [*(mx.broadcast_to(part[:, :1], part.shape) for part in args[:3]), *args[3:]]
        return quantized_matmul(x, *args, **options)

    return wrong


@pytest.mark.parametrize(
    ("name", "broken", "fact"),
    [
        ("dequantize", _of_contiguous_views_only, "sliced_dequantize_error"),
        ("quantized_matmul", _of_the_first_head, "shared_heads_error"),
    ],
)
def test_operations_that_releases_of_mlx_got_wrong_are_computed(monkeypatch, name, broken, fact):
    monkeypatch.setattr(mx, name, broken(getattr(mx, name)))
    result = probe.probe()
    assert not result.healthy
    assert result.facts["check"][fact] > 1
