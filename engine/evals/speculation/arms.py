"""What is compared: loops that decode greedily after a prompt, all measured in the same way."""

import gc
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

from engine.attention import router
from engine.cache import make_caches
from engine.cache.factory import patches_of
from engine.cache.spec import parse
from engine.dflash import stream_generate
from engine.dflash.step import Step
from engine.dflash.target.rotary import tables_pay
from engine.lm import generation_stream
from engine.lm import stream_generate as native_stream
from engine.measure import memory
from engine.models import Pair
from engine.mx import mx

STOCK_LOOP = "mlx_lm.generate_step"
OUR_LOOP = "engine.dflash.stream_generate"
NATIVE, VERIFY1, INCREMENTAL = "native", "verify1", "incremental"
CHUNK = 512  # tokens of a prompt at once


@dataclass(frozen=True)
class Arm:
    """One system.

    Attributes:
        name: unique in a report.
        role: ``baseline``, ``verify1``, ``reference`` or ``candidate``; see docs/evidence.md.
        loop: what decodes.
        make_caches: gives fresh caches, or an empty list that the loop fills with those it makes itself.
        start: from token ids, the most tokens and caches to steps; what it does counts.
        oracle: the arm whose tokens it has to repeat.
        cache: their spec.
        patches: what is replaced in libraries while it runs.
        options: what else it was told.
        profile: the same as ``start``, with drafting and verifying told apart; None where nothing is drafted.
    """

    name: str
    role: str
    loop: str
    make_caches: Callable[[], list[Any]]
    start: Callable[[Sequence[int], int, list[Any]], Iterator[Step]]
    oracle: str | None = NATIVE
    cache: str = "raw"
    patches: tuple[str, ...] = ()
    options: dict[str, Any] = field(default_factory=dict)
    profile: Callable[[Sequence[int], int, list[Any]], Iterator[Step]] | None = None

    @property
    def routed(self) -> bool:
        """Whether mlx-lm's attention is replaced while it runs."""
        return any(patch.endswith(router.NAME) for patch in self.patches)

    def section(self) -> dict[str, Any]:
        """Return its entry in a report."""
        names = ("name", "role", "loop", "cache", "oracle", "options")
        return {**{name: getattr(self, name) for name in names}, "patches": list(self.patches)}


def run(arm: Arm, ids: Sequence[int], most: int, ends: set[int], *, profile: bool = False) -> dict[str, Any]:
    """Decode once and return a report's row, but for its names.

    ``decode_s`` is the time from the first token to the last, and ``decode_tokens`` are those but the first. A
    loop whose first round gives several tokens has that whole round in ``decode_s``, or some of its tokens
    would count as decoded in no time.

    Args:
        arm: what decodes.
        ids: the prompt.
        most: tokens.
        ends: tokens that end an answer.
        profile: tell drafting and verifying apart, which costs time.
    """
    with nullcontext() if arm.routed else router.unrouted():
        return _run(arm, ids, most, ends, profile=profile)


def _run(arm: Arm, ids: Sequence[int], most: int, ends: set[int], *, profile: bool) -> dict[str, Any]:
    caches = arm.make_caches()
    _rest()
    mx.reset_peak_memory()
    begin = arm.profile if profile else arm.start
    times, steps = [], []
    start = time.perf_counter()
    for step in begin(ids, most, caches):
        times.append(time.perf_counter() - start)
        steps.append(step)
    held = memory.live(caches, mx.get_peak_memory())
    tokens = [token for step in steps for token in step.tokens]
    end = times[max(i for i, step in enumerate(steps) if step.tokens)]
    prefill = times[0] if len(steps[0].tokens) == 1 else steps[0].prefill
    row = {
        "started_s": start,
        "prefill_s": prefill,
        "decode_s": end - prefill,
        "decode_tokens": len(tokens) - 1,
        "e2e_s": end,
        "tokens": tokens,
        "text": "".join(step.text for step in steps),
        "stop": _stop(steps[-1].finish_reason, tokens, ends),
        "memory": held,
    }
    if arm.role not in ("baseline", "verify1"):
        row |= _rounds(steps)
    return row | ({"profile": _shares(steps)} if profile else {})


def _rounds(steps: Sequence[Step]) -> dict[str, Any]:
    """Return what each round did, and the sums; the package's first token comes from the prompt, no round."""
    rounds = [step for step in steps if step.tokens and step.drafter != "prefill"]
    drafters = [step.drafter for step in rounds]
    syncs = {"syncs": steps[-1].syncs} if steps[-1].syncs else {}
    return {
        "commits": [len(step.tokens) for step in rounds],
        "drafted": [step.proposed for step in rounds],
        "accepted": [step.accepted for step in rounds],
        "counters": {
            "rounds": len(rounds),
            **syncs,
            **{f"rounds_{name}": drafters.count(name) for name in sorted(set(drafters))},
        },
    }


