"""Restored prefill: measures whether a model finds needles in evicted positions after these were restored."""

import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from bridge.reports import kinds
from bridge.reports.claims.recall import RECOMPUTE
from bridge.reports.kinds import STOCK_LOOP
from engine.cache import make_caches
from engine.cache.kinds import growing
from engine.cache.packed import PackedMixin
from engine.cache.protocol import Cache
from engine.cache.spec import parse
from engine.dflash.step import Step
from engine.errors import BadInput
from engine.evals.controls import noise
from engine.evals.needles import Needle
from engine.evals.recall import BASELINE, IDENTITY, POISON, NeedleArm, NeedlePlan, stock, try_caches
from engine.harness.arm import Arm
from engine.harness.rows import CHUNK
from engine.mx import mx, nn, number
from engine.restore import Compressed, Exact, Noise, Source, restored_caches
from engine.restore.cache import restored_layers
from engine.restore.drafted import DraftedRestorer, drafted_sources
from engine.restore.learned import learned_sources
from engine.restore.restorer import Restorer

KIND = kinds.RESTORED
RECOMPUTE_LOOP = "engine.bench.recompute"
EVICTED, LEARNED, SHUFFLED = "evicted", "restored learned", "shuffled"

# A function from a prompt, and then from a layer, to the source of that layer's evicted positions.
Sources = Callable[[Needle], Callable[[int], Source | None]]


@dataclass(frozen=True)
class RestoredPlan(NeedlePlan):
    """What is measured. Each of ``caches`` holds evicted positions, and is an arm."""

    sink: int = 4  # first positions that stay
    # Number of last positions that stay. Prompts are read in chunks of this length. Needles inside the window
    # are not evicted.
    window: int = 64
    lengths: Sequence[int] = (512, 1024)
    depths: Sequence[float] = (0.1, 0.4, 0.7)
    repeats: int = 1  # of each arm on each prompt; more than one are timed, after a warm-up
    max_repeats: int | None = None  # where their times differ much, as many; None for no more
    fixed_length: bool = False  # decode past the tokens that end answers, always `max_tokens` tokens
    recompute: bool = False  # also decode with every position computed again for each token
    # Which layers evict: `full` for full-attention layers, `sliding` for sliding ones; the other layers keep
    # their exact keys and values.
    layers: str = "full"

    def config(self) -> dict[str, Any]:
        """Return the ``config`` of the report."""
        return super().config() | {"chunk": self.window}


def arms_of(
    model: nn.Module, plan: RestoredPlan, restorer: Restorer | DraftedRestorer | None = None
) -> tuple[list[NeedleArm], dict[str, str]]:
    """Return the arms, and the arms that are left out, with the reason.

    The arms are the whole cache, positions restored from each spec and by the restorer, and the controls. All read
    prompts in the same chunks. ``identity`` restores the exact values, ``poison`` noise, ``evicted`` nothing, and
    ``shuffled`` the restorer's values for the prompt's tokens in another order.

    The ``restorer`` must have been made for this model.

    Raises:
        BadInput: the model has no full-attention layer, or can use none of the caches.
    """
    sliding = plan.layers == "sliding"
    restored_caches(model, plan.sink, plan.window, lambda _: None, sliding=sliding)
    decode = stock(model, plan.window)
    where = {"sink": plan.sink, "window": plan.window, "layers": "sliding" if sliding else "full attention"}

    def arm(name: str, role: str, cache: str, source: Sources) -> NeedleArm:
        def make(needle: Needle) -> list[Cache]:
            return restored_caches(model, plan.sink, plan.window, source(needle), sliding=sliding)

        return Arm(name, role, STOCK_LOOP, make, decode, oracle=BASELINE, cache=cache, options=where)

    if "raw" in plan.caches:
        raise BadInput(
            "the arm `identity` already keeps evicted positions raw, and always runs: name other caches"
        )
    fits = restorer is not None and _fits(restorer, model, sliding=sliding)
    tried, left_out = try_caches(model, plan.caches, 0)
    specs = []
    for spec in tried:
        try:
            if sliding:
                growing(parse(spec))  # whether it can hold what sliding layers evict
            specs.append(spec)
        except BadInput as error:
            left_out[spec] = error.message
    arms = [
        Arm(BASELINE, "baseline", STOCK_LOOP, lambda _: make_caches(model, "raw"), decode),
        *((recompute(model, BASELINE),) if plan.recompute else ()),
        *_compressed(model, specs, arm, sliding=sliding),
        *(_learned(model, plan, arm, restorer) if restorer is not None and fits else ()),
        arm(IDENTITY, "identity", "raw", lambda _: lambda _: Exact()),
        arm(POISON, "poison", "raw", lambda _: lambda i: Noise(noise(plan.seed + i))),
        arm(EVICTED, "evicted", "raw", lambda _: lambda _: None),
    ]
    reasons = {f"restored {spec}": reason for spec, reason in left_out.items()}
    if restorer is not None and not fits:
        other = "full-attention" if sliding else "sliding"
        reasons[LEARNED] = f"the restorer was made for {other} layers"
    return arms, reasons


