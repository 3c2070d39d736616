"""The version of this program and the commit that it was built from."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import click

from bridge.common import environment, sanitize

_DISTRIBUTION = "kakeya-bridge"
_HERE = Path(__file__).resolve().parent
_ROOT = _HERE.parents[1]
_WHOLE_REPOSITORY = (":/",)
_ID_CHARS = 12
_GIT_TIMEOUT_S = 30.0


class Commit(NamedTuple):
    """A commit, and whether files differed from it."""

    id: str
    modified: bool


def version_option(program: str, built_from: Callable[[], Commit | None]) -> Callable[[Any], Any]:
    """Add ``--version``, which names the commit too."""

    def show(context: click.Context, _param: click.Parameter, value: bool) -> None:
        if value and not context.resilient_parsing:
            click.echo(sanitize.line(f"{program} {describe(built_from())}"))
            context.exit()

    return click.option(
        "--version", is_flag=True, is_eager=True, expose_value=False, callback=show,
        help="Show the version and the commit, and exit.",
    )  # fmt: skip


def describe(commit: Commit | None) -> str:
    """Return version and commit, such as ``0.1.0 (commit 0663822abc12)``."""
    from importlib.metadata import version  # noqa: PLC0415 - slow to import, and every command imports this module

    if commit is None:
        return f"{version(_DISTRIBUTION)} (built from a folder without git history)"
    changes = ", with uncommitted changes" if commit.modified else ""
    return f"{version(_DISTRIBUTION)} (commit {commit.id[:_ID_CHARS]}{changes})"


def built_from(folder: Path = _HERE, paths: Sequence[str] = _WHOLE_REPOSITORY) -> Commit | None:
    """Return the commit of the package in ``folder``, and whether files in ``paths`` differ; None if nothing names one.

    A wheel contains the commit that its build recorded. In a checkout, git is asked.
    """
    recorded = _recorded() if folder.is_relative_to(_ROOT) else None
    if recorded:
        commit, _, modified = recorded.partition(" ")
        return Commit(commit, bool(modified))
    # A virtual environment inside somebody's checkout is not a checkout of this project.
    if not _git(folder, "ls-files", "--error-unmatch", "__init__.py"):
        return None
    head = _git(folder, "rev-parse", "HEAD")
    return Commit(head, bool(_git(folder, "status", "--porcelain", "--", *paths))) if head else None


def _git(folder: Path, *args: str) -> str | None:
    """Ask git about a checkout, without hooks, file-system monitor and replaced objects."""
    from bridge.common import process  # noqa: PLC0415 - likewise

    quiet = ("-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false")
    argv = ("git", "--no-replace-objects", "-C", str(folder), *quiet, *args)
    return process.answer(*argv, env=environment.for_user_git(), timeout=_GIT_TIMEOUT_S)


def _recorded() -> str | None:
    from importlib.metadata import PackageNotFoundError, distribution  # noqa: PLC0415 - likewise

    try:
        text = distribution(_DISTRIBUTION).read_text("extra_metadata/commit")
    except PackageNotFoundError:
        return None
    return text.strip() if text else None
