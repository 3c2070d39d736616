"""Falsehoods that tear apart what belongs together: two programs with one draft model, two prompts, two contexts."""

from __future__ import annotations

from tests.bridge.evidence.falsehoods import (
    BEN,
    NAT,
    OURS,
    RES,
    Case,
    Edit,
    Report,
    all_of,
    each,
    prompt_ids,
    rows,
    times,
)
from tests.bridge.evidence.red_counts import LOOKUP

# Published reports, which have what the smaller real ones lack.
SPEC, SWEEP = "spec-tiny", "verify-l-tiny"
PACKAGE, PLAIN = "dflash-package", ("native", "verify1")


def slower(by: float, *arms: str, prompts: int | None = None) -> Edit:
    """Return an edit that lets arms decode slower, on so many prompts on which the lookup gains least."""

    def edit(made: Report) -> None:
        asked = sorted({row["prompt"] for row in made["rows"]}, key=lambda prompt: _gain(made, prompt))
        for arm in arms:
            for prompt in asked[:prompts]:
                each(arm, times(by), prompt)(made)

    return edit


def _gain(made: Report, prompt: str) -> float:
    took = [sum(row["decode_s"] for row in rows(made, arm, prompt)) for arm in ("native", LOOKUP)]
    return took[0] / took[1]


def all_accepted(row: Report) -> None:
    """No more was proposed than was accepted."""
    row["drafted"] = list(row["accepted"])


def split(row: Report) -> None:
    """Commit the same tokens in more rounds: each round of several tokens becomes two."""
    commits = [part for count in row["commits"] for part in ((count - 1, 1) if count > 1 else (count,))]
    row["commits"], row["accepted"] = commits, [count - 1 for count in commits]
    row["drafted"] = [7] * len(commits)
    row["counters"] |= {"rounds": len(commits), "rounds_dflash": len(commits)}


def in_one_round(row: Report) -> None:
    """Commit all tokens in rounds of a block that no bundled drafter has."""
    count = len(row["tokens"])
    row["commits"], row["accepted"], row["drafted"] = [count], [count - 1], [count - 1]
    row["counters"] |= {"rounds": 1, "syncs": 1, "rounds_dflash": 1}


def longer_context(by: float) -> Edit:
    """Return an edit that scales the passes over the longer context."""

    def edit(made: Report) -> None:
        longest = max(row["context"] for row in made["rows"])
        for row in rows(made, context=longest):
            row["seconds"] *= by

    return edit


def looped(size: int, prompts: int | None = None) -> Edit:
    """Return an edit that lets every answer, or those to so many prompts, repeat so many of its tokens."""

    def change(row: Report) -> None:
        count = len(row["tokens"])
        row["tokens"] = (row["tokens"][:size] * count)[:count]
        row["text"] = ""

    return lambda made: [each(None, change, prompt)(made) for prompt in prompt_ids(made)[:prompts]]


BESIDE: dict[str, Case] = {
    "the package's rounds in 2.5 times the time": Case(SPEC, slower(2.5, PACKAGE)),
    "the package's rounds in 8 times the time": Case(SPEC, slower(8, PACKAGE)),
    "both plain loops of mlx-lm slower on four prompts": Case(SPEC, slower(6, *PLAIN, prompts=4)),
    "the baseline slower on four prompts": Case(SPEC, slower(2.2, "native", prompts=4)),
    "every draft of the draft model accepted": Case(SPEC, each(OURS, all_accepted)),
    "all tokens of the draft model in one round": Case(SPEC, each(OURS, in_one_round)),
    "more rounds for the package": Case(SPEC, each(PACKAGE, split)),
    "a longer context in a quarter of the time": Case(SWEEP, longer_context(0.25)),
    "answers of nine tokens, over and over": Case(NAT, looped(9)),
    "one answer of three tokens, over and over": Case(NAT, looped(3, prompts=1)),
}

# Honest runs that lie nearby.
TWINS: dict[str, Case] = {
    "a package whose rounds take a fifth longer": Case(SPEC, slower(1.2, PACKAGE)),
    "a longer context in a tenth less": Case(SWEEP, longer_context(0.9)),
}


def asleep(*places: int) -> Edit:
    """Return an edit that lets the machine sleep for a minute after some rows."""

    def edit(made: Report) -> None:
        for place in places:
            made["rows"][place]["gap"] = 60.0

    return edit


TWINS |= {
    "a machine that slept twice": Case(BEN, asleep(9, 20)),
    "a machine that slept three times": Case(RES, all_of(asleep(3), asleep(7, 12))),
}
