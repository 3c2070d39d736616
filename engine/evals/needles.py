"""Needles in padding: one secret code between numbered notes, and a question for it at the end.

The stimulus (the wording of note, needle and question, and the prefixes of the codes) is that of
``inference_engine/v04/niah_eval.py`` in https://github.com/FluffyAIcode/Kakeya-LLM-Inference-engine, so
that recall compares with the figures published there. How prompts are sized and where needles stand is our own.
"""

import itertools
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from engine.errors import BadInput
from engine.measure import prompts
from engine.tokens import Tokenizer

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
    """One prompt.

    Attributes:
        prompt: its id, text and tokens.
        expected: the code that the answer has to hold.
        length: tokens that were asked for; the prompt has as many or a few less.
        depth: where the needle stands: 0 before the first note, 1 behind the last.
        question_tokens: how many of the last tokens are the question; what is before may be changed by a control.
    """

    prompt: prompts.Prompt
    expected: str
    length: int
    depth: float
    question_tokens: int

    @property
    def id(self) -> str:
        """The prompt's id."""
        return self.prompt.id

    def section(self) -> dict[str, Any]:
        """Return its entry in a report."""
        about = {"expected": self.expected, "length": self.length, "depth": self.depth}
        return {**self.prompt.section(WORKLOAD), **about}


def make(
    tokenizer: Tokenizer, lengths: Sequence[int], depths: Sequence[float], samples: int, seed: int, *, chat: bool,
    on_made: Callable[[], None] = lambda: None,
) -> list[Needle]:  # fmt: skip
    """Return ``samples`` prompts for each length and depth, no two with the same code.

    Args:
        tokenizer: mlx-lm's wrapper.
        lengths: in tokens, a chat template's included.
        depths: between 0 and 1.
        samples: of each bucket.
        seed: the same seed gives the same prompts.
        chat: ask as a user's message, without ``Answer:``.
        on_made: called after each prompt.

    Raises:
        BadInput: a length that not even two notes and the question fit into, or more prompts than codes.
    """
    rng = random.Random(seed)  # noqa: S311 - prompts, no secrets
    count = len(lengths) * len(depths) * samples
    every = [f"{prefix}-{number}" for prefix in PREFIXES for number in range(1000, 10000)]
    if count > len(every):
        raise BadInput(f"{count} needles", f"at most {len(every)} have codes of their own")
    secrets = iter(rng.sample(every, count))
    needles = []
    for length, depth, i in itertools.product(lengths, depths, range(samples)):
        needles.append(
            _make(tokenizer, rng, next(secrets), length, depth, f"{length}/{depth:g}/{i}", chat=chat)
        )
        on_made()
    return needles


def _make(
    tokenizer: Tokenizer, rng: random.Random, secret: str, length: int, depth: float, name: str, *, chat: bool
) -> Needle:
    numbers = [rng.randint(1000, 9999) for _ in range(length)]
    low, high = 2, max(3, length // 8)  # a note is longer than eight tokens
    best = None
    while low <= high:  # the most notes that fit
        middle = (low + high) // 2
        text = _text(numbers[:middle], secret, depth, chat=chat)
        prompt = _encode(tokenizer, name, text, chat=chat)
        if len(prompt.ids) <= length:
            best, low = prompt, middle + 1
        else:
            high = middle - 1
    if best is None:
        raise BadInput(
            f"{length} tokens hold no two notes, a needle and its question", "ask for longer prompts"
        )
    question = CHAT_QUESTION if chat else QUESTION
    before = _encode(tokenizer, name, best.text.removesuffix(question), chat=chat).ids
    same = _common(before, best.ids)
    return Needle(best, secret, length, depth, len(best.ids) - same)


def _text(numbers: Sequence[int], secret: str, depth: float, *, chat: bool) -> str:
    notes = [NOTE.format(number) for number in numbers]
    position = round(depth * len(notes))
    question = CHAT_QUESTION if chat else QUESTION
    return "".join(notes[:position]) + NEEDLE.format(secret) + "".join(notes[position:]) + question


def _encode(tokenizer: Tokenizer, name: str, text: str, *, chat: bool) -> prompts.Prompt:
    return prompts.encode([prompts.Prompt(name, text)], tokenizer, chat=chat)[0]


def _common(first: Sequence[object], second: Sequence[object]) -> int:
    pairs: Iterator[bool] = (a == b for a, b in zip(first, second, strict=False))
    return next((i for i, equal in enumerate(pairs) if not equal), min(len(first), len(second)))


def directly(needles: Sequence[Needle]) -> list[Needle]:
    """Return needles that ask for the code and nothing else; their texts are not encoded again."""
    return [
        replace(needle, prompt=replace(needle.prompt, text=needle.prompt.text + DIRECTLY))
        for needle in needles
    ]


def workload(needles: Sequence[Needle], *, chat: bool) -> dict[str, Any]:
    """Return the ``workloads`` section: the texts that all prompts begin and end with are said as they are."""
    texts = [needle.prompt.text for needle in needles]
    ends = [text[::-1] for text in texts]
    return {
        WORKLOAD: {
            "task": "recall",
            "source": "generated: numbered notes of padding around one secret code",
            "shared_prefix": _shared(texts),
            "shared_suffix": _shared(ends)[::-1],
            "chat_template": chat,
        }
    }


def _shared(texts: Sequence[str]) -> str:
    first, last = min(texts), max(texts)
    return first[: _common(first, last)]
