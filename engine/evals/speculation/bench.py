"""Compares speculative with plain decoding: the same prompts, interleaved arms, every run in the report."""

import functools
import itertools
import statistics
from collections.abc import Collection, Iterator, Sequence
from dataclasses import asdict, replace
from typing import Any

from bridge.reports import kinds
from bridge.reports.claims.decoding import paired_speedups
from bridge.reports.counted import CountedRows
from engine.cache import make_caches
from engine.dflash.divergence import classify
from engine.dflash.kinds import KINDS
from engine.dflash.rollback import rollback_for
from engine.dflash.step import AcceptanceWatch, Step
from engine.errors import BadInput, MissingPackage
from engine.evals.speculation.arms import (
    OUR_LOOP,
    RESCALED,
    SpeculationArm,
    SpeculationPlan,
    incremental,
    is_stock,
    native,
    package_arm,
    speculative,
    verify1,
)
from engine.harness import rows
from engine.harness.arm import Turn, interleave
from engine.harness.job import Job, sections
from engine.harness.prompt_sets import CONTENT_CHANNEL, Prompt, Workload, encode
from engine.harness.steady import Further, is_tight, until_steady
from engine.harness.threads import Threads
from engine.models import Pair
from engine.mx import integers, mx, number

WORKLOAD = "prompts"
SAME = "both scalings of the embeddings are the same: the target multiplies them by 1"
DIGITS = 7  # decimal places of a round's seconds


def arms_of(pair: Pair, plan: SpeculationPlan) -> tuple[list[SpeculationArm], dict[str, str]]:
    """Return the arms of a plan, and the arms that are left out, with the reason.

    If the plan's cache is not one of mlx-lm's own, the baselines keep the raw cache. Then mlx-lm's generation over the
    plan's cache is a further arm, whose tokens our loop over that cache has to repeat.
    """
    stock = plan.cache if is_stock(plan.cache) else "raw"
    ends = not plan.fixed_length
    arms = [native(pair, stock, ends=ends), verify1(pair, stock, ends=ends)]
    if stock != plan.cache:
        arms.append(native(pair, plan.cache, ends=ends))
    arms.append(incremental(pair, plan.cache, ends=ends))
    left_out = {}
    for rollback, drafter in itertools.product(plan.rollbacks, plan.drafters):
        name = f"{drafter}/{rollback}"
        drafting = pair.rescaled() if drafter == RESCALED else pair
        if drafter != "lookup" and pair.draft is None:
            left_out[name] = "no draft model"
            continue
        if drafting is None:
            left_out[name] = SAME
            continue
        try:
            rollback_for(make_caches(pair.target, plan.cache), rollback, pair.target)
        except BadInput as error:
            left_out[name] = error.message
            continue
        try:
            arms += [speculative(drafting, drafter, rollback, plan, loop) for loop in plan.loops]
        except MissingPackage as error:
            left_out[name] = f"{error.message}; {error.fix}"
    if plan.package and plan.cache == "raw" and ends and (package := package_arm(pair, plan.block)):
        arms.append(package)
    return arms, left_out


def further(arms: Sequence[SpeculationArm], prompts: Sequence[Prompt], plan: SpeculationPlan) -> Further:
    """Return further turns: repeats until times and speed-ups are steady, then each drafting arm with a profile."""
    sections = [arm.section() for arm in arms]
    most = plan.max_repeats or plan.repeats
    more = until_steady(arms, prompts, plan.repeats, most, lambda measured: has_tight(measured, sections))

    def follow(measured: Sequence[rows.Row]) -> Iterator[list[Turn[SpeculationArm, Prompt]]]:
        last = plan.repeats
        for turns in more(measured):
            yield turns
            last += 1
        yield [Turn(arm, prompt, last + 1, profile=True) for prompt in prompts for arm in arms if arm.profile]

    return follow


def has_tight(measured: Sequence[rows.Row], arms: Sequence[dict[str, Any]]) -> bool:
    """Return whether each candidate's speed-up over the fastest plain loop is known within 5 %.

    This depends on how the paired quotients of all prompts and repeats spread around their prompt's median.
    """
    for prompts in paired_speedups(CountedRows(measured), arms).values():
        spread = [
            ratio / middle
            for ratios in prompts.values()
            if (middle := statistics.median(ratios.values()))
            for ratio in ratios.values()
        ]
        if spread and not is_tight(spread):
            return False
    return True


