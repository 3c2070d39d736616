"""Lists trees with git itself, to compare with what our code writes and reads."""

from __future__ import annotations

from bridge.system import git_output
from bridge.system.git import Git
from bridge.system.git_output import Entry


def list_tree(git: Git, tree: str, *paths: str, recursive: bool = False) -> list[Entry]:
    """Return the entries of a tree (or of a commit's tree), or just those at ``paths``."""
    flags = ["-r"] if recursive else []
    return git_output.entries(git("ls-tree", "-z", "-l", *flags, "--full-tree", tree, "--", *paths).stdout)
