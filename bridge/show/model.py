"""The content of a report page as plain data, shared by all renderers. Any text in it may be untrusted."""

from dataclasses import asdict, dataclass
from typing import Any, Literal

from bridge.common.drawing.plot import Plot
from bridge.common.drawing.text import Cell
from bridge.reports.views.model import Claim, Table
from bridge.verify.verdict import Conclusion

Facts = tuple[tuple[str, Cell], ...]


@dataclass(frozen=True)
class ReportView:
    """One report of a run. If it could not be read, ``problem`` says why and all other fields are empty."""

    path: str
    kind: str
    problem: str = ""
    created_at: str = ""
    seconds: float | None = None
    claims: tuple[Claim, ...] = ()
    tables: tuple[Table, ...] = ()
    plots: tuple[Plot, ...] = ()


@dataclass(frozen=True)
class Fault:
    """A violation of a check of the gate: its message, why it matters, and how to fix it."""

    code: str
    path: str
    messages: tuple[str, ...]
    more: int
    explanation: str = ""
    mend: str = ""


@dataclass(frozen=True)
class Judged:
    """The gate's verdict on the measuring machine."""

    verdict: str
    faults: tuple[Fault, ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Evidence:
    """The result of verifying an answer. ``signed``: a pinned key signed exactly this; ``broken``: a check failed."""

    status: Literal["signed", "unsigned", "broken"]
    message: str
    fix: str
    checks: Table


@dataclass(frozen=True)
class Log:
    """The beginning and the end of a step's log, and the number of lines left out in between."""

    path: str
    head: tuple[str, ...]
    left_out: int
    tail: tuple[str, ...]
    note: str = ""


@dataclass(frozen=True)
class RunView:
    """One run: the request, the answer, and the verification."""

    name: str
    preset: str
    state: str
    exit_code: int
    reason: str
    conclusion: Conclusion
    request: Facts
    outcome: Facts
    host: Facts
    versions: Facts
    evidence: Evidence
    gate: Judged | None
    reports: tuple[ReportView, ...]
    steps: Table
    logs: tuple[Log, ...]
    files: Table
    reproduce: tuple[str, ...]

    @property
    def claims(self) -> tuple[Claim, ...]:
        """The claims of all reports of the run."""
        return tuple(claim for report in self.reports for claim in report.claims)


@dataclass(frozen=True)
class RunsView:
    """The whole view: the runs and, if there are several, their differences."""

    title: str
    runs: tuple[RunView, ...]
    tables: tuple[Table, ...] = ()
    plots: tuple[Plot, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """Return the object that ``--json`` prints."""
        shown = asdict(self)
        for run, facts in zip(self.runs, shown["runs"], strict=True):
            facts["conclusion"] |= run.conclusion.as_dict()
        return shown
