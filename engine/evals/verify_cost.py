"""Measures the cost of verifying L tokens: one forward pass after a context, rolled back afterwards."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import cycle, islice
from pathlib import Path
from typing import NamedTuple

from bridge.reports import kinds
from engine.cache import make_caches
from engine.dflash.rollback import Rollback, rollback_for
from engine.dflash.target.quick import quick_copy
from engine.measure import prompts
from engine.measure.job import Job, Sections, run_all
from engine.measure.journal import Journal
from engine.measure.rows import CHUNK, Row, Timed, timed
from engine.measure.schedule import Turn, interleave
from engine.measure.threads import Threads
from engine.models import Pair
from engine.mx import mx

KIND = kinds.VERIFY_L
LENGTHS = (1, 2, 4, 6, 8, 12, 16)
CONTEXTS = (128, 1024)


@dataclass(frozen=True)
class Sweep:
    """What is measured.

    Attributes:
        lengths: tokens in one pass.
        contexts: tokens in the caches before it.
        caches: specs of caches.
        repeats: counted passes of each; one more, before them, is not counted.
        left_out: caches that the model cannot use, with the reason.
        threads: the BLAS threads that were chosen.
    """

    lengths: Sequence[int] = LENGTHS
    contexts: Sequence[int] = CONTEXTS
    caches: Sequence[str] = ("raw",)
    repeats: int = 10
    left_out: Mapping[str, str] = field(default_factory=dict)
    threads: Threads | None = None


class FilledCache:
    """A context in caches of one spec, on which passes are timed.

    Args:
        pair: what computes.
        spec: of the caches.
        ids: the context's tokens.

    Attributes:
        caches: the target's; between passes they hold the context.
    """

    def __init__(self, pair: Pair, spec: str, ids: Sequence[int]) -> None:
        self.caches = make_caches(pair.target, spec)
        self._rollback: Rollback = rollback_for(self.caches, model=pair.target)
        self._model = self._rollback.prepare(quick_copy(pair.target))
        for start in range(0, len(ids), CHUNK):
            self._rollback.forward(self._model, mx.array(list(ids[start : start + CHUNK]))[None])
            self._rollback.commit(len(ids[start : start + CHUNK]))
            mx.eval([cache.state for cache in self.caches])

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
    """What takes turns: a pass over a number of tokens, over caches of one spec."""

    cache: str
    length: int


def job(pair: Pair, sweep: Sweep) -> Job:
    """Return a function that times every pass.

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
    filled: dict[int, dict[str, FilledCache]] = {}

    def measure(turn: Turn[Pass, int]) -> list[Row]:
        context = turn.prompt
        if context not in filled:
            filled.clear()  # those of the context before
            filled[context] = {spec: FilledCache(pair, spec, contexts[context]) for spec in sweep.caches}
        number, ids = passed[turn]
        started, at = filled[context][turn.arm.cache].timed(ids)
        return [{"warmup": turn.repeat == 0, "seconds": at[0], "sequence": number, "started_s": started}]

    return Job(
        KIND,
        {"models": pair.describe()},
        {
            "seed": 0, "model": pair.name, "repeats": sweep.repeats, "caches": list(sweep.caches),
            "left_out": dict(sweep.left_out), "lengths": list(sweep.lengths), "contexts": list(sweep.contexts),
            **(sweep.threads.config() if sweep.threads else {}),
        },
        turns=turns,
        names=_names,
        measure=measure,
        reports={spec: {"cache": spec} for spec in sweep.caches},
        report_of=lambda row: str(row["cache"]),
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
) -> tuple[dict[str, Sections], Journal]:
    """Measure and return a report for each spec; ``sequence`` in their rows says how they took turns.

    Args:
        pair: what computes.
        sweep: what is measured.
        out: the report's file, beside which the rows are kept; None keeps them in memory.
        on_start: told the number of passes.
        on_pass: called after each.
    """
    return run_all(job(pair, sweep), out, on_start, on_pass)


def _text(pair: Pair) -> Iterator[int]:
    """Return the tokens of the bundled prompts, over and over."""
    return cycle(
        [i for prompt in prompts.encode(prompts.read(), pair.tokenizer, chat=False) for i in prompt.ids]
    )
