"""Speculative decoding beside plain decoding: the same prompts, arms taking turns, every run in the report."""

import gc
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from engine.cache import make_caches
from engine.dflash.divergence import classify, first_difference, last_logits
from engine.dflash.rollback import rollback_for
from engine.errors import BadInput
from engine.evals.speculation import arms as made
from engine.evals.speculation.arms import Arm
from engine.evals.speculation.package import package_arm
from engine.measure.journal import Journal
from engine.measure.prompts import Prompt
from engine.models import Pair
from engine.mx import mx

KIND = "kakeya.spec-bench"
KEY = ("arm", "prompt", "repeat")
DRAFTERS = ("dflash", "lookup", "adaptive")


@dataclass(frozen=True)
class Plan:
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


def arms_of(pair: Pair, plan: Plan) -> tuple[list[Arm], dict[str, str]]:
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


def measure(
    arms: Sequence[Arm],
    prompts: Sequence[Prompt],
    plan: Plan,
    ends: set[int],
    on_run: Callable[[], None] = lambda: None,
    journal: Journal | None = None,
) -> list[dict[str, Any]]:
    """Run everything, but for the rows that a journal holds, and return the rows in the order in which they ran.

    In each cell (a prompt, a repeat) every arm runs once. The order moves on by one arm from prompt to prompt
    and from repeat to repeat, so no arm profits from its place, and none runs more than twice without each
    other one in between. Repeat 0 warms up. After all repeats, arms that draft run once more with drafting
    and verifying told apart.

    Args:
        arms: with names of their own.
        prompts: encoded.
        plan: how often and how long.
        ends: tokens that end an answer.
        on_run: called after each run, for a progress bar.
        journal: of an interrupted run.
    """
    gc.collect()
    gc.freeze()  # what is there now stays, so that collecting before each run is quick
    try:
        return _measure(arms, prompts, plan, ends, on_run, journal or Journal(None, {}, KEY))
    finally:
        gc.unfreeze()


def _measure(
    arms: Sequence[Arm], prompts: Sequence[Prompt], plan: Plan, ends: set[int], on_run: Callable[[], None],
    journal: Journal,
) -> list[dict[str, Any]]:  # fmt: skip
    after = plan.repeats + 1
    turns = [(*turn, False) for turn in schedule(arms, prompts, plan.repeats)]
    turns += [(arm, prompt, after, True) for prompt in prompts for arm in arms if arm.profile]
    for arm, prompt, repeat, profile in turns:
        if (arm.name, prompt.id, repeat) not in journal:
            row = made.run(arm, prompt.ids, plan.max_tokens, ends, profile=profile)
            aside = profile or repeat == 0
            journal.append({"arm": arm.name, "prompt": prompt.id, "repeat": repeat, "warmup": aside, **row})
        on_run()
    return journal.rows


def schedule(
    arms: Sequence[Arm], prompts: Sequence[Prompt], repeats: int
) -> Iterator[tuple[Arm, Prompt, int]]:
    """Yield who runs on what, in order; repeat 0 is the warm-up."""
    for repeat in range(repeats + 1):
        for i, prompt in enumerate(prompts):
            at = (repeat + i) % len(arms)
            for arm in (*arms[at:], *arms[:at]):
                yield arm, prompt, repeat


def runs(arms: Sequence[Arm], prompts: Sequence[Prompt], repeats: int) -> int:
    """Return how many times :func:`measure` decodes."""
    return len(prompts) * (len(arms) * (repeats + 1) + sum(arm.profile is not None for arm in arms))


def explain(rows: list[dict[str, Any]], arms: Sequence[Arm], prompts: Sequence[Prompt], pair: Pair) -> None:
    """Add to each row that leaves its oracle's tokens where it does, and how near the oracle was to that.

    ``best`` holds the oracle's two likeliest tokens with their logits; ``kind`` is that of
    :class:`engine.dflash.divergence.Divergence`.
    """
    ids = {prompt.id: prompt.ids for prompt in prompts}
    about = {arm.name: arm for arm in arms}
    tokens = {(row["arm"], row["prompt"], row["repeat"], row["warmup"]): row["tokens"] for row in rows}
    known: dict[tuple, dict[str, Any]] = {}
    for row in rows:
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
    def fresh() -> list[Any]:
        return make_caches(pair.target, cache)

    at = first_difference(ours, theirs)
    ids = [*prompt, *theirs[:at]]
    logits = last_logits(pair.target, fresh(), ids, len(prompt), rows=1, chunk=made.CHUNK)
    best = mx.argsort(-logits)[:2].tolist()
    found = classify(pair.target, fresh, prompt, ours, theirs)
    return {
        "index": at,
        "best": [[token, logits[token].item()] for token in best],
        "kind": found.kind,
        "margin": found.margin,
        "rounding": found.rounding,
    }


def faults(rows: Sequence[dict[str, Any]], arms: Sequence[Arm]) -> list[str]:
    """Return what our own arms decoded otherwise than they have to, without a near tie to explain it."""
    ours = {arm.name: arm.oracle for arm in arms if arm.loop == made.OUR_LOOP}
    found = {
        f"{row['arm']} on {row['prompt']} leaves {ours[row['arm']]} at token {row['divergence']['index']}"
        for row in rows
        if row["arm"] in ours and row.get("divergence", {"kind": "tie"})["kind"] != "tie"
    }
    return sorted(found)
