"""The reports of decoding benchmarks: speculative beside plain, and plain alone."""

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

from engine import report
from engine.attention import router
from engine.bench import arms as made_arms
from engine.bench import spec
from engine.bench.arms import Arm
from engine.bench.claims import claims
from engine.bench.prompts import Prompt, encode
from engine.errors import BadInput
from engine.models import Pair

NATIVE = "kakeya.native"
NATIVE_CLAIMS = ("decode_tok_s", "cache_bytes")
WORKLOAD = "prompts"


def benchmark(
    pair: Pair,
    prompts: Sequence[Prompt],
    plan: spec.Plan,
    *,
    source: str,
    task: str = "code",
    chat: bool = False,
    shared: dict[str, str] | None = None,
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
        shared: the texts that all prompts begin and end with, as a report's workload names them.
        on_start: told how many runs there will be.
        on_run: called after each.

    Raises:
        BadInput: nothing drafts: the pair has no drafter, or no cache of the model can be rolled back so.
    """
    encoded = encode(prompts, pair.tokenizer, chat=chat)
    arms, left_out = spec.arms_of(pair, plan)
    if not any(arm.role == "candidate" for arm in arms):
        reasons = "; ".join(f"{name}: {why}" for name, why in left_out.items())
        raise BadInput(f"no drafter is left to measure ({reasons})", "choose other drafters or rollbacks")
    workload = {"task": task, "source": source, "chat_template": chat, **(shared or {})}
    made = _report(spec.KIND, pair, encoded, arms, plan, workload, {"left_out": left_out}, on_start, on_run)
    return made, spec.faults(made["rows"], arms)


def baseline(
    pair: Pair,
    prompts: Sequence[Prompt],
    plan: spec.Plan,
    *,
    source: str,
    task: str = "code",
    chat: bool = False,
    on_start: Callable[[int], None] = lambda _: None,
    on_run: Callable[[], None] = lambda: None,
) -> dict[str, Any]:
    """Measure mlx-lm's own generation alone, beside one forward pass a token, and return the report.

    Of the plan, caches, lengths and repeats count; the other arguments are those of :func:`benchmark`.
    """
    encoded = encode(prompts, pair.tokenizer, chat=chat)
    arms = [make(pair, plan.cache) for make in (made_arms.native, made_arms.verify1)]
    workload = {"task": task, "source": source, "chat_template": chat}
    made = _report(NATIVE, pair, encoded, arms, plan, workload, {}, on_start, on_run)
    made["claims"] = [claim for claim in made["claims"] if claim["name"] in NATIVE_CLAIMS]
    return made


def _report(
    kind: str, pair: Pair, encoded: Sequence[Prompt], arms: Sequence[Arm], plan: spec.Plan,
    workload: dict[str, Any], told: dict[str, Any], on_start: Callable[[int], None], on_run: Callable[[], None],
) -> dict[str, Any]:  # fmt: skip
    start = time.perf_counter()
    on_start(spec.runs(arms, encoded, plan.repeats))
    rows = spec.measure(arms, encoded, plan, set(pair.tokenizer.eos_token_ids), on_run)
    spec.explain(rows, arms, encoded, pair, plan.cache)
    patched = router.patched(pair.target)
    sections = [arm.section() | {"patches": [*arm.patches, *patched]} for arm in arms]
    asked = {"temperature": 0.0, "seed": 0, "model": pair.name, "prompts": workload["source"]}
    return report.envelope(
        kind,
        config={**asked, "chat": workload["chat_template"], **asdict(plan), **told},
        models=pair.describe(),
        workloads={WORKLOAD: workload},
        prompts=[prompt.section(WORKLOAD) for prompt in encoded],
        arms=sections,
        rows=rows,
        claims=claims(rows, sections),
        seconds=time.perf_counter() - start,
    )
