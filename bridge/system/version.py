"""The version of this program and the commit that it was built from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from bridge.console import put

_PACKAGE = "kakeya-bridge"
_ROOT = Path(__file__).resolve().parents[2]
_SHOWN = 12


@dataclass(frozen=True)
class Commit:
    """A commit, and whether files differed from it."""

    id: str
    modified: bool


def version_option(program: str) -> Callable[[Any], Any]:
    """Add ``--version``, which names the commit too."""

    def show(context: click.Context, _param: click.Parameter, value: bool) -> None:
        if value and not context.resilient_parsing:
            put(f"{program} {describe()}")
            context.exit()

    return click.option(
        "--version", is_flag=True, is_eager=True, expose_value=False, callback=show,
        help="Show the version and the commit, and exit.",
    )  # fmt: skip


def describe() -> str:
    """Return version and commit, such as ``0.1.0 (commit 0663822abc12)``."""
    from importlib.metadata import version  # noqa: PLC0415 - slow to import, and every command imports this module

    found = built_from()
    if found is None:
        return f"{version(_PACKAGE)} (built from a folder without git history)"
    changes = ", with uncommitted changes" if found.modified else ""
    return f"{version(_PACKAGE)} (commit {found.id[:_SHOWN]}{changes})"


def built_from() -> Commit | None:
    """Return the commit: of a wheel what its build recorded, of a checkout what git says now."""
    from importlib.metadata import distribution  # noqa: PLC0415 - likewise

    recorded = distribution(_PACKAGE).read_text("extra_metadata/commit")
    if recorded:
        commit, _, modified = recorded.strip().partition(" ")
        return Commit(commit, modified=bool(modified))
    return _of_checkout()


def _of_checkout() -> Commit | None:
    from bridge.errors import GitError  # noqa: PLC0415 - only for this option
    from bridge.system.git import Git  # noqa: PLC0415 - likewise

    git = Git.of_user(_ROOT)
    try:
        # A virtual environment inside somebody's checkout is no checkout of ours.
        ours = git.maybe("ls-files", "--error-unmatch", str(Path(__file__).resolve()))
        commit = git.maybe("rev-parse", "HEAD") if ours else None
        return Commit(commit, modified=bool(git.text("status", "--porcelain"))) if commit else None
    except GitError:
        return None
