"""The console blocks of a page: the commands in them, what they are said to print, and what they do print."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def section(heading: str, page: str = README) -> str:
    """Return the text of a page under a heading of the second level."""
    return page.split(f"\n## {heading}\n", 1)[1].split("\n## ", 1)[0]


def blocks(text: str, language: str) -> list[str]:
    """Return the fenced blocks of a language."""
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


def commands(text: str) -> list[list[str]]:
    """Return the commands of a text's console blocks as lists of words, without their comments."""
    lines = [line for block in blocks(text, "console") for line in block.splitlines()]
    return [shlex.split(line[2:], comments=True) for line in lines if line.startswith("$ ")]


@dataclass(frozen=True)
class Step:
    """A command of a page, the lines that it is said to print, and the code with which it is said to end."""

    command: str
    shown: tuple[str, ...] = ()

    @property
    def code(self) -> int:
        found = re.search(r"  # ends with (\d+)", self.command)
        return int(found[1]) if found else 0


def steps(text: str) -> list[Step]:
    """Return the commands of a text's console blocks, in order. An output's `...` stands for what was left out."""
    found: list[Step] = []
    for block in blocks(text, "console"):
        for part in re.split(r"^\$ ", block.replace("\\\n", " "), flags=re.MULTILINE)[1:]:
            command, *shown = part.splitlines()
            found.append(Step(command, tuple(line for line in shown if line.strip(". "))))
    return found


def follow(
    todo: list[Step], cwd: Path, *, replaced: Mapping[str, str] | None = None, limit_s: float = 240
) -> str:
    """Run commands one after another in one shell, and check how each ends and that it prints what is shown.

    Args:
        todo: the commands.
        cwd: where the shell starts.
        replaced: what stands in the page for something of the reader's own, such as the bus's address.
        limit_s: after which all are ended.

    Returns:
        All that they printed.
    """
    lines = []
    for number, step in enumerate(todo):
        command = step.command
        for old, new in (replaced or {}).items():
            command = command.replace(old, new)
        lines.append(f"{command}\nprintf '\\n@@ %s %s\\n' {number} $?")
    done = subprocess.run(
        ["bash", "-c", "\n".join(lines)], cwd=cwd, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True, check=False, timeout=limit_s, env={**os.environ, "COLUMNS": "120"},
    )  # fmt: skip
    pieces = re.split(r"^@@ (\d+) (\d+)\n", done.stdout, flags=re.MULTILINE)
    assert len(pieces) == 3 * len(todo) + 1, done.stdout
    for step, output, code in zip(todo, pieces[::3], pieces[2::3], strict=False):
        assert int(code) == step.code, f"{step.command}\n{output}"
        printed = iter([_shape(line) for line in output.splitlines()])
        missing = [line for line in step.shown if _shape(line) not in printed]
        assert missing == [], f"{step.command}\n{output}"
    return done.stdout


def _shape(line: str) -> str:
    """Return what of a line is the same on each run and each machine."""
    line = re.sub(r"sha256:[0-9a-f.]+", "DIGEST", line.rstrip())
    line = re.sub(r"\b[0-9]{10}-[0-9a-f]{12}\b", "NONCE", line)
    return re.sub(r"\d+(\.\d+)?", "#", line)