def recompute(model: nn.Module, oracle: str) -> Arm[list[Cache]]:
    """Return the arm that reads the whole text again for each token, to measure the gain of caching."""

    def decode(ids: Sequence[int], most: int, caches: list[Cache]) -> Iterator[Step]:
        context = list(ids)
        for _ in range(most):
            caches[:] = make_caches(model, "raw")
            for at in range(0, len(context), CHUNK):
                logits = model(mx.array(context[at : at + CHUNK])[None], cache=caches)
                mx.eval(logits)
            context.append(int(number(mx.argmax(logits[0, -1]))))
            yield Step((context[-1],))

    make = lambda _: make_caches(model, "raw")  # noqa: E731
    return Arm(RECOMPUTE, "reference", RECOMPUTE_LOOP, make, decode, oracle=oracle)


def layers_for(model: nn.Module, restorer: Restorer | DraftedRestorer | None) -> str:
    """Return the layers to restore: ``sliding`` if the restorer was made for sliding layers, otherwise ``full``."""
    return "sliding" if restorer is not None and _fits(restorer, model, sliding=True) else "full"


def _fits(restorer: Restorer | DraftedRestorer, model: nn.Module, *, sliding: bool) -> bool:
    try:
        return restorer.config.layers == restored_layers(model, sliding=sliding)
    except BadInput:
        return False  # the model has no such layers


def _compressed(
    model: nn.Module, specs: Iterable[str], arm: Callable[..., NeedleArm], *, sliding: bool
) -> Iterator[NeedleArm]:
    for spec in specs:

        def source(_: Needle, spec: str = spec) -> Callable[[int], Source]:
            fresh = make_caches(model, spec)
            for cache in fresh:
                if isinstance(cache, PackedMixin):
                    cache.views = False
            return lambda i: Compressed(growing(parse(spec)) if sliding else fresh[i])

        yield arm(f"restored {spec}", "candidate", spec, source)


def _learned(
    model: nn.Module, plan: RestoredPlan, arm: Callable[..., NeedleArm], restorer: Restorer | DraftedRestorer
) -> Iterator[NeedleArm]:
    def sources(ids: Sequence[int]) -> Callable[[int], Source]:
        if isinstance(restorer, DraftedRestorer):
            return drafted_sources(restorer, model, ids)
        return learned_sources(restorer, model, ids)

    def shuffled(needle: Needle) -> Callable[[int], Source]:
        ids = list(needle.prompt.ids)
        random.Random(f"{plan.seed}/{needle.prompt.id}").shuffle(ids)  # noqa: S311 - a control, no secret
        return sources(ids)

    yield arm(LEARNED, "candidate", "learned", lambda n: sources(n.prompt.ids))
    yield arm(SHUFFLED, "poison", "learned", shuffled)


def unevicted_prompts(needles: Sequence[Needle], plan: RestoredPlan) -> list[str]:
    """Return the ids of prompts whose needle is never evicted, so that nothing has to be restored."""
    return [
        needle.prompt.id for needle in needles if (1 - needle.depth) * needle.question_at < 2 * plan.window
    ]
