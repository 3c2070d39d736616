"""The arms of decoding benchmarks: loops that decode greedily after a prompt."""

import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from importlib import metadata, util
from typing import Any

from bridge.reports.kinds import STOCK_LOOP
from engine.cache import make_caches
from engine.cache.factory import patches_of
from engine.cache.kinds import kind_of
from engine.cache.protocol import Cache
from engine.cache.spec import parse
from engine.dflash import stream_generate
from engine.dflash.generation import evaluates_early
from engine.dflash.kinds import DFLASH, KINDS
from engine.dflash.propose.adaptive import Adaptive
from engine.dflash.step import Step
from engine.dflash.target.embeddings import drafter_scale
from engine.dflash.target.small_gemm import form_of
from engine.harness.arm import Arm
from engine.harness.rows import CHUNK
from engine.inject import NAME as PACKAGE
from engine.inject.package import load_drafter, steps
from engine.inject.strategy import MAKER, replaced
from engine.lm import stream_generate as native_stream
from engine.models import Pair
from engine.mx import mx, number, on_cpu
from engine.tokens import Tokenizer

OUR_LOOP = "engine.dflash.stream_generate"
NATIVE, VERIFY1, INCREMENTAL = "native", "verify1", "incremental"
# Further drafters are ``torch`` (the draft model with layers in torch) and ``rescaled`` (with the other
# embedding factor).
DRAFTERS = ("dflash", "lookup", "adaptive")
RESCALED = "rescaled"
MODEL_ALONE = {*KINDS, "torch", RESCALED}

SpeculationArm = Arm[list[Cache]]


@dataclass(frozen=True)
class SpeculationPlan:
    """What is measured."""

    # Names from `DRAFTERS`, `torch` or `rescaled`. Drafters that need a draft model are left out if the pair
    # has none, and `rescaled` is left out if both factors are the same.
    drafters: Sequence[str] = DRAFTERS
    # Each drafter runs with each rollback; rollbacks that the model's caches do not support are left out.
    rollbacks: Sequence[str] = ("auto",)
    # Each drafter runs with each loop; see `engine.dflash.stream_generate`. Except with `lazy`, rows have the
    # times of each round's draft, verification and wait.
    loops: Sequence[str] = ("lazy",)
    cache: str = "raw"  # the caches' spec, for all arms but the package, which takes raw ones only
    block: int | None = None  # the most rows to verify at once; None takes the drafter's own
    max_tokens: int = 128  # decoded after each prompt, at most
    repeats: int = 5  # counted runs of each arm on each prompt; one more, before them, is not counted
    # Up to this many repeats, until times are steady and each speed-up is known within 5 %; None: no extra
    # repeats.
    max_repeats: int | None = None
    package: bool = True  # whether the `dflash` package takes part where it is installed
    fixed_length: bool = False  # decode past the tokens that end answers, always `max_tokens` tokens
    content_channel: bool = False  # begin answers behind the mark of the content channel; for chat models
    torch_device: str | None = None  # where torch drafts: `cpu`, `mps` or `cuda`; None for the best one


def is_stock(cache: str) -> bool:
    """Return whether a cache is one of mlx-lm's own, so that a baseline may use it."""
    return kind_of(parse(cache)).stock


def native(pair: Pair, cache: str, *, ends: bool = True) -> SpeculationArm:
    """mlx-lm's own generation: a baseline over mlx-lm's own caches, otherwise a reference named after the cache.

    With ``ends`` False, no token ends an answer.
    """
    tokenizer = pair.tokenizer if ends else without_stop_tokens(pair.tokenizer)

    def start(ids: Sequence[int], most: int, caches: list[Cache]) -> Iterator[Step]:
        stream = native_stream(pair.target, tokenizer, mx.array(list(ids)), most, prompt_cache=caches)
        for response in stream:
            yield Step((response.token,), text=response.text, finish_reason=response.finish_reason)

    through = {"through": "mlx_lm.stream_generate"}
    name, role = (NATIVE, "baseline") if is_stock(cache) else (f"{NATIVE} {cache}", "reference")
    return Arm(name, role, STOCK_LOOP, decode=start, options=through, **_over(pair, cache))


def verify1(pair: Pair, cache: str, *, ends: bool = True) -> SpeculationArm:
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


def incremental(pair: Pair, cache: str, *, ends: bool = True) -> SpeculationArm:
    """Our loop without any drafts."""
    config = {"block_size": 1, "lookup": False, "adaptive": False}
    return _ours(pair, INCREMENTAL, "reference", cache, None, config, ends=ends)


