"""Caches at the bits that they store: error of keys and values, and what it does to the next token.

Every cache is given the same captured keys and values, which shows bits and error, and then serves the model
itself over the same text, which shows how far its predictions move from those of the raw cache.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from engine.attention import router
from engine.cache import make_caches
from engine.cache.spec import parse
from engine.codec.classic import ClassicCodec
from engine.errors import BadInput
from engine.evals.controls import control_caches, noise, same
from engine.evals.liveness import counters
from engine.evals.recall import usable
from engine.evals.storage import HOLDERS, halved, read_back, stored
from engine.lm import cache as lm_cache
from engine.measure.journal import Journal
from engine.measure.prompts import Prompt
from engine.mx import mx, nn

KIND = "kakeya.kv-quant"
LOOP = "engine.evals.quant.teacher_forced"
BASELINE = "raw"
EVERYWHERE = 1 << 40
CHUNK = 512
LEAST = 16


@dataclass(frozen=True)
class Plan:
    """What is measured.

    Attributes:
        caches: specs of :func:`engine.cache.make_caches`, without ``raw``, which always runs.
        tokens: of each text, at most.
        seed: of the noise.
        store: ``float16`` keeps keys and values of a float32 model in half precision; ``model`` as they come.
        boundary: key-value layers left raw at either end.
    """

    caches: Sequence[str]
    tokens: int = 512
    seed: int = 42
    store: str = "float16"
    boundary: int = 0

    def config(self) -> dict[str, Any]:
        """Return the ``config`` of the report."""
        return {**asdict(self), "caches": list(self.caches)}


@dataclass(frozen=True)
class Arm:
    """One cache: its place in the report, and what makes it."""

    section: dict[str, Any]
    make: Callable[[], list[Any]]


def arms_of(model: nn.Module, plan: Plan) -> tuple[list[Arm], dict[str, str]]:
    """Return the raw cache, those of the plan and the controls; and the caches left out, with the reason.

    Raises:
        BadInput: the model can use none of the caches.
    """
    usable_here, left_out = usable(model, plan.caches, plan.boundary)
    half = plan.store == "float16" and _is_wide(model)

    def arm(name: str, role: str, cache: str, make: Callable[[], list[Any]], **more: Any) -> Arm:
        options = {"stored_as": "float16" if half else "model", **more.pop("options", {})}
        about = {"name": name, "role": role, "loop": LOOP, "cache": cache, "patches": [], "options": options}
        return Arm(about | more, (lambda: halved(make())) if half else make)

    found = [arm(BASELINE, "baseline", "raw", lambda: make_caches(model, "raw"))]
    for spec, tried in usable_here.items():
        options = {"boundary": plan.boundary, "raw_layers": tried.raw_layers, **_nominal(spec, model)}
        make = lambda s=spec: make_caches(model, s, plan.boundary)  # noqa: E731
        found.append(arm(spec, "candidate", spec, make, patches=list(tried.patches), options=options))
    found.append(arm("identity", "identity", "raw", lambda: control_caches(model, same, EVERYWHERE)))
    found.append(arm("poison", "poison", "raw", lambda: control_caches(model, noise(plan.seed), EVERYWHERE)))
    return found, left_out


def _is_wide(model: nn.Module) -> bool:
    """Say whether the model's keys come in float32."""
    caches = lm_cache.make_prompt_cache(model)
    mx.eval(model(mx.zeros((1, 1), dtype=mx.int32), cache=caches))
    return any(isinstance(c, HOLDERS) and c.keys.dtype == mx.float32 for c in caches)


def _nominal(spec: str, model: nn.Module) -> dict[str, Any]:
    """Return the bits that the published formula gives a published codec; nothing for others."""
    parsed = parse(spec)
    if parsed.family != "classic":
        return {}
    caches = lm_cache.make_prompt_cache(model)
    mx.eval(model(mx.zeros((1, 1), dtype=mx.int32), cache=caches))
    dims = [x.shape[-1] for c in caches if isinstance(c, HOLDERS) for x in (c.keys, c.values)]
    bits = sum(ClassicCodec(parsed.lattice, dim, parsed.q_range).bits_per_vector for dim in dims)
    return {"nominal_bits_per_value": bits / sum(dims)}


class _Recorder:
    """A cache that keeps what came in beside passing it on."""

    def __init__(self, inner: Any) -> None:
        self.inner, self.seen = inner, []

    def update_and_fetch(self, keys: mx.array, values: mx.array) -> Any:
        self.seen.append((keys, values))
        return self.inner.update_and_fetch(keys, values)

    def __getattr__(self, name: str) -> Any:
        if name in {"inner", "seen"} or name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.inner, name)


@dataclass(frozen=True)
class Reference:
    """What the raw cache saw and said on one text.

    Attributes:
        logprobs: float32 ``[tokens - 1, vocabulary]``.
        pairs: keys and values of each layer that has a cache of its own, ``[1, heads, tokens, dim]``.
        layers: the indices of these layers' caches.
    """

    logprobs: mx.array
    pairs: list[tuple[mx.array, mx.array]]
    layers: list[int]


