"""Compares speculative with plain decoding: the same prompts, interleaved arms, every run in the report."""

import statistics
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from bridge.reports import kinds
from bridge.reports.claims.decoding import Table, paired_speedups
from engine.cache import make_caches
from engine.cache.protocol import Cache
from engine.dflash.divergence import classify, last_logits
from engine.dflash.rollback import rollback_for
from engine.dflash.step import AcceptanceWatch
from engine.errors import BadInput, MissingPackage
from engine.evals.speculation import arms as made
from engine.evals.speculation.package import package_arm
from engine.evals.speculation.rounds import rounds, shares
from engine.measure import rows
from engine.measure.arm import Arm
from engine.measure.prompts import Prompt
from engine.measure.schedule import Turn
from engine.measure.steady import Further, is_tight, until_steady
from engine.models import Pair
from engine.mx import integers, mx, number

KIND = kinds.SPEC_BENCH
OUR_LOOP = made.OUR_LOOP
# Also ``torch``: the draft model with its layers in torch; and ``rescaled``: with the other factor of
# embeddings.
DRAFTERS = ("dflash", "lookup", "adaptive")
RESCALED = made.RESCALED
SAME = "both scalings of the embeddings are the same: the target multiplies them by 1"

SpeculationArm = Arm[list[Cache]]


@dataclass(frozen=True)
class SpeculationPlan:
    """What is measured.

    Attributes:
        drafters: of :data:``DRAFTERS``, ``torch`` or ``rescaled``; those that need a draft model are left out of a pair
            without one, and ``rescaled`` if both factors are the same.
        rollbacks: each drafter runs with each; those that the model's caches cannot have are left out.
        loops: each drafter runs with each; see :func:``engine.dflash.stream_generate``. With others than ``lazy``,
            rows say what each round's draft, verification and wait took.
        cache: the caches' spec, for all arms but the package, which takes raw ones only.
        block: the most rows to verify at once; None takes the drafter's own.
        max_tokens: decoded after each prompt, at most.
        repeats: counted runs of each arm on each prompt; one more, before them, is not counted.
        max_repeats: as many while times differ much or a speed-up is not known within 5 %; None for no more.
        package: whether the ``dflash`` package takes part where it is installed.
        content_channel: begin answers behind the mark of the content channel; for chat models.
        torch_device: where torch drafts: ``cpu``, ``mps`` or ``cuda``; None for the best one.
        fixed_length: decode past the tokens that end answers, always ``max_tokens`` tokens.
    """

    drafters: Sequence[str] = DRAFTERS
    rollbacks: Sequence[str] = ("auto",)
    loops: Sequence[str] = ("lazy",)
    cache: str = "raw"
    block: int | None = None
    max_tokens: int = 128
    repeats: int = 5
    max_repeats: int | None = None
    package: bool = True
    fixed_length: bool = False
    content_channel: bool = False
    torch_device: str | None = None

    @property
    def tells_times(self) -> bool:
        """Whether rows hold the seconds of each round."""
        return tuple(self.loops) != ("lazy",)


def arms_of(pair: Pair, plan: SpeculationPlan) -> tuple[list[SpeculationArm], dict[str, str]]:
    """Return the arms of a plan, and the arms that are left out, with the reason.

    Where the plan's cache is none of mlx-lm's own, the baselines keep the raw one, and mlx-lm's generation over
    the plan's is there beside them: what ours over that cache has to repeat.
    """
    stock = plan.cache if made.is_stock(plan.cache) else "raw"
    ends = not plan.fixed_length
    arms = [made.native(pair, stock, ends=ends), made.verify1(pair, stock, ends=ends)]
    if stock != plan.cache:
        arms.append(made.native(pair, plan.cache, ends=ends))
    arms.append(made.incremental(pair, plan.cache, ends=ends))
    left_out = {}
    for rollback in plan.rollbacks:
        for drafter in plan.drafters:
            name = f"{drafter}/{rollback}"
            mine = pair.rescaled() if drafter == RESCALED else pair
            if drafter != "lookup" and pair.draft is None:
                left_out[name] = "no draft model"
                continue
            if mine is None:
                left_out[name] = SAME
                continue
            try:
                rollback_for(make_caches(pair.target, plan.cache), rollback, pair.target)
            except BadInput as error:
                left_out[name] = error.message
                continue
            try:
                arms += [made.speculative(mine, drafter, rollback, plan, loop) for loop in plan.loops]
            except MissingPackage as error:
                left_out[name] = f"{error.message}; {error.fix}"
    if plan.package and plan.cache == "raw" and ends:
        arm = package_arm(pair, plan.block)
        if arm is not None:
            arms.append(arm)
    return arms, left_out


