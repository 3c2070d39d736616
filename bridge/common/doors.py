"""Adapts advice to the door where it is read: a terminal, an agent, a workflow or a browser.

An error's fix names commands and options of ``kakeya``, because most fixes are read in a terminal. An agent has tools
and arguments instead, a workflow has the Action's inputs, and a page in a browser only shows things.
"""

import re
from enum import Enum

from bridge.common import environment

# The Action sets KAKEYA_DOOR to this.
_ACTION = "action"

_TOOLS = "run|wait|status|logs|fetch|cancel|list|doctor|presets"
# A command with its arguments, in backquotes or up to the end of a clause.
_COMMAND = r"`(kakeya [a-z]+[^`]*)`|(?<![`\w])(kakeya [a-z]+(?: [^\s`;,]*[^\s`;,.])*)"
_PREFIX = r"--prefix\b(?: of `kakeya run`, or KAKEYA_BRANCH_PREFIX)?"
_FOR_AGENTS = (
    (r" --wait\b", ""),
    (r"-p (\w+=\w+)", r"\1 to params"),
    (r"--expires \S+?(?=[.,;]?(?:\s|$))", "expires_s"),
    (r"--(ref|snapshot|out)\b", r"\1"),
    (_PREFIX, "KAKEYA_BRANCH_PREFIX in the server's environment"),
    (r"--suffix(?:=[^\s.]+)?", "KAKEYA_BRANCH_SUFFIX in the server's environment"),
    (r"--(remote|key)\b", r"the server's own option \1"),
    (r"`?\bkakeya verify\b([^`]*)`?", r"kakeya_status\1"),
    (rf"`?\bkakeya ({_TOOLS})\b([^`]*)`?", r"kakeya_\1\2"),
)
_FOR_WORKFLOWS = (
    (r"-p (\w+=\w+)", r"\1 to the input params"),
    (r"--expires \S+?(?=[.,;]?(?:\s|$))", "the input wait"),
    (_PREFIX, "KAKEYA_BRANCH_PREFIX in the job's environment"),
    (r"--suffix(?:=[^\s.]+)?", "KAKEYA_BRANCH_SUFFIX in the job's environment"),
    (r"--key\b", "the input public-key"),
    (r"--out\b", "the input folder"),
    (r"--(ref|remote)\b", r"the input \1"),
    (r"Send it again: kakeya run\b", "Run this workflow again"),
    (r"To keep waiting: `kakeya wait`", "To wait longer: the input wait"),
    (_COMMAND, r"`\1\2` in a clone of the repository"),
)
_FOR_PAGES = (
    (r"\bTry again\b", "Reload the page"),
    (r"(?<!`)--(remote|key FILE|key)\b", r"the option --\1 of `kakeya web`"),
    (r"\(--prefix\)", "(--prefix of `kakeya run`)"),
    (_COMMAND, r"`\1\2` in a terminal"),
    (r"(`kakeya web`) in a terminal", r"\1"),
)
_BY_CODE_FOR_WORKFLOWS = {
    "no_push_right": "Let the job's token push (permissions: contents: write), or set KAKEYA_BRANCH_PREFIX in the "
    "job's environment to a prefix that it may push to.",
}
# Only such advice is replaced: other rules of a host have the same code.
_ABOUT_RIGHTS = re.compile(r"--prefix|the right to push")


class Door(Enum):
    """Where advice is read."""

    TERMINAL = "terminal"
    ACTION = "action"
    MCP = "mcp"
    WEB = "web"


_REPLACED: dict[Door, tuple[tuple[str, str], ...]] = {
    Door.MCP: _FOR_AGENTS,
    Door.ACTION: _FOR_WORKFLOWS,
    Door.WEB: _FOR_PAGES,
}


def current() -> Door:
    """Return the door of this program's output: the log of a workflow, or a terminal."""
    return Door.ACTION if environment.get("KAKEYA_DOOR") == _ACTION else Door.TERMINAL


def advice(fix: str | None, door: Door, code: str = "") -> str | None:
    """Return a fix, which was written for a terminal, in the words of a door. ``code`` is the error's code, if any."""
    if door is Door.ACTION and code in _BY_CODE_FOR_WORKFLOWS and _ABOUT_RIGHTS.search(fix or ""):
        return _BY_CODE_FOR_WORKFLOWS[code]
    for pattern, words in _REPLACED.get(door, ()) if fix else ():
        fix = re.sub(pattern, words, fix or "")
    return fix
