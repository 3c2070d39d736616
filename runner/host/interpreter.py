"""The Python that runs jobs: pinned in the policy by path and version, and checked before each job.

A system update can replace it, and somebody can remove a package. Without the check, a job would fail after minutes,
or measure something else, without naming the cause. A refusal names the cause.
"""

import json
import math
import os
import re
import shutil
import sys
import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from pathlib import Path
from typing import Any

from bridge.common import environment, install
from bridge.common.whole_files import atomic_write
from bridge.errors import PolicyError, ProcessError
from bridge.presets import Preset
from bridge.system.local_files import stamp
from bridge.system.process import run
from runner.policy import INTERPRETER, load_policy

_BELIEVED_S = 60.0
_ASK_S = 120.0
_TOKEN = f"${{ENV:{INTERPRETER}}}"
# Modules may print while they are imported, so the answer goes to a copy of the original standard output.
# As in the engine, mlx-lm is imported without torch, which takes longer than all the rest.
_ASK = """
import json, os, sys
out = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)
if {name.partition(".")[0] for name in sys.argv[2:]} <= {"bridge", "engine", "mlx", "mlx_lm", "runner"}:
    sys.modules["torch"] = None
lacking, versions = [], dict.fromkeys(sys.argv[2:])
if sys.argv[1] == "versions":
    # importlib.metadata takes longer to import than Python to start, and is needed only if no folder says it.
    for folder in filter(os.path.isdir, sys.path[::-1]):
        for named, ending in map(os.path.splitext, os.listdir(folder)):
            name, _, version = named.lower().replace("_", "-").rpartition("-")
            if ending == ".dist-info" and name in versions:
                versions[name] = version
for name in sys.argv[2:]:
    try:
        if sys.argv[1] == "import":
            __import__(name)
        elif sys.argv[1] == "find":
            from importlib.util import find_spec
            if find_spec(name.partition(".")[0]) is None:
                lacking.append(name)
        elif versions[name] is None:
            from importlib.metadata import version
            versions[name] = version(name)
    except BaseException:
        lacking.append(name)
about = {"python": sys.executable, "version": sys.version.split()[0], "venv": sys.prefix != sys.base_prefix}
out.write(json.dumps({**about, "folders": sys.path, "lacking": lacking, "versions": versions}))
out.close()
os._exit(0)
"""


@dataclass(frozen=True)
class Problem:
    """Why the interpreter cannot run a job, and the command that fixes it."""

    message: str
    fix: str


# For each interpreter the answer to each question, when it came, and a stamp of the files that it depends on.
_ANSWERS = defaultdict[Path, dict[tuple[str, str], tuple[float, tuple[object, ...], dict[str, Any]]]](dict)


class Interpreter:
    """The pinned interpreter. Its answers are cached for a minute, unless one of its files changes."""

    def __init__(self, path: Path, version: str | None = None) -> None:
        self.path = path
        self.version = version
        self._known = _ANSWERS[path]

    def problem(self, modules: Sequence[str] = (), *, imports: bool = True) -> Problem | None:
        """Return why the interpreter cannot run a job that imports these modules, or None.

        Without ``imports``, this checks only whether their packages are installed, which takes no time.
        """
        if not os.access(self.path, os.X_OK):
            fix = "Pin another one: kakeya-runner pin --python PATH, and restart the runner."
            return Problem(f"there is no interpreter at {self.path}", fix)
        try:
            answer = self._ask("import" if imports else "find", *modules)
        except ProcessError as error:
            fix = f"See why: {self.path} -I -c 'import {', '.join(modules) or 'sys'}'"
            return Problem(f"{self.path} does not work: {error.message}", fix)
        if not self._is_pinned(answer["version"]):
            fix = "Install what jobs need there and pin it: kakeya-runner pin, and restart the runner."
            return Problem(f"{self.path} is Python {answer['version']}, the policy pins {self.version}", fix)
        if lacking := [module for module in modules if module in answer["lacking"]]:
            return Problem(f"{self.path} cannot import {', '.join(lacking)}", self._install(lacking))
        return None

    def problem_for(self, preset: Preset) -> Problem | None:
        """Return why the interpreter cannot run a preset; None if it can, or if the preset does not use it."""
        return self.problem(_modules(preset)) if is_used_by(preset) else None

    def unavailable_presets(self, presets: Iterable[Preset]) -> set[str]:
        """Return the presets whose interpreter or package is missing. Imports nothing."""
        needs = {preset.name: _modules(preset) for preset in presets if is_used_by(preset)}
        if not needs or self.problem(list(dict.fromkeys(chain(*needs.values()))), imports=False) is None:
            return set()
        return {name for name, modules in needs.items() if self.problem(modules, imports=False)}

    def versions_of(self, *packages: str) -> dict[str, str | None]:
        """Return the versions of Python and of packages, again after each installation; ProcessError if it fails."""
        answer = self._ask("versions", *packages, lasts_s=math.inf)
        return {"python": answer["version"], **answer["versions"]}

    def _install(self, lacking: Sequence[str]) -> str:
        """Return the command that installs missing modules: the engine's extras, or packages of the same name."""
        packages = [module.partition(".")[0] for module in lacking]
        ours = {install.EXTRAS[name] for name in packages if name in install.EXTRAS}
        others = [name for name in packages if name not in install.EXTRAS]
        ways = [install.engine(*sorted(ours - {install.ENGINE}), python=self.path)] if ours else []
        ways += [f"Install it: {self.path} -m pip install {' '.join(others)}"] if others else []
        return " ".join(ways)

    def _is_pinned(self, version: str) -> bool:
        """Return whether a version matches the pinned one; ``3.13`` matches every 3.13.x."""
        return self.version is None or f"{version}.".startswith(f"{self.version}.")

    def _ask(self, how: str, *names: str, lasts_s: float = _BELIEVED_S) -> dict[str, Any]:
        """Return what `ask` does, and ask only for those names whose answers are not known: importing takes seconds."""
        wanted = [(how, name) for name in names or ("",)]
        if unknown := [name for _, name in wanted if not self._is_known(how, name, lasts_s)]:
            answer = ask(self.path, how, *filter(None, unknown))
            when, files = time.monotonic(), _stamp(self.path, answer["folders"])
            self._known.update({(how, name): (when, files, answer) for name in unknown})
        answers = {name: self._known[how, name][2] for _, name in wanted}
        lacking = [name for name in names if name in answers[name]["lacking"]]
        versions = {name: answers[name]["versions"][name] for name in names}
        return {**next(iter(answers.values())), "lacking": lacking, "versions": versions}

    def _is_known(self, how: str, name: str, lasts_s: float) -> bool:
        if (how, name) not in self._known:
            return False
        when, files, answer = self._known[how, name]
        return time.monotonic() - when < lasts_s and files == _stamp(self.path, answer["folders"])


