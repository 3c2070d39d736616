"""Warns once if a draft model's drafts are hardly ever accepted."""

from engine.dflash.step import Step

DRAFTS, LEAST = 200, 0.05


class AcceptanceWatch:
    """Counts the drafts of a draft model. Prompt lookup does not count: it is often wrong where nothing repeats."""

    def __init__(self) -> None:
        self._proposed = self._accepted = 0
        self._warned = False

    def add(self, step: Step) -> str | None:
        """Count a step; return the warning the first time that it is due."""
        if step.drafter == "dflash":
            return self.count(step.proposed, step.accepted)
        return None

    def count(self, proposed: int, accepted: int) -> str | None:
        """Count drafts of a draft model; return the warning the first time that it is due."""
        self._proposed += proposed
        self._accepted += accepted
        if self._warned or self._proposed < DRAFTS or self._accepted >= LEAST * self._proposed:
            return None
        self._warned = True
        return (
            f"only {self._accepted} of the draft model's {self._proposed} drafts were accepted. Usual causes: it "
            "runs in half precision, it was made for another tokenizer, or it expects embeddings with another factor "
            "(measure both with kakeya-engine bench spec --embed-scale both)"
        )
