"""Rounds of an answer that can share forward passes with other answers, and that a ``Guide`` can constrain.

While an answer is alone and has no guide, the rounds of ``engine.dflash.loop`` run unchanged. Otherwise a round
requests its forward pass and waits, so that the caller can compute several rounds at once.

With a grammar, drafts are checked before they are verified, and cut at the first one that the grammar refuses. That
draft is still verified, with probability 0: it is always rejected, and its replacement is sampled from the residual. So
samples still have the target's (constrained) distribution.
"""

from collections.abc import Callable, Generator
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from engine.dflash import loop
from engine.dflash.generation import Run
from engine.dflash.kinds import KINDS
from engine.dflash.propose.adaptive import Fixed, Policy, RoundPlan
from engine.dflash.propose.costs import PLAIN
from engine.dflash.step import Step
from engine.mx import mx
from engine.serve.scheduler.guide import Alternatives, Guide

T = TypeVar("T")
Reported = list[tuple[int, float, Alternatives]] | None


@dataclass(frozen=True, eq=False)
class Forward:
    """A forward pass that a round waits for. The round receives logits and taps."""

    run: Run
    tokens: mx.array  # [1, rows]


@dataclass(frozen=True, eq=False)
class Draft:
    """A round's request for drafts of the draft model. The round receives drafts and their distributions."""

    run: Run
    plan: RoundPlan


@dataclass(frozen=True, eq=False)
class Verdict:
    """The outcome of a forward pass that a round is about to read. Several outcomes are computed at once."""

    values: mx.array  # on the device


Awaited = Forward | Draft | Verdict


def rounds(
    run: Run,
    guide: Guide | None,
    alone: Callable[[], bool],
    shared: Policy,
    output: Callable[[Step, Reported], T],
    *,
    sharing: bool,
) -> Generator[T | Awaited, Any, None]:
    """Yield the output of each round of a run that has read its prompt, and the forwards and drafts that they wait for.

    ``alone`` returns whether no other answer is being decoded; ``shared`` is the policy if one is, because a shared
    round has another cost. ``output`` makes the output of a step and its log-probabilities. ``sharing`` says whether
    drafts may come from a shared forward pass, which changes them by rounding.
    """
    lone = run.policy
    shared.begin()
    while run.finish_reason is None:
        run.policy = lone if alone() else shared
        if alone() or isinstance(shared, Fixed):
            plan = run.plan()
        else:  # in shared forward passes, the draft model's drafts cost more than they save; lookups cost nothing
            plan = run.policy.choose(run.room, run.blocks[0], run.match, model=0)
        if guide is None and alone():
            if plan.drafter == PLAIN:
                for step in loop.plain(run, plan, alone):
                    yield output(step, None)
            else:
                yield output(loop.speculate(run, plan), None)
        else:
            yield output(*(yield from _round(run, guide, plan, sharing=sharing)))
        run.clock.restart()


def _round(
    run: Run, guide: Guide | None, plan: RoundPlan, *, sharing: bool
) -> Generator[Awaited, Any, tuple[Step, Reported]]:
    match, drawn_from, verified = run.match, None, None
    drafts = mx.zeros((1, 0), mx.int32)
    if plan.drafter == PLAIN:
        plan = RoundPlan(PLAIN, 1)
    else:
        shared = sharing and plan.drafter in KINDS
        drafts, drawn_from = (yield Draft(run, plan)) if shared else run.propose(plan)
        plan = replace(plan, size=drafts.shape[1])  # an unsure drafter returns fewer drafts
        run.clock.lap("draft")
    if guide is None:
        verified_ids = mx.concatenate([run.pending, drafts], axis=1)
        logits, taps = yield Forward(run, verified_ids)
        verdict = run.judge(logits, drafts, drawn_from)
        yield Verdict(verdict)
        n, last, proposed = run.outcome(verdict)
        committed = [*proposed[:n], last]
    else:
        proposed = run.read(drafts[0]) if drafts.shape[1] else []
        fit = guide.cut(proposed)
        verified = fit if fit < len(proposed) else None
        verified_ids = mx.concatenate([run.pending, drafts[:, :fit]], axis=1)
        logits, taps = yield Forward(run, verified_ids)
        judged, rows = fit, guide.shape(logits, proposed[:fit])
        if fit < len(proposed) and not run.sampler.greedy:
            # The row after the refused draft is never used, so any row will do.
            judged, rows = fit + 1, mx.concatenate([rows, rows[:, -1:]], axis=1)
        drawn = None if drawn_from is None else drawn_from[:, :judged]
        accepted, following = run.sampler.accept(rows, drafts[:, :judged], drawn)
        verdict = mx.concatenate([accepted, following.astype(mx.int32)])
        yield Verdict(verdict)
        n, last = run.read(verdict)
        committed = guide.until_end([*proposed[:n], last], run.room)
    run.clock.lap("verify")
    tokens, text = run.take(committed)
    run.keep(len(tokens), taps, verified_ids)
    reported = None
    if guide is not None:
        text += _watched(run, guide, tokens)
        reported = guide.report(logits, tokens)
    return run.report(plan, match, n, tokens, text, verified), reported


def _watched(run: Run, guide: Guide, tokens: tuple[int, ...]) -> str:
    """Pass the committed tokens to the guide. Returns the text that was held back, if the answer ends."""
    text = ""
    guide.commit(tokens)
    if guide.ended and run.finish_reason is None:
        run.finish_reason, text = "stop", run.stops.flush()
    if guide.ended and run.finish_reason == "length":
        run.finish_reason = "stop"  # complete with its last token
    if guide.forced_to_end and run.finish_reason == "stop":
        run.finish_reason = "length"
    return text
