"""The conclusion of a comparison of two trees: for a line of text, for programs, and against a limit."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from bridge.common.errors import ManifestError
from bridge.reports.claims.compare import REGRESSION, Interval, Ratios, ratios
from bridge.reports.models import Compare
from bridge.reports.reading import parse_report


@dataclass(frozen=True)
class Compared:
    """The ratios of a comparison, and which of them are better. The gate says whether the report holds."""

    ratios: Ratios
    better: str
    measure: str
    unit: str
    # The commit that the candidate was compared with.
    baseline: str

    @property
    def worse(self) -> Interval:
        """How many times worse the candidate is; below 1 if it is better. ``low`` is the more favourable end."""
        ratio = self.ratios.candidate
        return ratio if self.better == "lower" else ratio.inverse

    @property
    def change(self) -> str:
        """``improvement``, ``regression``, or ``none`` if the null arm explains the difference."""
        return self.ratios.change(self.better) or "none"

    def is_worse_than(self, share: float) -> bool:
        """Return whether the candidate is worse by more than a share of 1, whatever the noise was."""
        return self.change == REGRESSION and self.worse.low > 1 + share

    @property
    def text(self) -> str:
        """One line for people."""
        better = "less" if self.better == "lower" else "more"
        change = {"none": "no change beyond the noise"}.get(self.change, self.change)
        return f"{change}: {self.ratios} ({self.measure}, {self.unit}, {better} is better)"

    def as_dict(self) -> dict[str, object]:
        """Return the object that ``--json`` prints."""
        both = {"ratio": self.ratios.candidate, "null": self.ratios.null}
        parts = {name: {"value": r.value, "interval": [r.low, r.high]} for name, r in both.items()}
        return {
            "change": self.change,
            **parts,
            "measure": self.measure,
            "unit": self.unit,
            "better": self.better,
        }


def read_comparison(data: bytes) -> Compared:
    """Read a comparison's report.

    Raises:
        ManifestError: the data is no comparison's report.
    """
    report: Mapping[str, Any] = parse_report(data)
    try:
        config = Compare.model_validate(report).config
        both = ratios(report["rows"])
    except (ValidationError, ValueError) as error:
        raise ManifestError(f"the comparison is not valid: {error}") from error
    if both is None:
        raise ManifestError("the comparison has no whole round")
    return Compared(both, config.better, config.measure, config.unit, config.baseline.commit)
