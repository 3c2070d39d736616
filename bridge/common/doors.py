"""Words advice for the door at which it is read.

An error's fix names commands and options of ``kakeya``, because most are read in a terminal. An agent has tools and
arguments instead, and a workflow has the Action's inputs.
"""

from __future__ import annotations

import re

from bridge.common import environment

# The Action sets KAKEYA_DOOR to this.
_ACTION = "action"

_TOOLS = "run|wait|status|logs|fetch|cancel|list|doctor|presets"
_FOR_AGENTS = (
    (r" --wait\b", ""),
    (r"-p (\w+=\w+)", r"\1 to params"),
    (r"--expires \S+?(?=[.,;]?(?:\s|$))", "expires_s"),
    (r"--(ref|snapshot|out)\b", r"\1"),
    (r"--prefix\b", "KAKEYA_BRANCH_PREFIX in the server's environment"),
    (r"--suffix(?:=[^\s.]+)?", "KAKEYA_BRANCH_SUFFIX in the server's environment"),
    (r"--(remote|key)\b", r"the server's own option \1"),
    (r"`?\bkakeya verify\b([^`]*)`?", r"kakeya_status\1"),
    (rf"`?\bkakeya ({_TOOLS})\b([^`]*)`?", r"kakeya_\1\2"),
)
_FOR_WORKFLOWS = (
    (r"-p (\w+=\w+)", r"\1 to the input params"),
    (r"--expires \S+?(?=[.,;]?(?:\s|$))", "the input wait"),
    (r"--prefix\b", "KAKEYA_BRANCH_PREFIX in the job's environment"),
    (r"--suffix(?:=[^\s.]+)?", "KAKEYA_BRANCH_SUFFIX in the job's environment"),
    (r"--key\b", "the input public-key"),
    (r"--out\b", "the input folder"),
    (r"--(ref|remote)\b", r"the input \1"),
)
_BY_CODE_FOR_WORKFLOWS = {
    "no_push_right": "Let the job's token push (permissions: contents: write), or set KAKEYA_BRANCH_PREFIX in the "
    "job's environment to a prefix that it may push to.",
}


def for_agents(fix: str | None) -> str | None:
    """Return advice in the words of the MCP tools."""
    return _worded(fix, _FOR_AGENTS)


def for_reader(fix: str | None, code: str) -> str | None:
    """Return advice for the reader of this program's output: a person at a terminal, or a workflow's log."""
    if environment.get("KAKEYA_DOOR") != _ACTION:
        return fix
    return _BY_CODE_FOR_WORKFLOWS.get(code) or _worded(fix, _FOR_WORKFLOWS)


def _worded(fix: str | None, table: tuple[tuple[str, str], ...]) -> str | None:
    for pattern, words in table if fix else ():
        fix = re.sub(pattern, words, fix or "")
    return fix
