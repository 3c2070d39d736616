"""Generated tasks that teach a small model to recall: named values, needles in text and in code, copying.

Each task is a list of ``(text, weight)`` with the weight of the loss on that text. Answers count. The filler around
them counts little, because it is random, or can be learned from real code.
"""

import random
import string
from collections.abc import Callable, Sequence

TURN, TURN_END = "<|im_start|>", "<|im_end|>"  # the marks of ChatML
Piece = tuple[str, float]
Maker = Callable[[random.Random, int, Sequence[str]], list[Piece]]
Mix = tuple[tuple[Maker, float], ...]  # kinds of tasks, and the share of each

PREFIXES = tuple(
    "ALPHA BETA GAMMA DELTA EPSILON ZETA ETA THETA IOTA KAPPA ORCHID PINE MAPLE OAK BIRCH".split()  # noqa: SIM905
)
COLOURS = ("red", "green", "blue", "white", "black", "amber", "violet", "silver", "golden", "grey")
WORDS = tuple(
    "port size limit width depth offset timeout retries level index count total budget rate seed step".split()  # noqa: SIM905
)
ANSWER, FILLER = 2.0, 0.1
IN_TURNS = 0.3  # the share of notes in ChatML turns
OF_CODE = 0.5  # the share of copying tasks whose text is code


def code(rng: random.Random) -> str:
    """Return a secret such as ``PINE-4821``."""
    return f"{rng.choice(PREFIXES)}-{rng.randint(1000, 9999)}"


def named_values(rng: random.Random, size: int, lines: Sequence[str]) -> list[Piece]:  # noqa: ARG001
    """``name = 4821`` many times, then questions that repeat some names."""
    pairs: dict[str, str] = {}
    while len(pairs) < max(2, size // 26):
        name = "_".join(rng.sample(WORDS, 2)) + rng.choice(["", str(rng.randint(0, 9))])
        pairs[name] = str(rng.randint(1000, 9999))
    pieces: list[Piece] = [("".join(f"{name} = {value}\n" for name, value in pairs.items()), FILLER)]
    style = rng.choice(["assert {} == ", "print({})  # ", "{} = "])
    for name in rng.sample(sorted(pairs), len(pairs)):
        pieces += [(style.format(name), FILLER), (pairs[name] + "\n", ANSWER)]
    return pieces


def notes(rng: random.Random, size: int, lines: Sequence[str]) -> list[Piece]:  # noqa: ARG001
    """Numbered notes of padding around one secret, then the question for it."""
    secret = code(rng)
    count = max(2, (size - 40) // 23)
    position = rng.randint(0, count)
    padding = [
        f"Note {rng.randint(1000, 9999)}: this paragraph is unrelated padding and does not contain the answer.\n"
        for _ in range(count)
    ]
    needle = f"\nIMPORTANT: the secret code is {secret}.\n\n"
    text = "".join(padding[:position]) + needle + "".join(padding[position:])
    question = "\nQuestion: what is the secret code? Answer:"
    if rng.random() < IN_TURNS:
        opening = f"{TURN}user\n{text}Question: what is the secret code?{TURN_END}\n{TURN}assistant\n"
        return [(opening, FILLER), (f"{secret}{TURN_END}\n", ANSWER)]
    return [(text + question, FILLER), (f" {secret}\n", ANSWER)]


def needles_in_code(rng: random.Random, size: int, lines: Sequence[str]) -> list[Piece]:
    """Real lines of code with a few named secrets between them, then a question for each."""
    secrets = {colour: code(rng) for colour in rng.sample(COLOURS, rng.randint(1, 4))}
    start = rng.randrange(max(1, len(lines) - 200))
    wanted = max(2, (size - 44 * len(secrets)) // 11)
    body = list(lines[start : start + wanted])
    form = rng.choice(["# the {} code is {}", '{}_code = "{}"', "note: the {} code is {}."])
    for colour, secret in secrets.items():
        body.insert(rng.randint(0, len(body)), form.format(colour, secret))
    pieces: list[Piece] = [("\n".join(body) + "\n", 0.5)]
    ask = rng.choice(["# the {} code is ", "assert {}_code == ", "Question: what is the {} code? Answer: "])
    for colour in rng.sample(sorted(secrets), len(secrets)):
        pieces += [(ask.format(colour), FILLER), (secrets[colour] + "\n", ANSWER)]
    return pieces


def copying(rng: random.Random, size: int, lines: Sequence[str]) -> list[Piece]:
    """A piece of code or of random names, twice."""
    if rng.random() < OF_CODE:
        start = rng.randrange(max(1, len(lines) - 100))
        text = "\n".join(lines[start : start + max(2, size // 24)])
    else:
        letters = string.ascii_lowercase
        names = ("".join(rng.choices(letters, k=rng.randint(3, 9))) for _ in range(max(3, size // 10)))
        text = " ".join(names)
    return [(text + "\n", FILLER), ("# again\n" + text + "\n", 1.0)]


TASKS: Mix = ((named_values, 0.25), (notes, 0.3), (needles_in_code, 0.3), (copying, 0.15))


def draw(rng: random.Random, size: int, lines: Sequence[str], mix: Mix = TASKS) -> list[Piece]:
    """Return one task of about ``size`` tokens; ``lines`` come from some source file."""
    makers, weights = zip(*mix, strict=True)
    pieces: list[Piece] = rng.choices(makers, weights)[0](rng, size, lines)
    return pieces
