"""Needle recall: measures whether a model finds a code in padding, with each cache and with the raw one."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from bridge.reports import kinds
from bridge.reports.kinds import STOCK_LOOP
from engine.cache import make_caches
from engine.cache.factory import patches_of
from engine.cache.protocol import Cache
from engine.cache.spec import parse
from engine.cache.wrapping import uncompressed_layers
from engine.dflash.step import Step
from engine.errors import BadInput
from engine.evals.controls import Change, control_caches, noise, same
from engine.evals.liveness import counters
from engine.evals.needles import Needle, workload
from engine.evals.predictions import Predictions
from engine.evals.speculation.bench import explain
from engine.harness import rows
from engine.harness.arm import Arm, Decode, Turn, interleave
from engine.harness.job import Job, config_of, sections
from engine.harness.rows import CHUNK, Row
from engine.harness.steady import until_steady
from engine.lm import generate_step
from engine.models import Pair
from engine.mx import mx, nn

NeedleArm = Arm[list[Cache]]

KIND = kinds.RECALL
BASELINE, IDENTITY, POISON = "raw", "identity", "poison"
TRY = 4  # tokens to test whether a model can use a cache at all


@dataclass(frozen=True)
class NeedlePlan:
    """What is measured with needles."""

    # Specs of `engine.cache.make_caches`, without `raw`, which always runs.
    caches: Sequence[str] = ("e8v@4.25",)
    lengths: Sequence[int] = (256, 512, 1024)  # of the prompts, in tokens
    depths: Sequence[float] = (0.1, 0.5, 0.9)  # of the needles, between 0 and 1
    samples: int = 5  # prompts of each length and depth
    max_tokens: int = 16  # of an answer
    seed: int = 42  # of prompts and noise
    chat: bool = False  # ask through the tokenizer's chat template

    def config(self) -> dict[str, Any]:
        """Return the ``config`` of the report."""
        return config_of(self) | {"temperature": 0.0}


@dataclass(frozen=True)
class RecallPlan(NeedlePlan):
    """The same, for caches that hold all positions."""

    boundary: int = 0  # key-value layers left raw at either end
    chunk: int = CHUNK  # tokens of a prompt at once


def stock(model: nn.Module, chunk: int) -> Decode:
    """Return mlx-lm's own loop, which reads ``chunk`` tokens of a prompt at once."""

    def decode(ids: Sequence[int], most: int, caches: list[Cache]) -> Iterator[Step]:
        stream = generate_step(
            mx.array(list(ids)), model, max_tokens=most, prompt_cache=caches, prefill_step_size=chunk
        )
        for token, _ in stream:
            yield Step((int(token),))

    return decode


def arms_of(model: nn.Module, plan: RecallPlan) -> tuple[list[NeedleArm], dict[str, str]]:
    """Return the raw cache, each cache of a plan and the controls; and the caches left out, with the reason.

    The controls store everything before the question unchanged, and replaced by noise.

    Raises:
        BadInput: the model can use none of the caches.
    """
    tried, left_out = try_caches(model, plan.caches, plan.boundary)
    decode = stock(model, plan.chunk)

    def arm(name: str, role: str, make: Callable[[Needle], list[Cache]], **more: Any) -> NeedleArm:
        return Arm(name, role, STOCK_LOOP, make, decode, oracle=BASELINE, **more)

    def control(role: str, change: Callable[[], Change]) -> NeedleArm:
        where = {"positions": "before the question"}
        return arm(role, role, lambda n: control_caches(model, change(), n.question_at), options=where)

    arms = [Arm(BASELINE, "baseline", STOCK_LOOP, lambda _: make_caches(model, "raw"), decode)]
    for spec, cache in tried.items():
        options = {"boundary": plan.boundary, "raw_layers": cache.raw_layers}
        make = lambda _, s=spec: make_caches(model, s, plan.boundary)  # noqa: E731
        arms.append(arm(spec, "candidate", make, cache=spec, patches=cache.patches, options=options))
    controls = [control(IDENTITY, lambda: same), control(POISON, lambda: noise(plan.seed))]
    return [*arms, *controls], left_out


