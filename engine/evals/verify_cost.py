"""Measures the cost of verifying L tokens: one forward pass after a context, rolled back afterwards."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import cycle, islice
from typing import NamedTuple

from bridge.reports import kinds
from engine.cache import make_caches
from engine.dflash.rollback import Rollback, rollback_for
from engine.dflash.target.cpu_fast_path import quick_copy
from engine.harness import prompt_sets
from engine.harness.arm import Turn, interleave
from engine.harness.job import Job, config_of
from engine.harness.rows import CHUNK, Row
from engine.harness.threads import Threads
from engine.models import Pair
from engine.mx import mx


@dataclass(frozen=True)
class Sweep:
    """What is measured."""

    lengths: Sequence[int]  # tokens in one pass
    contexts: Sequence[int]  # tokens in the caches before it
    caches: Sequence[str]  # specs of caches
    repeats: int  # counted passes of each; one more, before them, is not counted
    # Caches that the model cannot use, with the reason.
    left_out: Mapping[str, str] = field(default_factory=dict)


class FilledCache:
    """Caches of one spec that hold a context, ``ids``, on which passes are timed. Each pass is rolled back."""

    def __init__(self, pair: Pair, spec: str, ids: Sequence[int]) -> None:
        self.caches = make_caches(pair.target, spec)
        self._rollback: Rollback = rollback_for(self.caches, model=pair.target)
        self._model = self._rollback.prepare(quick_copy(pair.target))
        self.length = 0  # of the context
        self.extend(ids)

    def extend(self, ids: Sequence[int]) -> None:
        """Append tokens to the context."""
        self.length += len(ids)
        for start in range(0, len(ids), CHUNK):
            self._rollback.forward(self._model, mx.array(list(ids[start : start + CHUNK]))[None])
            self._rollback.commit(len(ids[start : start + CHUNK]))
            mx.eval([cache.state for cache in self.caches])

    def measure(self, ids: Sequence[int]) -> tuple[float, float]:
        """Return when a pass over ``ids`` began, by the performance counter, and its seconds.

        It ends when the likeliest token of each row is on the host. Then the pass is rolled back.
        """
        tokens = mx.array(list(ids))[None]
        mx.eval(tokens)
        started = time.perf_counter()
        mx.argmax(self._rollback.forward(self._model, tokens), axis=-1).tolist()
        seconds = time.perf_counter() - started
        self._rollback.commit(0)
        return started, seconds


class Pass(NamedTuple):
    """A timed pass over a number of tokens with caches of one spec. Different passes take turns."""

    cache: str
    length: int


def job(pair: Pair, sweep: Sweep, threads: Threads | None = None) -> Job:
    """Return the job that times every pass, with a report for each spec; ``sequence`` in the rows is their order.

    On each context, lengths and caches take turns. The order moves on by one with each repeat, and repeat 0 warms
    up. The tokens are Python code, because the work of a mixture of experts depends on the tokens. All contexts begin
    alike, so a longer one after a shorter one continues it.
    """
    passes = [Pass(spec, length) for length in sweep.lengths for spec in sweep.caches]
    turns = [
        turn for context in sweep.contexts for turn in interleave(passes, [context], range(sweep.repeats + 1))
    ]
    bundled = prompt_sets.encode(prompt_sets.read(), pair.tokenizer, chat=False)
    text = cycle([i for prompt in bundled for i in prompt.ids])
    longest = list(islice(text, max(sweep.contexts)))
    passed: dict[Turn[Pass, int], tuple[int, list[int]]] = {}  # each turn's number and its tokens
    for number, turn in enumerate(turns):
        passed[turn] = number, list(islice(text, turn.arm.length))
    filled: dict[str, FilledCache] = {}  # all with the same context

    def measure(turn: Turn[Pass, int]) -> list[Row]:
        if any(each.length > turn.prompt for each in filled.values()):
            filled.clear()
        for spec in sweep.caches:
            if spec not in filled:
                filled[spec] = FilledCache(pair, spec, [])
            filled[spec].extend(longest[filled[spec].length : turn.prompt])
        number, ids = passed[turn]
        started, seconds = filled[turn.arm.cache].measure(ids)
        return [{"warmup": turn.repeat == 0, "seconds": seconds, "sequence": number, "started_s": started}]

    config = {"seed": 0, "model": pair.name, **config_of(sweep)}
    return Job(
        kinds.VERIFY_L,
        {"models": pair.describe()},
        config | (threads.config() if threads else {}),
        turns=turns,
        names=lambda turn: {
            "cache": turn.arm.cache,
            "context": turn.prompt,
            "length": turn.arm.length,
            "repeat": turn.repeat,
        },
        measure=measure,
        reports={spec: {"cache": spec} for spec in sweep.caches},
        report_of=lambda row: str(row["cache"]),
    )
