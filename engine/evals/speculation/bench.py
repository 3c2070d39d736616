"""Speculative decoding beside plain decoding: the same prompts, arms taking turns, every run in the report."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from engine.cache import make_caches
from engine.cache.protocol import Cache
from engine.dflash.divergence import classify, last_logits
from engine.dflash.rollback import rollback_for
from engine.errors import BadInput
from engine.evals.speculation import arms as made
from engine.evals.speculation.package import package_arm
from engine.evals.speculation.rounds import rounds, shares
from engine.measure import rows
from engine.measure.arm import Arm
from engine.measure.prompts import Prompt
from engine.measure.schedule import Turn, interleave
from engine.models import Pair
from engine.mx import integers, mx, number

KIND = "kakeya.spec-bench"
DRAFTERS = ("dflash", "lookup", "adaptive")

SpeculationArm = Arm[list[Cache]]


@dataclass(frozen=True)
class SpeculationPlan:
    """What is measured.

    Attributes:
        drafters: of :data:`DRAFTERS`; those that need a draft model are left out of a pair without one.
        rollbacks: each drafter runs with each; those that the model's caches cannot have are left out.
        cache: the caches' spec, for all arms but the package, which takes raw ones only.
        block: the most rows to verify at once; None takes the drafter's own.
        max_tokens: decoded after each prompt, at most.
        repeats: counted runs of each arm on each prompt; one more, before them, is not counted.
        package: whether the ``dflash`` package takes part where it is installed.
    """

    drafters: Sequence[str] = DRAFTERS
    rollbacks: Sequence[str] = ("auto",)
    cache: str = "raw"
    block: int | None = None
    max_tokens: int = 128
    repeats: int = 5
    package: bool = True


def arms_of(pair: Pair, plan: SpeculationPlan) -> tuple[list[SpeculationArm], dict[str, str]]:
    """Return the arms of a plan, and those left out with the reason.

    Where the plan's cache is none of mlx-lm's own, the baselines keep the raw one, and mlx-lm's generation over
    the plan's is there beside them: what ours over that cache has to repeat.
    """
    stock = plan.cache if made.is_stock(plan.cache) else "raw"
    found = [made.native(pair, stock), made.verify1(pair, stock)]
    if stock != plan.cache:
        found.append(made.native(pair, plan.cache))
    found.append(made.incremental(pair, plan.cache))
    left_out = {}
    for rollback in plan.rollbacks:
        for drafter in plan.drafters:
            name = f"{drafter}/{rollback}"
            if drafter != "lookup" and pair.draft is None:
                left_out[name] = "no draft model"
                continue
            try:
                rollback_for(make_caches(pair.target, plan.cache), rollback, pair.target)
            except BadInput as error:
                left_out[name] = error.message
                continue
            found.append(made.speculative(pair, drafter, rollback, plan.cache, plan.block))
    if plan.package and plan.cache == "raw":
        arm = package_arm(pair, plan.block)
        if arm is not None:
            found.append(arm)
    return found, left_out


def turns(
    arms: Sequence[SpeculationArm], prompts: Sequence[Prompt], repeats: int
) -> list[Turn[SpeculationArm, Prompt]]:
    """Return who runs when: repeat 0 warms up, and last the arms that draft tell where their time went."""
    counted = list(interleave(arms, prompts, range(repeats + 1)))
    drafting = [(arm, prompt) for prompt in prompts for arm in arms if arm.profile]
    return counted + [Turn(arm, prompt, repeats + 1, profile=True) for arm, prompt in drafting]


def names(turn: Turn[SpeculationArm, Prompt]) -> rows.Row:
    """Return the fields by which the row of a turn is known."""
    return {"arm": turn.arm.name, "prompt": turn.prompt.id, "repeat": turn.repeat}


def row(turn: Turn[SpeculationArm, Prompt], most: int, ends: Collection[int]) -> rows.Row:
    """Run a turn, and return its row, but for its names.

    Args:
        turn: who, on what.
        most: tokens.
        ends: tokens that end an answer.
    """
    arm = turn.arm
    made, steps = rows.decode(arm, turn.prompt.ids, most, ends, arm.make(turn.prompt), profile=turn.profile)
    made |= {"warmup": turn.profile or turn.repeat == 0, "text": "".join(step.text for step in steps)}
    if arm.role not in ("baseline", "verify1"):
        made |= rounds(steps)
    return made | ({"profile": shares(steps)} if turn.profile else {})


def explain(
    found: list[rows.Row], arms: Sequence[SpeculationArm], prompts: Sequence[Prompt], pair: Pair
) -> None:
    """Add to each row that leaves its oracle's tokens where it does, and how near the oracle was to that.

    ``best`` holds the oracle's two likeliest tokens with their logits; ``kind`` is that of
    :class:`engine.dflash.divergence.Divergence`.
    """
    ids = {prompt.id: prompt.ids for prompt in prompts}
    about = {arm.name: arm for arm in arms}
    tokens = {(row["arm"], row["prompt"], row["repeat"], row["warmup"]): row["tokens"] for row in found}
    known: dict[tuple[Any, ...], dict[str, Any]] = {}
    for row in found:
        turn = (row["prompt"], row["repeat"], row["warmup"])
        arm = about[row["arm"]]
        theirs = tokens.get((arm.oracle, *turn)) or tokens.get((arm.oracle, turn[0], 0, True))
        if theirs is None or row["tokens"] == theirs:
            continue
        key = (arm.cache, row["prompt"], tuple(row["tokens"]), tuple(theirs))
        if key not in known:
            known[key] = _divergence(pair, arm.cache, ids[row["prompt"]], row["tokens"], theirs)
        row["divergence"] = known[key]


def _divergence(
    pair: Pair, cache: str, prompt: Sequence[int], ours: list[int], theirs: list[int]
) -> dict[str, Any]:
    def fresh() -> list[Cache]:
        return make_caches(pair.target, cache)

    found = classify(pair.target, fresh, prompt, ours, theirs)
    if found is None:
        raise ValueError("the tokens are equal")
    at = found.position
    ids = [*prompt, *theirs[:at]]
    logits = last_logits(pair.target, fresh(), ids, len(prompt), rows=1, chunk=rows.CHUNK)
    best = integers(mx.argsort(-logits)[:2])
    return {
        "index": at,
        "best": [[token, number(logits[token])] for token in best],
        "kind": found.kind,
        "margin": found.margin,
        "rounding": found.rounding,
    }


def faults(found: Sequence[rows.Row], arms: Sequence[SpeculationArm]) -> list[str]:
    """Return what our own arms decoded otherwise than they have to, without a near tie to explain it."""
    ours = {arm.name: arm.oracle for arm in arms if arm.loop == made.OUR_LOOP}
    wrong = {
        f"{row['arm']} on {row['prompt']} leaves {ours[row['arm']]} at token {row['divergence']['index']}"
        for row in found
        if row["arm"] in ours and row.get("divergence", {"kind": "tie"})["kind"] != "tie"
    }
    return sorted(wrong)