def _shares(steps: Sequence[Step]) -> dict[str, float]:
    parts = {
        name: sum(getattr(step.timing, name) for step in steps) for name in ("draft", "verify", "overhead")
    }
    whole = sum(parts.values()) or 1.0
    return {f"{name}_share": seconds / whole for name, seconds in parts.items()}


def _stop(reason: str | None, tokens: Sequence[int], ends: set[int]) -> str:
    if reason != "stop":
        return "length"
    return "eos" if tokens[-1] in ends else "stop"


def _rest() -> None:
    """Finish what the arm before left running, and free what it held: mlx-lm computes one token ahead."""
    mx.synchronize()
    mx.synchronize(generation_stream)
    gc.collect()
    mx.clear_cache()


def is_stock(cache: str) -> bool:
    """Say whether a cache is one of mlx-lm's own, so that a baseline may keep it."""
    return parse(cache).family in {"raw", "affine"}


def native(pair: Pair, cache: str) -> Arm:
    """mlx-lm's own generation, over a cache of its own: a baseline. Over another one: a reference, named after it."""

    def start(ids: Sequence[int], most: int, caches: list[Any]) -> Iterator[Step]:
        found = native_stream(pair.target, pair.tokenizer, mx.array(ids), most, prompt_cache=caches)
        for response in found:
            yield Step((response.token,), text=response.text, finish_reason=response.finish_reason)

    through = {"through": "mlx_lm.stream_generate"}
    name, role = (NATIVE, "baseline") if is_stock(cache) else (f"{NATIVE} {cache}", "reference")
    return Arm(name, role, STOCK_LOOP, start=start, oracle=None, options=through, **_over(pair, cache))


def verify1(pair: Pair, cache: str) -> Arm:
    """One forward pass and one wait a token: what no baseline may be slower than."""

    def start(ids: Sequence[int], most: int, caches: list[Any]) -> Iterator[Step]:
        for at in range(0, len(ids) - 1, CHUNK):
            mx.eval(pair.target(mx.array(ids[at : min(at + CHUNK, len(ids) - 1)])[None], cache=caches))
        pending = mx.array(ids[-1:])[None]
        for n in range(most):
            token = mx.argmax(pair.target(pending, cache=caches)[0, -1]).item()
            ended = token in pair.tokenizer.eos_token_ids
            reason = "stop" if ended else "length" if n + 1 == most else None
            yield Step((token,), finish_reason=reason)
            if ended:
                return
            pending = mx.array([[token]])

    return Arm(VERIFY1, "verify1", "engine.bench.verify1", start=start, **_over(pair, cache))


def incremental(pair: Pair, cache: str) -> Arm:
    """Our loop without any drafts."""
    told = {"block_size": 1, "lookup": False, "adaptive": False}
    return _ours(pair, INCREMENTAL, "reference", cache, None, told)


def speculative(pair: Pair, drafter: str, rollback: str, cache: str, block: int | None) -> Arm:
    """Our loop with drafts.

    Args:
        pair: what decodes.
        drafter: ``dflash`` (the model alone), ``lookup`` (the text alone) or ``adaptive`` (whichever pays).
        rollback: see :func:`engine.dflash.rollback.rollback_for`.
        cache: the caches' spec.
        block: the most rows to verify at once; None takes the drafter's own.
    """
    told = {
        "block_size": block,
        "lookup": drafter != "dflash",
        "adaptive": drafter == "adaptive",
        "rollback": rollback,
    }
    draft = None if drafter == "lookup" else pair.draft
    return _ours(pair, f"{drafter}/{rollback}", "candidate", cache, draft, told)


def _ours(pair: Pair, name: str, role: str, cache: str, draft: Any, told: dict[str, Any]) -> Arm:
    def start(ids: Sequence[int], most: int, caches: list[Any], **more: Any) -> Iterator[Step]:
        return stream_generate(
            pair.target, draft, pair.tokenizer, ids, max_tokens=most, caches=caches, **told, **more
        )

    def profile(ids: Sequence[int], most: int, caches: list[Any]) -> Iterator[Step]:
        return start(ids, most, caches, profile=True)

    slow = profile if role == "candidate" else None
    oracle = NATIVE if is_stock(cache) else f"{NATIVE} {cache}"
    options = {**told, "rotary_tables": tables_pay()}
    return Arm(
        name, role, OUR_LOOP, start=start, oracle=oracle, options=options, profile=slow, **_over(pair, cache)
    )


def _over(pair: Pair, cache: str) -> dict[str, Any]:
    """Return what an arm says of its caches: their spec, what makes them, what they need bound anew."""
    patches = patches_of(pair.target, make_caches(pair.target, cache))
    return {"cache": cache, "patches": patches, "make_caches": lambda: make_caches(pair.target, cache)}
