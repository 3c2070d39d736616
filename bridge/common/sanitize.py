r"""The one sanitiser: no text from the bus, a server or another program is shown except through here.

Two things are taken out of a text. What steers: control characters (C0, C1, so every terminal sequence), line and
paragraph separators, and marks that reorder text are spelled out, as ``\x1b`` or ``\u202e``. What is secret: the
credentials in URLs become ``***``.

All text leaves a program through ``bridge.console``, ``bridge.cli.screen`` or ``bridge.report.text``, which call this
for all of it. tests/repo/test_output.py fails for a module that prints in another way.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable

HIDDEN = "***"

# Everything up to the next white space: an address never ends before its credentials do.
_ADDRESS = re.compile(r"://\S*")
_USER = re.compile(r"[\w.-]+")
# What may stand right behind an address in a sentence, and is no query.
_QUERY = re.compile(r"[?#](?!['\"`.,;:)\]>]*\Z)")
_CLOSING = "'\"`.,;:)]>"
_MARK = re.compile(r"[?#]")
_END = re.compile(r"[/?#]")

# Terminal escape sequences: CSI, OSC and similar ones, and sequences of two characters. A runner replaces their control
# characters by pictures of them. A sequence that is cut off at the end counts too, so that the beginning of a growing
# log always reads the same.
_STEERING = re.compile(
    r"[\x1b\u241b](?:\[[0-?]*[ -/]*(?:[@-~]|\Z)|[]PX^_][^\x07\u2407\x1b\u241b\n]*(?:[\x07\u2407]|[\x1b\u241b]\\|\Z)"
    r"|[ -/]*(?:[0-~]|\Z))"
)


def line(text: str) -> str:
    """Return text as one line in which nothing steers, without the credentials in its addresses."""
    return _spelled(hide_credentials(text), "")


def block(text: str) -> str:
    """Return text of several lines, likewise; line feeds and tabs stay."""
    return _spelled(hide_credentials(text), "\n\t")


def log(text: str) -> str:
    """Return a job's log as plain lines: without what a terminal would obey, and a return begins a new line."""
    return block(re.sub(r"\r+\n?", "\n", strip_ansi(text)))


def strip_ansi(text: str) -> str:
    """Return text without what a terminal would obey. Other control characters stay."""
    return _STEERING.sub("", text)


def data(value: object) -> str:
    """Return a value as one line of JSON that can be printed anywhere and reads back as the same value.

    Only the credentials in its addresses are replaced.
    """
    text = json.dumps(_without_credentials(value), ensure_ascii=False, default=str)
    return _spelled(text, "", lambda c: json.dumps(c)[1:-1])


def hide_credentials(text: str) -> str:
    """Return text in which the addresses lack their passwords, tokens and queries.

    The user's name in an SSH address stays, since it is no secret. More is hidden rather than less: where an ``@`` may
    belong to a password that was not encoded, everything before it goes.
    """
    return _ADDRESS.sub(_hide, text) if "://" in text else text


def _hide(match: re.Match[str]) -> str:
    """Return addresses that stand together without what is secret in them. Takes time in proportion to their length."""
    is_ssh = match.string.endswith("ssh", 0, match.start())
    closing = match[0][len(match[0].rstrip(_CLOSING)) :]
    parts = match[0].split("://")[1:]
    last = max((i for i, part in enumerate(parts) if "@" in part), default=-1)
    shown, i = "", 0
    while i < len(parts):
        part = parts[i]
        authority = _END.split(part, maxsplit=1)[0]
        if i <= last and ("@" in authority or ":" in authority):
            if set("".join(parts[i:last]) + parts[last].rpartition("@")[0]) & {"?", "#"}:
                # A password with a question mark, or a query with an `@`: nobody can tell.
                return f"{shown}://{HIDDEN}{closing}"
            user, _, host = parts[last].rpartition("@")
            is_user = is_ssh and i == last == 0 and _USER.fullmatch(user)
            part, i = f"{user if is_user else HIDDEN}@{host}", last
        query = (_QUERY if i == len(parts) - 1 else _MARK).search(part)
        if query:
            return f"{shown}://{part[: query.end()]}{HIDDEN}{closing}"
        shown += f"://{part}"
        i += 1
    return shown


def _without_credentials(value: object) -> object:
    if isinstance(value, str):
        return hide_credentials(value)
    if isinstance(value, dict):
        return {key: _without_credentials(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_without_credentials(item) for item in value]
    return value


def _spelled(text: str, allowed: str, spell: Callable[[str], str] = lambda c: repr(c)[1:-1]) -> str:
    """Return text with the characters spelled out that are not printable, but for those in ``allowed``."""
    if text.isprintable():
        return text
    unprintable = {c for c in set(text) if not c.isprintable() and c not in allowed}
    return text.translate({ord(c): spell(c) for c in unprintable}) if unprintable else text
