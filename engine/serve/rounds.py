"""The rounds of an answer that may share its forwards with others, and that a :class:`Guide` may watch over.

They are those of :mod:`engine.dflash.loop`, which run by themselves while an answer is alone and unguided. Otherwise
a round asks for its forward and waits, so that whoever advances the answers can run several rounds at once.

Under a grammar drafts are read before they are verified, and cut at the first that it refuses. That one is still
judged, with probability 0: it is always refused, and the token in its place comes from the residual, so sampling
stays that of the target's (guided) distribution.
"""

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any

from engine.dflash import loop
from engine.dflash.generation import Run
from engine.dflash.propose.adaptive import Adaptive, Fixed, RoundPlan
from engine.dflash.propose.estimates import PLAIN, Measured
from engine.dflash.step import Step
from engine.mx import mx
from engine.serve.guide import Alternatives, Guide

LONE = 16  # plain tokens after which an answer that is alone looks whether it still is

Reported = list[tuple[int, float, Alternatives]] | None
Made = tuple[Step, Reported]


@dataclass(frozen=True, eq=False)
class Forward:
    """A forward that a round waits for; it is sent logits and taps.

    Attributes:
        run: whose round it is.
        tokens: what to run, ``[1, rows]``.
    """

    run: Run
    tokens: mx.array


def rounds(run: Run, guide: Guide | None, alone: Callable[[], bool]) -> Generator[Made | Forward, Any, None]:
    """Yield the rounds of a run that has read its prompt, and the forwards that they wait for."""
    lone = shared = run.policy
    if isinstance(lone, Adaptive) and isinstance(lone.costs, Measured):
        shared = Adaptive()  # a round costs something else when it is shared
    while run.finish_reason is None:
        run.policy = lone if alone() else shared
        if alone() or isinstance(shared, Fixed):
            plan = run.plan()
        else:  # drafters run for each answer by itself, which costs more than a shared forward saves
            plan = run.policy.choose(run.room, run.block, run.match, model=False)
        if guide is None and alone():
            if plan.drafter == PLAIN:
                for step in loop.plain(run, RoundPlan(PLAIN, min(plan.size, LONE))):
                    yield step, None
            else:
                yield loop.speculate(run, plan), None
        else:
            yield (yield from _round(run, guide, plan))
        run.clock.restart()


def _round(run: Run, guide: Guide | None, plan: RoundPlan) -> Generator[Forward, Any, Made]:
    match, drawn_from = run.match, None
    drafts = mx.zeros((1, 0), mx.int32)
    if plan.drafter == PLAIN:
        plan = RoundPlan(PLAIN, 1)
    else:
        drafts, drawn_from = run.propose(plan)
        run.clock.lap("draft")
    if guide is None:
        logits, taps = yield Forward(run, mx.concatenate([run.pending, drafts], axis=1))
        accepted, following = run.sampler.judge(logits, drafts, drawn_from)
        n, last, *proposed = run.read(mx.concatenate([accepted, following.astype(mx.int32), drafts[0]]))
        committed = [*proposed[:n], last]
    else:
        proposed = run.read(drafts[0]) if drafts.shape[1] else []
        fit = guide.cut(proposed)
        logits, taps = yield Forward(run, mx.concatenate([run.pending, drafts[:, :fit]], axis=1))
        judged, rows = fit, guide.shape(logits, proposed[:fit], run.room)
        if fit < len(proposed) and not run.sampler.greedy:
            # The refused draft is judged on a row that is never reached.
            judged, rows = fit + 1, mx.concatenate([rows, rows[:, -1:]], axis=1)
        drawn = None if drawn_from is None else drawn_from[:, :judged]
        accepted, following = run.sampler.judge(rows, drafts[:, :judged], drawn)
        n, last = run.read(mx.concatenate([accepted, following.astype(mx.int32)]))
        committed = guide.until_end([*proposed[:n], last])
    run.clock.lap("verify")
    tokens, text = run.take(committed)
    run.keep(len(tokens), taps)
    told = None
    if guide is not None:
        text += _watched(run, guide, tokens)
        told = guide.report(logits, tokens)
    return run.report(plan, match, n, tokens, text), told


def _watched(run: Run, guide: Guide, tokens: tuple[int, ...]) -> str:
    """Tell the guide what was committed; return the text that its end sets free."""
    text = ""
    guide.commit(tokens)
    if guide.ended and run.finish_reason is None:
        run.finish_reason, text = "stop", run.stops.flush()
    if guide.landed and run.finish_reason == "stop":
        run.finish_reason = "length"
    return text
