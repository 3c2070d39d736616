"""Replay an editing session, and count what lookup drafts save: from the prompt alone, and from earlier answers too.

    python benchmarks/editing.py [FILE] [--turns N] [--model NAME]

In each turn a script edits a few lines of a file, and the answer is the whole file. Nothing is computed by a model: an
answer's tokens are known, and each pass commits the drafts that equal them and one token more. So the counts are exact,
and the same on any machine. Speed is what follows from the cost of a pass over 16 rows, in passes over one row.
"""

from __future__ import annotations

import argparse
import random
from itertools import pairwise
from pathlib import Path

from engine.dflash.propose.adaptive import SURE
from engine.dflash.propose.answers import Answers
from engine.dflash.propose.lookup import Lookup
from engine.models import load

DRAFTS = 15
COSTS = {"CPU, measured on two cores of an EPYC": 1.73, "GPU, as an assumption": 1.05}
FILE = Path(__file__).parents[1] / "engine" / "dflash" / "propose" / "adaptive.py"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("file", nargs="?", type=Path, default=FILE)
    parser.add_argument("--turns", type=int, default=10)
    parser.add_argument("--model", default="smollm2-135m", help="whose tokenizer counts")
    options = parser.parse_args()
    tokenizer = load(options.model, False).tokenizer
    versions = edited(options.file.read_text(encoding="utf-8"), options.turns)
    for name, shows_file in (
        ("the file is in the prompt", True),
        ("the prompt names the change only", False),
    ):
        for store, most in (("prompt alone", 0), ("earlier answers too", 1 << 15)):
            answers, passes, drafted, tokens = Answers(most), 0, 0, 0
            for (_, before), (change, after) in pairwise(versions):
                prompt = f"{before}\n\n{change}" if shows_file else change
                answer = tokenizer.encode(after)
                used, with_drafts = replayed(tokenizer.encode(prompt), answer, answers)
                passes, drafted, tokens = passes + used, drafted + with_drafts, tokens + len(answer)
                answers.add(answer)
            speeds = ", ".join(
                f"{tokens / (passes + (cost - 1) * drafted):.2f} ({where})" for where, cost in COSTS.items()
            )
            print(f"{name}, {store}: {tokens} tokens, {tokens / passes:.2f} a pass; speed-up {speeds}")


def edited(text: str, turns: int) -> list[tuple[str, str]]:
    """Return each turn's instruction and the file after it. A turn replaces, adds or removes one to three lines."""
    rng, lines, versions = random.Random(7), text.splitlines(), [("", text)]
    for turn in range(turns):
        changes = []
        for _ in range(rng.randint(1, 3)):
            at = rng.choice([i for i, line in enumerate(lines) if line.strip()])
            kind = rng.choice(("replace", "add", "remove"))
            if kind == "remove":
                changes.append(f"Remove line {at + 1}.")
                del lines[at]
                continue
            line = lines[at].replace("the", "each", 1) + f"  # {turn}"
            changes.append(f"{kind.title()} line {at + 1}: {line.strip()}")
            lines[at : at + (kind == "replace")] = [line]
        versions.append((" ".join(changes), "\n".join(lines) + "\n"))
    return versions


def replayed(prompt: list[int], answer: list[int], answers: Answers) -> tuple[int, int]:
    """Return the passes that an answer takes, and how many of them verify drafts."""
    lookup = Lookup(answers=answers)
    lookup.feed(prompt)
    passes = drafted = at = 0
    while at < len(answer):
        drafts = lookup.propose(min(DRAFTS, len(answer) - at - 1)) if lookup.length >= SURE else []
        right = next((i for i, draft in enumerate(drafts) if draft != answer[at + i]), len(drafts))
        lookup.feed(answer[at : at + right + 1])
        passes, drafted, at = passes + 1, drafted + bool(drafts), at + right + 1
    return passes, drafted


if __name__ == "__main__":
    main()
