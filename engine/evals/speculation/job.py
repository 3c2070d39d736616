"""The reports of decoding benchmarks: speculative and plain decoding, and plain decoding only."""

from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

from bridge.reports import kinds
from engine.errors import BadInput
from engine.evals.speculation import arms as made_arms
from engine.evals.speculation import bench as spec
from engine.measure.job import Job, sections
from engine.measure.prompts import CONTENT_CHANNEL, Workload, encode
from engine.measure.schedule import interleave
from engine.measure.threads import Threads
from engine.models import Pair

ACCEPTANCE, NATIVE = kinds.ACCEPTANCE, kinds.NATIVE
WORKLOAD = "prompts"


def speculation(
    pair: Pair,
    workloads: Sequence[Workload],
    plan: spec.SpeculationPlan,
    *,
    chat: bool = False,
    kind: str = spec.KIND,
    threads: Threads | None = None,
) -> tuple[Job, list[spec.SpeculationArm]]:
    """Return a function that measures speculative decoding beside plain decoding, and its arms.

    Args:
        pair: what decodes.
        workloads: prompts as read.
        plan: what is measured.
        chat: put prompts into the chat template.
        kind: ``kakeya.spec-bench`` or ``kakeya.acceptance``: the same measurement of one workload or of several.
        threads: the BLAS threads that were chosen for it.

    Raises:
        BadInput: nothing drafts: the pair has no drafter, or no cache of the model can be rolled back so.
    """
    arms, left_out = spec.arms_of(pair, plan)
    if not any(arm.role == "candidate" for arm in arms):
        reasons = "; ".join(f"{name}: {reason}" for name, reason in left_out.items())
        raise BadInput(f"no drafter is left to measure ({reasons})", "choose other drafters or rollbacks")
    return _job(
        kind, pair, workloads, arms, plan, {"left_out": left_out, **_threads(threads)}, chat=chat
    ), arms


def baseline(
    pair: Pair,
    workload: Workload,
    plan: spec.SpeculationPlan,
    *,
    chat: bool = False,
    threads: Threads | None = None,
) -> Job:
    """Return the job that measures only mlx-lm's own generation and one forward pass per token.

    Of the plan, caches, lengths, repeats and their maximum count. For ``threads`` see :func:``speculation``.

    Raises:
        BadInput: the cache is none of mlx-lm's own.
    """
    if not made_arms.is_stock(plan.cache):
        raise BadInput(
            f"mlx-lm does not decode over {plan.cache} by itself, and a baseline runs as it was installed",
            "keep raw or affine@... here; bench spec --cache compares with others",
        )
    ends = not plan.fixed_length
    arms = [make(pair, plan.cache, ends=ends) for make in (made_arms.native, made_arms.verify1)]
    return _job(NATIVE, pair, [workload], arms, plan, _threads(threads), chat=chat)


def _threads(chosen: Threads | None) -> dict[str, Any]:
    return chosen.config() if chosen else {}


def _job(
    kind: str,
    pair: Pair,
    workloads: Sequence[Workload],
    arms: Sequence[spec.SpeculationArm],
    plan: spec.SpeculationPlan,
    config: dict[str, Any],
    *,
    chat: bool,
) -> Job:
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
    return Job(
        kind,
        sections(pair, encoded, arms, chat=chat),
        {**options, **asdict(plan), **config},
        turns=list(interleave(arms, prompts, range(plan.repeats + 1))),  # repeat 0 is warm-up
        further=spec.further(arms, prompts, plan),
        measure=lambda turn: [spec.row(turn, plan.max_tokens, ends, times=plan.tells_times)],
        finish=lambda rows: spec.explain(rows, arms, prompts, pair),
    )
