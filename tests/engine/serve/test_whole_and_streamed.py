"""A stream that an official client puts together is the whole answer, and makes the same prompt when it is sent back.

Stops apply to the visible text alone, and nothing is computed behind them.
"""

import json
from importlib import import_module
from pathlib import Path

import pytest

from tests.engine.serve import parrot
from tests.engine.serve.world import serving

TEMPLATE = (Path(__file__).parent / "templates" / "qwen3.jinja").read_text()
PARAMETERS = {
    "type": "object",
    "properties": {"path": {"type": "string"}, "text": {"type": "string"}, "n": {"type": "integer"}},
}
BIG = {"path": "a.txt", "text": 'x = "STOP" # né ✓ 🙂\n' * 8}
SMALL = {"path": "STOP", "n": 3}


def call(arguments, name="write"):
    return (
        f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments}, ensure_ascii=False)}\n</tool_call>"
    )


def thought(text):
    return f"<think>\n{text}\n</think>\n\n"


class Row:
    """What the model says, what is asked for, and what the client gets."""

    def __init__(self, says, text="", *, thinks=None, calls=(), end="stop", tokens=None, **asked):
        self.says, self.text, self.thinks, self.calls = says, text, thinks, list(calls)
        self.end, self.asked = end, asked
        self.tokens = tokens  # of the answer, if it does not end with the model's own end


STOP = {"stop": ["STOP"]}
ROWS = {
    "thought, text and call": Row(
        thought("Hm.") + "Here:\n" + call(BIG), "Here:\n", thinks="\nHm.\n", calls=[BIG], end="calls"
    ),
    "stop in the text": Row(
        thought("A STOP.") + "One STOP two", "One ", thinks="\nA STOP.\n", end="stopped",
        tokens=f"{thought('A STOP.')}One STOP", **STOP,
    ),
    "stop in a long call": Row(call(BIG) + "\n", calls=[BIG], end="calls", **STOP),
    "cut in a long call": Row(call(BIG), end="length", calls=[{"path": "a.txt"}], max_tokens=140),
    "thought": Row(thought("Só ✓"), thinks="\nSó ✓\n"),
    "text": Row("Hello ✓ wörld 🙂.\n\nBye.", "Hello ✓ wörld 🙂.\n\nBye."),
    "nothing": Row(""),
    "call": Row(call(SMALL), calls=[SMALL], end="calls"),
    "parallel calls": Row(f"{call(BIG)}\n{call(SMALL)}\n{call({})}", calls=[BIG, SMALL, {}], end="calls"),
    "text around calls": Row(f"A\n{call(SMALL)}\n\nB", "A\nB", calls=[SMALL], end="calls"),
    "stop in a thought": Row(thought("A STOP here") + "Hi.", "Hi.", thinks="\nA STOP here\n", **STOP),
    "stop in a short call": Row(f"Go.\n{call(SMALL)}", "Go.\n", calls=[SMALL], end="calls", **STOP),
    "stop at the first character": Row("STOP", end="stopped", tokens="STOP", **STOP),
    "stop behind a call": Row(
        f"{call(SMALL)}\nSo STOP it", "So ", calls=[SMALL], end="calls", tokens=f"{call(SMALL)}\nSo STOP", **STOP
    ),
    "stop across the end of a thought": Row(
        thought("All ST") + "OP and go", "OP and go", thinks="\nAll ST\n", stop=["ST\n</think>\n\nOP", "</think>"]
    ),
    "stop that only the lines behind a thought have": Row(
        thought("So.") + "One.\n\nTwo.", "One.", thinks="\nSo.\n", end="stopped", tokens=f"{thought('So.')}One.\n\n",
        stop=["\n\n"],
    ),
    "stop of several bytes": Row("né✓ yes", "né", end="stopped", tokens="né✓", stop=["✓ no", "✓"]),
    "beginning of a stop": Row("A STO", "A STO", **STOP),
    "no call": Row("<tool_call>is how STOP it begins</tool_call>", "is how ", end="stopped",
                   tokens="<tool_call>is how STOP", **STOP),
    "another function": Row(call({"x": "y" * 90}, "other"), f"\n{call({'x': 'y' * 90}, 'other')[12:-13]}\n"),
    "cut in a thought": Row("<think>\nLong thought", thinks="\nLon", end="length", max_tokens=5),
    "cut in the text": Row("Hello ✓", "Hello \ufffd", end="length", max_tokens=7),
    "cut in a short call": Row(
        call(SMALL), f"\n{call(SMALL)[12:29]}", end="length", max_tokens=19
    ),
    "cut behind a call": Row(f"{call(SMALL)}\nAnd so", "An", calls=[SMALL], end="length",
                             max_tokens=len(call(SMALL)) - 18),
}  # fmt: skip
ENDS = {
    "chat": {"stop": "stop", "stopped": "stop", "length": "length", "calls": "tool_calls"},
    "messages": {"stop": "end_turn", "stopped": "stop_sequence", "length": "max_tokens", "calls": "tool_use"},
    "responses": {"stop": "completed", "length": "incomplete", "calls": "completed"},
}
TURN = [{"role": "user", "content": "q"}]


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("parrot")
    options = []
    for i, row in enumerate(ROWS.values()):
        parrot.write_parrot(folder / f"parrot{i}", row.says, TEMPLATE)
        options += ["--model", str(folder / f"parrot{i}")]
    with serving(folder, *options) as running:
        anthropic = import_module("anthropic")
        # A client that is left open is a warning in whichever test it is collected.
        with anthropic.Anthropic(base_url=running.url, api_key="none", max_retries=0) as running.claude:
            yield running


