"""Laws of turns: the order in which rows ran is that of the whole run, and nothing takes long between two rows."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from bridge.evidence.laws.law import DECODED, SPEC, SWEEP, TIMED, law
from bridge.evidence.report_index import ReportIndex, rate_of, took_of
from bridge.evidence.rows import Decode
from bridge.evidence.stats import median

# Between two rows caches are made and the journal is written. Measured: 0.3 to 8 % of a row on an idle machine, and
# 30 % of short rows on a busy one.
BETWEEN = 0.2
PAUSE_S, LEAST_S = 0.2, 0.02
# A single long pause is a machine that slept, and a few may be chance.
PAUSES, FEWEST_ROWS = 0.1, 5
# What happens before a row may be a part of its prefill. Measured: all arms within a millisecond of one another.
LOADING = 0.1

# A profiled run waits for the draft before it verifies. Measured: 0.9 to 1.2 times the time of a counted run.
ASIDE, FEWEST = 1.5, 3

_FEWEST_ARMS = 3
# Each is held against all others, so that many more would take long; a report has at most a hundred arms.
SERIES = 100


def _pauses(index: ReportIndex) -> list[tuple[float, Any]]:
    """Return how long after each row the next one started; nothing if rows do not say when they started."""
    rows = index.rows[index.resumed :]
    caches = getattr(index.report.config, "caches", None)
    others = index.report.kind in SWEEP and isinstance(caches, list) and len(caches) > 1
    if others or any(row.started_s is None for row in rows):
        return []  # passes over other caches take turns with these, and are in other reports
    return [(two.started_s - one.started_s - took_of(one), one) for one, two in pairwise(rows)]


@law(
    "TIMES_UNCLEAR", (*TIMED, *SWEEP), "rows.started_s rows.e2e_s rows.seconds",
    "each row starts soon after the row before it has ended",
)  # fmt: skip
def no_time_between_rows(index: ReportIndex) -> Iterator[str]:
    pauses = _pauses(index)
    long = [(pause, row) for pause, row in pauses if pause > PAUSE_S + BETWEEN * took_of(row)]
    if long and len(long) > PAUSES * len(pauses):
        pause, row = max(long, key=lambda item: item[0])
        shown = f"{pause:.3g} s after a row of {took_of(row):.3g} s"
        yield f"{len(long)} of {len(pauses)} rows are followed by a pause, the longest by {shown}"


@law(
    "TIME_UNACCOUNTED", (*TIMED, *SWEEP), "rows.started_s rows.e2e_s rows.seconds rows.arm",
    "pauses after the rows of one arm are not longer than pauses after the rows of other arms",
)  # fmt: skip
def no_pauses_of_one_arm(index: ReportIndex) -> Iterator[str]:
    by_name: dict[Any, list[tuple[float, float]]] = defaultdict(list)
    for pause, row in _pauses(index):
        by_name[row.arm if isinstance(row, Decode) else row.length].append((pause, took_of(row)))
    for name, own in by_name.items() if len(by_name) <= SERIES else ():
        others = [pause for other, some in by_name.items() if other != name for pause, _ in some]
        share = median(pause / took for pause, took in own)
        if (
            len(own) >= FEWEST_ROWS
            and others
            and share > BETWEEN
            and median(pause for pause, _ in own) > 3 * median(others) + LEAST_S
        ):
            yield f"rows of {name} are followed by pauses of {share:.2g} of their time, and others are not"


@law(
    "TIMES_UNCLEAR", TIMED, "rows.started_s rows.e2e_s rows.prefill_s rows.arm",
    "pauses before the rows of one arm are not longer than pauses before the rows of other arms",
)  # fmt: skip
def no_pauses_before_one_arm(index: ReportIndex) -> Iterator[str]:
    rows = index.rows[index.resumed :]
    before: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for (pause, _), row in zip(_pauses(index), rows[1:], strict=False):
        before[row.arm].append((pause, row.prefill_s))
    if not before or len(before) > SERIES:
        return
    least = min(median(pause for pause, _ in some) for some in before.values())
    if least < 0:
        return  # rows that overlap
    for name, own in before.items():
        pause = median(one for one, _ in own)
        share = median((one - least) / prefill for one, prefill in own)
        if len(own) >= FEWEST_ROWS and share > LOADING and pause > 3 * least + LEAST_S:
            yield f"rows of {name} start {pause:.3g} s after the rows before them, and others after {least:.3g} s"


@law(
    "NOT_COVERED", DECODED, "rows.arm rows.prompt rows.repeat arms",
    "the order in which arms take turns shows no arm, prompt or repeat that was left out",
)  # fmt: skip
def whole_turns(index: ReportIndex) -> Iterator[str]:
    cells: dict[tuple[int, str], list[str]] = defaultdict(list)
    for row in index.rows:
        if getattr(row, "profile", None) is None and row.prompt in index.prompts:
            cells[row.repeat, row.prompt].append(row.arm)
    names = [arm.name for arm in index.all_arms if any(arm.name in some for some in cells.values())]
    n, firsts = len(names), {}
    for cell, order in cells.items():
        at = names.index(order[0]) if order[0] in names else 0
        if order != [*names[at:], *names[:at]]:
            return  # another way to take turns
        firsts[cell] = at
    if n < _FEWEST_ARMS or len({*firsts.values()}) == 1:
        return
    repeats = sorted({repeat for repeat, _ in firsts})
    prompts = [prompt.id for prompt in index.all_prompts if any(prompt.id == name for _, name in firsts)]
    for i, step in ((0, 1), (1, 0), (1, 1), (-1, 0), (0, -1), (-1, -1), (1, -1), (-1, 1)):
        start = firsts.get((repeats[0], prompts[0]), 0)
        wanted = {
            (repeat, name): (start + i * (repeat - repeats[0]) + step * place) % n
            for repeat in repeats for place, name in enumerate(prompts)
        }  # fmt: skip
        if all(wanted.get(cell) == at for cell, at in firsts.items()):
            return
    yield "the arms do not move on by one from prompt to prompt and repeat to repeat: some of them are not shown"


@law(
    "RUNS_MISNUMBERED", SWEEP, "rows.sequence rows.length rows.repeat config.caches config.lengths config.contexts",
    "each pass has the place in the run that the configured lengths and caches give it",
)  # fmt: skip
def places_of_passes(index: ReportIndex) -> Iterator[str]:
    config = index.report.config
    caches = getattr(config, "caches", None)
    told = [getattr(row, "sequence", None) for row in index.rows]
    places = [place for place in told if isinstance(place, int)]
    if len(places) != len(told) or not isinstance(caches, list):
        return
    odd = next((i for i, (one, two) in enumerate(pairwise(places)) if not one < two), None)
    if odd is not None:
        yield f"row {odd + 1} stands at place {places[odd + 1]}, after place {places[odd]}"
        return
    turns = [(cache, length) for length in config.lengths for cache in caches]
    contexts = getattr(config, "contexts", None)
    named = [*caches, *(contexts if isinstance(contexts, list) else ())]
    if not isinstance(contexts, list) or config.cache not in caches or not all(map(_is_name, named)):
        return
    repeats = sorted({row.repeat for row in index.rows})
    wanted, at = {}, 0
    for context in contexts:
        for repeat in repeats:
            turn = repeat % len(turns)
            for cache, length in (*turns[turn:], *turns[:turn]):
                wanted[cache, length, context, repeat] = at
                at += 1
    for i, row in enumerate(index.rows):
        place = wanted.get((row.cache, row.length, row.context, row.repeat))
        if place != places[i]:
            yield f"row {i} stands at place {places[i]} of the run; the configuration puts it at {place}"
            return


def _is_name(value: Any) -> bool:
    return isinstance(value, int | str)


@law(
    "TIMES_UNCLEAR", SPEC, "rows.decode_s rows.profile",
    "counted runs are hardly faster than the profiled one, which drafts and verifies the same",
)  # fmt: skip
def as_fast_as_the_profile(index: ReportIndex) -> Iterator[str]:
    shares: dict[str, list[float]] = defaultdict(list)
    for row in index.rows:
        if getattr(row, "profile", None) is not None and row.decode_s > 0:
            pace = index.rate(row.arm, row.prompt) / rate_of(row)
            if not math.isnan(pace):
                shares[row.arm].append(pace)
    for name, some in shares.items():
        if len(some) >= FEWEST and median(some) > ASIDE:
            yield f"counted runs of {name} are {median(some):.2f} times as fast as the profiled ones"


@law(
    "ROUNDS_CONTRADICT", SPEC, "rows.profile rows.warmup",
    "the shares of a profiled run add up to 1, and a draft model that drafted has a share",
)  # fmt: skip
def shares_of_a_profile(index: ReportIndex) -> Iterator[str]:
    for i, row in enumerate(index.rows):
        told = getattr(row, "profile", None)
        if told is None:
            continue
        shares = [*told.values()] if isinstance(told, dict) else []
        numbers = [x for x in shares if isinstance(x, int | float) and not isinstance(x, bool)]
        if not row.warmup:
            yield f"row {i} is profiled, and counted"
        elif len(numbers) != len(shares) or not numbers or min(numbers) < 0:
            yield f"row {i}: its profile is no list of shares"
        elif len(numbers) > 1 and abs(sum(numbers) - 1) > SHARES:
            yield f"row {i}: the shares of its profile add up to {sum(numbers):.3g}"
        elif told.get("draft_share") == 0 and row.counters.get("rounds_dflash"):
            yield f"row {i}: its draft model drafted, and took no time"


SHARES = 1e-3
