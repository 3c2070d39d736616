"""Chooses the number of BLAS threads for a measurement, by measuring the loaded model, unless the user sets it.

Too many threads make a small model slower and its speed uneven, because they compete with Python for the processors.
All arms of a report use the same number, which is measured with the plain loop.
"""

import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import psutil

from bridge.reports.statistics import bounds_of_median
from engine import blas
from engine.cache import make_caches
from engine.errors import BadInput
from engine.models import Pair
from engine.mx import mx

SECONDS = 1.2  # time for calibration; with a large model, there is one short run per number of threads anyway
RUN_S = 0.05  # seconds of one short run
MOST_TOKENS = 16  # the most tokens of one short run
WITHIN = 0.95  # fewer threads are preferred unless their speed is clearly below this share of the fastest
CHOSEN = ("threads", "threads_by", "threads_rates")  # entries of a report's configuration
TEXT = "import os\n\n\ndef main():\n"


@dataclass(frozen=True)
class Threads:
    """A choice."""

    # The number of threads; None if it cannot be set: on a GPU, and with a BLAS other than OpenBLAS.
    count: int | None = None
    by: str | None = None  # `measured`, `option` or `environment`; None without a count
    # Tokens per second of mlx-lm's plain loop by number of threads, if they were measured.
    rates: Mapping[str, float] = field(default_factory=dict)

    def config(self) -> dict[str, Any]:
        """Return the entries of a report's configuration."""
        rates = {"threads_rates": dict(self.rates)} if self.rates else {}
        return {"threads": self.count, "threads_by": self.by, **rates}

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> "Threads":
        """Return the choice that a configuration records."""
        return cls(config.get("threads"), config.get("threads_by"), config.get("threads_rates", {}))


def choose(pair: Pair, requested: int | None = None, recorded: Mapping[str, Any] | None = None) -> Threads:
    """Choose the number of BLAS threads and set it for the rest of the process.

    ``requested`` is the option ``--threads``, ``recorded`` what an interrupted run of the same measurement chose.

    Raises:
        BadInput: ``requested`` is more than the machine has, or the number cannot be set here.
    """
    most = blas.most_threads() if mx.default_device().type == mx.cpu else None
    if most is None:
        if requested is not None:
            raise BadInput(
                "--threads sets the threads of OpenBLAS, which computes nothing here", "leave it out"
            )
        return Threads()
    if requested is not None and requested > most:
        raise BadInput(
            f"--threads is {requested}, and this process may use {most} processors", f"at most {most}"
        )
    if requested is not None:
        chosen = Threads(requested, "option")
    elif blas.threads_are_given():
        chosen = Threads(blas.threads(), "environment")
    elif recorded is not None and recorded.get("threads_by") == "measured":
        chosen = Threads.of(recorded)
    else:
        counts = candidates(min(most, psutil.cpu_count(logical=False) or most))
        rates = _rates(pair, counts) if len(counts) > 1 else {}
        middle = {str(count): round(statistics.median(samples), 1) for count, samples in rates.items()}
        chosen = Threads(fewest(rates) if rates else counts[0], "measured", middle)
    blas.use_threads(chosen.count or 1)
    return chosen


def candidates(most: int) -> list[int]:
    """Return the numbers to try: powers of two, and ``most``."""
    return sorted({*(2**n for n in range(most.bit_length())), most})


def fewest(rates: Mapping[int, Sequence[float]]) -> int:
    """Return the smallest number of threads that is not clearly slower than the fastest one.

    Clearly: even the lower bound of the median quotient of their rates, paired by round, is beyond the tolerance.
    ``rates`` are of each round, by number of threads.
    """
    fastest = rates[max(rates, key=lambda count: statistics.median(rates[count]))]

    def is_slower(own: Sequence[float]) -> bool:
        quotients = [most / each for most, each in zip(fastest, own, strict=True)]
        return bounds_of_median(quotients)[0] > 1 / WITHIN

    return min(count for count, own in rates.items() if not is_slower(own))


def _rates(pair: Pair, counts: Sequence[int]) -> dict[int, list[float]]:
    """Return the rates, in tokens per second, of short runs of mlx-lm's loop; the numbers of threads take turns."""
    from engine.lm import generate_step

    prompt = mx.array(pair.tokenizer.encode(TEXT))
    loop = generate_step(prompt, pair.target, max_tokens=-1, prompt_cache=make_caches(pair.target, "raw"))
    samples: dict[int, list[float]] = {count: [] for count in counts}
    tokens = 1
    try:
        _seconds(loop, tokens)
        began = time.perf_counter()
        while not samples[counts[-1]] or time.perf_counter() - began < SECONDS:
            for count in counts:
                blas.use_threads(count)
                samples[count].append(tokens / _seconds(loop, tokens))
            if tokens == 1:  # the first round's speed determines the tokens of a short run
                pace = statistics.median(rates[0] for rates in samples.values())
                tokens = max(1, min(MOST_TOKENS, int(RUN_S * pace)))
                samples = samples if tokens == 1 else {count: [] for count in counts}
    finally:
        loop.close()
    return samples


def _seconds(loop: Iterator[Any], tokens: int) -> float:
    """Return how long mlx-lm's loop takes for some tokens.

    It computes one token ahead, so the token before them was computed earlier, perhaps with another number of threads.
    """
    from engine.lm import generation_stream

    next(loop)
    began = time.perf_counter()
    for _ in range(tokens):
        next(loop)
    seconds = time.perf_counter() - began
    mx.synchronize(generation_stream)
    return seconds
