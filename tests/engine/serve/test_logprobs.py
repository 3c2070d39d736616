"""Log-probabilities with drafts are those that the model gives to the finished answer, greedy or sampled."""

import math

import numpy as np
import pytest

from engine.mx import mx
from engine.serve.backend import Job, Options, Piece
from engine.serve.resident import load_resident
from engine.serve.scheduler.generation import Generation
from engine.serve.scheduler.rounds import Draft, Forward
from tests.engine.serve.world import backends

TEXT = "def main(argv):\n    for i in range(10):\n        print(i)\n    for i in range(10):\n"
ALTERNATIVES = 4


class OverMlx:
    drafts = ("lookup", "dflash", "auto")

    def __init__(self, name):
        self.model = load_resident(name, "auto", "float32")

    def answer(self, job):
        """Return what an answer reports, and its figures."""
        generation, found, output = Generation(job, self.model, 64), [], None
        while not generation.done:
            made, output = generation.turn(output), None
            if isinstance(made, Draft):
                output = made.run.propose(made.plan)
            elif isinstance(made, Forward):
                output = made.run.forward(made.tokens)
            elif isinstance(made, Piece):
                found += made.logprobs or []
        return found, generation.stats

    def logits(self, ids):
        return np.array(self.model.pair.target(mx.array([ids]))[0].astype(mx.float32))


class OverTorch:
    drafts = ("lookup", "auto")

    def __init__(self, name):
        import torch  # noqa: PLC0415 - it may be absent

        from engine.serve.torch.model import load_model  # noqa: PLC0415 - the same

        self.model = load_model(name, torch.device("cpu"), torch.float32)

    def answer(self, job):
        from engine.serve.torch.answer import TorchAnswer  # noqa: PLC0415 - torch may be absent

        answer, found = TorchAnswer(job, self.model, 64), []
        while not answer.done:
            piece = answer.turn()
            found += (piece.logprobs or []) if piece is not None else []
        return found, answer.stats

    def logits(self, ids):
        return self.model.forward(ids, rows=len(ids)).numpy()


@pytest.fixture(scope="module", params=backends())
def over(request):
    return {"mlx": OverMlx, "torch": OverTorch}[request.param]


@pytest.fixture(scope="module", params=["tiny", "tiny-hybrid"])
def engine(request, over):
    return over(request.param)


def reported(engine, ids, **options):
    """Return what an answer reports, and how many of its tokens were drafted."""
    given = Options(32, logprobs=ALTERNATIVES, **options)
    found, stats = engine.answer(Job(0, engine.model.name, ids, given, lambda _: None, math.inf))
    return found, stats.accepted


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
def test_logprobs_are_those_of_the_finished_answer(engine, draft, options):
    ids = engine.model.encode(TEXT)
    found, accepted = reported(engine, ids, draft=draft, **options)
    tokens = [token for token, _, _ in found]
    logits = engine.logits(ids + tokens)[len(ids) - 1 : -1].astype(np.float64)
    expected = logits - np.log(np.exp(logits - logits.max(-1, keepdims=True)).sum(-1, keepdims=True))
    expected -= logits.max(-1, keepdims=True)
    for row, (token, logprob, best) in zip(expected, found, strict=True):
        assert logprob == pytest.approx(row[token], abs=1e-4)
        likeliest = np.sort(row)[::-1][:ALTERNATIVES].tolist()
        assert [value for _, value in best] == pytest.approx(likeliest, abs=1e-4)
        assert [value for _, value in best] == pytest.approx([row[each] for each, _ in best], abs=1e-4)
    if draft not in ("lookup", "auto"):  # which may find none
        assert (accepted > 0) == (draft in engine.drafts)
