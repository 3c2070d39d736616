"""The arms of decoding benchmarks: loops that decode greedily after a prompt."""

import copy
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Protocol

from bridge.reports.kinds import STOCK_LOOP
from engine.cache import make_caches
from engine.cache.factory import patches_of
from engine.cache.kinds import kind_of
from engine.cache.protocol import Cache
from engine.cache.spec import parse
from engine.dflash import stream_generate
from engine.dflash.generation import starts_early
from engine.dflash.propose.adaptive import Adaptive
from engine.dflash.step import Step
from engine.dflash.target.embeddings import DraftEmbeddings, TargetEmbeddings
from engine.dflash.target.products import form_of
from engine.dflash.target.rotary import tables_pay
from engine.lm import stream_generate as native_stream
from engine.measure.arm import Arm, Decode
from engine.measure.rows import CHUNK
from engine.models import Pair
from engine.mx import mx, number
from engine.tokens import Tokenizer

OUR_LOOP = "engine.dflash.stream_generate"
NATIVE, VERIFY1, INCREMENTAL = "native", "verify1", "incremental"
# The draft model alone, with another factor of the embeddings than the other arms.
RESCALED = "rescaled"
MODEL_ALONE = {"dflash", "torch", RESCALED}


def is_stock(cache: str) -> bool:
    """Return whether a cache is one of mlx-lm's own, so that a baseline may use it."""
    return kind_of(parse(cache)).stock


def native(pair: Pair, cache: str, *, ends: bool = True) -> Arm[list[Cache]]:
    """mlx-lm's own generation, over a cache of its own: a baseline. Over another one: a reference, named after it.

    Args:
        pair: what decodes.
        cache: the caches' spec.
        ends: whether tokens that end answers end this one.
    """
    tokenizer = pair.tokenizer if ends else endless(pair.tokenizer)

    def start(ids: Sequence[int], most: int, caches: list[Cache]) -> Iterator[Step]:
        stream = native_stream(pair.target, tokenizer, mx.array(list(ids)), most, prompt_cache=caches)
        for response in stream:
            yield Step((response.token,), text=response.text, finish_reason=response.finish_reason)

    through = {"through": "mlx_lm.stream_generate"}
    name, role = (NATIVE, "baseline") if is_stock(cache) else (f"{NATIVE} {cache}", "reference")
    return Arm(name, role, STOCK_LOOP, decode=start, options=through, **_over(pair, cache))


def verify1(pair: Pair, cache: str, *, ends: bool = True) -> Arm[list[Cache]]:
    """One forward pass and one wait per token. No baseline may be slower than this."""
    stops = set(pair.tokenizer.eos_token_ids) if ends else set[int]()

    def start(ids: Sequence[int], most: int, caches: list[Cache]) -> Iterator[Step]:
        for at in range(0, len(ids) - 1, CHUNK):
            mx.eval(pair.target(mx.array(list(ids[at : min(at + CHUNK, len(ids) - 1)]))[None], cache=caches))
        pending = mx.array(list(ids[-1:]))[None]
        for n in range(most):
            token = int(number(mx.argmax(pair.target(pending, cache=caches)[0, -1])))
            ended = token in stops
            reason = "stop" if ended else "length" if n + 1 == most else None
            yield Step((token,), finish_reason=reason)
            if ended:
                return
            pending = mx.array([[token]])

    return Arm(VERIFY1, "verify1", "engine.bench.verify1", decode=start, oracle=NATIVE, **_over(pair, cache))


def incremental(pair: Pair, cache: str, *, ends: bool = True) -> Arm[list[Cache]]:
    """Our loop without any drafts."""
    config = {"block_size": 1, "lookup": False, "adaptive": False}
    return _ours(pair, INCREMENTAL, "reference", cache, None, config, ends=ends)


class Decoding(Protocol):
    """What all arms of a plan share; see :class:``engine.evals.speculation.bench.SpeculationPlan``."""

    @property
    def cache(self) -> str: ...  # noqa: D102
    @property
    def block(self) -> int | None: ...  # noqa: D102
    @property
    def fixed_length(self) -> bool: ...  # noqa: D102
    @property
    def torch_device(self) -> str | None: ...  # noqa: D102


