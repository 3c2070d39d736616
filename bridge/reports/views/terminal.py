"""A table of a report as a table in a terminal."""

from collections.abc import Callable

from rich import box, table
from rich.text import Text

from bridge.common.drawing.text import cell, printable
from bridge.reports.views.model import Table

MAX_ROWS = 40
# A row's name is not wrapped if all names have at most so many characters.
_MAX_WHOLE = 24


def rich_table(
    shown: Table, styled: Callable[[str], Text] = Text, max_rows: int | None = MAX_ROWS
) -> table.Table:
    """Return a table for rich. ``styled`` returns the text of a cell, perhaps in a colour."""
    title = Text(printable(shown.title))
    grid = table.Table(
        title=title, title_justify="left", caption_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0)
    )
    more = f" {max_rows} of {len(shown.rows)} rows." if max_rows and len(shown.rows) > max_rows else ""
    if shown.note or more:
        grid.caption = Text(printable(shown.note + more), style="dim")
    names = [cell(row[0]) for row in shown.rows[:max_rows]]
    for i, (name, numeric) in enumerate(shown.headings):
        whole = i == 0 and max(map(len, names), default=0) <= _MAX_WHOLE
        grid.add_column(
            Text(printable(name)), justify="right" if numeric else "left", overflow="fold", no_wrap=whole
        )
    for row in shown.rows[:max_rows]:
        grid.add_row(*(styled(cell(value)) for value in row))
    return grid
