import random

from engine.dflash.propose.lookup import Lookup


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
    assert found.feed([7]) == [(5, False)]
    assert (found.propose(2), found.length) == ([], 0)


def test_the_latest_occurrence_counts():
    assert fed([1, 2, 3, 4, 1, 2, 3, 5, 1, 2, 3]).propose(1) == [5]


def test_the_longest_agreement_counts_then_the_latest():
    assert fed([1, 2, 3, 4, 2, 3]).propose(2) == [4, 2]
    found = fed([1, 2, 3, 4, 9, 3, 5, 2, 3])
    assert (found.propose(1), found.length) == ([4], 2)
    assert fed([7, 8, 7]).propose(1) == [8]
    assert fed([7, 8, 9]).propose(1) == []
    assert fed([7, 8, 7], ngram=1).length == 1
    assert fed([]).propose(4) == []


def test_a_match_that_agrees_for_longer_replaces_another():
    found = fed([1, 2, 3, 4, 8, 3, 5, 6, 1, 2])
    assert found.feed([3]) == [(2, True)]
    assert (found.propose(1), found.length) == ([4], 3)
    found = fed([3, 5, 6, 1, 2, 3, 4, 9, 1, 3, 5])  # 3, 5 was found by 3, whose last was before 4
    assert (found.propose(1), found.length) == ([6], 2)


def test_how_matches_went_on_is_told_for_each_token():
    found = Lookup()
    assert found.feed([1, 2, 1, 2, 5]) == [(1, True), (2, False)]
    assert found.feed([7]) == []


def test_a_loop_is_continued_beyond_what_is_known():
    assert fed([1, 2, 3, 1, 2, 3]).propose(7) == [1, 2, 3, 1, 2, 3, 1]
    assert fed([5, 5, 5, 5]).propose(3) == [5, 5, 5]


def test_feeding_one_by_one_is_feeding_at_once():
    rng = random.Random(0)
    tokens = [rng.randint(0, 3) for _ in range(400)]
    whole, parts = fed(tokens), Lookup()
    for i, token in enumerate(tokens):
        proposed, n = parts.propose(1), parts.length
        if proposed:
            seen = tokens[:i]
            assert seen[-n:] + proposed in [seen[j : j + n + 1] for j in range(i - n)]
        assert parts.feed([token]) == ([(n, proposed == [token])] if proposed else [])
    assert parts.propose(9) == whole.propose(9)
