"""Tables and claims of reports as plain data. Any text in them may be untrusted."""

from dataclasses import dataclass

from bridge.common.drawing.text import Cell, is_numeric


@dataclass(frozen=True)
class Table:
    """Rows under headings. A ``folded`` table is long or less important; a page hides it behind its title."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    note: str = ""
    folded: bool = False

    @property
    def headings(self) -> list[tuple[str, bool]]:
        """The columns, each with whether it contains only numbers, which are right-aligned."""
        return [(name, is_numeric(tuple(row[i] for row in self.rows))) for i, name in enumerate(self.columns)]


@dataclass(frozen=True)
class Claim:
    """A named figure with its definition. ``stated`` is false for a row's figure that the report does not claim."""

    name: str
    value: float | None
    definition: str = ""
    arm: str = ""
    against: str = ""
    where: str = ""
    interval: tuple[float, float] | None = None
    stated: bool = True

    @property
    def about(self) -> str:
        """The subject of the claim: its arms, and the restriction in ``where``."""
        arms = f"{self.arm} against {self.against}" if self.against else self.arm
        return ", ".join(filter(None, (arms, self.where)))

    @property
    def label(self) -> str:
        """The name and the subject of the claim."""
        return f"{self.name}: {self.about}" if self.about else self.name
