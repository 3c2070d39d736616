"""The rounds of an answer that a :class:`Guide` watches over: as those of the loop, with the host looking on.

Drafts are read before they are verified, and cut at the first that the grammar refuses. That one is still judged,
with probability 0: it is always refused, and the token in its place comes from the residual, so sampling stays
that of the target's (guided) distribution.
"""

from collections.abc import Iterator
from typing import Any

from engine.dflash.generation import Run
from engine.dflash.propose.adaptive import Plan
from engine.dflash.propose.estimates import PLAIN
from engine.dflash.step import Step
from engine.mx import mx
from engine.serve.guide import Guide

Reported = list[tuple[int, float, list[tuple[int, float]]]] | None


def guided_rounds(run: Run, guide: Guide) -> Iterator[tuple[Step, Reported]]:
    """Yield the rounds of a run that has read its prompt, and the log-probabilities that were asked for."""
    while run.finish_reason is None:
        plan = run.plan()
        if plan.drafter == PLAIN:
            for _ in range(plan.size):
                yield _round(run, guide, Plan(PLAIN, 1), mx.zeros((1, 0), mx.int32), None)
                run.clock.restart()
                if run.finish_reason is not None or run.tempted:
                    break
        else:
            drafts, drawn_from = run.propose(plan)
            run.clock.lap("draft")
            yield _round(run, guide, plan, drafts, drawn_from)
            run.clock.restart()


def _round(run: Run, guide: Guide, plan: Plan, drafts: Any, drawn_from: Any) -> tuple[Step, Reported]:
    match = run.match
    proposed = run.read(drafts)[0] if drafts.shape[1] else []
    fit = guide.cut(proposed)
    logits, taps = run.forward(mx.concatenate([run.pending, drafts[:, :fit]], axis=1))
    shaped = guide.shape(logits, proposed[:fit], run.room)
    judged, rows = fit, shaped
    if fit < len(proposed):  # the refused draft is judged too, on a row of its own that is never reached
        judged, rows = fit + 1, mx.concatenate([shaped, shaped[:, -1:]], axis=1)
        if run.sampler.greedy:
            judged, rows = fit, shaped
    drawn = None if drawn_from is None else drawn_from[:, :judged]
    accepted, following = run.sampler.judge(rows, drafts[:, :judged], drawn)
    n, last = run.read(mx.concatenate([accepted, following.astype(mx.int32)]))
    run.clock.lap("verify")
    tokens, text = run.take(guide.until_end([*proposed[:n], last]))
    run.keep(len(tokens), taps)
    guide.commit(tokens)
    if guide.ended and run.finish_reason is None:
        run.finish_reason, text = "stop", text + run.stops.flush()
    if guide.landed and run.finish_reason == "stop":
        run.finish_reason = "length"
    told = guide.report(logits, tokens)
    return run.report(plan, match, n, tokens, text), told