def further(arms: Sequence[SpeculationArm], prompts: Sequence[Prompt], plan: SpeculationPlan) -> Further:
    """Return what follows: repeats until times and speed-ups are steady, and drafting arms once more with a profile."""
    sections = [arm.section() for arm in arms]
    more = until_steady(
        arms,
        prompts,
        plan.repeats,
        plan.max_repeats or plan.repeats,
        lambda found: has_tight(found, sections),
    )

    def follow(measured: Sequence[rows.Row]) -> Iterator[list[Turn[SpeculationArm, Prompt]]]:
        last = plan.repeats
        for turns in more(measured):
            yield turns
            last += 1
        yield [Turn(arm, prompt, last + 1, profile=True) for prompt in prompts for arm in arms if arm.profile]

    return follow


def has_tight(measured: Sequence[rows.Row], arms: Sequence[dict[str, Any]]) -> bool:
    """Return whether each candidate's speed-up over the fastest plain loop is known within 5 %.

    What counts is how the paired quotients of all prompts and repeats spread about the median of their prompt.

    Args:
        measured: the rows so far.
        arms: the report's section.
    """
    for prompts in paired_speedups(Table(measured), arms).values():
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
    """Run a turn, and return its row, but for its names.

    Args:
        turn: who, on what.
        most: tokens.
        ends: tokens that end an answer.
        times: say what each round took.
    """
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
    measured: list[rows.Row], arms: Sequence[SpeculationArm], prompts: Sequence[Prompt], pair: Pair
) -> None:
    """Add to each row that diverges from its oracle the position, and how close the oracle's logits were there.

    ``best`` holds the oracle's two likeliest tokens with their logits; ``kind`` is that of
    :class:``engine.dflash.divergence.Divergence``.
    """
    ids = {prompt.id: prompt.ids for prompt in prompts}
    about = {arm.name: arm for arm in arms}
    tokens = {(row["arm"], *_turn(row)): row["tokens"] for row in measured}
    known: dict[tuple[Any, ...], dict[str, Any]] = {}
    for row in measured:
        turn = _turn(row)
        arm = about[row["arm"]]
        theirs = tokens.get((arm.oracle, *turn)) or tokens.get((arm.oracle, turn[0], 0, True))
        if theirs is None or row["tokens"] == theirs:
            continue
        key = (arm.cache, row["prompt"], tuple(row["tokens"]), tuple(theirs))
        if key not in known:
            known[key] = divergence_section(pair, arm.cache, ids[row["prompt"]], row["tokens"], theirs)
        row["divergence"] = known[key]


def _turn(row: rows.Row) -> tuple[str, int, bool]:
    """Return the prompt and the repeat of a row, and whether it is a warm-up; not every kind of report has those."""
    return row["prompt"], row["repeat"], row.get("warmup", False)


def divergence_section(
    pair: Pair, cache: str, prompt: Sequence[int], ours: list[int], theirs: list[int]
) -> dict[str, Any]:
    """Return the ``divergence`` of a row whose tokens leave the oracle's ``theirs``."""

    def fresh() -> list[Cache]:
        return make_caches(pair.target, cache)

    divergence = classify(pair.target, fresh, prompt, ours, theirs)
    if divergence is None:
        raise ValueError("the tokens are equal")
    at = divergence.position
    ids = [*prompt, *theirs[:at]]
    logits = last_logits(pair.target, fresh(), ids, len(prompt), rows=1, chunk=rows.CHUNK)
    best = integers(mx.argsort(-logits)[:2])
    return {
        "index": at,
        "best": [[token, number(logits[token])] for token in best],
        "kind": divergence.kind,
        "margin": divergence.margin,
        "rounding": divergence.rounding,
    }


def acceptance_warning(measured: Sequence[rows.Row]) -> str | None:
    """Return a warning if hardly any draft of the draft model was accepted in the arms that use it alone."""
    drafting = [row for row in measured if row["arm"].split("/")[0] == "dflash"]
    proposed, accepted = (sum(sum(row[name]) for row in drafting) for name in ("drafted", "accepted"))
    return AcceptanceWatch().count(proposed, accepted)


def faults(measured: Sequence[rows.Row], arms: Sequence[SpeculationArm]) -> list[str]:
    """Return where our own arms decoded other tokens than they have to, without a near tie to explain it."""
    ours = {arm.name: arm.oracle for arm in arms if arm.loop == OUR_LOOP}
    wrong = {
        f"{row['arm']} on {row['prompt']} leaves {ours[row['arm']]} at token {row['divergence']['index']}"
        for row in measured
        if row["arm"] in ours and row.get("divergence", {"kind": "tie"})["kind"] != "tie"
    }
    return sorted(wrong)
