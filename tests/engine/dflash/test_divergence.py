import pytest

from bridge.reports.repetition import first_difference
from engine import cache as kv
from engine.dflash.divergence import classify
from engine.dflash.loop import stream_generate
from engine.mx import mx
from tests.engine import small_models as models

PROMPT = [5, 9, 3, 77]


@pytest.fixture(scope="module")
def target():
    return models.qwen3(layers=2)


@pytest.fixture(scope="module")
def decoded(target):
    steps = stream_generate(target, None, None, PROMPT, max_tokens=9, block_size=1)
    return [token for step in steps for token in step.tokens]


def told(target, ours, theirs):
    return classify(target, lambda: kv.make_caches(target, "raw"), PROMPT, ours, theirs)


def test_equal_and_cut_short(target, decoded):
    assert told(target, decoded, decoded) is None
    found = told(target, decoded[:4], decoded)
    assert (found.kind, found.position, found.ours, found.theirs) == ("length", 4, None, decoded[4])
    assert first_difference([1, 2], [1, 2]) is None


def test_a_wrong_token_is_a_fault(target, decoded):
    wrong = (decoded[6] + 1) % 128
    found = told(target, [*decoded[:6], wrong, 1, 2], decoded)
    assert (found.kind, found.position, found.ours, found.theirs) == ("fault", 6, wrong, decoded[6])
    assert found.margin > 1e-3 > found.rounding > 0
    assert found.logits.argmax().item() == decoded[6]


def test_tokens_that_score_alike_are_a_tie(target, decoded):
    twin = (decoded[6] + 1) % 128
    assert twin not in decoded
    alike = models.qwen3(layers=2)
    rows = mx.array(alike.model.embed_tokens.weight)
    rows[twin] = rows[decoded[6]] * (1 + 1e-7)
    alike.model.embed_tokens.weight = rows
    found = told(alike, [*decoded[:6], twin], decoded)
    assert (found.kind, found.position) == ("tie", 6)
    assert found.margin <= 4 * found.rounding < 1e-4


def test_our_single_rows_show_what_rounding_does_too(target, decoded, monkeypatch):
    """Blocks may agree with mlx-lm's rows in every bit where a single row of ours does not."""
    other = (decoded[6] + 1) % 128

    def rounds_single_rows_otherwise(model):
        widths = []

        def compute(tokens, cache):
            widths.append(tokens.shape[1])
            return model(tokens, cache=cache) * (1.5 if {*widths[1:]} == {1} else 1)

        return compute

    monkeypatch.setattr("engine.dflash.divergence.with_products", rounds_single_rows_otherwise)
    assert told(target, [*decoded[:6], other], decoded).kind == "tie"


def test_two_poor_tokens_that_score_alike_are_a_fault(target, decoded):
    """Where a third token scores far higher, neither of the two was chosen for rounding."""
    low, twin = [token for token in range(128) if token not in (*decoded, *PROMPT)][:2]
    alike = models.qwen3(layers=2)
    rows = mx.array(alike.model.embed_tokens.weight)
    rows[twin] = rows[low]
    alike.model.embed_tokens.weight = rows
    divergence = told(alike, [*decoded[:6], low], [*decoded[:6], twin])
    assert (divergence.kind, divergence.position) == ("fault", 6)
