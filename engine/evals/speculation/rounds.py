"""What the rounds of a loop that drafts did, for a report's row."""

from collections.abc import Sequence
from typing import Any

from engine.dflash.step import Step

DIGITS = 7  # of a second: what a clock tells of a round


def rounds(steps: Sequence[Step], *, times: bool = False) -> dict[str, Any]:
    """Return what each round did, and the sums; the package's first token comes from the prompt, no round.

    Args:
        steps: of a run.
        times: also say what each round took: ``draft`` and ``verify`` until they were queued or, if the loop waits
            for the draft, computed; ``wait`` for the outcome.
    """
    verified = [step for step in steps if step.tokens and step.drafter != "prefill"]
    drafters = [step.drafter for step in verified]
    syncs = {"syncs": steps[-1].syncs} if steps[-1].syncs else {}
    timed = {"round_s": _times(verified)} if times else {}
    return timed | {
        "commits": [len(step.tokens) for step in verified],
        "drafted": [step.proposed for step in verified],
        "accepted": [step.accepted for step in verified],
        "counters": {
            "rounds": len(verified),
            **syncs,
            **{f"rounds_{name}": drafters.count(name) for name in sorted(set(drafters))},
        },
    }


def _times(steps: Sequence[Step]) -> dict[str, list[float]]:
    each = [(step.timing.draft, step.timing.verify - step.timing.wait, step.timing.wait) for step in steps]
    names = ("draft", "verify", "wait")
    return {name: [round(t[i], DIGITS) for t in each] for i, name in enumerate(names)}


def shares(steps: Sequence[Step]) -> dict[str, float]:
    """Return which shares of the time went into drafting, verifying and the rest."""
    parts = {
        name: sum(getattr(step.timing, name) for step in steps) for name in ("draft", "verify", "overhead")
    }
    whole = sum(parts.values()) or 1.0
    return {f"{name}_share": seconds / whole for name, seconds in parts.items()}
