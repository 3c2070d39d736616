"""For ``check``: finds the files that a preset's commands need, as its jobs would see them."""

import json
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from bridge.presets import Preset
from runner.host.interpreter import Problem
from runner.job.sandbox.hub import CACHES
from runner.policy import INTERPRETER, Policy

# Options of Python that take a value, and options after which no script is named.
_WITH_VALUE, _NO_SCRIPT = ("-W", "-X"), ("-m", "-c")
# A script that prints the index of its first unusable argument, and what is wrong with it.
LOOK = (
    "import json, os, sys\n"
    "for i, (path, is_program) in enumerate(json.loads(sys.argv[1])):\n"
    "    if not os.path.exists(path): print(json.dumps([i, 'absent'])); break\n"
    "    if not os.access(path, os.X_OK if is_program else os.R_OK): print(json.dumps([i, 'closed'])); break\n"
    "else: print('null')\n"
)

# Runs a Python script as a job of the program, and returns its output.
Look = Callable[[str, Sequence[str]], str]


@dataclass(frozen=True)
class JobPath:
    """A path that a command needs; ``setting`` is the host's setting that names it, if one does."""

    path: str
    setting: str | None
    is_program: bool = False

    @property
    def named(self) -> str:
        """The path, and the setting or preset that names it."""
        return f"{self.setting} names {self.path}, which" if self.setting else self.path

    @property
    def fix(self) -> str:
        """The advice for an operator whose jobs cannot use the path."""
        if self.setting:
            return (
                f"Create it on this machine, or change env.{self.setting} in the policy to an absolute path."
            )
        return "Install it, or correct the preset's argv."


def missing_path(preset: Preset, policy: Policy, look: Look | None) -> Problem | None:
    """Return which path a preset's jobs need and cannot use, or None.

    ``look`` runs a script as a job; without it, paths are looked for from this process.
    """
    checked = set()
    for i, step in enumerate(preset.steps):
        paths = tuple(dict.fromkeys([*_of_step(preset, i, policy), *_of_variables(preset, policy)]))
        if paths in checked or not paths:
            continue
        checked.add(paths)
        if gone := next((path for path in paths if _is_gone(path.path)), None):
            return Problem(f"{gone.named} does not exist here", gone.fix)
        closed = next((path for path in paths if path.is_program and not _runs(path.path)), None)
        if closed:
            return Problem(
                f"{closed.named} is no program that this user may run", f"Run: chmod +x {closed.path}"
            )
        if look:
            program = _value(step.argv[0], policy)[0]
            question = json.dumps([(path.path, path.is_program) for path in paths])
            if problem := _judge(paths, look(program, ["-I", "-c", LOOK, question])):
                return problem
    return None


def _judge(paths: Sequence[JobPath], output: str) -> Problem | None:
    """Turn the output of the script into a problem. An output that is none says nothing about the paths."""
    try:
        answer = json.loads(output.rstrip().rpartition("\n")[2])
        path = paths[answer[0]] if answer else None
    except (ValueError, IndexError, TypeError):
        return None
    if path is None:
        return None
    if path.setting:
        return Problem(f"the sandbox hides {path.path}, which {path.setting} names", path.fix)
    fix = "Name the path in the policy, such as `env: {MY_SCRIPT: PATH}`, and write ${ENV:MY_SCRIPT} in argv."
    return Problem(f"the sandbox hides {path.path}", fix)


def _of_step(preset: Preset, number: int, policy: Policy) -> Iterator[JobPath]:
    """Yield the paths of a command: its program, absolute paths and ``~``, and the script that Python is to run."""
    argv = preset.steps[number].argv
    script = _script(argv)
    for i, token in enumerate(argv):
        value, setting = _value(token, policy)
        if setting == INTERPRETER or setting in CACHES:
            continue
        # Installed code runs in an empty folder, so a script with a relative path is missing there.
        is_script = i == script and preset.code == "installed" and "{" not in value
        if i == 0 or value.startswith("/") or is_script or (setting and value.startswith("~")):
            yield JobPath(value, setting, is_program=i == 0)


def _of_variables(preset: Preset, policy: Policy) -> Iterator[JobPath]:
    """Yield the paths in the variables that jobs get. Of the hub's cache, jobs have one of their own."""
    for value in preset.env.values():
        if value.startswith("/") and not Path(value).parent.exists():
            yield JobPath(value, None)
    for name in preset.pass_env:
        if name not in CACHES and policy.env.get(name, "").startswith(("/", "~")):
            yield JobPath(policy.env[name], name)


def _script(argv: Sequence[str]) -> int | None:
    """Return the position of the script in a command that runs Python, if it names one."""
    if argv[0] != f"${{ENV:{INTERPRETER}}}" and not Path(argv[0]).name.startswith("python"):
        return None
    options = 1
    while options < len(argv) and argv[options].startswith("-"):
        if argv[options] in _NO_SCRIPT:
            return None
        options += 2 if argv[options] in _WITH_VALUE else 1
    return options if options < len(argv) else None


def _value(token: str, policy: Policy) -> tuple[str, str | None]:
    """Return the value of an element of a command, and the name of the setting if the element is one."""
    if token.startswith("${ENV:"):
        name = token[len("${ENV:") : -1]
        return policy.settings.get(name, ""), name
    return token, None


def _is_gone(path: str) -> bool:
    return not path.startswith("/") or not Path(path).exists()


def _runs(path: str) -> bool:
    return Path(path).is_file() and os.access(path, os.X_OK)
