import numpy as np
import pytest

from engine.dflash.sampling import Sampler, Sampling
from engine.errors import BadInput
from engine.mx import mx

VOCABULARY, MANY = 5, 40_000
LOGITS = mx.array([[2.0, 1.5, 0.0, -0.5, -1.0], [0.0, 1.0, 0.5, 2.0, -2.0], [1.0, 1.0, 1.0, 0.0, 1.5]])
DRAFTER = mx.array([[0.0, 1.0, 2.0, 0.0, 0.0], [1.0, 1.0, -1.0, 0.0, 1.0]])
SETTINGS = [
    Sampling(1.0),
    Sampling(0.7, top_p=0.8),
    Sampling(1.3, top_k=3),
    Sampling(1.0, min_p=0.2),
    Sampling(0.9, top_k=4, top_p=0.9, min_p=0.05),
]


def many(rows):
    return mx.broadcast_to(rows, (MANY, *rows.shape))


def deviation(counts, probabilities):
    """Return chi-square in standard deviations from its mean; what cannot occur must not have occurred."""
    expected = probabilities * counts.sum()
    assert not counts[expected == 0].any()
    counts, expected = counts[expected > 0], expected[expected > 0]
    freedom = counts.size - 1
    return (((counts - expected) ** 2 / expected).sum() - freedom) / np.sqrt(2 * freedom)


@pytest.mark.parametrize("drawn", [True, False], ids=["drawn", "looked up"])
@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_whatever_is_drafted_the_tokens_are_the_targets(settings, drawn):
    sampler = Sampler(settings, seed=1)
    drafts, drawn_from = sampler.draw(many(DRAFTER)) if drawn else (many(mx.array([1, 3])), None)
    accepted, following = (np.array(x) for x in sampler.accept(many(LOGITS), drafts, drawn_from))
    drafts, p = np.array(drafts), np.array(settings.probabilities(LOGITS))
    rng = np.random.default_rng(0)
    # Where the first draft was refused, the second position is left to a later round: drawn here by numpy.
    later = rng.choice(VOCABULARY, MANY, p=p[1] / p[1].sum())
    first = np.where(accepted > 0, drafts[:, 0], following)
    second = np.choose(accepted, [later, following, drafts[:, 1]])
    pairs = np.bincount(first * VOCABULARY + second, minlength=VOCABULARY**2)
    assert abs(deviation(pairs, np.outer(p[0], p[1]).ravel())) < 5
    bonus = np.bincount(following[accepted == 2], minlength=VOCABULARY)
    assert abs(deviation(bonus, p[2])) < 5


@pytest.mark.parametrize("temperature", [1e-6, 1e-30, 5e-324])
def test_the_smallest_temperature_leaves_the_likeliest(temperature):
    found = np.array(Sampling(temperature, top_k=4, top_p=0.9, min_p=0.1).probabilities(1e9 * LOGITS))
    assert found.tolist() == np.eye(VOCABULARY)[[0, 3, 4]].tolist()


def test_acceptance_is_the_overlap():
    settings = Sampling(1.0)
    sampler = Sampler(settings, seed=3)
    accepted, _ = sampler.accept(many(LOGITS), *sampler.draw(many(DRAFTER)))
    p, q = (np.array(settings.probabilities(x)) for x in (LOGITS[:1], DRAFTER[:1]))
    assert (np.array(accepted) > 0).mean() == pytest.approx(np.minimum(p, q).sum(), abs=0.01)


def test_a_drafter_like_the_target_is_always_right():
    sampler = Sampler(Sampling(1.0, top_k=3), seed=4)
    accepted, _ = sampler.accept(many(LOGITS), *sampler.draw(many(LOGITS[:2])))
    assert mx.all(accepted == 2).item()


def test_greedy_keeps_what_the_target_would_have_said():
    sampler = Sampler(Sampling())
    likeliest = [0, 3, 4]
    for drafts, accepted, following in [
        ([0, 3], 2, 4),
        ([0, 1], 1, 3),
        ([2, 3], 0, 0),
        ([], 0, 0),
    ]:
        rows = LOGITS[None, : len(drafts) + 1]
        found = sampler.accept(rows, mx.array([drafts], mx.int32))
        assert [x.item() for x in found] == [accepted, following]
    assert sampler.draw(LOGITS)[0].tolist() == likeliest
    assert sampler.draw(LOGITS)[1] is None


def test_filters():
    row = mx.log(mx.array([0.4, 0.3, 0.2, 0.1]))

    def kept(**filters):
        return np.array(Sampling(1.0, **filters).probabilities(row)).astype(float).round(3).tolist()

    assert kept() == [0.4, 0.3, 0.2, 0.1]
    assert kept(top_k=2) == [0.571, 0.429, 0, 0]
    assert kept(top_k=9) == [0.4, 0.3, 0.2, 0.1]
    assert kept(top_p=0.65) == [0.571, 0.429, 0, 0]
    assert kept(top_p=0.75) == [0.444, 0.333, 0.222, 0]
    assert kept(top_p=1e-6) == [1, 0, 0, 0]
    assert kept(min_p=0.6) == [0.571, 0.429, 0, 0]
    assert np.array(Sampling(0.5).probabilities(row)).astype(float).round(3).tolist() == [
        0.533,
        0.3,
        0.133,
        0.033,
    ]


def test_a_seed_repeats_and_the_global_state_is_neither_read_nor_moved():
    def drawn(seed):
        sampler = Sampler(Sampling(1.0), seed)
        return [sampler.draw(many(LOGITS[:1]))[0].sum().item() for _ in range(2)]

    mx.random.seed(0)
    before = mx.random.state[0].tolist()
    first, again, other = drawn(7), drawn(7), drawn(8)
    assert first == again != other
    assert first[0] != first[1]
    assert mx.random.state[0].tolist() == before
    assert drawn(None) != drawn(None)


@pytest.mark.parametrize(
    "wrong",
    [
        {"temperature": -1},
        {"temperature": float("nan")},
        {"temperature": float("inf")},
        {"top_k": -1},
        {"top_p": 0},
        {"top_p": 1.1},
        {"min_p": -0.1},
        {"min_p": 1.1},
    ],
    ids=str,
)
def test_settings_out_of_range(wrong):
    with pytest.raises(BadInput, match=next(iter(wrong))):
        Sampling(**wrong)
