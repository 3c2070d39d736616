"""`check` looks for what a preset's commands need as its jobs would: a preset that lacks something is not ready."""

from __future__ import annotations

import sys

import pytest

from bridge.presets import load_presets
from runner.context import open_runner
from runner.doctor.job_paths import missing_path
from runner.doctor.presets import check_presets
from runner.job.sandbox import bubblewrap
from runner.policy import load_policy
from tests.system import program

PYTHON = "${ENV:KAKEYA_MAC_PYTHON}"
GONE = "which does not exist here"


@pytest.fixture
def host(tmp_path, runners, presets):
    """A preset of these steps on a host with these settings, and the policy."""
    (tmp_path / "script.py").write_text("print(1)\n")
    (tmp_path / "script.py").chmod(0o644)
    (tmp_path / "run.sh").write_text("#!/bin/sh\n")
    (tmp_path / "run.sh").chmod(0o755)
    names = {"HERE": tmp_path, "PYTHON": sys.executable}

    def fill(text: str) -> str:
        for name, value in names.items():
            text = text.replace(f"<{name}>", str(value))
        return text

    def made(argv: list[str], settings: dict[str, str], **preset: object):
        folder = presets(mine={"steps": [{"argv": [fill(word) for word in argv]}], **preset})
        given = {name: fill(value) for name, value in settings.items()}
        file = runners.policy(
            "one", env=given, preset_folder=str(folder), presets=["mine"], sandbox="require"
        )
        return load_presets(folder)["mine"], load_policy(file), fill

    return made


MISSING = [
    ([PYTHON, "${ENV:X}"], {"X": "<HERE>/nope.py"}, {}, f"X names <HERE>/nope.py, {GONE}"),
    ([PYTHON, "${ENV:X}"], {"X": "nope.py"}, {}, f"X names nope.py, {GONE}"),
    ([PYTHON, "-I", "-X", "dev", "${ENV:X}"], {"X": "nope.py"}, {}, f"X names nope.py, {GONE}"),
    ([PYTHON, "nope.py"], {}, {}, "nope.py does not exist here"),
    ([PYTHON, "-u", "sub/nope.py", "x"], {}, {}, "sub/nope.py does not exist here"),
    (["<PYTHON>", "nope.py"], {}, {}, "nope.py does not exist here"),
    ([PYTHON, "-c", "pass", "<HERE>/nope"], {}, {}, "<HERE>/nope does not exist here"),
    ([PYTHON, "-c", "pass", "${ENV:X}"], {"X": "~/nope"}, {}, f"X names ~/nope, {GONE}"),
    (["<HERE>/nope"], {}, {}, "<HERE>/nope does not exist here"),
    (["${ENV:X}"], {"X": "<HERE>/nope"}, {}, f"X names <HERE>/nope, {GONE}"),
    (["<HERE>/script.py"], {}, {}, "<HERE>/script.py is no program that this user may run"),
    (["${ENV:X}"], {"X": "<HERE>"}, {}, "X names <HERE>, which is no program that this user may run"),
    (["/bin/echo"], {"X": "<HERE>/nope"}, {"pass_env": ["X"]}, f"X names <HERE>/nope, {GONE}"),
    (["/bin/echo"], {}, {"env": {"X": "/nope/deeper/file"}}, "/nope/deeper/file does not exist here"),
]
READY = [
    ([PYTHON, "${ENV:X}"], {"X": "<HERE>/script.py"}, {}),
    ([PYTHON, "-c", "pass", "nope.py"], {}, {}),
    ([PYTHON, "-m", "json.tool", "nope.py"], {}, {}),
    ([PYTHON, "nope.py"], {}, {"code": "request"}),
    ([PYTHON, "-u"], {}, {}),
    (["/bin/echo", "a/b", "nope.py"], {}, {}),
    (["/bin/echo", "${ENV:X}"], {"X": "owner/name"}, {}),
    (["${ENV:X}"], {"X": "<HERE>/run.sh"}, {}),
    (["/bin/echo"], {"HF_HOME": "/nope"}, {"pass_env": ["HF_HOME", "UNSET"]}),
    (["/bin/echo", "${ENV:HF_HOME}"], {"HF_HOME": "/nope"}, {}),
    (["/bin/echo"], {}, {"env": {"X": "/tmp/new"}}),
]


@pytest.mark.parametrize(("argv", "env", "more", "says"), MISSING)
def test_what_is_missing_is_named(host, argv, env, more, says):
    preset, policy, fill = host(argv, env, **more)
    problem = missing_path(preset, policy, None)
    assert problem is not None
    assert problem.message == fill(says)
    assert problem.fix


@pytest.mark.parametrize(("argv", "env", "more"), READY)
def test_nothing_is_missing(host, argv, env, more):
    preset, policy, _ = host(argv, env, **more)
    assert missing_path(preset, policy, None) is None


@pytest.mark.parametrize(("output", "says"), [
    ("[0, \"absent\"]", "the sandbox hides"), ("null", None), ("", None), ("x", None), ("[9, 0]", None), ("7", None),
])  # fmt: skip
def test_the_answer_of_a_job_counts(host, output, says):
    preset, policy, _ = host(["/bin/echo", "${ENV:X}"], {"X": "/usr"})
    problem = missing_path(preset, policy, lambda *_: output)
    assert (problem is None) == (says is None)
    assert problem is None or says in problem.message


@pytest.mark.rows(1)
@pytest.mark.skipif(program(*bubblewrap.PROGRAMS) is None, reason="bubblewrap is not installed")
@pytest.mark.parametrize(
    ("argv", "env", "says"),
    [
        ([PYTHON, "<HERE>/script.py"], {}, "the sandbox hides <HERE>/script.py"),
        (["/bin/echo", "${ENV:X}"], {"X": "<HERE>/.env"}, "the sandbox hides <HERE>/.env, which X names"),
        ([PYTHON, "${ENV:X}"], {"X": "<HERE>/script.py"}, "can run"),
        (["${ENV:X}", "a"], {"X": "<HERE>/run.sh"}, "can run"),
    ],
)
def test_it_is_looked_for_in_the_jobs_sandbox(host, tmp_path, argv, env, says):
    (tmp_path / ".env").write_text("x")
    _, policy, fill = host(argv, env)
    with open_runner(policy, print) as context:
        found = next(check for check in check_presets(policy, context.machine) if check.name == "preset")
    assert found.message == f"mine: {fill(says)}"
    assert found.ok is (True if says == "can run" else None)
