"""How much drafts would gain where verifying rows costs nothing, from what published runs accepted.

    python benchmarks/rows_for_free.py

On a GPU, a pass over 16 rows takes about as long as one over a single row, because both read the weights once. There, a
round costs one pass of the target and one of the drafter. The drafter's price is its share of the bytes that are read:
its weights and the table that compares its state with each token, over the target's weights. The column `free` leaves
the drafter's price out too: no drafter that accepts as much can gain more, whatever the machine.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parents[1] / "docs/results"
REPORTS = ("spec-chat-64", "spec-chat-256", "spec-humaneval-64", "spec-humaneval-256")
VOCABULARY, WIDTH = 49_152, 576  # of SmolLM2-135M
ARMS = {"dflash/auto": True, "lookup/auto": False}


def main() -> int:
    """Print a line for each arm and prompt of the published runs."""
    print(
        f"{'report':<20}{'arm':<13}{'prompt':<14}{'rounds':>7}{'measured':>10}{'drafter paid':>14}{'free':>7}"
    )
    for name in REPORTS:
        report = json.loads((RESULTS / f"{name}-smollm2-135m.json").read_text())
        sizes = {model["role"]: model["parameters"] for model in report["models"]}
        price = (sizes["draft"] + VOCABULARY * WIDTH) / sizes["target"]
        for arm, is_model in ARMS.items():
            for prompt in (each["id"] for each in report["prompts"]):
                row = _rows(report, arm, prompt)[0]
                rounds, tokens = len(row["commits"]), sum(row["commits"])
                drafted = sum(number > 0 for number in row["drafted"]) if is_model else 0
                paid = tokens / (rounds + drafted * price)
                measured = _speed(report, arm, prompt) / _speed(report, "incremental", prompt)
                columns = f"{rounds:>7}{measured:>10.2f}{paid:>14.2f}{tokens / rounds:>7.2f}"
                print(f"{name:<20}{arm:<13}{prompt:<14}{columns}")
    return 0


def _rows(report: dict[str, Any], arm: str, prompt: str) -> list[dict[str, Any]]:
    return [
        row
        for row in report["rows"]
        if (row["arm"], row["prompt"]) == (arm, prompt) and not row.get("warmup")
    ]


def _speed(report: dict[str, Any], arm: str, prompt: str) -> float:
    """Return tokens a second of the fastest repeat."""
    return max(float(row["decode_tokens"]) / float(row["decode_s"]) for row in _rows(report, arm, prompt))


if __name__ == "__main__":
    sys.exit(main())
