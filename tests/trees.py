"""Lists trees with git itself, to compare with what our code writes and reads, and writes those that it refuses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bridge.bus import objects
from bridge.system import git_output
from bridge.system.git import Git
from bridge.system.git_output import Entry


def list_tree(git: Git, tree: str, *paths: str, recursive: bool = False) -> list[Entry]:
    """Return the entries of a tree (or of a commit's tree), or just those at ``paths``."""
    flags = ["-r"] if recursive else []
    return git_output.entries(git("ls-tree", "-z", "-l", *flags, "--full-tree", tree, "--", *paths).stdout)


def write_tree(git: Git, entries: Mapping[str, Any] | list[tuple[str, Any]]) -> str:
    """Write a tree byte by byte: text, (mode, content), (mode, id) of a folder or commit, or a dict for a folder."""
    pairs = list(entries.items()) if isinstance(entries, Mapping) else entries
    raw = b""
    # In git's order, or it refuses the tree for that.
    for name, value in sorted(pairs, key=lambda pair: f"{pair[0]}{'/' * isinstance(pair[1], dict)}"):
        if isinstance(value, dict):
            value = ("40000", write_tree(git, value))  # noqa: PLW2901
        mode, content = value if isinstance(value, tuple) else ("100644", value)
        oid = content if mode in {"40000", "160000"} else objects.write_blob(git, content.encode())
        raw += f"{mode} {name}".encode("utf-8", "surrogateescape") + b"\0" + bytes.fromhex(oid)
    return git.text("hash-object", "-t", "tree", "-w", "--literally", "--stdin", stdin=raw)
