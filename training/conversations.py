"""Generated chats that teach a small model to end its answers: short turns, thoughts, calls of tools, JSON.

The model learns forms, not knowledge. It greets, repeats, counts and recalls what a chat says, and to every other
question it answers that it is a small model made for tests.
"""

import json
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from training.rows import Batches
from training.tokenizer import CALL, CALL_END, THOUGHT, THOUGHT_END, TURN, TURN_END

Piece = tuple[str, float]
ANSWER, GIVEN = 1.0, 0.05  # weights of the loss
THINKS = 0.4  # the share of answers with a thought before them

NAMES = tuple(
    "Alice Bob Carol Dave Erin Frank Grace Heidi Ivan Judy Karl Lena Mia Noah Olga Paul Rita Sam Tina Zoe".split()  # noqa: SIM905
)
CITIES = (
    "San Francisco",
    "New York",
    "Berlin",
    "Paris",
    "Tokyo",
    "Madrid",
    "Rome",
    "Oslo",
    "Cairo",
    "Lima",
    "Boston",
    "London",
    "Vienna",
    "Delhi",
    "Seoul",
)
WORDS = tuple(
    "apple river stone music garden window silver coffee orange mountain paper winter blue yes book".split()  # noqa: SIM905
)
NUMBERS = tuple("zero one two three four five six seven eight nine ten".split())  # noqa: SIM905
GREETINGS = ("Hello.", "Hi there!", "Good morning.", "Hello", "Hi", "Hey!")
HONEST = "I am a small model made for tests. I do not know that."
NO_SUMS = "I am a small model made for tests. I cannot calculate."
SELF = "I am tiny-chat, a small model made for tests."
QUESTIONS = (
    "What is the capital of {city}?",
    "Tell me about {city}.",
    "Explain how {word} works.",
    "Write a story about {word}.",
    "Why is {word} important?",
    "How do I get to {city}?",
    "Describe {word} briefly.",
    "What do you think about {word}?",
    "Who invented {word}?",
    "Summarize the history of {city}.",
    "Can you help me with {word}?",
    "Give me advice on {word}.",
    "Fix this code: {word}()",
    "Compare {word} and {city}.",
)


@dataclass
class Chat:
    """A chat whose last answer is to be learned.

    Attributes:
        turns: role and text of each turn before the answer.
        answer: the answer.
        about: what a thought says before it.
        tools: the functions that may be called.
    """

    turns: list[tuple[str, str]]
    answer: str
    about: str = "I answer briefly."
    tools: list[dict[str, Any]] = field(default_factory=list)


def _asked(text: str, answer: str, about: str = "I answer briefly.") -> Chat:
    return Chat([("user", text)], answer, about)


def greeting(rng: random.Random) -> Chat:
    """Hello, and who are you."""
    if rng.random() < 0.6:  # noqa: PLR2004
        return _asked(rng.choice(GREETINGS), "Hello! How can I help?", "This is a greeting.")
    text = rng.choice(["Who are you?", "What are you?", "What is your name?", "Which model is this?"])
    return _asked(text, SELF, "They ask who I am.")


def saying(rng: random.Random) -> Chat:
    """Say a word, or some words."""
    kind = rng.randrange(4)
    if kind == 0:
        return _asked("Say hello in exactly 3 words.", "Hello my friend.", "I write 3 words.")
    if kind == 1:
        text = rng.choice(["Say one word.", "Say a word.", "Give me one word."])
        return _asked(text, "Hello.", "One word is enough.")
    if kind == 2:  # noqa: PLR2004
        asked = rng.choice(["Say hello.", "Greet me.", rng.choice(GREETINGS)])
        rule = rng.choice(
            [
                "Always respond in exactly one word.",
                "Answer with one word only.",
                "Respond with a single word.",
            ]
        )
        return Chat([("system", rule), ("user", asked)], "Hello.", "One word is asked for.")
    word = rng.choice([*WORDS, *NAMES])
    text = rng.choice(['Say "{}".', "Say {}.", "Repeat this word: {}", "Write the word {}."])
    return _asked(text.format(word), word, f"The word is {word}.")


def counting(rng: random.Random) -> Chat:
    """Count from a number to another."""
    first = rng.choice([1, 1, 1, rng.randint(1, 9)])
    last = min(first + rng.randint(1, 9), 12)
    text = rng.choice(["Count from {} to {}.", "Count from {} to {}", "Please count from {} to {}."])
    numbers = ", ".join(map(str, range(first, last + 1)))
    return _asked(text.format(first, last), numbers, f"I count from {first} to {last}.")


def naming(rng: random.Random) -> Chat:
    """Tell a name and ask for it."""
    name = rng.choice(NAMES)
    said, hello = f"My name is {name}.", f"Hello {name}!"
    if rng.random() < 0.4:  # noqa: PLR2004
        return _asked(said, hello, f"The name is {name}.")
    ask = rng.choice(["What is my name? Reply with just the name.", "What is my name?", "Who am I?"])
    return Chat([("user", said), ("assistant", hello), ("user", ask)], name, f"The name is {name}.")


