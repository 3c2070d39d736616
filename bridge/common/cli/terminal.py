"""Terminal settings of all programs: colours only if they are wanted, and text in any encoding."""

from __future__ import annotations

import codecs
import io
import json
import sys
from typing import TYPE_CHECKING, Any

from bridge.common import environment

if TYPE_CHECKING:
    from rich.console import Console

_ESCAPED = "kakeya-escaped"


def is_plain() -> bool:
    """Return whether no colours and other styles are wanted, whatever the output is (https://no-color.org)."""
    return environment.get("NO_COLOR") is not None or environment.get("TERM") == "dumb"


def styles() -> dict[str, Any]:
    """Return the options of a rich console that make it obey ``is_plain``."""
    return {"color_system": None} if is_plain() else {}


def rich_console(**options: Any) -> Console:
    """Return a rich console."""
    from rich.console import Console  # noqa: PLC0415 - slow to import

    return Console(**{**styles(), **options})


def accept_any_text() -> None:
    r"""Write what the terminal's encoding lacks as ``\u00e9``, which JSON reads back as the same character."""
    codecs.register_error(_ESCAPED, _escape)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=_ESCAPED)


def _escape(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return json.dumps(error.object[error.start : error.end])[1:-1], error.end
