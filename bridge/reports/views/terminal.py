"""A table of a report as a table in a terminal."""

from collections.abc import Callable

from rich import box, table
from rich.text import Text

from bridge.common.drawing.text import cell, printable
from bridge.reports.views.model import Table

MAX_ROWS = 40


def rich_table(
    shown: Table, styled: Callable[[str], Text] = Text, max_rows: int | None = MAX_ROWS
) -> table.Table:
    """Return a table for rich. ``styled`` returns the text of a cell, perhaps in a colour."""
    title = Text(printable(shown.title))
    grid = table.Table(title=title, title_justify="left", caption_justify="left", box=box.SIMPLE_HEAD)
    more = f" {max_rows} of {len(shown.rows)} rows." if max_rows and len(shown.rows) > max_rows else ""
    if shown.note or more:
        grid.caption = Text(printable(shown.note + more), style="dim")
    for name, numeric in shown.headings:
        grid.add_column(Text(printable(name)), justify="right" if numeric else "left", overflow="fold")
    for row in shown.rows[:max_rows]:
        grid.add_row(*(styled(cell(value)) for value in row))
    return grid
