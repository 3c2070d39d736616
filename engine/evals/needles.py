"""Needles in padding: one secret code between numbered notes, and at the end a question for the code.

The wording of note, needle and question, and the prefixes of the codes, are those of
``inference_engine/v04/niah_eval.py`` in https://github.com/FluffyAIcode/Kakeya-LLM-Inference-engine, so that
recall can be compared with the figures published there. The sizes of prompts and positions of needles are ours.
"""

import itertools
import random
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from engine.errors import BadInput
from engine.harness import prompt_sets
from engine.tokens import Tokenizer

T = TypeVar("T")
WORKLOAD = "needles"
PREFIXES = (
    *("ALPHA", "BETA", "GAMMA", "DELTA", "EPSILON", "ZETA", "ETA", "THETA"),
    *("IOTA", "KAPPA", "ORCHID", "PINE", "MAPLE", "OAK", "BIRCH"),
)
NOTE = "Note {}: this paragraph is unrelated padding and does not contain the answer.\n"
NEEDLE = "\nIMPORTANT: the secret code is {}.\n\n"
QUESTION = "\nQuestion: what is the secret code? Answer:"
CHAT_QUESTION = "Question: what is the secret code?"
DIRECTLY = "\nReply with the code alone, in the form PREFIX-NNNN."


@dataclass(frozen=True)
class Needle:
    """One prompt."""

    prompt: prompt_sets.Prompt  # its id, text and tokens
    expected: str  # the code that the answer has to hold
    length: int  # tokens that were asked for; the prompt has as many or a few less
    depth: float  # where the needle stands: 0 before the first note, 1 behind the last
    # The number of tokens in the question, which comes last. A control may change all tokens before it.
    question_tokens: int

    @property
    def id(self) -> str:
        """The prompt's id."""
        return self.prompt.id

    @property
    def question_at(self) -> int:
        """How many tokens are before the question."""
        return len(self.prompt.ids) - self.question_tokens

    def section(self) -> dict[str, Any]:
        """Return the prompt's entry in a report."""
        about = {"expected": self.expected, "length": self.length, "depth": self.depth}
        return {**self.prompt.section(WORKLOAD), **about}


def make(
    tokenizer: Tokenizer, lengths: Sequence[int], depths: Sequence[float], samples: int, seed: int, *, chat: bool,
    on_made: Callable[[], None] = lambda: None,
) -> list[Needle]:  # fmt: skip
    """Return ``samples`` prompts for each length and depth, no two with the same code.

    Lengths are in tokens, a chat template's included; depths are between 0 and 1. The same ``seed`` gives the same
    prompts. With ``chat``, they ask as a user's message, without ``Answer:``. ``on_made`` is called after each prompt.

    Raises:
        BadInput: a length is too short for two notes and the question, or there are more prompts than codes.
    """
    rng = random.Random(seed)  # noqa: S311 - prompts, no secrets
    count = len(lengths) * len(depths) * samples
    every = [f"{prefix}-{number}" for prefix in PREFIXES for number in range(1000, 10000)]
    if count > len(every):
        raise BadInput(f"{count} needles", f"at most {len(every)} have codes of their own")
    secrets = iter(rng.sample(every, count))
    needles = []
    for length, depth, i in itertools.product(lengths, depths, range(samples)):
        name = f"{length}/{str(depth).removesuffix('.0')}/{i}"
        needles.append(_make(tokenizer, rng, next(secrets), length, depth, name, chat=chat))
        on_made()
    return needles


def _make(
    tokenizer: Tokenizer, rng: random.Random, secret: str, length: int, depth: float, name: str, *, chat: bool
) -> Needle:
    notes = [NOTE.format(rng.randint(1000, 9999)) for _ in range(length)]
    question = CHAT_QUESTION if chat else QUESTION

    def encode(count: int, question: str) -> prompt_sets.Prompt:
        at = round(depth * count)
        text = "".join((*notes[:at], NEEDLE.format(secret), *notes[at:count], question))
        return prompt_sets.encode([prompt_sets.Prompt(name, text)], tokenizer, chat=chat)[0]

    counts = range(2, max(3, length // 8) + 1)  # a note is longer than eight tokens
    fitting = bisect_right(counts, length, key=lambda count: len(encode(count, question).ids))
    if not fitting:
        raise BadInput(
            f"{length} tokens hold no two notes, a needle and its question", "ask for longer prompts"
        )
    prompt, before = (encode(counts[fitting - 1], end) for end in (question, ""))
    return Needle(prompt, secret, length, depth, len(prompt.ids) - len(_common(before.ids, prompt.ids)))


def ask_directly(needles: Sequence[Needle]) -> list[Needle]:
    """Return needles that ask only for the code; their texts are not encoded again."""
    return [
        replace(needle, prompt=replace(needle.prompt, text=needle.prompt.text + DIRECTLY))
        for needle in needles
    ]


def workload(needles: Sequence[Needle], name: str = WORKLOAD) -> prompt_sets.Workload:
    """Return needles as a workload, with the common beginning and end of its prompts' texts."""
    texts = [needle.prompt.text for needle in needles]
    several = len(texts) > 1  # a single prompt has no shared text
    shared = {
        "shared_prefix": _shared(texts) if several else "",
        "shared_suffix": _shared([text[::-1] for text in texts])[::-1] if several else "",
    }
    source = "generated: numbered notes of padding around one secret code"
    return prompt_sets.Workload(name, [needle.prompt for needle in needles], "recall", source, shared)


def _shared(texts: Sequence[str]) -> str:
    return "".join(_common(min(texts), max(texts)))


def _common(first: Sequence[T], second: Sequence[T]) -> list[T]:
    """Return the common beginning of two sequences."""
    pairs = zip(first, second, strict=False)
    return [a for a, _ in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs)]