def teacher_forced(model: nn.Module, tokens: mx.array, caches: list[Any]) -> mx.array:
    """Return the log-probabilities after each token but the last, float32 ``[tokens - 1, vocabulary]``."""
    parts = []
    for start in range(0, tokens.shape[1], CHUNK):
        logits = model(tokens[:, start : start + CHUNK], cache=caches)[0].astype(mx.float32)
        parts.append(logits - mx.logsumexp(logits, axis=-1, keepdims=True))
        mx.eval(parts[-1])
    return mx.concatenate(parts)[:-1]


def reference(model: nn.Module, tokens: mx.array, arm: Arm) -> Reference:
    """Run the raw cache over tokens, int ``[1, n]``."""
    caches = arm.make()
    layers = [i for i, cache in enumerate(caches) if "inner" in vars(cache) or isinstance(cache, HOLDERS)]
    recorders = {i: _Recorder(caches[i]) for i in layers}
    with router.unrouted():
        logprobs = teacher_forced(model, tokens, [recorders.get(i, c) for i, c in enumerate(caches)])
    pairs = [
        tuple(mx.concatenate(side, axis=2) for side in zip(*recorder.seen, strict=True))
        for recorder in recorders.values()
    ]
    mx.eval(pairs)
    return Reference(logprobs, pairs, layers)


def score(model: nn.Module, tokens: mx.array, arm: Arm, known: Reference) -> dict[str, Any]:
    """Return a row, but for its names: bits and error on the captured vectors, and what the model then says."""
    fresh = arm.make()
    fed = [fresh[i] for i in known.layers]
    error = energy = 0.0
    count = 0
    for cache, pair in zip(fed, known.pairs, strict=True):
        for x, back in zip(pair, read_back(cache, *pair), strict=True):
            came = _as_stored(x, cache)
            error += mx.square(back[..., -x.shape[2] :, :] - came).sum().item()
            energy += mx.square(came).sum().item()
            count += x.size
    caches = arm.make()
    if arm.section["patches"]:
        logprobs = teacher_forced(model, tokens, caches)
    else:
        with router.unrouted():
            logprobs = teacher_forced(model, tokens, caches)
    return {
        "memory": stored(fed, [[_as_stored(x, c) for x in p] for c, p in zip(fed, known.pairs, strict=True)]),
        "n_values": count,
        "sum_squared_error": error,
        "sum_squares": energy,
        **_distance(known.logprobs, logprobs, tokens),
        "counters": counters(caches),
    }


def _as_stored(x: mx.array, cache: Any) -> mx.array:
    """Return what an uncompressed cache would hold of ``x``, float32: errors are counted from there."""
    half = type(cache).__name__ == "HalfCache"
    return (x.astype(mx.float16) if half else x).astype(mx.float32)


def _distance(raw: mx.array, other: mx.array, tokens: mx.array) -> dict[str, Any]:
    kl = mx.maximum((mx.exp(raw) * (raw - other)).sum(axis=-1), 0)
    top = mx.argmax(raw, axis=-1) == mx.argmax(other, axis=-1)
    nll = -mx.take_along_axis(other, tokens[0, 1:, None], axis=-1)
    return {
        "n_positions": raw.shape[0],
        "sum_kl": kl.sum().item(),
        "same_top": int(top.sum().item()),
        "sum_nll": nll.sum().item(),
    }


def measure(
    model: nn.Module,
    arms: Sequence[Arm],
    prompts: Sequence[Prompt],
    journal: Journal,
    on_run: Callable[[], None] = lambda: None,
) -> None:
    """Score every cache on every text, but for the rows that the journal holds, and append the rows to it."""
    for prompt in prompts:
        missing = [arm for arm in arms if (arm.section["name"], prompt.id) not in journal]
        tokens = mx.array(prompt.ids)[None]
        known = reference(model, tokens, arms[0]) if missing else None
        for arm in arms:
            if arm in missing:
                named = {"arm": arm.section["name"], "prompt": prompt.id}
                journal.append(named | score(model, tokens, arm, known))
            on_run()


def windows(text: str, tokenizer: Any, tokens: int, most: int) -> list[Prompt]:
    """Return a text in pieces of so many tokens, at most ``most``, from its beginning; a short rest is left out.

    Raises:
        BadInput: the text is shorter than one piece.
    """
    ids = tokenizer.encode(text)
    starts = range(0, len(ids) - tokens + 1, tokens)
    if not starts:
        raise BadInput(
            f"the text has {len(ids)} tokens", f"give a longer one, or fewer than {tokens} --tokens"
        )
    pieces = [ids[start : start + tokens] for start in starts[:most]]
    return [Prompt(f"window-{i}", tokenizer.decode(p), tuple(map(int, p))) for i, p in enumerate(pieces)]


def cut(prompts: Sequence[Prompt], tokens: int) -> list[Prompt]:
    """Return the prompts with at most so many tokens each.

    Raises:
        BadInput: one is too short to say anything.
    """
    short = [prompt.id for prompt in prompts if len(prompt.ids) < LEAST]
    if short:
        raise BadInput(f"the text {short[0]!r} has fewer than {LEAST} tokens", "give longer texts")
    return [Prompt(prompt.id, prompt.text, prompt.ids[:tokens]) for prompt in prompts]
