"""Tests all combinations of drafts, caches, cached prompts, clients and grammars on this machine's models.

Each cell's answers are compared, by the digests of their tokens, with the answers to a single client without drafts and
prefix cache. If two answers differ, the row says how near the logits of the two tokens are, because a pass over several
rows rounds otherwise than one over a single row. Requests enter at the HTTP routes as JSON, but no port is opened.
"""

import asyncio
import functools
import itertools
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from bridge.reports import kinds
from engine.dflash.kinds import DFLASH
from engine.errors import EngineError
from engine.evals.speculation.bench import divergence_section
from engine.harness.job import config_of
from engine.harness.report import OpenReport
from engine.serve.dialects import completions
from engine.serve.errors import ApiError
from engine.serve.protocol import CompletionRequest, parse
from engine.serve.resident import Resident
from engine.serve.scheduler.thread import EngineThread
from engine.serve.server import Server
from engine.serve.settings import Settings

KIND = kinds.SERVE
DRAFTS = ("none", "lookup", "dflash")
CACHES = ("raw", "e8v@4.25", "affine@4g64")
FORMS = ("free", "json_schema")
CLIENTS = (1, 4)
SCHEMA = {
    "type": "object",
    "properties": {"path": {"type": "string", "maxLength": 12}, "lines": {"type": "integer", "maximum": 99}},
    "required": ["path", "lines"],
    "additionalProperties": False,
}
# All questions of a form begin with this text, so that its blocks are cached. Only their last lines differ.
COMMON = {
    "free": "def read_lines(path):\n    with open(path) as stream:\n        return stream.readlines()\n\n\n"
    * 4,
    "json_schema": '{"path":"tests","lines":12}\n{"path":"engine","lines":40}\n' * 8,
}
COUNTERS = ("rounds", "proposed", "accepted", "cached_tokens", "cache_bytes", "together", "joint_rounds")
MOST_CLIENTS = 8
CHUNK = 64


class Cell(NamedTuple):
    """A combination. ``warm``: the prompt's blocks are cached; ``clients`` ask at the same time."""

    draft: str
    cache: str
    warm: bool
    clients: int
    form: str


@dataclass(frozen=True)
class Matrix:
    """The configured combinations."""

    drafts: Sequence[str] = DRAFTS  # of `DRAFTS`
    caches: Sequence[str] = CACHES  # cache specs
    clients: Sequence[int] = CLIENTS  # how many ask at the same time
    forms: Sequence[str] = FORMS  # of `FORMS`
    max_tokens: int = 32  # of an answer

    @property
    def cells(self) -> list[Cell]:
        """All cells. The reference cells come first."""
        oracles = [Cell("none", cache, False, 1, form) for cache in self.caches for form in self.forms]
        others = itertools.product(self.drafts, self.caches, (False, True), self.clients, self.forms)
        return [*oracles, *(cell for cell in itertools.starmap(Cell, others) if cell not in oracles)]


def measured(
    model: str,
    draft: str | None,
    dtype: str | None,
    matrix: Matrix,
    cache_option: str,
    on_start: Callable[[int], None],
    on_cell: Callable[[], None],
) -> dict[str, Any]:
    """Return the report of a matrix.

    Raises:
        EngineError: the model cannot be loaded, or the server refused a request.
    """
    settings = Settings(
        models=(model,),
        draft=draft or "auto",
        dtype=dtype,
        max_active=MOST_CLIENTS,
        prefill_chunk=CHUNK,
        request_seconds=3600.0,
    )
    server, began = Server(settings, EngineThread), time.monotonic()
    server.engine.start()
    try:
        resident = server.engine.load(model).result()
        drafter = resident.pair.draft
        left_out = (
            {} if drafter is not None and drafter.kind == DFLASH else {"dflash": "the model has no drafter"}
        )
        matrix = replace(matrix, drafts=[name for name in matrix.drafts if name not in left_out])
        on_start(len(matrix.cells))
        config = {
            "seed": 0,
            "model": resident.pair.name,
            "dtype": dtype,
            "left_out": left_out,
            "cache": cache_option,
            "warm": [False, True],
            **config_of(matrix),
        }
        report = OpenReport(KIND, config, models=resident.pair.describe())
        answers = asyncio.run(_answers(server, matrix, report, began, on_cell))
    except ApiError as error:
        raise EngineError(
            f"the server refused a request: {error.message}", "choose another --cache"
        ) from error
    finally:
        server.engine.stop()
    add_divergences(answers, resident)
    return report.close([answer.row for answer in answers], time.monotonic() - began)


