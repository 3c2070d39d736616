"""The only module that prints tables and colours: all of ``rich``'s output passes through the sanitiser."""

from collections.abc import Iterable
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.table import Column, Table
from rich.text import Text

from bridge.common import sanitize
from bridge.common.cli.output import fit, one_line, styles


class Screen(Console):
    """A console that shows text unchanged: no markup, no emoji codes, and no control sequences but its own colours."""

    def on_broken_pipe(self) -> None:
        """Leave a closed pipe to ``run_program``; rich would end the program with exit code 1."""
        raise BrokenPipeError

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Render, and spell out control characters in the result."""
        for segment in super().render(renderable, options):
            if segment.control or segment.text == "\n":
                yield segment
            else:
                yield Segment(sanitize.strip_commands(sanitize.block(segment.text)), segment.style)


class Grid(Table):
    """Columns without lines between them. A line break in a text adds no line to its cell."""

    def __init__(self, *headings: str | Column, **options: Any) -> None:
        options = {"show_header": bool(headings), **options}
        super().__init__(*headings, box=None, padding=(0, 2, 0, 0), **options)

    def add_row(self, *cells: RenderableType | None, **options: Any) -> None:
        """Add a row."""
        super().add_row(*map(_cell, cells), **options)


def console(*, err: bool = False, markup: bool = False) -> Screen:
    """Return the console for rich text. With ``markup``, the caller must escape text from others."""
    screen = Screen(**styles(), stderr=err, highlight=False, soft_wrap=True, markup=markup, emoji=False)
    return fit(screen)


def _cell(cell: RenderableType | None) -> RenderableType | None:
    if isinstance(cell, str):
        # Wrap text that does not fit, and never cut it: people copy names and commands.
        return Text(one_line(cell), overflow="fold")
    if isinstance(cell, Text):
        cell.plain = one_line(cell.plain)
        cell.overflow = "fold"
    return cell
