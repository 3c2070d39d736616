"""Reads messages from the terminal: with prompt_toolkit if it is installed, otherwise with Python's own ``input``.

Typed lines can be recalled with the arrow keys until the chat ends. No file keeps them.
"""

import re
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from bridge.common import environment
from bridge.common.cli.output import is_read_by_people
from engine.cli.chat import screen

PROMPT, MORE = ">>> ", "... "
BLOCK = '"""'
COMMAND = re.compile(r"/[A-Za-z?]+")

Reader = Callable[[str], str]
"""Returns what the user enters after a prompt; EOFError at the end, KeyboardInterrupt after Ctrl-C."""


def reader() -> tuple[Reader, bool]:
    """Return the function that reads the terminal, and whether it is prompt_toolkit's line editor."""
    if not is_read_by_people():
        return _unseen, False
    if environment.get("TERM") != "dumb":
        with suppress(ImportError):
            return _line_editor(), True
        with suppress(ImportError):
            import readline  # `input` uses it from now on

            readline.parse_and_bind("set enable-bracketed-paste on")  # a paste is one message
    return _typed, False


def message(read: Reader) -> str:
    """Return the next message. A message that begins with triple quotes ends at a line that ends with them."""
    text = _text(read(PROMPT))
    if not text.strip().startswith(BLOCK):
        return text.strip()
    lines = [text.strip().removeprefix(BLOCK)]
    while not lines[-1].rstrip().endswith(BLOCK):
        lines.append(_text(read(MORE)))
    lines[-1] = lines[-1].rstrip().removesuffix(BLOCK)
    return "\n".join(lines).strip("\n")


def is_command(text: str) -> bool:
    """Return whether a message has the form of a command. A path with several parts is not a command."""
    return COMMAND.fullmatch(text) is not None


def _text(line: str) -> str:
    """Return a line as text for a tokenizer: bytes that are not UTF-8 become replacement characters."""
    return line.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def _typed(prompt: str) -> str:
    while True:
        try:
            return input(prompt)
        except UnicodeDecodeError:
            screen.note("That line was not UTF-8, and was not sent.")


def _unseen(prompt: str) -> str:
    """Read a line if standard output is redirected: the prompt must not be mixed with the answers."""
    screen.prompt(prompt)
    line = sys.stdin.buffer.readline()
    if not line:
        raise EOFError
    return line.decode("utf-8", "replace").rstrip("\r\n")


def _line_editor() -> Reader:
    from prompt_toolkit import PromptSession
    from prompt_toolkit.key_binding import KeyBindings

    keys = KeyBindings()

    @keys.add("enter")
    def _send(event: Any) -> None:
        event.current_buffer.validate_and_handle()

    @keys.add("escape", "enter")
    def _new_line(event: Any) -> None:
        event.current_buffer.insert_text("\n")

    @keys.add("<vt100-mouse-event>")
    def _ignore(_: Any) -> None:
        """A pasted colour looks like an event of the mouse, which prompt_toolkit's own binding fails to read."""

    session: Any = PromptSession(
        multiline=True, key_bindings=keys, prompt_continuation=MORE, enable_suspend=True
    )
    return lambda prompt: str(session.prompt(prompt))
