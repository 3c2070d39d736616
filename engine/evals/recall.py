"""Needle recall: whether a model finds one code in padding, with each cache as with the raw one."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from engine.attention import router
from engine.cache import make_caches
from engine.cache.factory import patches_of
from engine.cache.spec import parse
from engine.cache.wrapping import left_raw
from engine.errors import BadInput
from engine.evals.controls import control_caches, noise, same
from engine.evals.liveness import counters
from engine.evals.needles import Needle
from engine.measure.journal import Journal
from engine.measure.rows import CHUNK, STOCK_LOOP, greedy
from engine.models import Pair
from engine.mx import mx

KIND = "kakeya.recall"
BASELINE, IDENTITY, POISON = "raw", "identity", "poison"
TRY = 4  # tokens that show whether a model takes a cache at all


@dataclass(frozen=True)
class Plan:
    """What is measured.

    Attributes:
        caches: specs of :func:`engine.cache.make_caches`, without ``raw``, which always runs.
        lengths: of the prompts, in tokens.
        depths: of the needles, between 0 and 1.
        samples: prompts of each length and depth.
        max_tokens: of an answer.
        seed: of prompts and noise.
        chat: ask through the tokenizer's chat template.
        boundary: key-value layers left raw at either end.
        chunk: tokens of a prompt at once.
    """

    caches: Sequence[str] = ("e8v@4.25",)
    lengths: Sequence[int] = (256, 512, 1024)
    depths: Sequence[float] = (0.1, 0.5, 0.9)
    samples: int = 5
    max_tokens: int = 16
    seed: int = 42
    chat: bool = False
    boundary: int = 0
    chunk: int = CHUNK

    def config(self) -> dict[str, Any]:
        """Return the ``config`` of the report."""
        return {name: list(x) if isinstance(x, tuple) else x for name, x in asdict(self).items()} | {
            "temperature": 0.0
        }


@dataclass(frozen=True)
class Arm:
    """One cache, or one control.

    Attributes:
        name: unique in a report.
        role: ``baseline``, ``candidate``, ``identity``, ``poison`` or ``evicted``.
        cache: its spec; ``raw`` for controls.
        make: gives fresh caches for a prompt.
        oracle: the arm that it is compared with.
        patches: what is bound anew in libraries while it runs; without any, mlx-lm runs as installed.
        options: what else it was told.
    """

    name: str
    role: str
    cache: str
    make: Callable[[Needle], list[Any]]
    oracle: str | None = BASELINE
    patches: tuple[str, ...] = ()
    options: tuple[tuple[str, Any], ...] = ()

    def section(self) -> dict[str, Any]:
        """Return its entry in a report."""
        names = ("name", "role", "cache", "oracle")
        about = {"loop": STOCK_LOOP, "patches": list(self.patches), "options": dict(self.options)}
        return {name: getattr(self, name) for name in names} | about


def arms_of(model: Any, plan: Plan) -> tuple[list[Arm], dict[str, str]]:
    """Return the raw cache, each cache of a plan and the controls; and the caches left out, with the reason.

    Raises:
        BadInput: the model can use none of the caches.
    """
    tried, left_out = usable(model, plan.caches, plan.boundary)
    found = [Arm(BASELINE, "baseline", "raw", lambda _: make_caches(model, "raw"), oracle=None)]
    for spec, what in tried.items():
        options = (("boundary", plan.boundary), ("raw_layers", what.raw_layers))
        make = lambda _, s=spec: make_caches(model, s, plan.boundary)  # noqa: E731
        found.append(Arm(spec, "candidate", spec, make, BASELINE, what.patches, options))
    return [*found, *_controls(model, plan)], left_out


def _controls(model: Any, plan: Plan) -> Iterator[Arm]:
    """Yield the raw cache with what is before the question put back as it was, and replaced by noise."""

    def put_back(needle: Needle) -> list[Any]:
        return control_caches(model, same, _before(needle))

    def poison(needle: Needle) -> list[Any]:
        return control_caches(model, noise(plan.seed), _before(needle))

    where = (("positions", "before the question"),)
    yield Arm(IDENTITY, "identity", "raw", put_back, options=where)
    yield Arm(POISON, "poison", "raw", poison, options=where)


def _before(needle: Needle) -> int:
    return len(needle.prompt.ids) - needle.asked


class Tried(NamedTuple):
    """What trying a cache showed: what is bound anew for it, and which layers it leaves as they are."""

    patches: tuple[str, ...]
    raw_layers: list[int]


def usable(model: Any, specs: Iterable[str], boundary: int) -> tuple[dict[str, Tried], dict[str, str]]:
    """Try caches on a model: return those that it can use, and why it cannot use the others.

    The raw cache, which every model can use, is among neither.

    Raises:
        BadInput: no such cache, or the model can use none of them.
    """
    specs = tuple(specs)
    found: dict[str, Tried] = {}
    left_out: dict[str, str] = {}
    for spec in dict.fromkeys(parse(spec).text for spec in specs if spec != "raw"):
        try:
            found[spec] = _attempt(model, spec, boundary)
        except BadInput as error:
            left_out[spec] = error.message
            remedy = error.fix
    if left_out and not found and "raw" not in specs:
        raise BadInput(f"no cache is left to measure: {'; '.join(left_out.values())}", remedy)
    return found, left_out


def _attempt(model: Any, spec: str, boundary: int) -> Tried:
    caches = make_caches(model, spec, boundary)
    mx.eval(model(mx.zeros((1, TRY), dtype=mx.int32), cache=caches))
    return Tried(patches_of(model, caches), left_raw(caches))


def schedule(arms: Sequence[Any], prompts: Sequence[Any]) -> Iterator[tuple[Any, Any]]:
    """Yield each arm on each prompt; arms take turns, and the first one changes from prompt to prompt."""
    for i, prompt in enumerate(prompts):
        at = i % len(arms)
        for arm in (*arms[at:], *arms[:at]):
            yield arm, prompt


def measure(
    pair: Pair,
    arms: Sequence[Arm],
    needles: Sequence[Needle],
    plan: Plan,
    journal: Journal,
    on_run: Callable[[], None] = lambda: None,
) -> None:
    """Decode every arm on every prompt, but for the rows that the journal holds, and append the rows to it."""
    ends = set(pair.tokenizer.eos_token_ids)
    for arm, needle in schedule(arms, needles):
        if (arm.name, needle.prompt.id) not in journal:
            caches = arm.make(needle)
            row = decode(pair.target, arm, needle, caches, plan, ends)
            row["text"] = pair.tokenizer.decode(row["tokens"])
            journal.append(row)
        on_run()


def decode(
    model: Any, arm: Arm, needle: Needle, caches: list[Any], plan: Any, ends: set[int]
) -> dict[str, Any]:
    """Decode once; arms without patches run with mlx-lm's own attention in place."""
    if arm.patches:
        done = greedy(model, needle.prompt.ids, caches, plan.max_tokens, ends, plan.chunk)
    else:
        with router.unrouted():
            done = greedy(model, needle.prompt.ids, caches, plan.max_tokens, ends, plan.chunk)
    named = {"arm": arm.name, "prompt": needle.prompt.id, "repeat": 0}
    return {**named, **done, "counters": counters(caches)}
