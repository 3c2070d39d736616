"""Whether blocks compute what single rows do, measured on models that do and on one that does not."""

import pytest

from engine.models.agreement import measure_agreement
from tests.engine import small_models as models


@pytest.mark.parametrize("make", [models.qwen3, models.gemma3])
def test_a_model_whose_blocks_agree(make):
    agreement = measure_agreement(make(), None)
    assert (agreement.rows, agreement.compared, agreement.same_tokens) == (16, 4, True)
    assert agreement.difference < 1e-3
    assert "the same tokens" in str(agreement)


def test_a_model_that_computes_large_blocks_otherwise():
    model = models.qwen3()

    class Negated(type(model)):
        def __call__(self, inputs, cache=None):
            logits = super().__call__(inputs, cache=cache)
            return -logits if inputs.shape[1] == 12 else logits

    model.__class__ = Negated
    assert measure_agreement(model, None, block_size=11).same_tokens
    agreement = measure_agreement(model, None, block_size=12)
    assert not agreement.same_tokens
    assert agreement.difference > 0.01
    assert "other tokens" in str(agreement)


def test_a_model_that_verifies_no_blocks_is_not_measured():
    assert measure_agreement(models.qwen3(), None, lookup=False) is None
    assert measure_agreement(models.qwen3(), None, block_size=1) is None
