"""Drafts for several generations at once: each gets what it would get alone, and its context goes on the same."""

import pytest

from engine.dflash.propose.proposer import Proposer, Wanted, batched_drafts, can_share
from engine.dflash.sampling import Sampler, Sampling
from engine.models import load
from engine.mx import mx
from tests.engine.runs import begun

LENGTHS = (20, 200, 131, 65)  # some end within a chunk, whose taps wait; some go beyond the window
SIZES = (7, 3, 15, 1)


@pytest.fixture(scope="module", params=["tiny", "tiny-hybrid"])
def pair(request):
    return load(request.param, dtype="float32")


def started(pair, length, sampling=Sampling()):  # noqa: B008 - frozen
    return begun(pair, [3 + i * 7 % 2000 for i in range(length)], sampler=Sampler(sampling, 7))


def wanted(runs):
    return [
        Wanted(run.proposer, run.pending, size, run.sampler) for run, size in zip(runs, SIZES, strict=True)
    ]


@pytest.mark.rows(1)
def test_each_gets_what_it_would_get_alone(pair):
    runs, same = ([started(pair, length) for length in LENGTHS] for _ in range(2))
    assert can_share([run.proposer for run in runs])
    for _ in range(3):  # later rounds stand on what the first left in the contexts, and on taps of few tokens
        together = batched_drafts(wanted(runs))
        for run, alone, each, (drafts, drawn_from) in zip(runs, same, wanted(same), together, strict=True):
            expected, _ = alone.proposer.propose(alone.pending, each.n, alone.sampler)
            assert (drafts == expected).all()
            assert drawn_from is None
            assert run.proposer.unread.offset == alone.proposer.unread.offset
            for held, own in zip(run.proposer.unread.layers, alone.proposer.unread.layers, strict=True):
                assert (held.start, held.end) == (own.start, own.end)
                for a, b in zip(held.buffers, own.buffers, strict=True):
                    kept = slice(held.start, held.end)
                    assert mx.allclose(a[:, :, kept], b[:, :, kept], atol=1e-3)
            for other in (run, alone):
                _, taps = other.forward(mx.concatenate([other.pending, expected], axis=1))
                other.keep(2, taps)
                other.pending = expected[:, :1]


def test_sampled_drafts_come_with_what_they_were_drawn_from(pair):
    runs = [started(pair, length, Sampling(temperature=0.8)) for length in LENGTHS[:2]]
    some = [Wanted(run.proposer, run.pending, 5, run.sampler) for run in runs]
    for drafts, drawn_from in batched_drafts(some):
        assert drafts.shape == (1, 5)
        assert mx.allclose(drawn_from.sum(-1), mx.ones((1, 5)), atol=1e-4)
        assert (mx.take_along_axis(drawn_from, drafts[..., None], axis=-1) > 0).all()


def test_drafters_that_cannot_share(pair):
    other = load("tiny-hybrid" if pair.name == "tiny" else "tiny", dtype="float32")
    ours, theirs = Proposer(pair.draft, pair.target), Proposer(other.draft, other.target)
    assert not can_share([ours, theirs])
    assert not can_share([ours, None])
    assert can_share([ours, Proposer(pair.draft, pair.target)])
