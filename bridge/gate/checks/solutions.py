"""Checks of solved problems: the tests distinguish right from wrong, and equal solutions have equal results."""

from collections import defaultdict
from collections.abc import Iterator

from bridge.gate.index import ReportIndex, check
from bridge.reports.kinds import SOLUTIONS

# Roles of the controls, and whether their solutions have to pass.
_CONTROLS = {"identity": True, "poison": False}


@check("CONTROL_FAILS", SOLUTIONS)
def tests_tell_right_from_wrong(index: ReportIndex) -> Iterator[str]:
    """Each problem's reference solution passes, and an empty one fails."""
    roles: dict[str, str] = {arm.name: arm.role for arm in index.all_arms}
    rows = {(roles.get(row.arm), row.prompt): row for row in index.rows}
    for role, expected in _CONTROLS.items():
        for problem in index.prompts:
            row = rows.get((role, problem))
            if row is None:
                yield f"no arm with the role {role} ran on {problem}"
            elif row.passed is not expected:
                yield f"{row.arm} on {problem} {'passes' if row.passed else f'fails: {row.error}'}"


@check("RESULT_UNSTEADY", SOLUTIONS)
def equal_solutions_have_equal_results(index: ReportIndex) -> Iterator[str]:
    """A solution has the same result in every arm."""
    results: dict[tuple[str, str], set[bool]] = defaultdict(set)
    for row in index.rows:
        results[row.prompt, row.text].add(row.passed)
    for (problem, _), outcomes in results.items():
        if len(outcomes) > 1:
            yield f"one solution of {problem} passed in one arm and failed in another"


@check("ANSWERS_CUT", SOLUTIONS)
def solutions_are_long_enough(index: ReportIndex) -> Iterator[str]:
    """Failing solutions are not cut off."""
    cut = [row for row in index.rows if row.stop == "length" and not row.passed]
    if cut:
        most, arms = index.report.config.max_tokens, len({row.arm for row in cut})
        yield f"{len(cut)} failing solutions of {arms} arms were cut off after {most} tokens"
