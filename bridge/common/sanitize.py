r"""The only sanitiser: all text from the bus, a server or another program is shown through this module.

Only these characters are shown: letters, numbers, punctuation, symbols, the plain space, and a few marks on each of
them. All others are spelled out, such as ``\x1b`` or ``\u202e``, because they may control a terminal, reorder text, or
be invisible. Credentials in URLs become ``***``. Each consumer has its function:

- a terminal or the log of a workflow: ``strip_commands``, after ``line`` or ``block``;
- a program: ``data``;
- an agent: ``line`` and ``log`` (``bridge.mcp.bounds``);
- a page or Markdown: ``line``, and then the escaping of its own (``bridge.common.drawing.markup`` and
  ``bridge.show.forms.markdown``).

All text leaves a program through ``bridge.common.cli.output``, ``bridge.common.cli.screen`` or
``bridge.common.drawing.text``, which call this for all of it. tests/repo/test_output.py fails for a module that prints
in another way.
"""

import json
import re
import unicodedata
from collections.abc import Callable

HIDDEN = "***"

# An address up to the next white space, so that a password with any other character is removed whole.
_ADDRESS = re.compile(r"://\S*")
_USER = re.compile(r"[\w.-]+")
# Characters that may follow an address in a sentence without belonging to it.
_QUERY = re.compile(r"[?#](?!['\"`.,;:)\]>]*\Z)")
_CLOSING = "'\"`.,;:)]>"
_MARK = re.compile(r"[?#]")
_END = re.compile(r"[/?#]")

# Terminal escape sequences: CSI, OSC and similar ones, and sequences of two characters. In logs, runners replace their
# control characters by visible symbols. A sequence that is cut off at the end counts too, so that the beginning of a
# growing log always reads the same.
_STEERING = re.compile(
    r"[\x1b\u241b](?:\[[0-?]*[ -/]*(?:[@-~]|\Z)|[]PX^_][^\x07\u2407\x1b\u241b\n]*(?:[\x07\u2407]|[\x1b\u241b]\\|\Z)"
    r"|[ -/]*(?:[0-~]|\Z))"
)

# Invisible characters that `str.isprintable` allows: the ones that Unicode calls default-ignorable
# (DerivedCoreProperties.txt), and blank letters, marks and symbols.
_UNSEEN = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\ufff0-\ufffc\u2d7f\U0001107f"
    "\U00013430-\U00013442\U00016fe4\U0001bca0-\U0001bca3\U0001d159\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)
# More marks than this on one character are spelled out: a stack of marks could cover other lines (Unicode TR 39, 5.4).
MARKS = 4
# Text that a CI system may take for a command: GitHub's `::name::`; and `##[name]`, `##vso[` and `##teamcity[` of
# other systems, which count anywhere in a line.
_COMMAND = re.compile(r"(?<!\S):{2,}(?=[A-Za-z])|##(?=[A-Za-z]*\[)")
_BEGUN = re.compile(r"(?:(?<!\S):+|##[A-Za-z]*|#)\Z")


def line(text: str) -> str:
    """Return text as one line without control characters, and without the credentials in its addresses."""
    return _spelled(hide_credentials(text), "")


def block(text: str) -> str:
    """Do the same to text of several lines; line feeds and tabs stay."""
    return _spelled(hide_credentials(text), "\n\t")


def strip_commands(text: str) -> str:
    """Return text, which has to come from ``line`` or ``block``, without workflow commands."""
    return _COMMAND.sub(lambda match: " ".join(match[0]) if match[0][0] == ":" else "## ", text)


def unfinished_command(text: str) -> str:
    """Return the end of a text that, with the text after it, may be a workflow command for ``strip_commands``."""
    match = _BEGUN.search(text)
    return match[0] if match else ""


def log(text: str) -> str:
    """Return a job's log as plain lines: without terminal sequences, and with a new line for each carriage return."""
    return block(re.sub(r"\r+\n?", "\n", strip_ansi(text)))


def strip_ansi(text: str) -> str:
    """Return text without terminal sequences. Other control characters stay."""
    return _STEERING.sub("", text)


def data(value: object) -> str:
    """Return a value as one line of JSON that can be printed anywhere and reads back as the same value.

    Only the credentials in its addresses are replaced.
    """
    text = json.dumps(_without_credentials(value), ensure_ascii=False, default=str)
    shown = _spelled(text, "", lambda c: json.dumps(c)[1:-1])
    return shown.replace("##", "#\\u0023") if _COMMAND.search(shown) else shown


def hide_credentials(text: str) -> str:
    """Return text in which the addresses lack their passwords, tokens and queries.

    The user name in an SSH address stays, because it is not secret. In doubt, more is hidden: if an ``@`` may belong to
    a password that was not encoded, everything before it is hidden.
    """
    return _ADDRESS.sub(_hide, text) if "://" in text else text


def _hide(match: re.Match[str]) -> str:
    """Return neighbouring addresses without their secrets, in time proportional to their length."""
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
                # A password with a question mark, or a query with an `@`: the two cannot be distinguished.
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


def _spell(character: str) -> str:
    # Plots consist of Braille cells. The blank one is as wide as a space.
    return " " if character == "\u2800" else ascii(character)[1:-1]


def _spelled(text: str, allowed: str, spell: Callable[[str], str] = _spell) -> str:
    """Return text with invisible characters spelled out, except those in ``allowed``."""
    if text.isascii() and text.isprintable():
        return text
    characters = set(text)
    hidden = {c for c in characters if c not in allowed and not _is_shown(c)}
    marks = "".join(c for c in characters - hidden if _is_mark(c))
    if marks:
        text = re.sub(f"[{marks}]+", lambda stack: _bounded(stack, spell), text)
    return text.translate({ord(c): spell(c) for c in hidden}) if hidden else text


def _is_shown(character: str) -> bool:
    return character.isprintable() and not _UNSEEN.match(character)


def _is_mark(character: str) -> bool:
    return unicodedata.category(character).startswith("M")


def _bounded(stack: re.Match[str], spell: Callable[[str], str]) -> str:
    """Return neighbouring marks; those beyond the limit or without a base are spelled out."""
    base = stack.string[stack.start() - 1 : stack.start()]
    most = MARKS if base and base != " " and _is_shown(base) else 0
    shown = above = 0
    for mark in stack[0]:
        above += unicodedata.category(mark) != "Mc"
        if above > most or not most:
            break
        shown += 1
    return stack[0][:shown] + "".join(map(spell, stack[0][shown:]))
