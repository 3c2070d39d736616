"""The warning that hardly any draft is accepted."""

import pytest

from engine.dflash.step import AcceptanceWatch, Step
from engine.evals.speculation.bench import acceptance_warning


def warnings(drafter, accepted, steps=60, proposed=10):
    watch = AcceptanceWatch()
    each = [Step((1,), drafter=drafter, proposed=proposed, accepted=int(i < accepted)) for i in range(steps)]
    return [warning for step in each if (warning := watch.add(step))]


@pytest.mark.parametrize("accepted", [0, 9])
def test_it_is_given_once(accepted):
    (warning,) = warnings("dflash", accepted)
    assert f"only {accepted} of the draft model's 200 drafts" in warning
    assert all(cause in warning for cause in ("half precision", "tokenizer", "embeddings"))


def test_it_needs_two_hundred_drafts_of_a_draft_model():
    assert warnings("dflash", 0, steps=19) == []
    assert warnings("lookup", 0) == []
    assert warnings("none", 0, proposed=0) == []


def test_five_percent_are_enough():
    assert warnings("dflash", 60) == []
    assert warnings("dflash", 10, steps=20) == []


@pytest.mark.parametrize(
    ("arm", "warned"), [("dflash/auto", True), ("lookup/auto", False), ("adaptive/auto", False)]
)
def test_a_benchmark_judges_the_arm_that_uses_the_draft_model_alone(arm, warned):
    row = {"drafted": [7, 7], "accepted": [0, 0]}
    rows = [{"arm": "native"}, *({"arm": arm, **row} for _ in range(20))]
    assert bool(acceptance_warning(rows)) == warned
