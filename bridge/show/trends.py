"""Collects claimed figures over time from the answers on the bus, oldest first."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

from bridge.bus.wire import State
from bridge.client import Client
from bridge.common.drawing.text import cut
from bridge.errors import InfrastructureError, VerificationError
from bridge.show.alarm import Change, changes
from bridge.show.compare import figures_of
from bridge.show.source import Source, from_branch
from bridge.verify.verdict import Conclusion, conclude

# Values belong to one series if this many first characters of their parameters are the same.
_PARAMS = 1_000
_BARS = "\u2581\u2582\u2583\u2584\u2585\u2586\u2587\u2588"


@dataclass(frozen=True)
class Value:
    """One run's figure. ``counts``: the answer is verified, the job succeeded, and the gate (if used) accepted it."""

    value: float
    branch: str
    at: str
    # The conclusion about the answer, and who vouches for it.
    conclusion: Conclusion
    counts: bool
    low: float | None = None
    high: float | None = None
    # Further fields that must be equal for values to be comparable.
    runner: str = ""
    params: str = ""


@dataclass(frozen=True)
class Figure:
    """One figure of one answer."""

    preset: str
    name: str
    about: str
    definition: str
    # Whether the report claims this figure; otherwise it was computed from the report's rows.
    stated: bool
    value: Value

    def fits(self, name: str | None) -> bool:
        """Return whether the figure is selected: by its name or, without a name, because it is claimed."""
        return fnmatchcase(self.name, name) if name else self.stated


@dataclass(frozen=True)
class Series:
    """The values of a trend from one runner with the same parameters."""

    runner: str
    params: str
    values: tuple[Value, ...]

    @property
    def name(self) -> str:
        """The label of the series."""
        return f"{self.runner}, {self.params}" if self.params else self.runner

    def changes(self) -> list[Change]:
        """Return the changes of the figure, oldest first."""
        return changes([value.value for value in self.values])


@dataclass(frozen=True)
class Trend:
    """One figure of one preset over time."""

    preset: str
    name: str
    about: str
    definition: str
    values: tuple[Value, ...]

    def lines(self) -> Iterator[dict[str, object]]:
        """Yield the objects that ``--json`` prints, one per value."""
        for value in self.values:
            facts = {name: fact for name, fact in vars(value).items() if name != "conclusion"}
            shown = value.conclusion
            judged = {
                "state": str(shown.state), "holds": not shown.is_refused,
                **{name: shown.as_dict()[name] for name in ("verdict", "voucher")},
            }  # fmt: skip
            yield {"preset": self.preset, "claim": self.name, "of": self.about, **facts, **judged}

    def series(self) -> list[Series]:
        """Return the values that count, as one series per runner and parameters."""
        groups: dict[tuple[str, str], list[Value]] = {}
        for value in self.values:
            if value.counts:
                groups.setdefault((value.runner, value.params), []).append(value)
        return [Series(*key, tuple(some)) for key, some in sorted(groups.items())]


def read_figures(client: Client, branches: Sequence[str]) -> list[Figure]:
    """Return all figures of these answers, claimed or in rows. An answer that cannot be read has none."""
    figures: list[Figure] = []
    for branch in branches:
        with suppress(VerificationError, InfrastructureError):
            figures += numeric_figures(from_branch(client, branch))
    return figures


def numeric_figures(source: Source) -> list[Figure]:
    """Return all numeric figures of an answer."""
    result = source.result
    shown = conclude(result, source.checks)
    counts = not shown.is_refused and shown.state is State.SUCCEEDED and shown.verdict in (None, "ACCEPTED")
    # One shared text for all figures: a result may have a megabyte of parameters.
    params = cut(" ".join(f"{name}={value}" for name, value in sorted(result.params.items())), _PARAMS)
    run = Value(
        0.0, source.name, result.finished_at, shown, counts, runner=result.runner.id, params=params,
    )  # fmt: skip
    figures = []
    for (name, about), claim in figures_of(source).items():
        if claim.value is not None:
            low, high = claim.interval or (None, None)
            value = replace(run, value=claim.value, low=low, high=high)
            figures.append(Figure(result.preset or "", name, about, claim.definition, claim.stated, value))
    return figures


def group_into_trends(figures: Iterable[Figure]) -> list[Trend]:
    """Group figures, given oldest first, into trends. The newest figure gives the definition."""
    groups: dict[tuple[str, str, str], list[Figure]] = {}
    for figure in figures:
        groups.setdefault((figure.preset, figure.name, figure.about), []).append(figure)
    return [
        Trend(*key, some[-1].definition, tuple(figure.value for figure in some))
        for key, some in sorted(groups.items())
    ]


def sparkline(values: Sequence[float]) -> str:
    """Return one bar character per value; the minimum is the lowest bar. Equal values are all middle bars."""
    low, high = min(values, default=0.0), max(values, default=0.0)
    if high <= low:
        return _BARS[len(_BARS) // 2] * len(values)
    return "".join(_BARS[round((value - low) / (high - low) * (len(_BARS) - 1))] for value in values)
