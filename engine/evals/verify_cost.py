"""What verifying L tokens costs: one forward pass over them on top of a context, taken back afterwards."""

import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import cycle, islice
from typing import Any

from engine.cache import make_caches
from engine.dflash.rollback import Rollback, rollback_for
from engine.dflash.target.rotary import with_tables
from engine.evals.speculation.claims import LEAST_ROWS
from engine.measure import prompts, report
from engine.models import Pair
from engine.mx import mx

KIND = "kakeya.verify-l"
LENGTHS = (1, 2, 4, 6, 8, 12, 16)
CONTEXTS = (128, 1024)
CHUNK = 512  # tokens of the context at once

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

    @property
    def passes(self) -> int:
        """How many passes there will be."""
        return len(self.lengths) * len(self.contexts) * len(self.caches) * (self.repeats + 1)


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
        self._model = self._rollback.prepare(with_tables(pair.target))
        for start in range(0, len(ids), CHUNK):
            self._rollback.forward(self._model, mx.array(ids[start : start + CHUNK])[None])
            self._rollback.commit(len(ids[start : start + CHUNK]))
            mx.eval([cache.state for cache in caches])

    def seconds(self, ids: Sequence[int]) -> float:
        """Return how long a pass over ``ids`` takes, with the likeliest token of each row on the host."""
        tokens = mx.array(ids)[None]
        mx.eval(tokens)
        start = time.perf_counter()
        logits = self._rollback.forward(self._model, tokens)
        mx.argmax(logits, axis=-1).tolist()
        took = time.perf_counter() - start
        self._rollback.commit(0)
        return took


def measure(pair: Pair, sweep: Sweep, on_pass: Callable[[], None] = lambda: None) -> list[dict[str, Any]]:
    """Time every pass and return the rows in the order in which they ran.

    On each context, lengths and caches take turns; the order moves on by one from repeat to repeat, and
    repeat 0 warms up. The tokens are Python code, for what a mixture of experts does depends on them.

    Args:
        pair: what computes.
        sweep: what is measured.
        on_pass: called after each pass, for a progress bar.
    """
    began = time.perf_counter()
    text = _text(pair)
    rows: list[dict[str, Any]] = []
    for context in sweep.contexts:
        ids = list(islice(text, context))
        held = {spec: Held(pair, spec, ids) for spec in sweep.caches}
        turns = [(spec, length) for length in sweep.lengths for spec in sweep.caches]
        for repeat in range(sweep.repeats + 1):
            at = repeat % len(turns)
            for spec, length in (*turns[at:], *turns[:at]):
                row = {"length": length, "context": context, "repeat": repeat, "warmup": repeat == 0}
                ids = list(islice(text, length))
                started = time.perf_counter() - began
                seconds = held[spec].seconds(ids)
                about = {"cache": spec, "sequence": len(rows), "started_s": started}
                rows.append({**row, "seconds": seconds, **about})
                on_pass()
    return rows


def reports(
    pair: Pair, sweep: Sweep, on_pass: Callable[[], None] = lambda: None
) -> dict[str, dict[str, Any]]:
    """Measure and return a report for each spec; ``sequence`` in their rows says how they took turns."""
    start = time.perf_counter()
    rows = measure(pair, sweep, on_pass)
    seconds = time.perf_counter() - start
    config = {"seed": 0, "model": pair.name, "repeats": sweep.repeats, "caches": list(sweep.caches)}
    config["left_out"] = dict(sweep.left_out)
    models = pair.describe()
    made = {}
    for spec in sweep.caches:
        own = [row for row in rows if row["cache"] == spec]
        made[spec] = report.envelope(
            KIND,
            config={
                **config, "lengths": list(sweep.lengths), "contexts": list(sweep.contexts), "cache": spec,
            },
            models=models,
            rows=own,
            claims=claims(own, sweep),
            seconds=seconds,
        )  # fmt: skip
    return made


def claims(rows: Sequence[dict[str, Any]], sweep: Sweep) -> list[dict[str, Any]]:
    """Return what the rows of one spec show; nothing where there are too few repeats."""
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