def find(program: str | None = None) -> tuple[Path, str]:
    """Return the real path and the version of an interpreter; by default of the current one.

    Links are resolved, so that changing a link later has no effect. The last link into a virtual environment is kept,
    because it leads out of the environment. PolicyError if the program is not a working Python.
    """
    named = shutil.which(program, path=environment.get("PATH")) if program else sys.executable
    if named is None:
        raise PolicyError(f"there is no interpreter {program}", fix="Name one: --python /path/to/python3")
    path = Path(os.path.abspath(named))  # noqa: PTH100 - the last link may be a virtual environment's
    try:
        answer = ask(path, "import")
    except ProcessError as error:
        raise PolicyError(f"{path} is no working Python: {error.message}") from error
    real = path.parent.resolve() / path.name if answer["venv"] else path.resolve()
    return real, answer["version"]


def pin(policy: Path, path: Path, version: str) -> None:
    """Write an interpreter into an existing policy; PolicyError if the policy cannot be read or written."""
    load_policy(policy)
    text = policy.read_text(encoding="utf-8")
    for key, value in (("interpreter", str(path)), ("interpreter_version", version)):
        line = f"{key}: {json.dumps(value)}"
        old = re.search(rf"(?m)^{key}:.*$", text)
        text = text[: old.start()] + line + text[old.end() :] if old else f"{text.rstrip()}\n{line}\n"
    with atomic_write(policy) as draft:
        draft.write_text(text, encoding="utf-8")
        draft.chmod(policy.stat().st_mode & 0o777)
        load_policy(draft)


def ask(path: Path, how: str, *modules: str) -> dict[str, Any]:
    """Query an interpreter for its version and the modules that it cannot import, or cannot find.

    ``how`` is "import" or "find"; or "versions", for the versions of packages, None for those that are not installed.
    ProcessError if it cannot be started, or fails.
    """
    argv = (str(path), "-I", "-c", _ASK, how, *modules)
    done = run(*argv, env={"LC_ALL": "C.UTF-8"}, cwd="/", timeout=_ASK_S, own_session=True)
    try:
        answer: dict[str, Any] = json.loads(done.stdout)
    except ValueError as error:
        raise ProcessError(argv, 0, message=f"{path} does not answer as a Python would") from error
    return answer


def _stamp(path: Path, folders: Sequence[str]) -> tuple[object, ...]:
    """Return a value that changes if the interpreter is replaced, or a package is installed or removed."""
    return tuple(map(stamp, [path, path.parent.parent / "pyvenv.cfg", *map(Path, folders)]))


def is_used_by(preset: Preset) -> bool:
    """Return whether a preset's job runs this interpreter or needs its packages."""
    return INTERPRETER in preset.env_names or bool(preset.requires)


def _modules(preset: Preset) -> list[str]:
    """Return the modules that must be importable: those that the preset names or runs with ``-m``."""
    # A preset with the request's own code may find the module in the request's tree.
    commands = [step.argv for step in preset.steps if preset.code == "installed" and step.argv[0] == _TOKEN]
    started = [name for argv in commands for option, name in pairwise(argv[:5]) if option == "-m"]
    return list(dict.fromkeys([*preset.requires, *started]))
