"""Prints how many words README.md and the pages of docs/ have, as `wc -w` counts them: `make docs`.

The chapters of docs/design are no part of the manual, and have a limit of their own.
"""

from __future__ import annotations

import sys
from pathlib import Path

FOLDER = Path(__file__).parent
README_WORDS, WORDS, DESIGN_WORDS = 1_500, 52_000, 5_000


def words() -> dict[str, int]:
    """Return the words of README.md and of each page of docs/."""
    pages = [FOLDER.parent / "README.md", *sorted(FOLDER.glob("*.md"))]
    return {page.name: len(page.read_text(encoding="utf-8").split()) for page in pages}


def design_words() -> int:
    """Return the words of the chapters of docs/design."""
    return sum(len(page.read_text(encoding="utf-8").split()) for page in (FOLDER / "design").glob("*.md"))


def main() -> None:
    found = words()
    readme, together = found["README.md"], sum(found.values())
    sys.stdout.write(
        f"words: README {readme:,} (at most {README_WORDS:,}), docs {together - readme:,}, "
        f"in all {together:,} (at most {WORDS:,}); docs/design {design_words():,} (at most {DESIGN_WORDS:,})\n"
    )


if __name__ == "__main__":
    main()
