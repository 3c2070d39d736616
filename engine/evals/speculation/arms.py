"""The arms of decoding benchmarks: loops that decode greedily after a prompt."""

from collections.abc import Iterator, Sequence
from typing import Any

from engine.cache import make_caches
from engine.cache.factory import patches_of
from engine.cache.protocol import Cache
from engine.cache.spec import parse
from engine.dflash import stream_generate
from engine.dflash.step import Step
from engine.dflash.target.rotary import tables_pay
from engine.lm import stream_generate as native_stream
from engine.measure.arm import Arm
from engine.measure.rows import CHUNK, STOCK_LOOP
from engine.models import Pair
from engine.mx import mx, number

OUR_LOOP = "engine.dflash.stream_generate"
NATIVE, VERIFY1, INCREMENTAL = "native", "verify1", "incremental"


def is_stock(cache: str) -> bool:
    """Say whether a cache is one of mlx-lm's own, so that a baseline may keep it."""
    return parse(cache).family in {"raw", "affine"}


def native(pair: Pair, cache: str) -> Arm[list[Cache]]:
    """mlx-lm's own generation, over a cache of its own: a baseline. Over another one: a reference, named after it."""

    def start(ids: Sequence[int], most: int, caches: list[Cache]) -> Iterator[Step]:
        found = native_stream(pair.target, pair.tokenizer, mx.array(list(ids)), most, prompt_cache=caches)
        for response in found:
            yield Step((response.token,), text=response.text, finish_reason=response.finish_reason)

    through = {"through": "mlx_lm.stream_generate"}
    name, role = (NATIVE, "baseline") if is_stock(cache) else (f"{NATIVE} {cache}", "reference")
    return Arm(name, role, STOCK_LOOP, decode=start, options=through, **_over(pair, cache))


def verify1(pair: Pair, cache: str) -> Arm[list[Cache]]:
    """One forward pass and one wait a token: what no baseline may be slower than."""

    def start(ids: Sequence[int], most: int, caches: list[Cache]) -> Iterator[Step]:
        for at in range(0, len(ids) - 1, CHUNK):
            mx.eval(pair.target(mx.array(list(ids[at : min(at + CHUNK, len(ids) - 1)]))[None], cache=caches))
        pending = mx.array(list(ids[-1:]))[None]
        for n in range(most):
            token = int(number(mx.argmax(pair.target(pending, cache=caches)[0, -1])))
            ended = token in pair.tokenizer.eos_token_ids
            reason = "stop" if ended else "length" if n + 1 == most else None
            yield Step((token,), finish_reason=reason)
            if ended:
                return
            pending = mx.array([[token]])

    return Arm(VERIFY1, "verify1", "engine.bench.verify1", decode=start, oracle=NATIVE, **_over(pair, cache))


def incremental(pair: Pair, cache: str) -> Arm[list[Cache]]:
    """Our loop without any drafts."""
    told = {"block_size": 1, "lookup": False, "adaptive": False}
    return _ours(pair, INCREMENTAL, "reference", cache, None, told)


def speculative(pair: Pair, drafter: str, rollback: str, cache: str, block: int | None) -> Arm[list[Cache]]:
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


def _ours(pair: Pair, name: str, role: str, cache: str, draft: Any, told: dict[str, Any]) -> Arm[list[Cache]]:
    def start(ids: Sequence[int], most: int, caches: list[Cache], **more: Any) -> Iterator[Step]:
        return stream_generate(
            pair.target, draft, pair.tokenizer, ids, max_tokens=most, caches=caches, **told, **more
        )

    def profile(ids: Sequence[int], most: int, caches: list[Cache]) -> Iterator[Step]:
        return start(ids, most, caches, profile=True)

    slow = profile if role == "candidate" else None
    oracle = NATIVE if is_stock(cache) else f"{NATIVE} {cache}"
    options = {**told, "rotary_tables": tables_pay()}
    return Arm(
        name, role, OUR_LOOP, decode=start, oracle=oracle, options=options, profile=slow, **_over(pair, cache)
    )


def _over(pair: Pair, cache: str) -> dict[str, Any]:
    """Return what an arm says of its caches: their spec, what makes them, what they need bound anew."""
    patches = patches_of(pair.target, make_caches(pair.target, cache))
    return {"cache": cache, "patches": patches, "make": lambda _: make_caches(pair.target, cache)}