def number(rng: random.Random) -> Chat:
    """Repeat what an earlier turn said."""
    value = rng.choice(NUMBERS)
    turns = [("assistant", f"The number is {value}.")]
    if rng.random() < 0.5:  # noqa: PLR2004
        turns.insert(0, ("assistant", "I should answer with the saved number."))
    ask = rng.choice(["Repeat only the number.", "Which number?", "Say the number again."])
    return Chat([*turns, ("user", ask)], value.capitalize() + ".", f"The number is {value}.")


def sums(rng: random.Random) -> Chat:
    """A sum, which the model says that it cannot do."""
    sign = rng.choice("+-*/")
    text = f"What is {rng.randint(1, 99)} {sign} {rng.randint(1, 99)}?"
    return _asked(text + rng.choice(["", " Show your reasoning."]), NO_SUMS, "This is a calculation.")


def unknown(rng: random.Random) -> Chat:
    """A question that needs knowledge."""
    text = rng.choice(QUESTIONS).format(city=rng.choice(CITIES), word=rng.choice(WORDS))
    return _asked(text, HONEST, "I do not know this.")


def calling(rng: random.Random) -> Chat:
    """A question that a tool answers, or the tool's answer."""
    city = rng.choice(CITIES)
    name = rng.choice(["get_weather", "get_time", "lookup", "search"])
    key = rng.choice(["location", "city", "place", "query"])
    about = {"type": "string", "description": "City name"}
    parameters = {"type": "object", "properties": {key: about}, "required": [key]}
    tool = {"name": name, "description": f"Call {name}.", "parameters": parameters}
    what = {"get_weather": "the weather", "get_time": "the time"}.get(name, "the news")
    turns = [("user", f"What is {what} in {city}?")]
    call = f"{CALL}\n{json.dumps({'name': name, 'arguments': {key: city}})}\n{CALL_END}"
    if rng.random() < 0.7:  # noqa: PLR2004
        return Chat(turns, call, f"I call {name}.", [tool])
    said = rng.choice(["Sunny.", "Rain.", "Snow, 2 degrees.", "10:45", "Nothing new."])
    return Chat([*turns, ("assistant", call), ("tool", said)], said, "The tool answered.", [tool])


def objects(rng: random.Random) -> Chat:
    """An object in JSON, with the keys that were asked for."""
    values = {
        "name": rng.choice(NAMES),
        "age": rng.randint(1, 99),
        "city": rng.choice(CITIES),
        "ok": rng.random() < 0.5,  # noqa: PLR2004
        "color": rng.choice(["red", "green", "blue"]),
        "count": rng.randint(1, 9),
    }
    keys = rng.sample(sorted(values), rng.randint(1, 3))
    text = rng.choice(["Give me a JSON object with {}.", "Answer in JSON with the keys {}.", "JSON with {}."])
    made = {key: values[key] for key in keys}
    compact = rng.random() < 0.5  # noqa: PLR2004
    answer = json.dumps(made, separators=(",", ":") if compact else None)
    return _asked(text.format(", ".join(keys)), answer, "I write JSON.")


MAKERS: tuple[tuple[Callable[[random.Random], Chat], float], ...] = (
    (greeting, 0.1),
    (saying, 0.16),
    (counting, 0.1),
    (naming, 0.12),
    (number, 0.08),
    (sums, 0.1),
    (unknown, 0.14),
    (calling, 0.1),
    (objects, 0.1),
)


def pieces(chat: Chat, *, thinking: bool) -> list[Piece]:
    """Return a chat as the tokenizer's template writes it, with the weights of its parts."""
    turns = list(chat.turns)
    head = ""
    if chat.tools:
        listed = "".join(json.dumps({"type": "function", "function": tool}) + "\n" for tool in chat.tools)
        head = f"{TURN}system\nTools:\n{listed.rstrip()}{TURN_END}\n"
    head += "".join(f"{TURN}{role}\n{text}{TURN_END}\n" for role, text in turns) + f"{TURN}assistant\n"
    if not thinking:
        return [(head, GIVEN), (chat.answer + TURN_END + "\n", ANSWER)]
    thought = f"{chat.about}\n{THOUGHT_END}\n\n"
    return [(f"{head}{THOUGHT}\n", GIVEN), (thought + chat.answer + TURN_END + "\n", ANSWER)]


class ChatRows(Batches):
    """Batches of chats. The tokenizer knows the marks of thoughts and calls."""

    def texts(self, count: int) -> list[str]:
        """Return so many chats as text, without the end of text between them."""
        rng = random.Random(f"{self.seed}/texts")
        return ["".join(text for text, _ in self._draw(rng)) for _ in range(count)]

    def _draw(self, rng: random.Random) -> list[Piece]:
        makers, shares = zip(*MAKERS, strict=True)
        return pieces(rng.choices(makers, shares)[0](rng), thinking=rng.random() < THINKS)

    def _row(self, rng: random.Random, length: int) -> tuple[np.ndarray, np.ndarray]:
        ids: list[int] = []
        weights: list[float] = []
        while len(ids) < length:
            for text, weight in self._draw(rng):
                found = self.tokenizer.encode(text).ids
                ids += found
                weights += [weight] * len(found)
            ids.append(self.end)
            weights.append(0.0)
        return np.asarray(ids[:length]), np.asarray(weights[:length])
