"""Compares caches at their stored bits: the error of keys and values, and its effect on the next token.

Every cache stores the same captured keys and values, which shows its bits and error. Then the model runs over it on
the same text, which shows how far predictions move from those with the raw cache.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from bridge.reports import kinds
from bridge.reports.repetition import words_of
from engine.cache import make_caches
from engine.cache.protocol import Cache
from engine.cache.proxy import CacheProxy
from engine.cache.spec import parse
from engine.codec.kinds import make_codec
from engine.errors import BadInput
from engine.evals import predictions
from engine.evals.controls import control_caches, noise, same
from engine.evals.liveness import counters
from engine.evals.recall import try_caches
from engine.evals.storage import HOLDERS, HalfCache, in_half_precision, read_back, stored
from engine.harness.arm import Arm, Turn, interleave
from engine.harness.job import Job, sections
from engine.harness.prompt_sets import Prompt, Workload
from engine.harness.rows import Row
from engine.lm import cache as lm_cache
from engine.models import Pair
from engine.mx import mx, nn, number
from engine.tokens import Tokenizer

KIND = kinds.KV_QUANT
LOOP = "engine.evals.quant.teacher_forced"
BASELINE = "raw"
EVERYWHERE = 1 << 40
CHUNK = 512
LEAST = 16

CacheArm = Arm[list[Cache]]


@dataclass(frozen=True)
class QuantPlan:
    """What is measured."""

    caches: Sequence[str]  # specs of `engine.cache.make_caches`, without `raw`, which always runs
    tokens: int = 512  # of each text, at most
    seed: int = 42  # of the noise
    # `float16` stores keys and values of a float32 model in half precision; `model` keeps the model's type.
    store: str = "float16"
    boundary: int = 0  # key-value layers left raw at either end


def arms_of(model: nn.Module, plan: QuantPlan) -> tuple[list[CacheArm], dict[str, str]]:
    """Return the raw cache, the plan's caches and the controls; and the caches left out, with the reason.

    Raises:
        BadInput: the model can use none of the caches.
    """
    usable_here, left_out = try_caches(model, plan.caches, plan.boundary)
    half = plan.store == "float16" and any(cache.keys.dtype == mx.float32 for cache in _tried(model))

    def arm(name: str, role: str, make: Callable[[], list[Cache]], **more: Any) -> CacheArm:
        options = {"stored_as": "float16" if half else "model", **more.pop("options", {})}
        return Arm(
            name, role, LOOP, lambda _: in_half_precision(make()) if half else make(), options=options, **more
        )

    arms = [arm(BASELINE, "baseline", lambda: make_caches(model, "raw"))]
    for spec, tried in usable_here.items():
        options = {"boundary": plan.boundary, "raw_layers": tried.raw_layers, **_nominal(spec, model)}
        make = lambda s=spec: make_caches(model, s, plan.boundary)  # noqa: E731
        arms.append(arm(spec, "candidate", make, cache=spec, patches=tried.patches, options=options))
    arms.append(arm("identity", "identity", lambda: control_caches(model, same, EVERYWHERE)))
    arms.append(arm("poison", "poison", lambda: control_caches(model, noise(plan.seed), EVERYWHERE)))
    return arms, left_out


def _tried(model: nn.Module) -> list[Any]:
    """Return the model's own caches that hold keys and values, after one token."""
    caches = lm_cache.make_prompt_cache(model)
    mx.eval(model(mx.zeros((1, 1), dtype=mx.int32), cache=caches))
    return [cache for cache in caches if isinstance(cache, HOLDERS)]


def _nominal(spec: str, model: nn.Module) -> dict[str, Any]:
    """Return the bits that the published formula gives a published codec; nothing for others."""
    parsed = parse(spec)
    if parsed.family != "classic":
        return {}
    dims = [x.shape[-1] for cache in _tried(model) for x in (cache.keys, cache.values)]
    bits = sum(make_codec(parsed, dim).bits_per_vector for dim in dims)
    return {"nominal_bits_per_value": bits / sum(dims)}


class _Recorder(CacheProxy, own=("seen",)):
    """A cache proxy that records its input."""

    def __init__(self, inner: Any) -> None:
        super().__init__(inner)
        self.seen: list[tuple[mx.array, mx.array]] = []

    def update_and_fetch(self, keys: mx.array, values: mx.array) -> Any:
        self.seen.append((keys, values))
        return self.inner.update_and_fetch(keys, values)

    def joined(self) -> tuple[mx.array, mx.array]:
        """Return all stored keys and all stored values."""
        keys, values = (mx.concatenate(list(side), axis=2) for side in zip(*self.seen, strict=True))
        return keys, values


@dataclass(frozen=True)
class Reference:
    """The raw cache's captured vectors and predictions on one text."""

    logprobs: mx.array  # float32 `[tokens - 1, vocabulary]`
    # Captured keys and values, `[1, heads, tokens, dim]`, by the index of their cache.
    pairs: dict[int, tuple[mx.array, mx.array]]


