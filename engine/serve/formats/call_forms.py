"""Chooses the parser and the reader of calls for each form that the server knows."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from engine.serve.formats import calls
from engine.serve.formats.call_gemma import QUOTES, gemma_calls
from engine.serve.formats.call_json import json_calls, kimi_calls, mistral_calls, only_arguments
from engine.serve.formats.call_parsers import PARSERS
from engine.serve.formats.call_text import CallText, Chars, Sink
from engine.serve.formats.call_xml import pieces_of
from engine.tokens import Tokenizer

# Readers of calls in JSON by the module of mlx-lm's parser. The forms of call_xml and call_gemma are added;
# calls in Python's syntax are read as a whole.
JSON_FORMS: dict[str, Callable[[Sink], Chars[Any]]] = {"mistral": mistral_calls, "kimi_k2": kimi_calls}


def form_of(tokenizer: Tokenizer) -> tuple[str, str, calls.Parser]:
    """Return the marks around a model's calls, and the parser of the text between them.

    The second mark is empty if nothing but the end of the answer ends a call. ``PARSERS`` has the parser, whichever
    backend runs the model; a form that only a later mlx-lm knows is read by mlx-lm's own.
    """
    start, end, parser = tokenizer.tool_call_start, tokenizer.tool_call_end, tokenizer.tool_parser
    if start is None or parser is None:
        return *calls.MARKS, calls.parse_json
    form = calls.form_name(parser)
    return start, end or "", calls.parse_json if form == "json_tools" else PARSERS.get(form, parser)


def reader_of(parse: calls.Parser, tools: Sequence[dict[str, Any]]) -> CallText:
    """Return a reader for the text of a call that ``parse``, a parser of ``form_of``, reads as a whole."""
    read = partial(calls.read, parse=parse, tools=tools)
    if parse is calls.parse_json:
        pieces: Callable[[Sink], Chars[Any]] | None = json_calls
    else:
        form = calls.form_name(parse)
        gemma = gemma_calls(QUOTES[form], parse) if form in QUOTES else None
        pieces = gemma or JSON_FORMS.get(form) or pieces_of(parse)
    return CallText(read, pieces, calls.Functions(tools))


def reader_of_arguments(name: str, tools: Sequence[dict[str, Any]]) -> CallText:
    """Return a reader for text that is a function's arguments as JSON."""
    read = partial(calls.read, parse=partial(calls.only_arguments, name), tools=tools)
    return CallText(read, only_arguments(name), calls.Functions(tools))
