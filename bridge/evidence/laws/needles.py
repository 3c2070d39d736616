"""Laws of needles: the engine draws codes and padding from the seed, so every prompt and its code can be made again."""

from __future__ import annotations

import itertools
import random
import re
from collections.abc import Iterator
from functools import cache
from typing import Any

from bridge.evidence.laws.law import FOUND, law
from bridge.evidence.parts import Prompt
from bridge.evidence.report_index import ReportIndex

# As engine/evals/needles.py has them; a test holds the two against each other.
PREFIXES = (
    *("ALPHA", "BETA", "GAMMA", "DELTA", "EPSILON", "ZETA", "ETA", "THETA"),
    *("IOTA", "KAPPA", "ORCHID", "PINE", "MAPLE", "OAK", "BIRCH"),
)
NOTE = "Note {}: this paragraph is unrelated padding and does not contain the answer.\n"
NEEDLE = "\nIMPORTANT: the secret code is {}.\n\n"
QUESTION = "\nQuestion: what is the secret code? Answer:"
CHAT_QUESTION = "Question: what is the secret code?"
GENERATED = "generated: numbered notes of padding around one secret code"

_NOTES = re.compile(re.escape(NOTE).replace(r"\{\}", r"(\d{4})"))
# Notes that are drawn again at most: far more than any preset asks for, and less than a second of work.
_MOST_NOTES = 500_000


def _is_generated(index: ReportIndex) -> bool:
    """Return whether prompts are the engine's needles, whatever their source is called."""
    return any(
        _NOTES.match(prompt.text or prompt.head or "") or _told(index, prompt) == GENERATED
        for prompt in index.all_prompts
    )  # fmt: skip


def _told(index: ReportIndex, prompt: Prompt) -> str:
    workload = index.workloads.get(prompt.workload)
    return workload.source if workload else ""


@law(
    "NOT_COVERED", FOUND,
    "prompts.id prompts.expected prompts.text config.seed config.lengths config.depths config.samples",
    "the configured seed draws exactly these codes and prompt texts",
)  # fmt: skip
def needles_of_the_seed(index: ReportIndex) -> Iterator[str]:
    config = index.report.config
    lengths, depths, samples = (getattr(config, name, None) for name in ("lengths", "depths", "samples"))
    if not isinstance(lengths, list) or not isinstance(depths, list) or not isinstance(samples, int):
        return  # another law says so
    if not _is_generated(index) or not _all_whole(lengths) or not _all_numbers(depths):
        return
    if not 0 < sum(lengths) * len(depths) * samples <= _MOST_NOTES:
        return
    names = {
        f"{length}/{depth:g}/{i}" for length, depth, i in itertools.product(lengths, depths, range(samples))
    }
    odd = sorted({prompt.id for prompt in index.all_prompts} ^ names)
    if odd:
        yield f"the prompt {odd[0]} is not one of those that are configured, or is missing"
        return
    made = {name: (code, notes) for name, code, notes in drawn(config.seed, lengths, depths, samples)}
    for prompt in index.all_prompts:
        code, numbers = made[prompt.id]
        if prompt.expected != code:
            yield f"the seed {config.seed} draws {code} for {prompt.id}, and {prompt.expected} is expected there"
            return
        odd_text = _odd_text(prompt, code, numbers, chat=getattr(config, "chat", False) is True)
        if odd_text:
            yield f"prompt {prompt.id} {odd_text}"
            return


def _all_whole(lengths: list[Any]) -> bool:
    return all(isinstance(n, int) and not isinstance(n, bool) and n > 0 for n in lengths)


def _all_numbers(depths: list[Any]) -> bool:
    return all(isinstance(depth, int | float) and 0 <= depth <= 1 for depth in depths)


@cache
def _codes() -> list[str]:
    return [f"{prefix}-{number}" for prefix in PREFIXES for number in range(1000, 10000)]


def drawn(
    seed: int, lengths: list[int], depths: list[float], samples: int
) -> Iterator[tuple[str, str, list[int]]]:
    """Yield the id, the code and the numbers of the notes of each prompt, as the engine draws them."""
    rng = random.Random(seed)  # noqa: S311 - the engine's own draws again, no secrets
    count = len(lengths) * len(depths) * samples
    codes = iter(rng.sample(_codes(), min(len(_codes()), count)))
    for length, depth, i in itertools.product(lengths, depths, range(samples)):
        numbers = [rng.randint(1000, 9999) for _ in range(length)]
        yield f"{length}/{depth:g}/{i}", next(codes), numbers


def _odd_text(prompt: Prompt, code: str, numbers: list[int], *, chat: bool) -> str | None:
    """Return how a prompt's text is not what was drawn; of a long one only the head is looked at."""
    if prompt.text is None:
        head = [int(number) for number in _NOTES.findall(prompt.head or "")]
        return "does not begin with the notes that the seed draws" if head != numbers[: len(head)] else None
    notes = [NOTE.format(number) for number in numbers[: len(_NOTES.findall(prompt.text))]]
    place = round((prompt.depth or 0.0) * len(notes))
    question = CHAT_QUESTION if chat else QUESTION
    made = "".join(notes[:place]) + NEEDLE.format(code) + "".join(notes[place:]) + question
    return None if made == prompt.text else "is not the text that the seed draws"