class Tried(NamedTuple):
    """The result of trying a cache: the library functions that it replaces, and the layers that it leaves raw."""

    patches: tuple[str, ...]
    raw_layers: list[int]


def try_caches(
    model: nn.Module, specs: Iterable[str], boundary: int
) -> tuple[dict[str, Tried], dict[str, str]]:
    """Try caches on a model: return the caches that it can use, and why it cannot use the others.

    Neither result has the raw cache, which every model can use.

    Raises:
        BadInput: there is no such cache, or the model can use none of them.
    """
    specs = tuple(specs)
    usable_specs: dict[str, Tried] = {}
    left_out: dict[str, str] = {}
    for spec in dict.fromkeys(parse(spec).text for spec in specs if spec != "raw"):
        try:
            usable_specs[spec] = _attempt(model, spec, boundary)
        except BadInput as error:
            left_out[spec] = error.message
            fix = error.fix
    if left_out and not usable_specs and "raw" not in specs:
        raise BadInput(f"no cache is left to measure: {'; '.join(left_out.values())}", fix)
    return usable_specs, left_out


def _attempt(model: nn.Module, spec: str, boundary: int) -> Tried:
    caches = make_caches(model, spec, boundary)
    mx.eval(model(mx.zeros((1, TRY), dtype=mx.int32), cache=caches))
    if not counters(caches)["injected_positions"]:
        message = f"the cache {spec} would leave every layer of this model raw"
        raise BadInput(message, "a smaller --boundary" if boundary else "another cache")
    return Tried(patches_of(model, caches), uncompressed_layers(caches))


def row(
    turn: Turn[NeedleArm, Needle], pair: Pair, most: int, *, ends: bool = True, warmup: bool = False
) -> Row:
    """Let an arm answer a prompt with at most ``most`` tokens; return the row without its identifying fields.

    With ``ends`` False, no token ends the answer.
    """
    stops = set(pair.tokenizer.eos_token_ids) if ends else set[int]()
    caches = turn.arm.make(turn.prompt)
    decoded, _ = rows.decode(turn.arm, turn.prompt.prompt.ids, most, stops, caches)
    if warmup:
        decoded["warmup"] = True
    return {**decoded, "text": pair.tokenizer.decode(decoded["tokens"]), "counters": counters(caches)}


def job(
    kind: str,
    pair: Pair,
    arms: Sequence[NeedleArm],
    needles: Sequence[Needle],
    plan: NeedlePlan,
    config: dict[str, Any],
    *,
    repeats: int = 1,
    max_repeats: int | None = None,
    fixed_length: bool = False,
    predictions: Predictions | None = None,
) -> Job:
    """Return the job with which every arm answers every prompt, ``kakeya.recall`` or ``kakeya.restored-prefill``.

    With more than one of ``repeats``, another one before them warms up, and as many as ``max_repeats`` follow if their
    times differ much. ``config`` is every option of the run that is not in the plan. ``predictions`` compares the
    predictions within each prompt; None compares answers alone.
    """
    warms = repeats > 1

    def measure(turn: Turn[NeedleArm, Needle]) -> list[Row]:
        answer = row(turn, pair, plan.max_tokens, ends=not fixed_length, warmup=warms and turn.repeat == 0)
        return [answer | (predictions(turn) if predictions else {})]

    def finish(measured: list[Row]) -> None:
        """Explain differing tokens of exact values, which attention may add in another order."""
        exact = {arm.name for arm in arms if arm.role in ("baseline", "identity")}
        some = [row for row in measured if row["arm"] in exact]
        explain(some, arms, [needle.prompt for needle in needles], pair, plan.config()["chunk"])

    prompts = {"prompts": [needle.section() for needle in needles]}
    return Job(
        kind,
        sections(pair, [workload(needles)], arms, chat=plan.chat) | prompts,
        {**plan.config(), **config},
        turns=list(interleave(arms, needles, range(repeats + warms))),
        further=until_steady(arms, needles, repeats, max_repeats or repeats),
        measure=measure,
        finish=finish,
    )
