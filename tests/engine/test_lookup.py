import random

from engine.dflash.lookup import Lookup


def fed(tokens, **options):
    made = Lookup(**options)
    made.feed(tokens)
    return made


def test_what_followed_last_time():
    found = fed([1, 2, 3, 4, 5, 9, 1, 2, 3])
    assert found.propose(3) == [4, 5, 9]
    assert found.length == 3
    found.feed([4, 5])
    assert (found.propose(2), found.length) == ([9, 1], 5)
    found.feed([7])
    assert (found.propose(2), found.length) == ([], 0)


def test_the_latest_occurrence_counts():
    assert fed([1, 2, 3, 4, 1, 2, 3, 5, 1, 2, 3]).propose(1) == [5]


def test_too_little_agreement_proposes_nothing():
    assert fed([1, 2, 3, 4, 2, 3]).propose(4) == []
    assert fed([1, 2, 3, 4, 2, 3], ngram=2).propose(2) == [4, 2]
    assert fed([]).propose(4) == []


def test_a_loop_is_continued_beyond_what_is_known():
    assert fed([1, 2, 3, 1, 2, 3]).propose(7) == [1, 2, 3, 1, 2, 3, 1]
    assert fed([5, 5, 5, 5]).propose(3) == [5, 5, 5]


def test_feeding_one_by_one_is_feeding_at_once():
    rng = random.Random(0)
    tokens = [rng.randint(0, 3) for _ in range(400)]
    whole, parts = fed(tokens), Lookup()
    for i, token in enumerate(tokens):
        proposed = parts.propose(1)
        if proposed:
            seen = tokens[:i]
            assert seen[-3:] + proposed in [seen[j : j + 4] for j in range(i - 3)]
        parts.feed([token])
    assert parts.propose(9) == whole.propose(9)


def test_grams_that_share_a_hash_are_told_apart():
    assert hash((-1, 0, 0)) == hash((-2, 0, 0))
    assert fed([-1, 0, 0, 7, -2, 0, 0]).propose(1) == []
