"""Runs the steps of a composite action as GitHub's runner does, as far as this project's action uses it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import yaml

SHELL = ("bash", "--noprofile", "--norc", "-e", "-o", "pipefail")
_EXPRESSION = re.compile(r"\$\{\{\s*(.*?)\s*\}\}")
# GitHub obeys a line that begins with a command, after spaces too, and an older form anywhere in a line.
_COMMAND = re.compile(r"^\s*::([a-z-]+|[0-9a-f]{32})(?: [^:]*)?::(.*)$")
_OLD_COMMAND = re.compile(r"##\[([a-z-]+)[^]]*\](.*)$")


@dataclass
class Job:
    """One use of an action."""

    action: Path
    inputs: Mapping[str, str]
    env: Mapping[str, str]
    workspace: Path
    temp: Path
    cancelled: bool = False
    failed: bool = False
    code: int = 0
    log: str = ""
    steps: dict[str, dict[str, str]] = field(default_factory=dict)
    ran: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.definition = yaml.safe_load((self.action / "action.yml").read_text())
        declared = self.definition["inputs"]
        assert self.inputs.keys() <= declared.keys()
        assert all(name in self.inputs for name, about in declared.items() if about.get("required"))
        self.values = {
            name: self.inputs.get(name, about.get("default", "")) for name, about in declared.items()
        }
        self.temp.mkdir(exist_ok=True)
        (self.temp / "summary").touch()

    @property
    def summary(self) -> str:
        return (self.temp / "summary").read_text()

    @property
    def outputs(self) -> dict[str, str]:
        """The action's outputs."""
        return {name: self._fill(about["value"]) for name, about in self.definition["outputs"].items()}

    def run(self, *, last: str = "", cancel_during: str = "", when: object = None) -> None:
        """Run the steps, up to the one with the id `last`.

        `cancel_during`: while the step of that id runs, once `when()` holds, as GitHub cancels.
        """
        for number, step in enumerate(self.definition["runs"]["steps"]):
            if self._is_due(step):
                self.ran.append(step["name"])
                self._step(step, number, when if step.get("id") == cancel_during else None)
            if step.get("id") == last:
                return

    def _is_due(self, step: Mapping[str, str]) -> bool:
        if "if" not in step:
            return not (self.failed or self.cancelled)
        text = _EXPRESSION.fullmatch(step["if"])[1]
        text = re.sub(r"[a-z]+(?:\.[a-z-]+)+", lambda found: repr(self._value(found[0])), text)
        text = text.replace("cancelled()", str(self.cancelled)).replace("&&", " and ").replace("!=", "<>")
        return bool(eval(text.replace("!", " not ").replace("<>", "!=")))

    def _step(self, step: Mapping[str, object], number: int, when: object) -> None:
        script, output = self.temp / f"{number}.sh", self.temp / f"{number}.out"
        assert "${{" not in step["run"]
        script.write_text(step["run"])
        output.touch()
        env = {name: self._fill(text) for name, text in step.get("env", {}).items()}
        github = {"GITHUB_OUTPUT": str(output), "GITHUB_STEP_SUMMARY": str(self.temp / "summary"),
                  "RUNNER_TEMP": str(self.temp)}  # fmt: skip
        printed = self.temp / f"{number}.log"
        with printed.open("wb") as log:
            process = subprocess.Popen(
                [*SHELL, str(script)], env={**self.env, **github, **env}, cwd=self.workspace,
                stdout=log, stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip
            if when is not None:
                when()
                self._cancel(process)
            process.wait(180)
        self.log += printed.read_text(errors="replace")
        if process.returncode and not self.cancelled:
            self.failed, self.code = True, process.returncode
        self.steps[step.get("id", str(number))] = parse_outputs(output.read_text())

    def _cancel(self, process: subprocess.Popen[bytes]) -> None:
        """Interrupt the shell, ask it to end, and kill all that it started, as GitHub's runner does."""
        self.cancelled = True
        for signum, patience in ((signal.SIGINT, 7.5), (signal.SIGTERM, 2.5)):
            process.send_signal(signum)
            try:
                process.wait(patience)
                break
            except subprocess.TimeoutExpired:
                continue
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)

    def _fill(self, text: str) -> str:
        return _EXPRESSION.sub(lambda found: self._value(found[1]), text)

    def _value(self, name: str) -> str:
        if name.startswith("inputs."):
            return self.values[name.removeprefix("inputs.")]
        if name == "github.action_path":
            return str(self.action)
        step, output = re.fullmatch(r"steps\.([a-z]+)\.outputs\.([a-z-]+)", name).groups()
        assert step in {each.get("id") for each in self.definition["runs"]["steps"]}
        return self.steps.get(step, {}).get(output, "")

    @property
    def commands(self) -> list[tuple[str, str]]:
        """The workflow commands in the log that GitHub would obey."""
        stopped, found = None, []
        for line in self.log.splitlines():
            command = _COMMAND.match(line) or _OLD_COMMAND.search(line)
            if command is None or (stopped and command[1] != stopped):
                continue
            if stopped:
                stopped = None
            elif command[1] == "stop-commands":
                stopped = command[2]
            else:
                found.append((command[1], command[2]))
        assert stopped is None or self.cancelled, "commands are off at the end"
        return found


def parse_outputs(text: str) -> dict[str, str]:
    """Read a file of outputs: one NAME=VALUE a line, and nothing else."""
    pairs = [line.partition("=") for line in text.splitlines()]
    assert all(equals for _, equals, _ in pairs), text
    names = [name for name, _, _ in pairs]
    assert len(set(names)) == len(names), text
    return {name: value for name, _, value in pairs}
