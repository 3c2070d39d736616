"""What an installation will do, as a list that can be shown before it is done."""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bridge.errors import InfrastructureError
from bridge.system import environment
from bridge.system.process import run

_COMMAND_S = 60


@dataclass(frozen=True)
class Write:
    """A file that is to hold this."""

    path: Path
    content: bytes
    mode: int = 0o644

    @property
    def is_needed(self) -> bool:
        """Say whether the file does not hold it already."""
        return not self.path.is_file() or self.path.read_bytes() != self.content

    def show(self) -> Iterator[str]:
        """Say what changes: the whole file where it is new, a diff where it is not."""
        old = self.path.read_text(errors="replace").splitlines() if self.path.is_file() else []
        new = self.content.decode().splitlines()
        yield f"{'change' if old else 'write'} {self.path}"
        if old:
            lines = difflib.unified_diff(old, new, "as it is", "as it will be", lineterm="")
            yield from (f"    {line}" for line in lines)
        else:
            yield from (f"    {line}" for line in new)

    def do(self) -> None:
        """Write it, whole or not at all."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        draft = self.path.with_name(f".{self.path.name}.new")
        draft.write_bytes(self.content)
        draft.chmod(self.mode)
        draft.replace(self.path)


@dataclass(frozen=True)
class Remove:
    """A file that is to be gone."""

    path: Path

    @property
    def is_needed(self) -> bool:
        """Say whether there is such a file."""
        return self.path.exists()

    def show(self) -> Iterator[str]:
        """Say what goes."""
        yield f"remove {self.path}"

    def do(self) -> None:
        """Remove it."""
        self.path.unlink(missing_ok=True)


@dataclass(frozen=True)
class Call:
    """A command of the system. `may_fail` where it undoes something that need not be there."""

    argv: Sequence[str]
    may_fail: bool = False
    is_needed: bool = field(default=True, init=False)

    def show(self) -> Iterator[str]:
        """Show the command."""
        yield f"run {' '.join(self.argv)}"

    def do(self) -> None:
        """Run it. Raises InfrastructureError where it fails and may not."""
        env = environment.for_user_git()
        run(*self.argv, env=env, timeout=_COMMAND_S, check=not self.may_fail, own_session=True)


Step = Write | Remove | Call


@dataclass(frozen=True)
class Plan:
    """Steps in order. Where no file changes there is nothing to do, and the commands are left out too."""

    steps: Sequence[Step]
    # What is left for a person to do.
    then: Sequence[str] = ()

    @property
    def is_done(self) -> bool:
        """Say whether everything is as it is to be."""
        return not any(step.is_needed for step in self.steps if not isinstance(step, Call))

    def show(self) -> Iterator[str]:
        """Say what would be done, line by line."""
        for step in self._due:
            yield from step.show()

    def carry_out(self, *, commands: bool = True) -> Iterator[str]:
        """Do it, and say each step before it is done. Without `commands` those are said and not run."""
        for step in self._due:
            line = next(step.show())
            yield line if commands or not isinstance(step, Call) else f"left to you: {line}"
            if commands or not isinstance(step, Call):
                try:
                    step.do()
                except OSError as error:
                    fix = "A system service is installed as root: sudo kakeya-runner install --system ..."
                    raise InfrastructureError(f"{error.strerror}: {error.filename}", fix=fix) from error

    @property
    def _due(self) -> list[Step]:
        return [] if self.is_done else [step for step in self.steps if step.is_needed]


def below(root: Path | None, path: Path) -> Path:
    """Return where a file goes when the whole system is thought to begin at `root`."""
    return path if root is None else Path(f"{root}{os.sep}{path.relative_to(path.anchor)}")
