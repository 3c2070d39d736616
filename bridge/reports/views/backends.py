"""The part of a report page about both backends: what is compared, speed in the order of the run, and equal codes."""

from bridge.common.drawing.plot import Plot
from bridge.common.drawing.text import Cell
from bridge.reports.views.decode import decode_view
from bridge.reports.views.loose import Row, items, mapping, number, text
from bridge.reports.views.model import Table
from bridge.reports.views.rows import without_empty

_COLUMNS = ("cache_share", "kl", "same_top", "same_answers", "equal_codes", "step_ms", "processor_ms")
_NOTE = (
    "KL, same top token and same answers: from the same backend's raw cache, for torch/raw from mlx/raw. Equal codes: "
    "torch from MLX, of the same vectors. Cache: over bfloat16."
)


def backends_view(report: Row) -> tuple[list[Table], list[Plot]]:
    """Return the figures of both backends by arm, where they computed, and plots of their speed."""
    tables, plots = decode_view(report)
    return [*_figures(report), *_places(report), *tables], plots


def _figures(report: Row) -> list[Table]:
    backends = {text(arm.get("name")): text(arm.get("role")) for arm in items(report.get("arms"))}
    cells: dict[str, dict[str, Cell]] = {}
    for claim in items(report.get("claims")):
        arm, against, name = (text(claim.get(field)) for field in ("arm", "against", "name"))
        is_across = bool(against) and backends.get(arm) != backends.get(against)
        if arm and name in _COLUMNS and not (name == "same_answers" and is_across):
            cells.setdefault(arm, {})[name] = number(claim.get("value"))
    headings = ("arm", *(name.replace("_", " ") for name in _COLUMNS))
    rows = tuple((arm, *(of.get(name) for name in _COLUMNS)) for arm, of in cells.items())
    return (
        [without_empty(Table("Both backends, all prompts together", headings, rows, _NOTE))] if rows else []
    )


def _places(report: Row) -> list[Table]:
    rows: list[tuple[Cell, ...]] = []
    for name, about in mapping(report.get("backends")).items():
        fields = mapping(about)
        versions = ", ".join(f"{key} {value}" for key, value in mapping(fields.get("versions")).items())
        known = (text(fields.get(field)) for field in ("device", "dtype", "blas"))
        rows.append((name, *known, number(fields.get("threads")), versions))
    columns = ("backend", "device", "type", "BLAS", "threads", "versions")
    return [Table("Where they computed", columns, tuple(rows))] if rows else []
