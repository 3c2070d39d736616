"""Generic tables: the rows of any report, and objects of named values."""

from collections.abc import Sequence

from bridge.common.drawing.text import Cell, cell, cut, interval
from bridge.reports.views.loose import Row, items, mapping, plain
from bridge.reports.views.model import Claim, Table

MAX_ROWS = 300
# This also limits tables whose columns come from a report's values: two lists of values multiply.
MAX_COLUMNS = 24


def table_of(title: str, rows: Sequence[Row]) -> Table:
    """Return the first rows, one column per field. The note has the values that are the same in all rows."""
    names = dict.fromkeys(name for row in rows for name in row)
    same = dict.fromkeys(
        name for name in names
        if len(rows) > 1 and all(name in row and row[name] == rows[0].get(name) for row in rows)
    )  # fmt: skip
    shown = [name for name in names if name not in same]
    notes = []
    if len(rows) > MAX_ROWS:
        notes.append(f"The first {MAX_ROWS} of {len(rows)} rows.")
    if len(shown) > MAX_COLUMNS:
        notes.append(f"Left out: {', '.join(cut(name, 40) for name in shown[MAX_COLUMNS:][:MAX_COLUMNS])}.")
    if same:
        some = [*same][:MAX_COLUMNS]
        all_same = ", ".join(f"{cut(name, 40)} {cell(plain(rows[0][name]))}" for name in some)
        notes.append(f"The same in all: {all_same}.")
    shown = shown[:MAX_COLUMNS]
    cells = tuple(tuple(plain(row.get(name)) for name in shown) for row in rows[:MAX_ROWS]) if shown else ()
    return Table(title, tuple(shown), cells, " ".join(notes), folded=True)


def pairs(title: str, values: object) -> Table:
    """Return the named values of an object, folded."""
    entries = mapping(values)
    rows = tuple((name, plain(value)) for name, value in list(entries.items())[:MAX_ROWS])
    return Table(title, ("name", "value"), rows, folded=True)


def claims_tables(claims: Sequence[Claim]) -> list[Table]:
    """Return claims with subject and interval, grouped by name, and the definitions of the names."""
    names = list(dict.fromkeys(claim.name for claim in claims))
    rows = tuple(
        (claim.name, claim.about, claim.value, interval(claim.interval) or None)
        for name in names for claim in claims if claim.name == name
    )  # fmt: skip
    definitions = dict.fromkeys((claim.name, claim.definition) for claim in claims if claim.definition)
    meant = tuple(sorted(definitions, key=lambda pair: names.index(pair[0])))
    tables = (
        Table("Claims", ("claim", "of", "value", "interval"), rows),
        Table("What they are", ("claim", "is"), meant),
    )
    return [without_empty(table) for table in tables if table.rows]


def without_empty(table: Table) -> Table:
    """Return a table without its empty columns."""
    columns = [i for i in range(len(table.columns)) if any(row[i] not in (None, "") for row in table.rows)]
    cells = tuple(tuple(row[i] for i in columns) for row in table.rows)
    return Table(table.title, tuple(table.columns[i] for i in columns), cells, table.note, table.folded)


def about(report: Row) -> list[Table]:
    """Return a report's tables: options, models, arms, prompts, the machine, and its rows."""
    tables = [pairs("Options", report.get("config"))]
    tables += [table_of(name.capitalize(), items(report.get(name))) for name in ("models", "arms", "prompts")]
    workloads = [{"workload": name, **mapping(w)} for name, w in mapping(report.get("workloads")).items()]
    tables.append(table_of("Workloads", workloads))
    tables.append(pairs("Measured on", flat(report.get("identity"))))
    rows = items(report.get("rows"))
    tables.append(table_of(f"Rows ({len(rows)})", rows))
    return [table for table in tables if table.rows]


def flat(value: object, depth: int = 3) -> dict[str, Cell]:
    """Flatten an object: the names of inner objects become prefixes of their values' names."""
    cells: dict[str, Cell] = {}
    for name, item in mapping(value).items():
        inner = flat(item, depth - 1) if depth else {}
        cells |= {f"{name}.{key}": cell for key, cell in inner.items()} or {name: plain(item)}
    return cells
