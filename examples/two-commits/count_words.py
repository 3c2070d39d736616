"""Counts the words of a text. Change it, and compare two commits: kakeya run count-words --against main."""

import random
import re
from collections import Counter

LINES = 4_000


def text() -> str:
    """Return the same lines at each call."""
    draw = random.Random(1)
    return "\n".join(" ".join(f"word{draw.randrange(500)}" for _ in range(12)) for _ in range(LINES))


def count(lines: str) -> Counter[str]:
    """Return how often each word occurs."""
    return Counter(re.findall(r"\w+", lines))


if __name__ == "__main__":
    print(count(text()).most_common(3))
