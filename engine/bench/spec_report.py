"""The report of a speculative-decoding benchmark."""

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

from engine import report
from engine.attention import router
from engine.bench import spec
from engine.bench.claims import claims
from engine.bench.prompts import Prompt, encode
from engine.errors import BadInput
from engine.models import Pair

WORKLOAD = "prompts"


def benchmark(
    pair: Pair,
    prompts: Sequence[Prompt],
    plan: spec.Plan,
    *,
    source: str,
    task: str = "code",
    chat: bool = False,
    on_start: Callable[[int], None] = lambda _: None,
    on_run: Callable[[], None] = lambda: None,
) -> tuple[dict[str, Any], list[str]]:
    """Measure, and return the report with what our own loop decoded wrongly, a line each.

    Args:
        pair: what decodes.
        prompts: as read.
        plan: what is measured.
        source: where the prompts are from, for the report.
        task: what they ask for, of :data:`engine.bench.prompts.TASKS`.
        chat: put them into the chat template.
        on_start: told how many runs there will be.
        on_run: called after each.

    Raises:
        BadInput: nothing drafts: the pair has no drafter, or no cache of the model can be rolled back so.
    """
    start = time.perf_counter()
    encoded = encode(prompts, pair.tokenizer, chat=chat)
    arms, left_out = spec.arms_of(pair, plan)
    if not any(arm.role == "candidate" for arm in arms):
        reasons = "; ".join(f"{name}: {why}" for name, why in left_out.items())
        raise BadInput(f"no drafter is left to measure ({reasons})", "choose other drafters or rollbacks")
    on_start(spec.runs(arms, encoded, plan.repeats))
    rows = spec.measure(arms, encoded, plan, set(pair.tokenizer.eos_token_ids), on_run)
    spec.explain(rows, arms, encoded, pair, plan.cache)
    patched = router.patched(pair.target)
    told = [arm.section() | {"patches": [*arm.patches, *patched]} for arm in arms]
    asked = {"temperature": 0.0, "seed": 0, "model": pair.name, "prompts": source, "chat": chat}
    made = report.envelope(
        spec.KIND,
        config={**asked, **asdict(plan), "left_out": left_out},
        models=pair.describe(),
        workloads={WORKLOAD: {"task": task, "source": source, "chat_template": chat}},
        prompts=[prompt.section(WORKLOAD) for prompt in encoded],
        arms=told,
        rows=rows,
        claims=claims(rows, told),
        seconds=time.perf_counter() - start,
    )
    return made, spec.faults(rows, arms)
