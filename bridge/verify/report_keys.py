"""Finds the keys that may vouch for a report's run file: the pinned ones, and those published beside the report.

A key beside a report counts only if the bus's default branch has it there, because whoever sends a report can also send
a key. Such a key counts for the reports in its folder and for nothing else, so results of somebody else's runner can be
published in a repository whose own runner has another key.
"""

from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from bridge.bus import objects
from bridge.bus.folder.bus_folder import read_bus_folder
from bridge.common import environment
from bridge.errors import KakeyaError
from bridge.system.git import Git
from bridge.verify.public_keys import VARIABLE, Pin, find_pin, read_public_keys

NAME = "runner.pub"
_MAX_FILE = 64 * 1024


@dataclass(frozen=True)
class ReportKeys:
    """The pinned keys, and the clone and remote in whose default branch keys beside reports are looked up."""

    pin: Pin | None
    git: Git | None = None
    remote: str = ""
    _by_folder: dict[Path, Pin | None] = field(default_factory=dict)

    @classmethod
    def find(cls, git: Git | None, remote: str, named: str | None = None) -> "ReportKeys":
        """Find the pinned keys. If an option or the environment names a key, only that one counts.

        Raises:
            UsageError: a named key cannot be read.
        """
        is_named = named is not None or environment.get(VARIABLE)
        return cls(find_pin(git, remote, named), None if is_named else git, remote)

    def pin_for(self, report: Path) -> Pin | None:
        """Return the keys that may vouch for the run file beside a report."""
        if self.git is None:
            return self.pin
        folder = report.absolute().parent.resolve()
        if folder not in self._by_folder:
            self._by_folder[folder] = _published(self.git, self.remote, folder)
        beside = self._by_folder[folder]
        if beside is None or self.pin is None:
            return beside or self.pin
        return Pin((*beside.keys, *self.pin.keys), f"{beside.source} and {self.pin.source}")


def _published(git: Git, remote: str, folder: Path) -> Pin | None:
    """Return the keys that the default branch has in a folder of this working tree; None if it has none to read."""
    top = git.maybe("rev-parse", "--show-toplevel")
    if not top or not folder.is_relative_to(root := Path(top).resolve()):
        return None
    default = read_bus_folder(git, remote)
    if not default.branch:
        return None
    is_here = objects.is_commit(git, default.commit)
    commit = default.commit if is_here else objects.resolve(git, f"refs/remotes/{default.branch}")
    path = (folder.relative_to(root) / NAME).as_posix()
    with suppress(KakeyaError):
        content = objects.read_blob(git, commit, path, max_bytes=_MAX_FILE) if commit else None
        if content is not None:
            source = f"{path} on {default.branch}"
            return Pin(read_public_keys(content.decode("utf-8", "replace"), source), source)
    return None
