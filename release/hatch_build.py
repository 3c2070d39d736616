"""Completes the package: its files name the commit that they were built from, and it brings the manual pages.

The commit stands in `COMMIT` at the top of a source distribution, and in `extra_metadata/commit` of a wheel's
`.dist-info` folder. An editable installation of a git checkout asks git instead, because its answer changes.

The pages are made from the programs' help by release/man_pages.py; a source distribution holds them in `man/`.
"""

import os
import re
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

STAMP = re.compile(r"[0-9a-f]{40}([0-9a-f]{24})?( modified)?")


CLICK_MAN = "click-man>=0.6"


class Completion(BuildHookInterface):
    """Puts the commit and the manual pages into a source distribution or a wheel."""

    def dependencies(self) -> list[str]:
        """Return what the pages are made with: the programs, and a generator."""
        return [] if self._made().is_dir() else [CLICK_MAN, *self.metadata.core.dependencies]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Called by hatchling before it builds."""
        self._folder = tempfile.TemporaryDirectory()
        if version != "editable":
            self._add_pages(build_data)
        root = Path(self.root)
        commit = _stamped(root) or (commit_of(root) if version != "editable" else None)
        if not commit:
            return
        file = Path(self._folder.name) / "commit"
        file.write_text(f"{commit}\n")
        if self.target_name == "sdist":
            build_data["force_include"][str(file)] = "COMMIT"
        else:
            build_data["extra_metadata"][str(file)] = "commit"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Called by hatchling when it has built."""
        del version, build_data, artifact_path
        if hasattr(self, "_folder"):
            self._folder.cleanup()

    def _made(self) -> Path:
        """Return where a source distribution has the pages."""
        return Path(self.root) / "man"

    def _add_pages(self, build_data: dict[str, Any]) -> None:
        """Make the pages if they are not there. Without isolation there may be no generator, and then no pages."""
        pages = self._made()
        if not pages.is_dir():
            if find_spec("click_man") is None:
                return
            pages = Path(self._folder.name) / "man"
            pages.mkdir()
            script = Path(self.root) / "release" / "man_pages.py"
            subprocess.run([sys.executable, "-B", script, pages, self.metadata.version], check=True)
        if self.target_name == "sdist":
            build_data["force_include"][str(pages)] = "man"
        else:
            build_data["shared_data"][str(pages)] = "share/man/man1"


def _stamped(root: Path) -> str | None:
    """Return what `COMMIT` says. In a checkout it holds a placeholder, which `git archive` replaces."""
    file = root / "COMMIT"
    text = file.read_text(encoding="utf-8").strip() if file.is_file() else ""
    return text if STAMP.fullmatch(text) else None


def commit_of(root: Path) -> str | None:
    """Return what git says of the tree, if this is a checkout of ours and not a folder inside another one."""
    if _git(root, "ls-files", "--error-unmatch", "release/hatch_build.py") is None:
        return None
    commit, changes = _git(root, "rev-parse", "HEAD"), _git(root, "status", "--porcelain")
    return f"{commit} modified" if commit and changes != "" else commit


def _git(root: Path, *args: str) -> str | None:
    env = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    argv = ["git", "--no-replace-objects", "-C", str(root), "-c", "core.fsmonitor=false", *args]
    try:
        done = subprocess.run(argv, env=env, capture_output=True, text=True, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()