def row(
    turn: Turn[SpeculationArm, Prompt], most: int, ends: Collection[int], *, times: bool = False
) -> rows.Row:
    """Run a turn of at most ``most`` tokens, with stop tokens ``ends``; return its row without names."""
    arm = turn.arm
    decoded, steps = rows.decode(
        arm, turn.prompt.ids, most, ends, arm.make(turn.prompt), profile=turn.profile
    )
    decoded |= {"warmup": turn.profile or turn.repeat == 0, "text": "".join(step.text for step in steps)}
    if arm.role not in ("baseline", "verify1"):
        decoded |= rounds(steps, times=times and arm.loop == OUR_LOOP)
        decoded["counters"] |= arm.counted()
    return decoded | ({"profile": shares(steps)} if turn.profile else {})


def explain(
    measured: list[rows.Row],
    arms: Sequence[SpeculationArm],
    prompts: Sequence[Prompt],
    pair: Pair,
    chunk: int = rows.CHUNK,
) -> None:
    """Add to each row that differs from its oracle the position, and how close the oracle's logits are there.

    ``chunk`` is how many tokens of a prompt were read at once.
    """
    ids = {prompt.id: prompt.ids for prompt in prompts}
    about = {arm.name: arm for arm in arms}

    def turn_of(row: rows.Row) -> tuple[str, int, bool]:
        return row["prompt"], row["repeat"], row.get("warmup", False)  # not every kind of report has warm-ups

    tokens = {(row["arm"], *turn_of(row)): row["tokens"] for row in measured}

    @functools.cache
    def section(cache: str, prompt: str, ours: tuple[int, ...], theirs: tuple[int, ...]) -> dict[str, Any]:
        return divergence_section(pair, cache, ids[prompt], ours, theirs, chunk=chunk)

    for row in measured:
        turn, arm = turn_of(row), about[row["arm"]]
        theirs = tokens.get((arm.oracle, *turn)) or tokens.get((arm.oracle, turn[0], 0, True))
        if theirs is not None and row["tokens"] != theirs:
            row["divergence"] = section(arm.cache, row["prompt"], tuple(row["tokens"]), tuple(theirs))


def divergence_section(
    pair: Pair, cache: str, prompt: Sequence[int], ours: Sequence[int], theirs: Sequence[int],
    *, chunk: int = rows.CHUNK, parting: bool = False,
) -> dict[str, Any]:  # fmt: skip
    """Return the ``divergence`` of a row whose tokens differ from the oracle's ``theirs``.

    ``kind`` is that of ``engine.dflash.divergence.Divergence``. ``best`` holds the oracle's two likeliest tokens
    at the position with their logits; with ``parting``, the two tokens that were decoded there. ``chunk`` tokens of the
    prompt were read at once.
    """
    fresh = functools.partial(make_caches, pair.target, cache)
    divergence = classify(pair.target, fresh, prompt, ours, theirs, chunk=chunk)
    if divergence is None:
        raise ValueError("the tokens are equal")
    at, logits = divergence.position, divergence.logits
    best = integers(mx.argsort(-logits)[:2])
    if parting and divergence.kind != "length":
        best = sorted((theirs[at], ours[at]), key=lambda token: -number(logits[token]))
    return {
        "index": at,
        "best": [[token, number(logits[token])] for token in best],
        "kind": divergence.kind,
        "margin": divergence.margin,
        "rounding": divergence.rounding,
    }


def acceptance_warning(measured: Sequence[rows.Row]) -> str | None:
    """Return a warning if hardly any drafts were accepted in the arms that draft only with the draft model."""
    drafting = [row for row in measured if row["arm"].split("/")[0] in KINDS]
    proposed, accepted = (sum(sum(row[name]) for row in drafting) for name in ("drafted", "accepted"))
    return AcceptanceWatch().count(proposed, accepted)


def faults(measured: Sequence[rows.Row], arms: Sequence[SpeculationArm]) -> list[str]:
    """Return where our own arms decoded wrong tokens that no near tie explains."""
    ours = {arm.name: arm.oracle for arm in arms if arm.loop == OUR_LOOP}
    return sorted(
        {
            f"{row['arm']} on {row['prompt']} leaves {ours[row['arm']]} at token {row['divergence']['index']}"
            for row in measured
            if row["arm"] in ours and row.get("divergence", {"kind": "tie"})["kind"] != "tie"
        }
    )


