"""Log-probabilities with drafts are those that the model gives to the finished answer, greedy or sampled."""

import pytest

from engine.mx import mx
from engine.serve.backend import Job, Options, Piece
from engine.serve.resident import load_resident
from engine.serve.scheduler.generation import Generation
from engine.serve.scheduler.rounds import Draft, Forward

TEXT = "def main(argv):\n    for i in range(10):\n        print(i)\n    for i in range(10):\n"
ALTERNATIVES = 4


@pytest.fixture(scope="module", params=["tiny", "tiny-hybrid"])
def resident(request):
    return load_resident(request.param, "auto", "float32")


def reported(resident, ids, **options):
    """Return what an answer reports, and how many of its tokens were drafted."""
    given = Options(32, logprobs=ALTERNATIVES, **options)
    generation = Generation(Job(0, resident.name, ids, given, lambda _: None, 1e18), resident, 64)
    found, output = [], None
    while not generation.done:
        made, output = generation.turn(output), None
        if isinstance(made, Draft):
            output = made.run.propose(made.plan)
        elif isinstance(made, Forward):
            output = made.run.forward(made.tokens)
        elif isinstance(made, Piece):
            found += made.logprobs or []
    return found, generation.stats.accepted


@pytest.mark.rows(2)
@pytest.mark.parametrize("draft", ["none", "lookup", "dflash", "auto"])
@pytest.mark.parametrize(
    "options",
    [
        {"temperature": 0.0},
        {"temperature": 1.0, "seed": 3},
        {"temperature": 1.5, "seed": 4, "top_p": 0.9, "bias": {300: 5.0}, "frequency": 0.5},
        {"temperature": 0.0, "repetition": 1.7, "presence": -2.0},
    ],
    ids=["greedy", "seeded", "seeded and changed", "greedy and changed"],
)
def test_logprobs_are_those_of_the_finished_answer(resident, draft, options):
    ids = resident.encode(TEXT)
    found, accepted = reported(resident, ids, draft=draft, **options)
    tokens = [token for token, _, _ in found]
    logits = resident.pair.target(mx.array([ids + tokens]))[0, len(ids) - 1 : -1].astype(mx.float32)
    expected = logits - mx.logsumexp(logits, axis=-1, keepdims=True)
    for row, (token, logprob, best) in zip(expected, found, strict=True):
        assert logprob == pytest.approx(row[token].item(), abs=1e-4)
        likeliest = mx.sort(row)[::-1][:ALTERNATIVES].tolist()
        assert [value for _, value in best] == pytest.approx(likeliest, abs=1e-4)
        assert [value for _, value in best] == pytest.approx([row[each].item() for each, _ in best], abs=1e-4)
    assert (accepted > 0) == (draft != "none") or draft in ("lookup", "auto")
