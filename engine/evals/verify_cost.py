"""Measures the cost of verifying L tokens: one forward pass after a context, rolled back afterwards."""

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import cycle, islice
from pathlib import Path
from typing import Any, NamedTuple

from engine.cache import make_caches
from engine.dflash.rollback import Rollback, rollback_for
from engine.dflash.target.quick import quick_copy
from engine.evals.speculation.claims import LEAST_ROWS
from engine.measure import prompts, report
from engine.measure.job import Job, Made, measure
from engine.measure.journal import Journal
from engine.measure.rows import CHUNK, Row, Timed, timed
from engine.measure.schedule import Turn, interleave
from engine.models import Pair
from engine.mx import mx

KIND = "kakeya.verify-l"
LENGTHS = (1, 2, 4, 6, 8, 12, 16)
CONTEXTS = (128, 1024)

DEFINITIONS = {
    "verify_ms": "median milliseconds of a forward pass over where.length tokens on where.context cached ones, "
    "the likeliest token of each row included",
    "verify_ratio": "the median seconds of a forward pass over where.length tokens on where.context cached "
    "ones, over those of a pass over one token",
}


@dataclass(frozen=True)
class Sweep:
    """What is measured.

    Attributes:
        lengths: tokens in one pass.
        contexts: tokens in the caches before it.
        caches: specs of caches.
        repeats: counted passes of each; one more, before them, is not counted.
        left_out: caches that the model cannot use, with the reason.
    """

    lengths: Sequence[int] = LENGTHS
    contexts: Sequence[int] = CONTEXTS
    caches: Sequence[str] = ("raw",)
    repeats: int = 10
    left_out: Mapping[str, str] = field(default_factory=dict)


class Held:
    """A context in caches of one spec, on which passes are timed.

    Args:
        pair: what computes.
        spec: of the caches.
        ids: the context's tokens.
    """

    def __init__(self, pair: Pair, spec: str, ids: Sequence[int]) -> None:
        caches = make_caches(pair.target, spec)
        self._rollback: Rollback = rollback_for(caches, model=pair.target)
        self._model = self._rollback.prepare(quick_copy(pair.target))
        for start in range(0, len(ids), CHUNK):
            self._rollback.forward(self._model, mx.array(list(ids[start : start + CHUNK]))[None])
            self._rollback.commit(len(ids[start : start + CHUNK]))
            mx.eval([cache.state for cache in caches])

    def seconds(self, ids: Sequence[int]) -> float:
        """Return how long a pass over ``ids`` takes, with the likeliest token of each row on the host."""
        return self.timed(ids).at[0]

    def timed(self, ids: Sequence[int]) -> Timed:
        """Return when a pass over ``ids`` began and how long it took."""
        tokens = mx.array(list(ids))[None]
        mx.eval(tokens)
        return timed(self._pass(tokens))[1]

    def _pass(self, tokens: mx.array) -> Iterator[None]:
        """Yield once, when the likeliest token of each row is there; then take the pass back."""
        logits = self._rollback.forward(self._model, tokens)
        mx.argmax(logits, axis=-1).tolist()
        yield
        self._rollback.commit(0)


class Pass(NamedTuple):
    """What takes turns: a pass over so many tokens, over caches of one spec."""

    cache: str
    length: int


