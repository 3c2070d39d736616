"""Checks of a comparison of two trees: the arms took turns, and nothing is claimed that the null arm explains."""

from collections.abc import Iterator

from bridge.gate.index import ReportIndex, check
from bridge.reports.claims.compare import IMPROVEMENT, REGRESSION, ratios, schedule
from bridge.reports.counted import counted
from bridge.reports.kinds import COMPARE

# Seconds by which times are rounded.
_ROUNDED = 0.05


@check("SAME_TREE", COMPARE)
def trees_differ(index: ReportIndex) -> Iterator[str]:
    """The two trees differ."""
    config = index.report.config
    if config.candidate.tree == config.baseline.tree:
        yield f"candidate and baseline are both the tree {config.baseline.tree[:12]}"


@check("NOT_COVERED", COMPARE)
def all_rounds_ran(index: ReportIndex) -> Iterator[str]:
    """All configured rounds ran."""
    ran, rounds = len({row.round for row in counted(index.rows)}), index.report.config.rounds
    if ran < rounds:
        yield f"{ran} of {rounds} rounds were measured"


@check("NOT_INTERLEAVED", COMPARE)
def arms_take_turns(index: ReportIndex) -> Iterator[str]:
    """The arms take turns in the fixed order."""
    due = [*schedule(index.report.config.rounds)]
    for i, (row, slot) in enumerate(zip(index.rows, due, strict=False)):
        if (row.round, row.position, row.arm, row.warmup) != slot:
            yield f"row {i} is a run of {row.arm} in round {row.round}; round {slot.round} and {slot.arm} are due"
            return
    if len(index.rows) > len(due):
        yield f"there are {len(index.rows)} runs; {len(due)} are due"


@check("TIMES_CONTRADICT", COMPARE)
def runs_fit_into_the_job(index: ReportIndex) -> Iterator[str]:
    """All runs fit into its seconds."""
    total = sum(row.value for row in index.rows) if index.report.config.measure == "wall" else 0
    if total > index.report.seconds + _ROUNDED:
        yield f"the runs took {total:.4g} s, and the comparison {index.report.seconds:.4g} s"


@check("WITHIN_NOISE", COMPARE)
def changes_exceed_the_noise(index: ReportIndex) -> Iterator[str]:
    """A claimed change exceeds the null arm's interval."""
    claimed = [claim.name for claim in index.claims if claim.name in (IMPROVEMENT, REGRESSION)]
    if claimed and (both := ratios(index.data["rows"])) and not both.is_change:
        yield f"{claimed[0]} is claimed: {both}"


@check("NO_DIFFERENCE", COMPARE)
def no_change_is_reported(index: ReportIndex) -> Iterator[str]:
    """The ratio exceeds the null arm's interval."""
    if (both := ratios(index.data["rows"])) and not both.is_change:
        yield str(both)


@check("NULL_ARM_DIFFERS", COMPARE)
def null_arm_is_even(index: ReportIndex) -> Iterator[str]:
    """The null arm's interval contains 1."""
    if (both := ratios(index.data["rows"])) and both.null.gap:
        yield f"the baseline against itself: {both.null}"