class Chat:
    """The client of one API: asks, and says what an answer is."""

    tools = ({"type": "function", "function": {"name": "write", "parameters": PARAMETERS}},)

    def __init__(self, server, name):
        self.client, self.model = server.ai, f"parrot{[*ROWS].index(name)}"

    def turns(self):
        """Return a conversation of as many tokens as the model needs."""
        shortest = self.prompt(self.ask(TURN, {}, stream=False, extra={}, max_tokens=1))
        return [{"role": "user", "content": "q" * (parrot.PROMPT - shortest + 1)}]

    def ask(self, turns, row, *, stream, extra, **more):
        about = {
            "model": self.model,
            "messages": turns,
            "tools": [*self.tools],
            "temperature": 0,
            "max_tokens": 900,
        }
        about |= {"extra_body": {"reasoning_effort": "high", **extra}} | row | more
        if not stream:
            return self.client.chat.completions.create(**about)
        with self.client.chat.completions.stream(**about, stream_options={"include_usage": True}) as found:
            try:
                return found.get_final_completion()
            except import_module("openai").LengthFinishReasonError as error:
                return error.completion

    def prompt(self, found):
        return found.usage.prompt_tokens

    def said(self, found):
        choice = found.choices[0]
        message = choice.message.to_dict()
        calls = [
            (each["function"]["name"], each["function"]["arguments"])
            for each in message.get("tool_calls") or ()
        ]
        usage = found.usage.to_dict()
        usage["prompt_tokens_details"] = None  # the prefix cache knows more the second time
        thought = message.get("reasoning_content")
        return message.get("content") or "", thought, calls, choice.finish_reason, None, usage

    def back(self, found):
        return [found.choices[0].message.to_dict()]


class Messages(Chat):
    """Anthropic's client."""

    tools = ({"name": "write", "input_schema": PARAMETERS},)

    def __init__(self, server, name):
        super().__init__(server, name)
        self.client = server.claude

    def ask(self, turns, row, *, stream, extra, **more):
        row = {{"stop": "stop_sequences"}.get(name, name): value for name, value in row.items()}
        about = {"model": self.model, "messages": turns, "tools": [*self.tools], "max_tokens": 900}
        about |= {"thinking": {"type": "enabled", "budget_tokens": 1024}, "temperature": 0} | row | more
        extra = {**extra, "temperature": about.pop("temperature")}
        if not stream:
            return self.client.messages.create(**about, extra_body=extra)
        with self.client.messages.stream(**about, extra_body=extra) as found:
            return found.get_final_message()

    def prompt(self, found):
        return found.usage.input_tokens + found.usage.cache_read_input_tokens

    def said(self, found):
        blocks = [block.to_dict() for block in found.content]
        text = "".join(block["text"] for block in blocks if block["type"] == "text")
        thoughts = [block["thinking"] for block in blocks if block["type"] == "thinking"]
        assert all(block["signature"] == "" for block in blocks if block["type"] == "thinking")
        calls = [
            (block["name"], json.dumps(block["input"])) for block in blocks if block["type"] == "tool_use"
        ]
        usage = (self.prompt(found), found.usage.output_tokens, [{**block, "id": None} for block in blocks])
        return text, "".join(thoughts) or None, calls, found.stop_reason, found.stop_sequence, usage

    def back(self, found):
        return [{"role": "assistant", "content": [block.to_dict() for block in found.content]}]


