"""Tests all combinations of drafts, caches, cached prompts, clients and grammars on this machine's models.

Each cell's answers are compared, by the digests of their tokens, with the answers to a single client without drafts and
prefix cache. Requests enter at the HTTP routes as JSON, but no port is opened.
"""

import asyncio
import itertools
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from engine.errors import EngineError
from engine.measure import report
from engine.serve import completions
from engine.serve.errors import ApiError
from engine.serve.protocol import CompletionRequest, parse
from engine.serve.server import Server
from engine.serve.settings import Settings

KIND = "kakeya.serve-conformance"
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
# The common beginning of all questions of a form, so that its blocks are cached. Each question has its own last line.
COMMON = {
    "free": "def read_lines(path):\n    with open(path) as stream:\n        return stream.readlines()\n\n\n"
    * 4,
    "json_schema": '{"path":"tests","lines":12}\n{"path":"engine","lines":40}\n' * 8,
}
COUNTERS = ("rounds", "proposed", "accepted", "cached_tokens", "cache_bytes", "together", "joint_rounds")
MOST_CLIENTS = 8
CHUNK = 64


@dataclass(frozen=True)
class Matrix:
    """The configured combinations.

    Attributes:
        drafts: of :data:``DRAFTS``.
        caches: cache specs.
        clients: how many ask at the same time.
        forms: of :data:``FORMS``.
        max_tokens: of an answer.
    """

    drafts: Sequence[str] = DRAFTS
    caches: Sequence[str] = CACHES
    clients: Sequence[int] = CLIENTS
    forms: Sequence[str] = FORMS
    max_tokens: int = 32

    @property
    def cells(self) -> list[tuple[str, str, bool, int, str]]:
        """Draft, cache, warmth, clients and form of each cell. The reference cells come first."""
        oracles = [("none", cache, False, 1, form) for cache in self.caches for form in self.forms]
        others = itertools.product(self.drafts, self.caches, (False, True), self.clients, self.forms)
        return [*oracles, *(cell for cell in others if cell not in oracles)]


def measured(
    model: str,
    draft: str | None,
    dtype: str | None,
    matrix: Matrix,
    asked_cache: str,
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
    server, began = Server(settings), time.monotonic()
    cells = matrix.cells
    on_start(len(cells))
    server.engine.start()
    try:
        resident = server.engine.load(model).result()
        rows = asyncio.run(_rows(server, matrix, cells, on_cell))
        models, name = resident.pair.describe(), resident.pair.name
    except ApiError as error:
        raise EngineError(
            f"the server refused a request: {error.message}", "choose another --cache"
        ) from error
    finally:
        server.engine.stop()
    config = {
        "seed": 0,
        "model": name,
        "dtype": dtype,
        "drafts": list(matrix.drafts),
        "cache": asked_cache,
        "caches": list(matrix.caches),
        "warm": [False, True],
        "clients": list(matrix.clients),
        "forms": list(matrix.forms),
        "max_tokens": matrix.max_tokens,
    }
    return report.envelope(KIND, config=config, rows=rows, seconds=time.monotonic() - began, models=models)


async def _rows(
    server: Server,
    matrix: Matrix,
    cells: Sequence[tuple[str, str, bool, int, str]],
    on_cell: Callable[[], None],
) -> list[dict[str, Any]]:
    most, rows = max(matrix.clients), []
    for cell in cells:
        draft, _, warm, clients, _ = cell
        oracle = draft == "none" and not warm and clients == 1
        questions = range(most if oracle else clients)
        if warm:
            for question in questions:
                await _answer(server, matrix, cell, question)
        if clients == 1:
            rows += [await _answer(server, matrix, cell, question) for question in questions]
        else:
            rows += await asyncio.gather(*(_answer(server, matrix, cell, question) for question in questions))
        on_cell()
    return rows


async def _answer(
    server: Server, matrix: Matrix, cell: tuple[str, str, bool, int, str], question: int
) -> dict[str, Any]:
    draft, cache, warm, clients, form = cell
    end = f"def read_{question}(path):\n" if form == "free" else f'{{"path":"file{question}","lines":1}}\n'
    body: dict[str, Any] = {
        "model": next(iter(server.names)),
        "prompt": COMMON[form] + end,
        "max_tokens": matrix.max_tokens,
        "temperature": 0,
        "x_kakeya": {"draft": draft, "cache": cache, "prefix": warm},
    }
    if form == "json_schema":
        body["response_format"] = {"type": "json_schema", "json_schema": {"schema": SCHEMA}}
    begun = await completions.begin(server, parse(CompletionRequest, json.dumps(body).encode()))
    found = await completions.whole(begun)
    choice, told = found["choices"][0], found["x_kakeya"]
    return {
        "draft": draft,
        "cache": cache,
        "warm": warm,
        "clients": clients,
        "form": form,
        "question": question,
        "tokens": told["token_digest"],
        "n_tokens": found["usage"]["completion_tokens"],
        "text": choice["text"],
        "stop": choice["finish_reason"],
        "fallback": told["fallback"],
        "counters": {name: told[name] for name in COUNTERS},
    }
