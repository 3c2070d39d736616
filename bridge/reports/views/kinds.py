"""What is shown of a report: its claims, and the tables and plots of its kind."""

from __future__ import annotations

from collections.abc import Callable

from bridge.common.drawing.plot import Plot
from bridge.common.drawing.text import cell, cut
from bridge.reports.kinds import LEGACY
from bridge.reports.views import codec, decode, rows, sweep
from bridge.reports.views.loose import Row, items, mapping, number, numbers, plain, text
from bridge.reports.views.model import Claim, Table

MAX_CLAIMS = 300

Shown = tuple[list[Table], list[Plot]]

# The claims of schema 2, which are separate fields.
_OLD_ARM = "k3_cross_model"
_OLD_CLAIMS = (
    "throughput.cross_model_speedup_vs_oracle_ar",
    "throughput.decode_only.speedup",
    "gate.recall_cross_model",
    "memory.savings_vs_naive_pct",
)


def shown(report: Row) -> Shown:
    """Return the tables and plots of a report; none if its kind is not known."""
    kind = text(report.get("kind"))
    return _BY_KIND[kind](report) if kind in _BY_KIND else ([], [])


def claims_in(report: Row) -> tuple[Claim, ...]:
    """Return the claims of a report as written. The gate says whether they are true."""
    if report.get("kind") == LEGACY:
        cells = rows.flat(report)
        return tuple(Claim(name, number(cells[name]), arm=_OLD_ARM) for name in _OLD_CLAIMS if name in cells)
    return tuple(_claim(claim) for claim in items(report.get("claims"))[:MAX_CLAIMS])


def _claim(claim: Row) -> Claim:
    pair = numbers(claim.get("interval"))
    where = {name: value for name, value in mapping(claim.get("where")).items() if value is not None}
    return Claim(
        cut(text(claim.get("name")) or "a claim without a name"),
        number(claim.get("value")),
        cut(text(claim.get("definition")), 1000),
        arm=cut(text(claim.get("arm"))),
        against=cut(text(claim.get("against"))),
        where=cut(", ".join(f"{name} {cell(plain(value))}" for name, value in where.items())),
        interval=(pair[0], pair[1]) if len(pair) == 2 else None,  # noqa: PLR2004 - least and greatest
    )


def _codec(report: Row) -> Shown:
    return codec.tables(report), codec.plots(report)


def _decoded(report: Row) -> Shown:
    return decode.arms_table(report), decode.speed_plots(report)


def _recalled(report: Row) -> Shown:
    tables, plots = decode.recall(report)
    return tables + decode.arms_table(report), plots


_BY_KIND: dict[str, Callable[[Row], Shown]] = {
    "kakeya.codec-rd": _codec,
    "kakeya.spec-bench": _decoded,
    "kakeya.acceptance": _decoded,
    "kakeya.native": _decoded,
    "kakeya.recall": _recalled,
    "kakeya.restored-prefill": _recalled,
    "kakeya.verify-l": sweep.verify,
    "kakeya.kv-quant": sweep.quantised,
    "kakeya.parity": sweep.parity,
    "kakeya.serve-conformance": sweep.served,
    "kakeya.pass-at-1": sweep.solved,
}