class Responses(Chat):
    """The client of OpenAI's newer API."""

    tools = ({"type": "function", "name": "write", "parameters": PARAMETERS},)

    def ask(self, turns, row, *, stream, extra, **more):
        about = {
            "model": self.model,
            "input": turns,
            "tools": [*self.tools],
            "temperature": 0,
            "extra_body": extra,
        }
        most = {**row, **more}.get("max_tokens", 900)
        about |= {"reasoning": {"effort": "high"}, "max_output_tokens": most}
        if not stream:
            return self.client.responses.create(**about)
        with self.client.responses.stream(**about) as found:
            for each in found:
                last = each
            return last.response

    def prompt(self, found):
        return found.usage.input_tokens

    def said(self, found):
        items = [item.to_dict() for item in found.output]
        thoughts = [part["text"] for item in items if item["type"] == "reasoning" for part in item["summary"]]
        calls = [(item["name"], item["arguments"]) for item in items if item["type"] == "function_call"]
        usage = {**found.usage.to_dict(), "input_tokens_details": None}
        return found.output_text, "".join(thoughts) or None, calls, found.status, None, usage

    def back(self, found):
        return [item.to_dict() for item in found.output]


CLIENTS = {"chat": Chat, "messages": Messages, "responses": Responses}


def plain(arguments):
    """Return arguments as far as they are whole."""
    return import_module("jiter").from_json(arguments.encode(), partial_mode=True)


def each_row():
    """Yield the first row with each API, and the others with two. Responses has no stops."""
    for i, (name, row) in enumerate(ROWS.items()):
        more = "messages" if "stop" in row.asked or i % 2 else "responses"
        for api in CLIENTS if i == 0 else ("chat", more):
            yield name, api


@pytest.mark.rows(9)
@pytest.mark.parametrize(("name", "api"), [*each_row()])
def test_a_stream_is_the_whole_answer(server, name, api):
    row, client = ROWS[name], CLIENTS[api](server, name)
    turns = client.turns()
    whole = client.ask(turns, row.asked, stream=False, extra={"x_kakeya": {"draft": "none"}})
    streamed = client.ask(turns, row.asked, stream=True, extra={"x_kakeya": {"draft": "lookup"}})
    said = client.said(whole)
    assert said == client.said(streamed)
    text, thinks, calls, end, stop, _ = said
    assert (text, thinks) == (row.text, row.thinks)
    assert [(each, plain(arguments)) for each, arguments in calls] == [("write", each) for each in row.calls]
    assert end == ENDS[api][row.end]
    if api == "messages":
        stopped = row.end == "stopped"
        assert stop == (
            next(each for each in reversed(row.asked["stop"]) if each in row.tokens) if stopped else None
        )
        if row.tokens is not None:
            assert whole.usage.output_tokens == len(parrot.tokenizer().encode(row.tokens).ids)
    if row.end == "length":
        return
    results = {"chat": "tool", "messages": "tool_result", "responses": "function_call_output"}
    prompts = set()
    for each in (whole, streamed):
        again = [*turns, *client.back(each), {"role": "user", "content": f"Next, {results[api]}."}]
        prompts.add(client.prompt(client.ask(again, {}, stream=False, extra={}, max_tokens=1)))
    assert len(prompts) == 1


def test_log_probabilities_of_a_stream_are_those_of_the_whole_answer(server):
    client = Chat(server, "stop in the text")
    turns = client.turns()
    asked = {"logprobs": True, "top_logprobs": 2, **STOP}
    whole, streamed = (client.ask(turns, asked, stream=each, extra={}) for each in (False, True))
    found, same = (each.choices[0].logprobs.to_dict()["content"] for each in (whole, streamed))
    assert [each["token"] for each in found] == [each["token"] for each in same]
    assert len(found) == whole.usage.completion_tokens
    for one, two in zip(found, same, strict=True):
        assert one["logprob"] == pytest.approx(two["logprob"], abs=1e-4)


def test_log_probabilities_of_a_text_say_where_in_it_each_token_is(server):
    asked = {"model": f"parrot{[*ROWS].index('text')}", "prompt": [1] * parrot.PROMPT, "max_tokens": 99}
    whole = server.ai.completions.create(**asked, temperature=0, logprobs=3).choices[0]
    streamed = [*server.ai.completions.create(**asked, temperature=0, logprobs=3, stream=True)]
    parts = [each.choices[0].logprobs for each in streamed if each.choices[0].logprobs]
    # Each token is a byte.
    offsets = [at for at, character in enumerate(whole.text) for _ in character.encode()]
    assert whole.logprobs.text_offset == offsets == [at for part in parts for at in part.text_offset]
    assert {3} == {len(best) for best in whole.logprobs.top_logprobs}
    assert whole.logprobs.tokens[6:9] == ["bytes:\\xe2", "bytes:\\x9c", "bytes:\\x93"]
