"""The folders of a comparison's arms: each in turn is the job's folder, so that all arms run at the same path.

A job sees only the arm that runs, and cannot tell by its path which one that is.
"""

import stat
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from runner.job.workspace import Workspace, remove, workspace


class Arms:
    """The arms by name. At most one of them is at the job's place. No process of the job may run during a change."""

    def __init__(self, space: Workspace, parked: dict[str, Workspace]) -> None:
        self._space = space
        self._parked = parked
        self._active: str | None = None

    def activate(self, name: str) -> None:
        """Move an arm's folders to the job's place, and move the previous arm's folders away."""
        if name == self._active:
            return
        if self._active is not None:
            _move(self._space, self._parked[self._active])
        _move(self._parked[name], self._space)
        self._active = name


@contextmanager
def open_arms(state_folder: Path, preset: str, space: Workspace, names: Sequence[str]) -> Iterator[Arms]:
    """Create empty folders for each arm, and remove them afterwards. ``space`` is emptied: an arm will be there."""
    with ExitStack() as stack:
        parked = {name: stack.enter_context(workspace(state_folder, preset)) for name in names}
        for folder in (space.tree, space.home):
            remove(folder)
        yield Arms(space, parked)


def _move(source: Workspace, target: Workspace) -> None:
    for folder, new in ((source.tree, target.tree), (source.home, target.home)):
        # A job without a sandbox could have replaced it with a link, or forbidden to write into it.
        if not stat.S_ISDIR(folder.lstat().st_mode):
            raise NotADirectoryError(f"the job replaced its folder {folder.name}")
        folder.chmod(0o700)
        folder.rename(new)
