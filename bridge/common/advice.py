"""Advice as data: what to do about an error or a wait, which each door prints in its own words.

As text, advice has the words of a terminal, where most of it is read: commands and options of ``kakeya``. An agent has
tools and arguments instead, a workflow has the Action's inputs, and a page in a browser only shows things.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Self

_TOOLS = {
    name: f"kakeya_{name}"
    for name in ("run", "wait", "status", "logs", "fetch", "cancel", "list", "doctor", "presets")
} | {"verify": "kakeya_status"}


class Door(Enum):
    """Where advice is read."""

    TERMINAL = "terminal"
    ACTION = "action"
    MCP = "mcp"
    WEB = "web"


@dataclass(frozen=True)
class Wording:
    """Words that differ between doors. A door without its own words uses the terminal's."""

    terminal: str
    mcp: str | None = None
    action: str | None = None
    web: str | None = None

    def at(self, door: Door) -> str:
        """Return the words of a door."""
        own: str | None = getattr(self, door.value)
        return self.terminal if own is None else own


class Advice(str):
    """Advice as a sequence of texts and parts. ``instead`` maps a door to a whole text of its own."""

    __slots__ = ("instead", "parts")
    parts: tuple[str | Wording, ...]
    instead: Mapping[str, str]

    def __new__(cls, *parts: str | Wording, **instead: str) -> Self:
        """Return the advice as the text of a terminal, with its parts."""
        self = super().__new__(cls, "".join(_at(part, Door.TERMINAL) for part in parts))
        self.parts, self.instead = parts, instead
        return self

    def at(self, door: Door) -> str:
        """Return the advice in the words of a door."""
        return self.instead.get(door.value) or "".join(_at(part, door) for part in self.parts)


def printed(fix: str | None, door: Door) -> str | None:
    """Return a fix in the words of a door. A plain text is the same at each."""
    return fix.at(door) if isinstance(fix, Advice) else fix


def changed(fix: str, change: Callable[[str], str]) -> str:
    """Return a fix with its text changed at each door."""
    return _at_each(lambda door: change(fix.at(door))) if isinstance(fix, Advice) else change(fix)


def joined(fixes: Sequence[str]) -> Advice:
    """Return several fixes as one."""
    return _at_each(lambda door: " ".join(printed(fix, door) or "" for fix in fixes))


def _at_each(text: Callable[[Door], str]) -> Advice:
    return Advice(Wording(*map(text, (Door.TERMINAL, Door.MCP, Door.ACTION, Door.WEB))))


def _at(part: str | Wording, door: Door) -> str:
    return part.at(door) if isinstance(part, Wording) else part


def command(name: str, *arguments: str, bare: bool = False) -> Wording:
    """Return a command of ``kakeya``, or the tool that does the same; ``bare`` without backquotes in a terminal."""
    words = " ".join(("kakeya", name, *arguments))
    tool = (
        [_TOOLS[name], *(word for word in arguments if not word.startswith("-"))] if name in _TOOLS else None
    )
    return Wording(
        words if bare else f"`{words}`",
        mcp=" ".join(tool) if tool else None,
        action=f"`{words}` in a clone of the repository",
        web=f"`{words}` in a terminal",
    )


def step(text: str, name: str, *arguments: str) -> Advice:
    """Return advice that ends with a command. A terminal shows the command so that it can be copied."""
    return Advice(f"{text}: ", command(name, *arguments, bare=True))


def param(name: str) -> Wording:
    """Return how to give a parameter of a preset."""
    value = f"{name}=VALUE"
    return Wording(f"-p {value}", mcp=f"{value} to params", action=f"{value} to the input params")


def _variable(terminal: str, name: str) -> Wording:
    return Wording(
        terminal, mcp=f"{name} in the server's environment", action=f"{name} in the job's environment"
    )


PREFIX = _variable("--prefix of `kakeya run`, or KAKEYA_BRANCH_PREFIX", "KAKEYA_BRANCH_PREFIX")
SUFFIX = _variable("--suffix=-b876", "KAKEYA_BRANCH_SUFFIX")
EXPIRES = Wording("--expires 24h", mcp="expires_s", action="the input wait")
REF = Wording("--ref", mcp="ref", action="the input ref")
SNAPSHOT = Wording("--snapshot", mcp="snapshot")
AGAINST = Wording("--against", mcp="against", action="the input against")
OUT = Wording("--out", mcp="out", action="the input folder")
REMOTE = Wording(
    "--remote", mcp="the server's own option remote", action="the input remote",
    web="the option --remote of `kakeya web`",
)  # fmt: skip
KEY = Wording(
    "--key FILE", mcp="the server's own option key", action="the input public-key",
    web="the option --key FILE of `kakeya web`",
)  # fmt: skip
TRY_AGAIN = Wording("Try again", web="Reload the page")
KEEP_WAITING = Wording(
    "To keep waiting: `kakeya wait`", mcp="To keep waiting: kakeya_wait", action="To wait longer: the input wait",
    web="To keep waiting: `kakeya wait` in a terminal",
)  # fmt: skip
SEND_AGAIN = Advice("Send it again: ", command("run", bare=True), ".", action="Run this workflow again.")
TRY_AGAIN_OR_CHECK = Advice(TRY_AGAIN, "; ", command("doctor"), " checks the remote.")
