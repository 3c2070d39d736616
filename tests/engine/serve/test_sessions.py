"""A coding agent's session: each turn reads what is new, however the agent marks its requests."""

import pytest

from tests.engine.serve.world import serving

BLOCK = 64
TURNS = 10
TOOL = {
    "name": "Read",
    "description": "Read a file.",
    "input_schema": {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]},
}


def request(turns, number):
    """The next request of a session: as Claude Code writes it, with a first line that is never the same."""
    line = f"x-anthropic-billing-header: cc_version=2.1; cc_entrypoint=cli; cch={number:05x};"
    texts = [line, "You are an agent.", "Read files before you answer. " * 40]
    system = [{"type": "text", "text": text} for text in texts]
    body = {"model": "tiny-chat", "max_tokens": 1, "system": system, "tools": [TOOL], "messages": turns}
    return {**body, "stream": False}


def turn(number):
    """A call, its result, and what the agent says of the tokens left."""
    called = {"type": "tool_use", "id": f"toolu_{number}", "name": "Read", "input": {"path": f"{number}.py"}}
    text = f"def main(argv):\n    return {number}\n" * 6
    result = {"type": "tool_result", "tool_use_id": called["id"], "content": text}
    return [
        {"role": "assistant", "content": [called]},
        {"role": "user", "content": [result]},
        {"role": "system", "content": f"{9000 - number} tokens left"},
    ]


@pytest.mark.long
def test_each_turn_finds_the_turns_before_it(tmp_path):
    turns, before = [{"role": "user", "content": "Count the lines."}], 0
    with serving(tmp_path, "--model", "tiny-chat") as server:
        for number in range(TURNS):
            usage = server.http.post("/v1/messages", json=request(turns, number)).json()["usage"]
            # All but the last block, and the line that begins an answer, which is not where a call begins.
            assert usage["cache_read_input_tokens"] >= before - 2 * BLOCK
            before = usage["input_tokens"] + usage["cache_read_input_tokens"]
            turns += turn(number)
    assert before > TURNS * BLOCK