def teacher_forced(model: nn.Module, tokens: mx.array, caches: list[Cache]) -> mx.array:
    """Return the log-probabilities after each token but the last, float32 ``[tokens - 1, vocabulary]``."""
    return predictions.log_probabilities(model, tokens, caches, chunk=CHUNK)[:-1]


def reference(model: nn.Module, tokens: mx.array, arm: CacheArm) -> Reference:
    """Run the raw cache over tokens, int ``[1, n]``."""
    caches = arm.make(None)
    recorders = {
        i: _Recorder(cache)
        for i, cache in enumerate(caches)
        if "inner" in vars(cache) or isinstance(cache, HOLDERS)
    }
    with arm.attention():
        logprobs = teacher_forced(model, tokens, [recorders.get(i, c) for i, c in enumerate(caches)])
    pairs = {i: recorder.joined() for i, recorder in recorders.items()}
    mx.eval(list(pairs.values()))
    return Reference(logprobs, pairs)


def score(model: nn.Module, tokens: mx.array, arm: CacheArm, known: Reference) -> dict[str, Any]:
    """Return a row without its names: bits and error of the captured vectors, and figures of the predictions."""
    fresh = arm.make(None)
    error = energy = 0.0
    count = 0
    as_stored = {i: [_as_stored(x, fresh[i]) for x in pair] for i, pair in known.pairs.items()}
    for i, pair in known.pairs.items():
        for came, back in zip(as_stored[i], read_back(fresh[i], *pair), strict=True):
            error += number(mx.square(back[..., -came.shape[2] :, :] - came).sum())
            energy += number(mx.square(came).sum())
            count += came.size
    caches = arm.make(None)
    with arm.attention():
        logprobs = teacher_forced(model, tokens, caches)
    return {
        "memory": stored([fresh[i] for i in as_stored], list(as_stored.values())),
        "n_values": count,
        "sum_squared_error": error,
        "sum_squares": energy,
        **distance(known.logprobs, logprobs, tokens),
        "counters": counters(caches),
    }


def _as_stored(x: mx.array, cache: Any) -> mx.array:
    """Return what an uncompressed cache would store for ``x``, float32: the reference for errors."""
    return (x.astype(mx.float16) if isinstance(cache, HalfCache) else x).astype(mx.float32)


def distance(raw: mx.array, other: mx.array, tokens: mx.array) -> dict[str, Any]:
    """Return the summed distance of log-probabilities ``[tokens - 1, vocabulary]`` from those of the raw cache."""
    nll = -mx.take_along_axis(other, tokens[0, 1:, None], axis=-1)
    return {**predictions.distance(raw, other), "sum_nll": number(nll.sum())}


def job(pair: Pair, arms: Sequence[CacheArm], workloads: Sequence[Workload], config: dict[str, Any]) -> Job:
    """Return the job that scores every cache, the raw one first, on every encoded text."""
    model = pair.target
    prompts = [prompt for workload in workloads for prompt in workload.prompts]

    @lru_cache(maxsize=1)  # for the current text
    def known(ids: tuple[int, ...]) -> Reference:
        return reference(model, mx.array(ids)[None], arms[0])

    def measure(turn: Turn[CacheArm, Prompt]) -> list[Row]:
        return [score(model, mx.array(turn.prompt.ids)[None], turn.arm, known(turn.prompt.ids))]

    return Job(
        KIND,
        sections(pair, workloads, arms, oracle=False),
        config,
        # Nothing is timed, so each text's rows are in the order of the arms.
        turns=[turn for prompt in prompts for turn in interleave(arms, [prompt])],
        names=lambda turn: {"arm": turn.arm.name, "prompt": turn.prompt.id},
        measure=measure,
    )


def windows(text: str, tokenizer: Tokenizer, tokens: int, most: int) -> list[Prompt]:
    """Split a text into at most ``most`` pieces of ``tokens`` tokens; a short rest and repeated pieces are left out.

    Raises:
        BadInput: the text is shorter than one piece.
    """
    ids = tokenizer.encode(text)
    starts = range(0, len(ids) - tokens + 1, tokens)
    if not starts:
        raise BadInput(
            f"the text has {len(ids)} tokens", f"give a longer one, or fewer than {tokens} --tokens"
        )
    pieces: dict[str, Prompt] = {}
    for start in starts:
        piece = ids[start : start + tokens]
        text = tokenizer.decode(piece)
        pieces.setdefault(words_of(text), Prompt(f"window-{len(pieces)}", text, tuple(map(int, piece))))
        if len(pieces) == most:
            break
    return [*pieces.values()]


def cut(prompts: Sequence[Prompt], tokens: int) -> list[Prompt]:
    """Return the prompts, each cut to ``tokens`` tokens.

    Raises:
        BadInput: a prompt is too short to measure anything.
    """
    short = [prompt.id for prompt in prompts if len(prompt.ids) < LEAST]
    if short:
        raise BadInput(f"the text {short[0]!r} has fewer than {LEAST} tokens", "give longer texts")
    return [Prompt(prompt.id, prompt.text, prompt.ids[:tokens]) for prompt in prompts]
