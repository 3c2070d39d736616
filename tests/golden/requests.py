"""Twenty requests for streamed answers, for ``transcripts``: path and body, without the fields that all share."""

from __future__ import annotations

from typing import Any

_READ = [{"role": "user", "content": "def read_lines(path):"}]
_MAIN = [{"role": "user", "content": "def main(argv):"}]
_LONG = [
    {"role": "system", "content": "You complete Python code."},
    {"role": "user", "content": "class Stack:\n    def __init__(self):\n        self.items = []\n"},
    {"role": "assistant", "content": "    def push(self, item):\n        self.items.append(item)\n"},
    {"role": "user", "content": "    def pop(self):"},
]
_CITY = {
    "type": "object",
    "properties": {"city": {"type": "string", "maxLength": 8}},
    "required": ["city"],
    "additionalProperties": False,
}
_TOOL = {"type": "function", "function": {"name": "weather", "parameters": _CITY}}
_CHAT, _TEXT, _RESPONSE, _MESSAGE = (
    "/v1/chat/completions",
    "/v1/completions",
    "/v1/responses",
    "/v1/messages",
)

REQUESTS: list[tuple[str, dict[str, Any]]] = [
    (_CHAT, {"messages": _READ, "max_tokens": 24}),
    (_CHAT, {"messages": _READ, "max_tokens": 24, "stream_options": {"include_usage": True}}),
    (_CHAT, {"messages": _LONG, "max_tokens": 16, "x_kakeya": {"draft": "none", "token_ids": True}}),
    (_CHAT, {"messages": _MAIN, "max_tokens": 24, "x_kakeya": {"draft": "lookup", "prefix": False}}),
    (_CHAT, {"messages": _MAIN, "max_tokens": 24, "x_kakeya": {"draft": "dflash", "prefix": False}}),
    (_CHAT, {"messages": _MAIN, "max_tokens": 16, "x_kakeya": {"draft": "none", "cache": "e8@q38"}}),
    (_CHAT, {"messages": _MAIN, "max_tokens": 16, "stop": ["("]}),
    (
        _CHAT,
        {
            "messages": _READ,
            "max_tokens": 24,
            "response_format": {"type": "json_schema", "json_schema": {"name": "city", "schema": _CITY}},
        },
    ),
    (_CHAT, {"messages": _READ, "max_tokens": 24, "tools": [_TOOL], "tool_choice": "required"}),
    (_TEXT, {"prompt": "import os\n", "max_tokens": 24}),
    (_TEXT, {"prompt": "import os\n", "max_tokens": 16, "x_kakeya": {"draft": "dflash", "token_ids": True}}),
    (
        _TEXT,
        {
            "prompt": "for i in range(",
            "max_tokens": 16,
            "x_kakeya": {"draft": "none", "cache": "affine@8g64"},
        },
    ),
    (_TEXT, {"prompt": [1, 2, 3, 4], "max_tokens": 8, "stream_options": {"include_usage": True}}),
    (_RESPONSE, {"input": "def main(argv):", "max_output_tokens": 24}),
    (_RESPONSE, {"input": "def main(argv):", "max_output_tokens": 4, "x_kakeya": {"draft": "none"}}),
    (
        _RESPONSE,
        {
            "input": _READ,
            "instructions": "Be brief.",
            "max_output_tokens": 24,
            "text": {"format": {"type": "json_schema", "name": "city", "schema": _CITY}},
        },
    ),
    (_MESSAGE, {"messages": _READ, "max_tokens": 24}),
    (_MESSAGE, {"messages": _MAIN, "max_tokens": 16, "x_kakeya": {"draft": "none", "cache": "e8v@4.25"}}),
    (
        _MESSAGE,
        {
            "messages": _READ,
            "max_tokens": 24,
            "tools": [{"name": "weather", "input_schema": _CITY}],
            "tool_choice": {"type": "tool", "name": "weather"},
        },
    ),
    (_MESSAGE, {"messages": _MAIN, "max_tokens": 3, "system": "Complete the code."}),
]
