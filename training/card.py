"""What a model of the bundled family can and cannot do: the figures of its card.

Held-out loss, recall of generated needles by length, and how many tokens a verify step of its drafter
commits on held-out code.
"""

import random
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from engine.models import Pair
from engine.mx import mx, nn, number
from engine.train.data import tasks
from engine.train.data.corpus import File
from training.rows import windows
from training.tokenizer import TURN_END

if TYPE_CHECKING:
    from tokenizers import Tokenizer

BEFORE = 8  # lines that precede an opening at least
LENGTHS = (256, 512, 1024)
KINDS: dict[str, Callable[..., Any]] = {
    "named values": tasks.named_values,
    "notes": tasks.notes,
    "needles in code": tasks.needles_in_code,
}


def held_out_loss(
    model: nn.Module, tokenizer: "Tokenizer", files: Sequence[File], *, length: int = 512, count: int = 64
) -> dict[str, float]:
    """Return ``nats`` a token and ``top1`` over ``count`` windows spread over the files."""
    found = list(windows(tokenizer, files, length))
    total, hits, seen = 0.0, 0, 0
    for window in found[:: max(1, len(found) // count)][:count]:
        tokens = mx.array(window)[None]
        logits = model(tokens[:, :-1])[0].astype(mx.float32)
        wanted = tokens[0, 1:]
        losses = mx.logsumexp(logits, axis=-1) - mx.take_along_axis(logits, wanted[:, None], axis=-1)[:, 0]
        right = mx.argmax(logits, axis=-1) == wanted
        total, hits, seen = total + number(losses.sum()), hits + int(number(right.sum())), seen + len(wanted)
    return {"nats": total / seen, "top1": hits / seen, "tokens": seen}


def recall(
    model: nn.Module,
    tokenizer: "Tokenizer",
    files: Sequence[File],
    *,
    count: int = 100,
    lengths: Sequence[int] = LENGTHS,
    seed: int = 1,
    on_row: Callable[[], None] = lambda: None,
) -> list[dict[str, Any]]:
    """Return a row for each kind of needle and length: how many of ``count`` answers are exactly right.

    The answer is read in one forward: greedy decoding writes it exactly if and only if each of its tokens is
    the most probable one after those before it.
    """
    lines = [line for file in files for line in file.text.splitlines() if line.strip()]
    rows = []
    for kind, make in KINDS.items():
        for length in lengths:
            rng = random.Random(f"{seed}/{kind}/{length}")
            hits, sizes = 0, []
            for _ in range(count):
                start = rng.randrange(max(1, len(lines) - 400))
                texts = _question(make(rng, length, lines[start : start + 400]))
                prompt, answer = (tokenizer.encode(text).ids for text in texts)
                sizes.append(len(prompt))
                logits = model(mx.array(prompt + answer[:-1])[None])[0, len(prompt) - 1 :]
                hits += mx.argmax(logits, axis=-1).tolist() == answer
            rows.append(
                {
                    "kind": kind,
                    "length": length,
                    "prompt_tokens": int(np.mean(sizes)),
                    "hits": hits,
                    "count": count,
                }
            )
            on_row()
    return rows


def _question(pieces: Sequence[tasks.Piece]) -> tuple[str, str]:
    """Return the text up to the first answer, and that answer without what follows it on its line."""
    before: list[str] = []
    for text, weight in pieces:
        if weight == tasks.ANSWER:
            return "".join(before), text.removesuffix("\n").removesuffix(TURN_END)
        before.append(text)
    raise ValueError("a task without an answer")


def openings(files: Sequence[File], count: int, *, seed: int = 2, size: int = 700) -> list[tuple[str, str]]:
    """Return ``(name, text)`` of up to ``count`` beginnings of functions, each with what precedes it in its file.

    Args:
        files: held-out files; they are taken in turn.
        count: how many.
        seed: which functions.
        size: about how many characters of each; the first line is whole.
    """
    rng = random.Random(seed)
    places = []
    for file in files:
        lines = file.text.splitlines(keepends=True)
        found = [
            i
            for i, line in enumerate(lines)
            if line.lstrip().startswith("def ") and line.endswith(":\n") and i > BEFORE
        ]
        rng.shuffle(found)
        places += [(turn, file, i, lines) for turn, i in enumerate(found)]
    made = []
    for _, file, i, lines in sorted(places, key=lambda place: place[0])[:count]:
        start = i
        while start > 0 and sum(map(len, lines[start - 1 : i + 1])) <= size:
            start -= 1
        made.append((f"{file.name}:{i + 1}", "".join(lines[start : i + 1])))
    return made


def acceptance(
    pair: Pair,
    prompts: Sequence[str],
    *,
    tokens: int = 128,
    block: int | None = None,
    on_row: Callable[[], None] = lambda: None,
) -> list[dict[str, Any]]:
    """Return a row a prompt: how many tokens a verify step of the drafter committed, greedily.

    The target's own token of each step counts, so that a drafter that is never right has ``tau`` 1.
    """
    from engine.dflash.loop import stream_generate
    from engine.dflash.step import Stats

    rows = []
    for text in prompts:
        stats = Stats()
        for step in stream_generate(
            pair.target,
            pair.draft,
            pair.tokenizer,
            text,
            max_tokens=tokens,
            block_size=block,
            lookup=False,
            adaptive=False,
        ):
            stats.add(step)
        tau = stats.as_dict()["tau"]
        rows.append(
            {"verified_tokens": stats.verified_tokens, "verify_steps": stats.verify_steps, "tau": tau}
        )
        on_row()
    return rows