@dataclass(frozen=True)
class Answer:
    """An answer of the server."""

    row: dict[str, Any]  # of the report
    prompt: str  # its text
    tokens: list[int]  # of the answer, the stop token included


async def _answers(
    server: Server, matrix: Matrix, report: OpenReport, began: float, on_cell: Callable[[], None]
) -> list[Answer]:
    answers = []
    for cell in matrix.cells:
        oracle = cell.draft == "none" and not cell.warm and cell.clients == 1
        questions = range(max(matrix.clients) if oracle else cell.clients)
        if cell.warm:
            for question in questions:
                await _answer(server, matrix, cell, question, began)
        for together in [questions] if cell.clients > 1 else [[question] for question in questions]:
            pending = (_answer(server, matrix, cell, question, began) for question in together)
            for answer in await asyncio.gather(*pending):
                report.add(answer.row)
                answers.append(answer)
        report.flush()  # the rows of concurrent clients began together
        on_cell()
    return answers


async def _answer(server: Server, matrix: Matrix, cell: Cell, question: int, began: float) -> Answer:
    free = cell.form == "free"
    end = f"def read_{question}(path):\n" if free else f'{{"path":"file{question}","lines":1}}\n'
    body: dict[str, Any] = {
        "model": next(iter(server.names)),
        "prompt": COMMON[cell.form] + end,
        "max_tokens": matrix.max_tokens,
        "temperature": 0,
        "repetition_penalty": 1,
        "x_kakeya": {"draft": cell.draft, "cache": cell.cache, "prefix": cell.warm, "token_ids": True},
    }
    if not free:
        body["response_format"] = {"type": "json_schema", "json_schema": {"schema": SCHEMA}}
    started = time.monotonic() - began
    begun = await completions.begin(server, parse(CompletionRequest, json.dumps(body).encode()))
    whole_body = await completions.whole(begun)
    choice, about = whole_body["choices"][0], whole_body["x_kakeya"]
    row = {
        **cell._asdict(),
        "question": question,
        "tokens": about["token_digest"],
        "n_tokens": whole_body["usage"]["completion_tokens"],
        "text": choice["text"],
        "stop": choice["finish_reason"],
        "fallback": about["fallback"],
        "counters": {name: about[name] for name in COUNTERS},
        "started_s": started,
    }
    return Answer(row, body["prompt"], about["token_ids"])


def add_divergences(answers: Sequence[Answer], resident: Resident) -> None:
    """Add ``divergence`` to each row whose tokens differ from those of the first answer to its question.

    It has the position of the first difference, and how close the logits of the two tokens are there. It is None if one
    answer is the beginning of the other.
    """

    @functools.cache
    def parting(cache: str, prompt: str, ours: tuple[int, ...], theirs: tuple[int, ...]) -> dict[str, Any]:
        ids = resident.encode(prompt, begins=True)
        return divergence_section(resident.pair, cache, ids, ours, theirs, chunk=CHUNK, parting=True)

    alone: dict[tuple[Any, ...], Answer] = {}
    for answer in answers:
        row = answer.row
        other = alone.setdefault((row["cache"], row["form"], row["question"]), answer)
        if answer.tokens != other.tokens:
            section = parting(row["cache"], answer.prompt, tuple(answer.tokens), tuple(other.tokens))
            is_beginning = section["kind"] == "length"
            tokens = {"ours": answer.tokens, "theirs": other.tokens}
            row["divergence"] = None if is_beginning else section | tokens
