"""How large the product is, and how many of its names say nothing: ``python -m tests.repo.house``."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
PRODUCT = ("bridge", "runner", "engine", "presets")
# Words that fit any value. A name says what the thing is.
EMPTY = frozenset(
    ("asked", "found", "given", "held", "kept", "left", "made", "odd", "one", "place", "said", "seen", "stuff",
     "taken", "thing", "things", "told", "what", "why")
)  # fmt: skip


def sources() -> list[Path]:
    """Return the product's Python files."""
    return sorted(file for folder in PRODUCT for file in (ROOT / folder).rglob("*.py"))


def names(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield the line and the name of each function, parameter, class and assigned variable."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            parameters = (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)
            yield from (
                (node.lineno, name) for name in (node.name, *(parameter.arg for parameter in parameters))
            )
        elif isinstance(node, ast.ClassDef):
            yield node.lineno, node.name
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.id


def empty_names() -> list[str]:
    """Return where the names are that say nothing: ``file:line name``."""
    return [
        f"{file.relative_to(ROOT)}:{line} {name}"
        for file in sources()
        for line, name in names(ast.parse(file.read_text(encoding="utf-8")))
        if name.strip("_").lower() in EMPTY
    ]


def lines() -> Counter[str]:
    """Return the lines of each folder of the product."""
    counts: Counter[str] = Counter()
    for file in sources():
        folder = "/".join(file.relative_to(ROOT).parts[:-1][:2])
        counts[folder] += file.read_text(encoding="utf-8").count("\n")
    return counts


def main() -> None:
    counts = lines()
    print(f"product: {counts.total()} lines in {len(sources())} files")
    print("  " + "  ".join(f"{folder} {count}" for folder, count in counts.most_common()))
    print(f"names that say nothing: {len(empty_names())}")


if __name__ == "__main__":
    main()
