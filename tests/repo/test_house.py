"""What a reader meets before the code, and lint cannot see: names that say nothing, and folders too long to be read."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCES = sorted(file for top in ("bridge", "runner", "engine") for file in (ROOT / top).rglob("*.py"))
# Words that fit any value. A name says what the thing is.
EMPTY = frozenset(
    ("asked", "found", "given", "held", "kept", "left", "made", "odd", "one", "place", "said", "seen", "stuff",
     "taken", "thing", "things", "told", "what", "why")
)  # fmt: skip
MOST = 100
FILES_PER_FOLDER = 14


def names(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield the line and the name of each function, parameter, class and assigned variable."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.lineno, node.name
            arguments = getattr(node, "args", None)
            for each in (*arguments.args, *arguments.kwonlyargs) if arguments else ():
                yield each.lineno, each.arg
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.id


def test_few_names_say_nothing():
    empty = [
        f"{file.relative_to(ROOT)}:{line} {name}"
        for file in SOURCES
        for line, name in names(ast.parse(file.read_text(encoding="utf-8")))
        if name.strip("_").lower() in EMPTY
    ]
    assert len(empty) <= MOST, "\n".join(empty)


def test_no_folder_has_many_files_side_by_side():
    counts = Counter(str(file.parent.relative_to(ROOT)) for file in SOURCES)
    assert {folder: n for folder, n in counts.items() if n > FILES_PER_FOLDER} == {}