def job(pair: Pair, sweep: Sweep) -> Job:
    """Return what times every pass.

    On each context, lengths and caches take turns; the order moves on by one from repeat to repeat, and
    repeat 0 warms up. The tokens are Python code, for what a mixture of experts does depends on them.

    Args:
        pair: what computes.
        sweep: what is measured.
    """
    passes = [Pass(spec, length) for length in sweep.lengths for spec in sweep.caches]
    turns = [
        turn for context in sweep.contexts for turn in interleave(passes, [context], range(sweep.repeats + 1))
    ]
    text = _text(pair)
    contexts: dict[int, list[int]] = {}
    passed: dict[Turn[Pass, int], tuple[int, list[int]]] = {}  # which pass a turn is, and over what
    for number, turn in enumerate(turns):
        if turn.prompt not in contexts:
            contexts[turn.prompt] = list(islice(text, turn.prompt))
        passed[turn] = number, list(islice(text, turn.arm.length))
    held: dict[int, dict[str, Held]] = {}

    def measure(turn: Turn[Pass, int]) -> list[Row]:
        context = turn.prompt
        if context not in held:
            held.clear()  # those of the context before
            held[context] = {spec: Held(pair, spec, contexts[context]) for spec in sweep.caches}
        number, ids = passed[turn]
        started, at = held[context][turn.arm.cache].timed(ids)
        return [{"warmup": turn.repeat == 0, "seconds": at[0], "sequence": number, "started_s": started}]

    return Job(
        KIND,
        {"models": pair.describe()},
        {
            "seed": 0, "model": pair.name, "repeats": sweep.repeats, "caches": list(sweep.caches),
            "left_out": dict(sweep.left_out), "lengths": list(sweep.lengths), "contexts": list(sweep.contexts),
        },
        turns=turns,
        names=_names,
        measure=measure,
        claims=lambda made: verify_claims(made["rows"], sweep),
        one_report=len(sweep.caches) == 1,
    )  # fmt: skip


def _names(turn: Turn[Pass, int]) -> Row:
    arm = turn.arm
    return {"cache": arm.cache, "context": turn.prompt, "length": arm.length, "repeat": turn.repeat}


def reports(
    pair: Pair,
    sweep: Sweep,
    out: Path | None = None,
    on_start: Callable[[int], None] = lambda _: None,
    on_pass: Callable[[], None] = lambda: None,
) -> tuple[dict[str, Made], Journal]:
    """Measure and return a report for each spec; ``sequence`` in their rows says how they took turns.

    Args:
        pair: what computes.
        sweep: what is measured.
        out: the report's file, beside which the rows are kept; None keeps them in memory.
        on_start: told the number of passes.
        on_pass: called after each.
    """
    made = job(pair, sweep)
    journal, seconds = measure(made, out, on_start, on_pass)
    resumed = {"resumed_rows": journal.resumed} if journal.resumed else {}
    found = {}
    for spec in sweep.caches:
        own = [row for row in journal.rows if row["cache"] == spec]
        found[spec] = report.envelope(
            KIND,
            config={**made.config, **resumed, "cache": spec},
            rows=own,
            claims=made.claims({"rows": own}),
            seconds=seconds,
            **made.sections,
        )
    return found, journal


def verify_claims(rows: Sequence[dict[str, Any]], sweep: Sweep) -> list[dict[str, Any]]:
    """Return what the rows of one spec show; nothing if there are too few repeats."""
    if sweep.repeats < LEAST_ROWS:
        return []
    middle = medians(rows)
    made = []
    for (context, length), seconds in middle.items():
        where = {"where": {"length": length, "context": context}}
        made.append(_claim("verify_ms", 1000 * seconds, where))
        if (context, 1) in middle:
            made.append(_claim("verify_ratio", seconds / middle[context, 1], where))
    return made


def medians(rows: Sequence[dict[str, Any]]) -> dict[tuple[int, int], float]:
    """Return the median seconds of counted passes by context and length."""
    found: dict[tuple[int, int], list[float]] = {}
    for row in rows:
        if not row["warmup"]:
            found.setdefault((row["context"], row["length"]), []).append(row["seconds"])
    return {key: statistics.median(found[key]) for key in sorted(found)}


def _claim(name: str, value: float, where: dict[str, Any]) -> dict[str, Any]:
    return {"name": name, "value": value, **where, "definition": DEFINITIONS[name]}


def _text(pair: Pair) -> Iterator[int]:
    """Return the tokens of the bundled prompts, over and over."""
    return cycle(
        [i for prompt in prompts.encode(prompts.read(), pair.tokenizer, chat=False) for i in prompt.ids]
    )
