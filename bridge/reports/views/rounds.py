"""The tables of a report about rounds of drafting and verifying: how long rounds take, and what they wait for."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain

from bridge.common.drawing.text import Cell
from bridge.reports.claims import decoding
from bridge.reports.views.loose import Row, items, mapping, median, number, numbers, text
from bridge.reports.views.model import Table
from bridge.reports.views.rows import without_empty

_SHARES = ("draft_share", "verify_share", "overhead_share")
_STAGES = ("draft", "verify", "wait")

ByArm = Mapping[str, Mapping[str, Sequence[Row]]]


def tables(report: Row, by_arm: ByArm) -> list[Table]:
    """Return tables of each arm's rounds: their counters and, if the rounds were timed, their times in each context."""
    return [table for table in (_work(report, by_arm), _times(report, by_arm)) if table.rows]


def tau(rows: Iterable[Row]) -> float | None:
    """Return committed tokens per round, including the target's own token."""
    return decoding.tau(_numbers(rows)) or None


def _numbers(rows: Iterable[Row]) -> list[dict[str, list[float]]]:
    """Return the counters of the rows' rounds, as far as these are numbers."""
    return [{name: numbers(row.get(name)) for name in ("commits", "drafted", "accepted")} for row in rows]


def _work(report: Row, by_arm: ByArm) -> Table:
    profiles: dict[str, list[Row]] = {}
    for row in items(report.get("rows")):
        if isinstance(row.get("profile"), dict):
            profiles.setdefault(text(row.get("arm")), []).append(row["profile"])
    cells: list[tuple[Cell, ...]] = []
    for arm, by_prompt in by_arm.items():
        rows = [*chain(*by_prompt.values())]
        rounds = sum(len(numbers(row.get("commits"))) for row in rows)
        waits = sum(number(mapping(row.get("counters")).get("syncs")) or 0 for row in rows)
        shares = [
            median(
                100 * share for each in profiles.get(arm, ()) if (share := number(each.get(name))) is not None
            )
            for name in _SHARES
        ]
        if rounds:
            accepted = decoding.acceptance_rate(_numbers(rows))
            cells.append((arm, rounds, tau(rows), accepted, waits / rounds or None, *shares))
    columns = ("arm", "rounds", "tau", "accepted", "waits a round", "draft %", "verify %", "other %")
    note = "tau: tokens committed a round. Shares of time are of separate runs."
    return without_empty(Table("Rounds", columns, tuple(cells), note))


def _times(report: Row, by_arm: ByArm) -> Table:
    """Return the milliseconds of a round by arm and by workload, whose prompts have about the same length."""
    workloads: dict[str, str] = {}
    lengths: dict[str, float] = {}
    for prompt in items(report.get("prompts")):
        workload = workloads[text(prompt.get("id"))] = text(prompt.get("workload"))
        lengths[workload] = max(lengths.get(workload, 0), number(prompt.get("n_tokens")) or 0)
    cells: list[tuple[Cell, ...]] = []
    for arm, by_prompt in by_arm.items():
        by_workload: dict[str, dict[str, list[float]]] = {}
        for prompt_id, rows in by_prompt.items():
            stages = by_workload.setdefault(workloads.get(prompt_id, ""), {stage: [] for stage in _STAGES})
            for stage in _STAGES:
                timed = (numbers(mapping(row.get("round_s")).get(stage)) for row in rows)
                stages[stage] += (1000 * second for second in chain(*timed))
        cells += [
            (arm, lengths.get(name), *(median(some) for some in stages.values()), max(stages["wait"]))
            for name, stages in by_workload.items()
            if stages["wait"]
        ]
    columns = ("arm", "context", "draft", "verify", "wait", "longest wait")
    note = "Medians per round of drafting, queueing the verification and waiting for the device."
    return Table("Milliseconds of a round", columns, tuple(cells), note)