def speculative(pair: Pair, drafter: str, rollback: str, plan: SpeculationPlan, loop: str) -> SpeculationArm:
    """Our loop with drafts. The arm's name has drafter, rollback and, unless it is `lazy`, the loop.

    Of a plan's drafters, ``lookup`` drafts from the text alone, ``adaptive`` with whichever pays, the others with the
    model alone; for ``rescaled``, the pair's drafter has another factor.
    """
    config = {
        "block_size": plan.block,
        "lookup": drafter not in MODEL_ALONE,
        "adaptive": drafter == "adaptive",
        "rollback": rollback,
        "loop": loop,
    }
    name = f"{drafter}/{rollback}" + (f"/{loop}" if loop != "lazy" else "")
    draft: Any = None if drafter == "lookup" else pair.draft
    if drafter == "torch":
        from engine.dflash.drafter.in_torch import TorchDrafter

        draft = TorchDrafter(pair.draft, plan.torch_device)
    arm = _ours(pair, name, "candidate", plan.cache, draft, config, ends=not plan.fixed_length)
    if drafter != "torch":
        return arm

    def counted() -> dict[str, int]:
        counts = {"crossings": draft.crossings.count, "crossed_bytes": draft.crossings.nbytes}
        draft.crossings.clear()
        return counts

    return replace(arm, counted=counted, options={**arm.options, "runtime": f"torch {draft.device}"})


def without_stop_tokens(tokenizer: Tokenizer) -> Tokenizer:
    """Return a copy of mlx-lm's wrapper for which no token ends an answer."""
    copied = copy.copy(tokenizer)
    vars(copied)["_eos_token_ids"] = set()  # the wrapper has a setter, which its protocol here does not show
    return copied


def _ours(
    pair: Pair, name: str, role: str, cache: str, draft: Any, config: dict[str, Any], *, ends: bool
) -> SpeculationArm:
    stops = {} if ends else {"stop_tokens": ()}
    policy = Adaptive() if config["adaptive"] else False  # kept between runs, as a server keeps it

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
        "rotary_tables": on_cpu(),
        "early_layers": evaluates_early(config.get("loop", "lazy")),
        "products": form_of(pair.target),
    }
    if draft is not None and draft.kind == DFLASH:
        options["embed_scale"] = drafter_scale(draft.config, pair.target)
    return Arm(
        name, role, OUR_LOOP, decode=start, oracle=oracle, options=options, profile=slow, **_over(pair, cache)
    )


def _over(pair: Pair, cache: str) -> dict[str, Any]:
    """Return an arm's fields about its caches: spec, factory, and the names replaced in mlx-lm."""
    patches = patches_of(pair.target, make_caches(pair.target, cache))
    return {"cache": cache, "patches": patches, "make": lambda _: make_caches(pair.target, cache)}


def package_arm(pair: Pair, block: int | None) -> SpeculationArm | None:
    """The ``dflash`` package; None if it is not installed or the pair has no drafter.

    It leaves hooks on its target, so it gets a model object of its own over the same arrays. It creates its caches
    itself, with a function in its module. During a run, that function is replaced by one that records the caches.
    ``block`` is the most rows to verify at once; None uses the drafter's own number.
    """
    # A block of one token drafts nothing, which the package does not support.
    if pair.draft is None or pair.draft.kind != DFLASH or block == 1 or util.find_spec("dflash") is None:
        return None
    package, draft = load_drafter(pair)
    target = pair.another_target()

    def start(ids: Sequence[int], most: int, caches: list[Cache]) -> Iterator[Step]:
        def make(model: Any, *args: Any, **kwargs: Any) -> list[Any]:
            built: list[Cache] = original(model, *args, **kwargs)
            if model is target:
                caches.extend(built)
            return built

        original = getattr(package, MAKER)
        with replaced(package, MAKER, make):
            yield from steps(
                package.stream_generate(
                    target, draft, pair.tokenizer, mx.array(list(ids)), block_size=block, max_tokens=most
                ),
                block or int(draft.config.block_size),
                most,
            )

    return Arm(
        PACKAGE,
        "reference",
        "dflash.model_mlx.stream_generate",
        lambda _: [],  # the package creates its own
        start,
        oracle=NATIVE,
        patches=(f"dflash.model_mlx.{MAKER}",),
        options={"version": metadata.version("dflash"), "block_size": block},
    )
