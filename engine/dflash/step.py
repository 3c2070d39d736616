"""The result of one round of decoding, and sums over rounds."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from engine.dflash.kinds import KINDS

# After WATCHED_DRAFTS drafts, an accepted share below LEAST_ACCEPTED leads to a warning.
WATCHED_DRAFTS, LEAST_ACCEPTED = 200, 0.05


@dataclass(frozen=True)
class Timing:
    """Seconds of one round.

    The draft stays on the device and feeds the verification, so without ``profile`` (which adds a
    synchronisation between the two) ``draft`` is only the time to queue it and ``verify`` contains the rest.
    """

    draft: float = 0.0  # drafting
    verify: float = 0.0  # the target's forward pass, judging the drafts and reading the outcome
    overhead: float = 0.0  # everything else on the host: committing, stops, text
    wait: float = 0.0  # the part of `verify` in which the host waited for the device

    @property
    def total(self) -> float:
        """The round's seconds."""
        return self.draft + self.verify + self.overhead


@dataclass(frozen=True)
class Step:
    """What one round committed."""

    tokens: tuple[int, ...]  # the tokens, in order; a stop token is the last of them
    accepted: int = 0  # how many of them a drafter had proposed; the others are the target's own
    # Text that became final in this round: complete characters, free of stop tokens and stop strings.
    text: str = ""
    drafter: str = "none"  # a kind of drafter, `lookup`, or `none` for a plain step
    proposed: int = 0  # how many drafts the target verified
    finish_reason: str | None = None  # `stop` or `length` in the last step, None before
    timing: Timing = Timing()  # seconds of the round
    syncs: int = 0  # how often the host has waited for the device since the prompt was read
    prefill: float = 0.0  # seconds that reading the prompt took, in the first step; 0 in the others


@dataclass
class Stats:
    """Sums over steps, for reports and for the end of a command.

    A step with drafts is a verify step. Its committed tokens count the target's own token, so a verify step
    whose drafts are all rejected counts 1.
    """

    steps: int = 0
    tokens: int = 0
    accepted: int = 0
    proposed: int = 0
    verify_steps: int = 0
    verified_tokens: int = 0
    syncs: int = 0
    prefill: float = 0.0
    draft: float = 0.0
    verify: float = 0.0
    overhead: float = 0.0
    finish_reason: str | None = None
    by_drafter: Counter[str] = field(default_factory=Counter)

    def add(self, step: Step) -> Step:
        """Count one step, and return it."""
        self.steps += 1
        self.tokens += len(step.tokens)
        self.accepted += step.accepted
        self.proposed += step.proposed
        if step.proposed:
            self.verify_steps += 1
            self.verified_tokens += len(step.tokens)
        self.syncs = step.syncs
        self.prefill += step.prefill
        self.draft += step.timing.draft
        self.verify += step.timing.verify
        self.overhead += step.timing.overhead
        self.finish_reason = step.finish_reason
        self.by_drafter[step.drafter] += 1
        return step

    @property
    def seconds(self) -> float:
        """Seconds of decoding, without reading the prompt."""
        return self.draft + self.verify + self.overhead

    def as_dict(self) -> dict[str, Any]:
        """Return the sums and their ratios; a ratio without a denominator is None.

        ``tau`` is the number of committed tokens per verify step, including the target's own token.
        ``tokens_per_step`` is the same over all steps, including plain ones. ``acceptance`` is accepted drafts over
        proposed ones. The shares are parts of the decoding time, as in ``Timing``.
        """
        return {
            "tokens": self.tokens,
            "steps": self.steps,
            "verify_steps": self.verify_steps,
            "by_drafter": dict(self.by_drafter),
            "tau": ratio(self.verified_tokens, self.verify_steps),
            "tokens_per_step": ratio(self.tokens, self.steps),
            "proposed": self.proposed,
            "accepted": self.accepted,
            "acceptance": ratio(self.accepted, self.proposed),
            "syncs": self.syncs,
            "syncs_per_step": ratio(self.syncs, self.steps),
            "prefill_seconds": self.prefill,
            "decode_seconds": self.seconds,
            "tokens_per_second": ratio(self.tokens, self.seconds),
            "draft_share": ratio(self.draft, self.seconds),
            "verify_share": ratio(self.verify, self.seconds),
            "overhead_share": ratio(self.overhead, self.seconds),
            "finish_reason": self.finish_reason,
        }


class AcceptanceWatch:
    """Counts a draft model's drafts. Prompt lookup does not count: it is often wrong if nothing repeats."""

    def __init__(self) -> None:
        self._proposed = self._accepted = 0
        self._warned = False

    def add(self, step: Step) -> str | None:
        """Count a step; return a warning once it is due, but only the first time."""
        if step.drafter in KINDS:
            return self.count(step.proposed, step.accepted)
        return None

    def count(self, proposed: int, accepted: int) -> str | None:
        """Count drafts of a draft model; return a warning once it is due, but only the first time."""
        self._proposed += proposed
        self._accepted += accepted
        if (
            self._warned
            or self._proposed < WATCHED_DRAFTS
            or self._accepted >= LEAST_ACCEPTED * self._proposed
        ):
            return None
        self._warned = True
        return (
            f"only {self._accepted} of the draft model's {self._proposed} drafts were accepted. Usual causes: it "
            "runs in half precision, it was made for another tokenizer, or it expects embeddings with another factor "
            "(measure both with kakeya-engine bench spec --embed-scale both)"
        )


def ratio(part: float, whole: float) -> float | None:
    """Return ``part / whole``, or None if ``whole`` is 0."""
    return part / whole if whole else None