def rounds(steps: Sequence[Step], *, times: bool = False) -> dict[str, Any]:
    """Return the figures of each round, and their sums; the package's first token comes from the prompt, not a round.

    With ``times``, also return each round's times: ``draft`` and ``verify`` until they were queued or, if the loop
    waits for the draft, computed; and ``wait`` for the outcome.
    """
    verified = [step for step in steps if step.tokens and step.drafter != "prefill"]
    drafters = [step.drafter for step in verified]
    syncs = {"syncs": steps[-1].syncs} if steps[-1].syncs else {}
    spans = {
        "draft": [step.timing.draft for step in verified],
        "verify": [step.timing.verify - step.timing.wait for step in verified],
        "wait": [step.timing.wait for step in verified],
    }
    timed = {name: [round(seconds, DIGITS) for seconds in each] for name, each in spans.items()}
    return ({"round_s": timed} if times else {}) | {
        "commits": [len(step.tokens) for step in verified],
        "drafted": [step.proposed for step in verified],
        "accepted": [step.accepted for step in verified],
        "counters": {
            "rounds": len(verified),
            **syncs,
            **{f"rounds_{name}": drafters.count(name) for name in sorted(set(drafters))},
        },
    }


def shares(steps: Sequence[Step]) -> dict[str, float]:
    """Return the shares of time for drafting, verifying and the rest."""
    parts = {
        name: sum(getattr(step.timing, name) for step in steps) for name in ("draft", "verify", "overhead")
    }
    whole = sum(parts.values()) or 1.0
    return {f"{name}_share": seconds / whole for name, seconds in parts.items()}


def speculation(
    pair: Pair,
    workloads: Sequence[Workload],
    plan: SpeculationPlan,
    *,
    chat: bool = False,
    kind: str = kinds.SPEC_BENCH,
    threads: Threads | None = None,
) -> tuple[Job, list[SpeculationArm]]:
    """Return the job that measures speculative and plain decoding, and its arms.

    ``kind`` is ``kakeya.spec-bench`` or ``kakeya.acceptance``: the same measurement of one workload or of several.

    Raises:
        BadInput: no arm drafts, because the pair has no drafter, or the model's caches cannot be rolled back.
    """
    arms, left_out = arms_of(pair, plan)
    if not any(arm.role == "candidate" for arm in arms):
        reasons = "; ".join(f"{name}: {reason}" for name, reason in left_out.items())
        raise BadInput(f"no drafter is left to measure ({reasons})", "choose other drafters or rollbacks")
    return _job(kind, pair, workloads, arms, plan, threads, chat=chat, left_out=left_out), arms


def baseline(
    pair: Pair,
    workload: Workload,
    plan: SpeculationPlan,
    *,
    chat: bool = False,
    threads: Threads | None = None,
) -> Job:
    """Return the job that measures only mlx-lm's own generation and one forward pass per token.

    Raises:
        BadInput: the cache is not one of mlx-lm's own.
    """
    if not is_stock(plan.cache):
        raise BadInput(
            f"mlx-lm does not decode over {plan.cache} by itself, and a baseline runs as it was installed",
            "keep raw or affine@... here; bench spec --cache compares with others",
        )
    ends = not plan.fixed_length
    arms = [make(pair, plan.cache, ends=ends) for make in (native, verify1)]
    return _job(kinds.NATIVE, pair, [workload], arms, plan, threads, chat=chat)


def _job(
    kind: str, pair: Pair, workloads: Sequence[Workload], arms: Sequence[SpeculationArm], plan: SpeculationPlan,
    threads: Threads | None, *, chat: bool, **config: Any,
) -> Job:  # fmt: skip
    if plan.content_channel and not chat:
        raise BadInput("only chat models have a content channel", "use the chat template: --chat")
    begin = CONTENT_CHANNEL if plan.content_channel else ""
    encoded = [
        replace(workload, prompts=encode(workload.prompts, pair.tokenizer, chat=chat, begin=begin))
        for workload in workloads
    ]
    prompts = [prompt for workload in encoded for prompt in workload.prompts]
    ends = set[int]() if plan.fixed_length else set(pair.tokenizer.eos_token_ids)
    sources = ", ".join(workload.source for workload in workloads)
    options = {"temperature": 0.0, "seed": 0, "model": pair.name, "prompts": sources, "chat": chat}
    times = tuple(plan.loops) != ("lazy",)
    return Job(
        kind,
        sections(pair, encoded, arms, chat=chat, answer=plan.max_tokens),
        {**options, **asdict(plan), **config, **(threads.config() if threads else {})},
        turns=list(interleave(arms, prompts, range(plan.repeats + 1))),  # repeat 0 is warm-up
        further=further(arms, prompts, plan),
        measure=lambda turn: [row(turn, plan.max_tokens, ends, times=times)],
        finish=lambda rows: explain(rows, arms, prompts, pair),
    )
