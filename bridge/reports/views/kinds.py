"""Selects the parts of a report to show: its claims, and the tables and plots of its kind."""

from collections.abc import Callable, Mapping

from bridge.common.drawing.plot import Plot
from bridge.common.drawing.text import cell, cut
from bridge.reports import kinds
from bridge.reports.own import OwnKind
from bridge.reports.own.pointer import value_at
from bridge.reports.views import backends, codec, compare, decode, ranks, rows, sweep
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


def claims_in(report: Row, own: Mapping[str, OwnKind] | None = None) -> tuple[Claim, ...]:
    """Return the claims of a report as written. The gate says whether they are true.

    ``own`` are the kinds that the run's preset declares.
    """
    if declared := (own or {}).get(text(report.get("kind"))):
        return tuple(
            Claim(claim.name, number(value_at(report, claim.pointer)), claim.definition)
            for claim in declared.claims
        )
    if report.get("kind") == kinds.LEGACY:
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


_BY_KIND: dict[str, Callable[[Row], Shown]] = {
    kinds.CODEC_RD: codec.codec,
    **dict.fromkeys(kinds.TIMED, decode.decode_view),
    **dict.fromkeys(kinds.NEEDLES, decode.recall_view),
    kinds.VERIFY_L: sweep.verify_view,
    kinds.KV_QUANT: sweep.kv_quant_view,
    kinds.PARITY: sweep.parity_view,
    kinds.SERVE: sweep.serve_view,
    kinds.SOLUTIONS: sweep.solutions_view,
    kinds.TORCH_PARITY: backends.backends_view,
    kinds.ALL_REDUCE: ranks.all_reduce_view,
    kinds.DISTRIBUTED: ranks.distributed_view,
    kinds.COMPARE: compare.compare_view,
}
