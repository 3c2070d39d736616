"""Shows a chat: answers on standard output, everything else on standard error."""

import click

from bridge.common.cli.output import is_plain, is_read_by_people

# Characters that control a terminal or reorder its text, by what is shown instead. Emoji are joined by others.
CONTROLS = (
    *range(9),
    *range(11, 32),
    *range(127, 160),
    0x2028,
    0x2029,
    *range(0x202A, 0x202F),
    *range(0x2066, 0x206A),
)
SPELLED = {code: ascii(chr(code))[1:-1] for code in CONTROLS}
DIM, BRIGHT = "\x1b[2m", "\x1b[22m"
RESET = f"{BRIGHT}\x1b[?25h\x1b[?2004l"  # and the cursor is shown, and pastes are not marked


def note(text: str) -> None:
    """Print a remark about the chat on standard error."""
    click.echo(text.translate(SPELLED), err=True)


def prompt(text: str) -> None:
    """Ask for a line on standard error."""
    click.echo(text, err=True, nl=False)


class Screen:
    """Prints one answer while it arrives. A terminal shows thoughts dim, and control characters spelled out."""

    def __init__(self) -> None:
        self._terminal = is_read_by_people()
        self._dim = self._terminal and not is_plain()
        self._thinks = False
        self._open = False  # whether a line has begun

    def add(self, kind: str, text: str) -> None:
        """Print a part of the answer: ``thinking`` or ``text``."""
        if (kind == "thinking") != self._thinks:
            self._turn()
        self._put(text)

    def end(self) -> None:
        """Complete the answer's last line."""
        if self._thinks:
            self._turn()
        elif self._open:
            self._put("\n")

    def _turn(self) -> None:
        """Begin or end the thoughts."""
        if self._open:
            self._put("\n")
        self._thinks = not self._thinks
        if self._dim:
            click.echo(DIM if self._thinks else BRIGHT, nl=False)
        else:
            note("(thinking)" if self._thinks else "(answer)")

    def _put(self, text: str) -> None:
        self._open = not text.endswith("\n") if text else self._open
        shown = text.translate(SPELLED) if self._terminal else text
        click.echo(shown, nl=False, err=self._thinks and not self._terminal)
