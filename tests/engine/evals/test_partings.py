"""An answer of the server that is not the single client's: its row says where they part and how near the tokens are."""

import pytest

from engine.cache import make_caches
from engine.evals.serve_conformance import CHUNK, Answer, add_divergences
from engine.mx import mx, number
from engine.serve.resident import load_resident

PROMPT = "def read_lines(path):\n"
LENGTH = 6


@pytest.fixture(scope="module")
def resident():
    return load_resident("tiny", "none", "float32")


@pytest.fixture(scope="module")
def greedy(resident):
    """The plain greedy tokens, and the logits before each."""
    target, caches = resident.pair.target, make_caches(resident.pair.target, "raw")
    ids, tokens, logits = resident.encode(PROMPT), [], []
    assert len(ids) <= CHUNK
    for _ in range(LENGTH):
        logits.append(target(mx.array(ids)[None], cache=caches)[0, -1])
        ids = [int(number(mx.argmax(logits[-1])))]
        tokens += ids
    return tokens, logits


def answer(tokens, question=0):
    return Answer({"cache": "raw", "form": "free", "question": question}, PROMPT, tokens)


def parted(resident, alone, other):
    answers = [answer(alone), answer(other)]
    add_divergences(answers, resident)
    assert "divergence" not in answers[0].row
    return answers[1].row


def test_equal_tokens_have_no_divergence(resident, greedy):
    assert "divergence" not in parted(resident, greedy[0], list(greedy[0]))


def test_another_question_is_not_compared(resident, greedy):
    answers = [answer(greedy[0]), answer(greedy[0][::-1], question=1)]
    add_divergences(answers, resident)
    assert all("divergence" not in each.row for each in answers)


@pytest.mark.parametrize("at", [0, 3, LENGTH - 1])
def test_another_token_is_told_with_both_logits(resident, greedy, at):
    tokens, logits = greedy
    worse = int(number(mx.argmin(logits[at])))
    other = [*tokens[:at], worse, *tokens[at + 1 :]]

    found = parted(resident, tokens, other)["divergence"]

    assert (found["index"], found["ours"], found["theirs"]) == (at, other, tokens)
    assert [token for token, _ in found["best"]] == [tokens[at], worse]
    expected = [number(logits[at][token]) for token in (tokens[at], worse)]
    assert [logit for _, logit in found["best"]] == pytest.approx(expected, abs=1e-3)
    assert found["margin"] == pytest.approx(expected[0] - expected[1], abs=1e-3)
    assert (found["kind"], found["rounding"] > 0) == ("fault", True)


def test_the_beginning_of_an_answer_is_no_near_tie(resident, greedy):
    assert parted(resident, greedy[0], greedy[0][:4])["divergence"] is None
