"""Generations that a test advances by hand."""

from engine.cache import make_caches
from engine.dflash.generation import Run
from engine.dflash.propose.adaptive import Fixed
from engine.dflash.propose.proposer import Proposer
from engine.dflash.rollback import rollback_for
from engine.dflash.sampling import Sampler, Sampling
from engine.dflash.stops import Stops


def begun(pair, ids, spec="raw", *, sampler=None):
    """Return a run over caches of a spec that has read the prompt, with the pair's drafter if it has one."""
    caches = make_caches(pair.target, spec)
    run = Run(
        pair.target,
        caches,
        rollback=rollback_for(caches, "auto", pair.target),
        proposer=Proposer(pair.draft, pair.target) if pair.draft else None,
        lookup=None,
        sampler=sampler or Sampler(Sampling()),
        stops=Stops(None, ()),
        policy=Fixed(),
        room=1000,
        blocks=(16, 16),
    )
    for _ in run.reading(ids, 64):
        pass
    return run
