"""Prompts that an instruct model answers, so that its drafter learns from its own answers: code, and chat.

Prompts of code are made from the functions with a docstring in this interpreter's sources
(``engine.train.data.corpus``), those of chat from patterns.
None comes from a benchmark: `python -m training overlap` counts what they share.
"""

import ast
import itertools
import random
import textwrap
from collections.abc import Iterable, Iterator

from engine.train.data.corpus import Corpus

WORDS = 8  # of a run that a text may not share with a benchmark
SIZES = (40, 1200)  # characters of a prompt of code
CODE = (
    "{header}",
    "{header}",
    "{header}",
    "Complete this function.\n\n{header}",
    "Write a Python function `{name}` that does this: {summary}",
    "Write a Python function `{name}({parameters})`. {summary}",
    "Implement `{name}` in Python with a short explanation. {summary}",
    "What does this function do?\n\n```python\n{source}\n```",
    "Add comments to this code:\n\n```python\n{source}\n```",
    "Write unit tests for this function:\n\n```python\n{source}\n```",
)
CHAT = (
    "What is {topic}?",
    "What are the benefits of {topic}?",
    "Explain {topic} to a child.",
    "Explain {topic} in three sentences.",
    "Give me five tips about {topic}.",
    "Write a short poem about {topic}.",
    "Write a short story about {topic}.",
    "Write an email to a colleague about {topic}.",
    "I want to learn about {topic}. Where do I begin?",
    "What is the difference between {topic} and {other}?",
    "Compare {topic} with {other}.",
    "How does {topic} work?",
    "Why is {topic} important?",
    "Summarize the history of {topic}.",
    "List the steps of a plan for {topic}.",
    "What should I avoid when it comes to {topic}?",
    "Can you recommend a book about {topic}?",
    "Describe {topic} in one paragraph.",
    "Write a list of ten questions about {topic}.",
    "My friend does not like {topic}. What can I say?",
    "Is {topic} better than {other}? Give reasons for both.",
    "Draft a short speech about {topic} and {other}.",
)
TOPICS = (
    "baking bread; the water cycle; photosynthesis; electric cars; chess; yoga; the French Revolution; "
    "black holes; gardening; recycling; the stock market; learning a language; public speaking; the "
    "immune system; solar power; time management; volcanoes; jazz; the Roman Empire; machine learning; "
    "databases; remote work; sleep; friendship; mountain hiking; coffee; tea; the human heart; gravity; "
    "inflation; democracy; vaccines; bees; whales; coral reefs; climate change; a job interview; a "
    "birthday party; a trip to Japan; a small apartment; saving money; cooking rice; running a marathon; "
    "meditation; the moon landing; dinosaurs; the printing press; bicycles; trains; bridges; rainforests; "
    "deserts; penguins; cats; dogs; houseplants; watercolour painting; photography; poetry; theatre; "
    "video games; board games; the internet; email; passwords; open source software; Python; JavaScript; "
    "algorithms; sorting; recursion; statistics; probability; fractions; the number pi; the periodic "
    "table; water; salt; sugar; exercise; stress; a balanced diet; breakfast; soup; pasta; chocolate; "
    "weddings; moving house; used cars; insurance; taxes; a budget; small businesses; marketing; "
    "teamwork; leadership; feedback; meetings; a difficult customer; school uniforms; homework; "
    "libraries; museums; the ocean; rivers; snow; thunderstorms; rainbows; stars; Mars; robots; "
    "airplanes; satellites; radio; the telephone; glass; paper; cotton; gold; earthquakes; the Great "
    "Wall; the pyramids"
)


def code(corpus: Corpus, chance: random.Random) -> Iterator[str]:
    """Yield prompts of code, one for each documented function of the corpus, in a random order."""
    functions = [function for file in corpus.train for function in _functions(file.text)]
    chance.shuffle(functions)
    for function in functions:
        prompt = chance.choice(CODE).format(**function)
        if SIZES[0] <= len(prompt) <= SIZES[1]:
            yield prompt


def _functions(text: str) -> Iterator[dict[str, str]]:
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return
    for node in ast.walk(tree):
        docstring = ast.get_docstring(node) if isinstance(node, ast.FunctionDef) else None
        source = ast.get_source_segment(text, node) if docstring else None
        if not isinstance(node, ast.FunctionDef) or not docstring or not source or node.name.startswith("_"):
            continue
        lines = textwrap.dedent(" " * node.col_offset + source).splitlines()
        end = node.body[0].end_lineno
        if end is None:
            continue
        yield {
            "name": node.name,
            "parameters": ast.unparse(node.args),
            "summary": " ".join(docstring.partition("\n\n")[0].split()),
            "header": "\n".join(lines[: end - node.lineno + 1]) + "\n",
            "source": "\n".join(lines),
        }


def chat(chance: random.Random) -> Iterator[str]:
    """Yield prompts of chat, each once, in a random order."""
    topics = TOPICS.split("; ")
    pairs = list(itertools.product(CHAT, topics))
    chance.shuffle(pairs)
    for pattern, topic in pairs:
        yield pattern.format(topic=topic, other=chance.choice([other for other in topics if other != topic]))


def overlap(texts: Iterable[str], benchmark: Iterable[str], words: int = WORDS) -> tuple[int, int]:
    """Return how many runs of ``words`` words a benchmark has, and how many of them the texts share."""
    theirs = {run for problem in benchmark for run in runs(problem, words)}
    shared = theirs.intersection(run for text in texts for run in runs(text, words))
    return len(theirs), len(shared)


def runs(text: str, words: int = WORDS) -> Iterator[tuple[str, ...]]:
    """Yield every run of ``words`` words; a word is what spaces and ends of lines divide."""
    parts = text.split()
    return (tuple(parts[i : i + words]) for i in range(len(parts) - words + 1))
