"""How figures went over time: every claim of the answers on the bus, oldest first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from bridge.bus.wire import State
from bridge.client import Client
from bridge.errors import InfrastructureError, VerificationError
from bridge.report.compare import figures_of
from bridge.report.source import Source, from_branch

_BARS = "\u2581\u2582\u2583\u2584\u2585\u2586\u2587\u2588"


@dataclass(frozen=True)
class Value:
    """One run's figure. `counts`: the answer holds, the job succeeded, and the gate, if it was asked, accepted it."""

    value: float
    branch: str
    at: str
    state: str
    verdict: str | None
    holds: bool
    counts: bool
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Trend:
    """One figure of one preset over time."""

    preset: str
    name: str
    about: str
    definition: str
    values: tuple[Value, ...]

    def lines(self) -> Iterator[dict[str, object]]:
        """Yield the forms that `--json` prints, one a value."""
        for one in self.values:
            plain = {name: getattr(one, name) for name in one.__dataclass_fields__}
            yield {"preset": self.preset, "claim": self.name, "of": self.about, **plain}


def trends(client: Client, limit: int, name: str | None = None) -> list[Trend]:
    """Return the figures of the newest `limit` requests whose name fits `name`; by default all that are claimed.

    Figures that a report holds in its rows without claiming them are there where a name is given. Answers that cannot
    be read have none.
    """
    branches = [status.branch for status in client.list(limit) if status.state.is_final]
    found: dict[tuple[str, str, str], list[Value]] = {}
    definitions: dict[tuple[str, str, str], str] = {}
    for branch in reversed(branches):
        try:
            source = from_branch(client, branch)
        except (VerificationError, InfrastructureError):
            continue
        for (named, about), claim in figures_of(source).items():
            wanted = fnmatchcase(named, name) if name else claim.stated
            if wanted and claim.value is not None:
                key = (source.result.preset or "", named, about)
                found.setdefault(key, []).append(_value(source, claim.value, claim.interval))
                definitions[key] = claim.definition
    return [Trend(*key, definitions[key], tuple(values)) for key, values in sorted(found.items())]


def sparkline(values: Sequence[float]) -> str:
    """Return one bar a value, the least lowest. Equal values stand in the middle."""
    low, high = min(values, default=0.0), max(values, default=0.0)
    if high <= low:
        return _BARS[len(_BARS) // 2] * len(values)
    return "".join(_BARS[round((value - low) / (high - low) * (len(_BARS) - 1))] for value in values)


def _value(source: Source, value: float, pair: tuple[float, float] | None) -> Value:
    result = source.result
    verdict = result.gate.verdict if result.gate else None
    counts = source.holds and result.state is State.SUCCEEDED and verdict in (None, "ACCEPTED")
    low, high = pair or (None, None)
    return Value(
        value, source.name, result.finished_at, str(result.state), verdict, source.holds, counts, low, high
    )
