import random

import pytest

from engine.dflash.propose.answers import LONGEST, NGRAMS, Answers
from engine.dflash.propose.lookup import Lookup

NGRAM = NGRAMS[-1]
FILE = list(range(100, 300))


def kept(*answers, most=10_000):
    made = Answers(most)
    for answer in answers:
        made.add(answer)
    return made


def test_what_followed_in_an_earlier_answer_is_drafted():
    lookup = Lookup(answers=kept(FILE))
    lookup.feed([1, 2, *FILE[:NGRAM]])
    assert (lookup.length, lookup.propose(3)) == (NGRAM, FILE[NGRAM : NGRAM + 3])
    assert lookup.feed(FILE[NGRAM : NGRAM + 2]) == [(NGRAM, True), (NGRAM + 1, True)]
    assert lookup.feed([7]) == [(NGRAM + 2, False)]
    assert (lookup.length, lookup.propose(3)) == (0, [])


def test_too_short_an_agreement_is_none():
    lookup = Lookup(answers=kept(FILE))
    lookup.feed([1, 2, *FILE[: NGRAM - 1]])
    assert lookup.length == 0


def test_an_answer_that_ends_ends_the_match():
    lookup = Lookup(answers=kept(FILE))
    lookup.feed([1, *FILE[-NGRAM - 2 : -2]])
    assert lookup.propose(16) == FILE[-2:]
    assert [right for _, right in lookup.feed(FILE[-2:])] == [True, True]
    assert lookup.length == 0
    assert lookup.feed([5]) == []


def test_the_longest_agreement_counts_then_the_newest():
    tail = [1, 2, 3, 4, 5]
    answers = kept([9, *tail, 10], [8, *tail, 20], [9, *tail, 30])
    assert [answers.find([8, *tail]).text[6], answers.find([9, *tail]).text[6]] == [20, 30]
    lookup = Lookup(answers=answers)
    lookup.feed([7, *tail, 40, 8, *tail])  # agrees with the prompt for five tokens only
    assert (lookup.length, lookup.propose(1)) == (6, [20])
    lookup.feed([50, 6, *tail, 60, 6, *tail])
    assert (lookup.length, lookup.propose(1)) == (6, [60])


def test_a_loop_is_continued_beyond_the_end_of_an_earlier_answer():
    loop = [1, 2, 3, 4, 5] * 20
    lookup, rounds, said = Lookup(answers=kept([8, 9, *loop])), 0, [8, 9, *loop, *loop]
    lookup.feed([7])
    while said:
        right = [draft for draft, token in zip(lookup.propose(15), said, strict=False) if draft == token]
        tokens, said = said[: len(right) + 1], said[len(right) + 1 :]
        lookup.feed(tokens)
        rounds += 1
    assert rounds < 25  # 202 tokens


def test_of_occurrences_in_the_prompt_the_longest_agreement_counts():
    lookup = Lookup()
    lookup.feed([9, 8, 1, 2, 3, 4, 7, 7, 1, 2, 3, 5, 9, 8, 1, 2, 3])
    assert (lookup.length, lookup.propose(1)) == (5, [4])


@pytest.mark.parametrize("most", [0, 1, NGRAM, NGRAM + 1, 50, 1000])
def test_memory_is_bounded_and_the_oldest_are_forgotten(most):
    rng = random.Random(most)
    answers, added = Answers(most), []
    for _ in range(60):
        added.append([rng.randint(0, 2) for _ in range(rng.randint(0, 80))])
        answers.add(added[-1])
        assert answers.size <= most
    if most < 1000:
        return
    newest, reach = [], 0
    for answer in reversed(added):
        reach += len(answer)
        if reach > most:
            break
        newest.append(answer)
    for answer in newest:
        if len(answer) > NGRAM:
            match = answers.find(answer[:-1])
            assert match is not None
            assert match.length >= min(LONGEST, NGRAM)
            text, at, length = match
            assert list(text[at - length : at]) == answer[:-1][-length:]


def test_forgotten_answers_are_drafted_from_no_more():
    answers = kept(FILE, range(1000, 1200), most=250)
    assert answers.find(FILE[:10]) is None
    assert answers.find(list(range(1000, 1010))).next == 10
    assert kept(range(500), most=100).find(list(range(450, 460))).length == 10  # its end is kept


def test_feeding_one_by_one_is_right_whatever_the_answers():
    rng = random.Random(3)
    answers = kept(*([rng.randint(0, 3) for _ in range(50)] for _ in range(20)))
    lookup, tokens = Lookup(answers=answers), []
    for _ in range(500):
        proposed, length = lookup.propose(1), lookup.length
        token = rng.randint(0, 3)
        assert lookup.feed([token]) == ([(length, proposed == [token])] if proposed else [])
        tokens.append(token)
        assert lookup.tokens == tokens
        assert bool(lookup.propose(1)) == bool(lookup.length)
