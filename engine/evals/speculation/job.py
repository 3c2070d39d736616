"""The reports of decoding benchmarks: speculative beside plain, and plain alone."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from typing import Any

from engine.errors import BadInput
from engine.evals.speculation import arms as made_arms
from engine.evals.speculation import bench as spec
from engine.evals.speculation.arms import Arm
from engine.evals.speculation.claims import claims
from engine.measure.job import Job, Made, run
from engine.measure.journal import Journal
from engine.measure.prompts import Prompt, Workload, encode
from engine.models import Pair

ACCEPTANCE = "kakeya.acceptance"
NATIVE = "kakeya.native"
NATIVE_CLAIMS = ("decode_tok_s", "cache_bytes")
WORKLOAD = "prompts"


def speculation(
    pair: Pair, workloads: Sequence[Workload], plan: spec.Plan, *, chat: bool = False, kind: str = spec.KIND
) -> tuple[Job, list[Arm]]:
    """Return what measures speculative decoding beside plain decoding, and its arms.

    Args:
        pair: what decodes.
        workloads: prompts as read.
        plan: what is measured.
        chat: put prompts into the chat template.
        kind: ``kakeya.spec-bench`` or ``kakeya.acceptance``: the same measurement of one workload or of several.

    Raises:
        BadInput: nothing drafts: the pair has no drafter, or no cache of the model can be rolled back so.
    """
    arms, left_out = spec.arms_of(pair, plan)
    if not any(arm.role == "candidate" for arm in arms):
        reasons = "; ".join(f"{name}: {why}" for name, why in left_out.items())
        raise BadInput(f"no drafter is left to measure ({reasons})", "choose other drafters or rollbacks")
    return _job(kind, pair, workloads, arms, plan, {"left_out": left_out}, chat=chat), arms


def baseline(pair: Pair, workload: Workload, plan: spec.Plan, *, chat: bool = False) -> Job:
    """Return what measures mlx-lm's own generation alone, beside one forward pass a token.

    Of the plan, caches, lengths and repeats count.

    Raises:
        BadInput: the cache is none of mlx-lm's own.
    """
    if not made_arms.is_stock(plan.cache):
        raise BadInput(
            f"mlx-lm does not decode over {plan.cache} by itself, and a baseline runs as it was installed",
            "keep raw or affine@... here; bench spec --cache compares with others",
        )
    arms = [make(pair, plan.cache) for make in (made_arms.native, made_arms.verify1)]
    job = _job(NATIVE, pair, [workload], arms, plan, {}, chat=chat)
    return replace(
        job, claims=lambda made: [claim for claim in job.claims(made) if claim["name"] in NATIVE_CLAIMS]
    )


def benchmark(
    pair: Pair,
    prompts: Sequence[Prompt],
    plan: spec.Plan,
    *,
    source: str,
    task: str = "code",
    chat: bool = False,
) -> tuple[Made, list[str]]:
    """Measure speculation on one workload; return the report, and what our own loop decoded wrongly, a line each."""
    job, arms = speculation(pair, [Workload(WORKLOAD, prompts, task, source)], plan, chat=chat)
    made, _ = run(job)
    return made, spec.faults(made["rows"], arms)


def _job(
    kind: str, pair: Pair, workloads: Sequence[Workload], arms: Sequence[Arm], plan: spec.Plan,
    told: dict[str, Any], *, chat: bool,
) -> Job:  # fmt: skip
    encoded = {workload.name: encode(workload.prompts, pair.tokenizer, chat=chat) for workload in workloads}
    prompts = [prompt for some in encoded.values() for prompt in some]
    sections = {
        "models": pair.describe(),
        "workloads": {workload.name: workload.section(chat=chat) for workload in workloads},
        "prompts": [prompt.section(name) for name, some in encoded.items() for prompt in some],
        "arms": [arm.section() for arm in arms],
    }

    def measure(journal: Journal, on_run: Callable[[], None]) -> None:
        ends = set(pair.tokenizer.eos_token_ids)
        rows = spec.measure(arms, prompts, plan, ends, on_run, journal)
        spec.explain(rows, arms, prompts, pair)

    sources = ", ".join(workload.source for workload in workloads)
    asked = {"temperature": 0.0, "seed": 0, "model": pair.name, "prompts": sources, "chat": chat}
    return Job(
        kind,
        sections,
        {**asked, **asdict(plan), **told},
        key=spec.KEY,
        steps=spec.runs(arms, prompts, plan.repeats),
        measure=measure,
        claims=lambda made: claims(made["rows"], made["arms"], made["prompts"]),
    )