def speculative(pair: Pair, drafter: str, rollback: str, plan: Decoding, loop: str) -> Arm[list[Cache]]:
    """Our loop with drafts. The arm is named after drafter, rollback and, unless it is lazy, loop.

    Args:
        pair: what decodes.
        drafter: ``dflash`` (the model alone), ``torch`` (the same in torch), ``rescaled`` (the same
            for a pair whose drafter has another factor), ``lookup`` (the text alone) or ``adaptive`` (whichever pays).
        rollback: see :func:``engine.dflash.rollback.rollback_for``.
        plan: caches, block and length.
        loop: see :func:``engine.dflash.stream_generate``.
    """
    config = {
        "block_size": plan.block,
        "lookup": drafter not in MODEL_ALONE,
        "adaptive": drafter == "adaptive",
        "rollback": rollback,
        "loop": loop,
    }
    draft = None if drafter == "lookup" else pair.draft
    if drafter == "torch":
        return _hybrid(pair, arm_name(drafter, rollback, loop), plan, config)
    return _ours(
        pair,
        arm_name(drafter, rollback, loop),
        "candidate",
        plan.cache,
        draft,
        config,
        ends=not plan.fixed_length,
    )


def _hybrid(pair: Pair, name: str, plan: Decoding, config: dict[str, Any]) -> Arm[list[Cache]]:
    """Return an arm whose draft model runs in torch; it counts what crosses between torch and MLX."""
    from engine.dflash.drafter.in_torch import TorchDrafter

    draft = TorchDrafter(pair.draft, plan.torch_device)
    arm = _ours(pair, name, "candidate", plan.cache, draft, config, ends=not plan.fixed_length)

    def begin(decode: Decode | None) -> Decode | None:
        def start(ids: Sequence[int], most: int, caches: list[Cache]) -> Iterator[Step]:
            draft.crossings.clear()
            return decode(ids, most, caches) if decode else iter(())

        return start if decode else None

    def counted() -> dict[str, int]:
        return {"crossings": draft.crossings.count, "crossed_bytes": draft.crossings.nbytes}

    options = {**arm.options, "runtime": f"torch {draft.device}"}
    return replace(
        arm, decode=begin(arm.decode), profile=begin(arm.profile), counted=counted, options=options
    )


def arm_name(drafter: str, rollback: str, loop: str) -> str:
    """Return the name of a candidate."""
    return f"{drafter}/{rollback}" + (f"/{loop}" if loop != "lazy" else "")


def endless(tokenizer: Tokenizer) -> Tokenizer:
    """Return a copy of mlx-lm's wrapper to which no token ends an answer."""
    copied = copy.copy(tokenizer)
    vars(copied)["_eos_token_ids"] = set()  # the wrapper has a setter, which its protocol here does not show
    return copied


def _ours(
    pair: Pair, name: str, role: str, cache: str, draft: Any, config: dict[str, Any], *, ends: bool
) -> Arm[list[Cache]]:
    stops = {} if ends else {"stop_tokens": ()}
    policy = Adaptive() if config["adaptive"] else False  # as a server keeps what it has learnt

    def start(ids: Sequence[int], most: int, caches: list[Cache], **more: Any) -> Iterator[Step]:
        options = {**config, **stops, **more, "adaptive": policy}
        return stream_generate(
            pair.target, draft, pair.tokenizer, ids, max_tokens=most, caches=caches, **options
        )

    def profile(ids: Sequence[int], most: int, caches: list[Cache]) -> Iterator[Step]:
        return start(ids, most, caches, loop="two-phase")

    slow = profile if role == "candidate" and config.get("loop", "lazy") == "lazy" else None
    oracle = NATIVE if is_stock(cache) else f"{NATIVE} {cache}"
    options = {
        **config,
        "rotary_tables": tables_pay(),
        "early_layers": starts_early(config.get("loop", "lazy")),
    }
    options["products"] = form_of(pair.target)
    if draft is not None:
        options["embed_scale"] = DraftEmbeddings(TargetEmbeddings.of(pair.target), draft.config).scale
    return Arm(
        name, role, OUR_LOOP, decode=start, oracle=oracle, options=options, profile=slow, **_over(pair, cache)
    )


def _over(pair: Pair, cache: str) -> dict[str, Any]:
    """Return an arm's facts about its caches: their spec, their factory, and the names replaced in mlx-lm."""
    patches = patches_of(pair.target, make_caches(pair.target, cache))
    return {"cache": cache, "patches": patches, "make": lambda _: make_caches(pair.target, cache)}
