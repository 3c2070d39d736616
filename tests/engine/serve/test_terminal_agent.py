"""mini-swe-agent, an agent for the terminal, against a real server: turns with calls, their end, and interrupts.

`make parity` installs it. It runs what the model writes in a shell. The bundled model, if it has to call, mostly writes
"Boston". So the shell finds no program but one of that name.
"""

import json
import subprocess
import sys
from importlib import util
from itertools import pairwise
from signal import SIGINT

import pytest

from tests.engine.serve.world import cancelled, serving, until

pytestmark = pytest.mark.long
SUNNY = "Sunny in Boston."
BLOCK = 64  # tokens of one block of the prefix cache
APIS = {
    "chat": ("openai", "/v1", "litellm", "max_tokens"),
    "messages": ("anthropic", "", "litellm", "max_tokens"),
    "responses": ("openai", "/v1", "litellm_response", "max_output_tokens"),
}


@pytest.fixture(scope="module")
def narrow(tmp_path_factory):
    """A server for one answer at a time: an answer that goes on for nobody would keep the next one waiting."""
    if util.find_spec("minisweagent") is None:
        pytest.skip("needs the agent that `make parity` installs")
    options = ("--model", "tiny-chat", "--model", "tiny", "--max-active", "1", "--prefill-chunk", str(BLOCK))
    with serving(tmp_path_factory.mktemp("agent"), *options) as server:
        yield server


class Agent:
    """Runs of the agent in a home of its own, with its own prompt and tool."""

    def __init__(self, folder):
        self.folder, self.path = folder, folder / "run.json"
        for name in ("home", "bin", "work"):
            (folder / name).mkdir()

    def answer(self, text):
        """Let the shell's only program print a text."""
        program = self.folder / "bin" / "Boston"
        program.write_text(f"#!/bin/sh\necho '{text}'\n")
        program.chmod(0o755)

    def start(self, server, api, model, steps, *options, limit=80):
        provider, path, kind, limited = APIS[api]
        settings = {
            "agent.step_limit": steps,
            "model.model_class": kind,
            "model.model_kwargs.api_base": server.url + path,
            "model.model_kwargs.temperature": 0,
            f"model.model_kwargs.{limited}": limit,
        }
        argv = [sys.executable, "-P", "-m", "minisweagent", "--yolo", "--exit-immediately"]
        argv += ["--task", "What is the weather in Boston?", "--model", f"{provider}/{model}"]
        argv += ["--output", str(self.path), "--config", "mini.yaml"]
        for setting in (*(f"{key}={value}" for key, value in settings.items()), *options):
            argv += ["--config", setting]
        environment = {
            "HOME": str(self.folder / "home"),
            "PATH": str(self.folder / "bin"),
            "OPENAI_API_KEY": "none",
            "ANTHROPIC_API_KEY": "none",
            "LITELLM_LOCAL_MODEL_COST_MAP": "true",  # else it asks the network for prices
            "MSWEA_CONFIGURED": "true",
            "MSWEA_COST_TRACKING": "ignore_errors",
            "MSWEA_MODEL_RETRY_STOP_AFTER_ATTEMPT": "1",
        }
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        return subprocess.Popen(argv, env=environment, cwd=self.folder / "work", **pipes)

    def run(self, server, api, steps):
        """Return what the agent recorded of a run in which each turn has to call."""
        with self.start(
            server, api, "tiny-chat", steps, "model.model_kwargs.tool_choice=required"
        ) as process:
            output, _ = process.communicate(timeout=240)
        assert self.path.exists(), output
        return json.loads(self.path.read_text())


@pytest.fixture
def agent(tmp_path):
    return Agent(tmp_path)


def usage(message):
    """Return how many tokens a turn's prompt had, and how many of them came from the prefix cache."""
    counts = message.get("usage") or message["extra"]["response"]["usage"]
    details = counts.get("prompt_tokens_details") or counts["input_tokens_details"]
    return counts.get("prompt_tokens") or counts["input_tokens"], details["cached_tokens"]


def test_run_ends(narrow, agent):
    agent.answer(f"COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT\n{SUNNY}")
    record = agent.run(narrow, "chat", 1)
    assert record["info"]["exit_status"] == "Submitted"
    assert record["info"]["model_stats"]["api_calls"] == 1
    assert SUNNY in json.dumps(record["messages"][3:])


@pytest.mark.parametrize("api", APIS)
def test_turns_until_the_context_is_full(narrow, agent, api):
    """The agent knows the refusal for what it is: it would send any other request again."""
    agent.answer(f"{SUNNY} " + "0 " * 1300)
    record = agent.run(narrow, api, 20)
    assert record["info"]["exit_status"] == "ContextWindowExceededError"
    turns = [usage(message) for message in record["messages"] if "actions" in message.get("extra", {})]
    assert len(turns) > 1
    for (before, _), (_, cached) in pairwise(turns):
        assert cached >= before // BLOCK * BLOCK
    assert SUNNY in json.dumps(record["messages"][3:])


def test_interrupts(narrow, agent):
    """Each one frees the server at once, while the agent waits for a comment. Without one, the agent ends."""
    before = cancelled(narrow)
    with agent.start(narrow, "chat", "tiny", 3, limit=2700) as process:
        for count, comment in enumerate((b"Be brief.\n", b""), 1):
            until(lambda: narrow.stats()["active"] or process.poll() is not None)
            process.send_signal(SIGINT)
            until(lambda: not narrow.stats()["active"])
            assert cancelled(narrow) == before + count
            assert process.poll() is None
            process.stdin.write(comment)
            process.stdin.flush()
        process.communicate(timeout=120)
    turns = json.loads(agent.path.read_text())["messages"]
    assert "Interrupted by user: Be brief." in [turn["content"] for turn in turns]
    assert narrow.chat(model="tiny-chat", text="Hello.").status_code == 200
