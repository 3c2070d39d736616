"""The planned changes of an installation, as a list that can be shown before they are made."""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bridge.common import environment
from bridge.errors import InfrastructureError
from bridge.system.process import run

_COMMAND_S = 60


@dataclass(frozen=True)
class Write:
    """Writes a file with this content."""

    path: Path
    content: bytes
    mode: int = 0o644

    @property
    def is_needed(self) -> bool:
        """Return whether the file does not have this content yet."""
        return not self.path.is_file() or self.path.read_bytes() != self.content

    def show(self) -> Iterator[str]:
        """Yield the change as lines: the whole content of a new file, a diff for an existing one."""
        old = self.path.read_text(errors="replace").splitlines() if self.path.is_file() else []
        new = self.content.decode().splitlines()
        yield f"{'change' if old else 'write'} {self.path}"
        if old:
            lines = difflib.unified_diff(old, new, "as it is", "as it will be", lineterm="")
            yield from (f"    {line}" for line in lines)
        else:
            yield from (f"    {line}" for line in new)

    def do(self) -> None:
        """Write the file atomically."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        draft = self.path.with_name(f".{self.path.name}.new")
        draft.write_bytes(self.content)
        draft.chmod(self.mode)
        draft.replace(self.path)


@dataclass(frozen=True)
class Remove:
    """Removes a file."""

    path: Path

    @property
    def is_needed(self) -> bool:
        """Return whether the file exists."""
        return self.path.exists()

    def show(self) -> Iterator[str]:
        """Yield the change as a line."""
        yield f"remove {self.path}"

    def do(self) -> None:
        """Remove the file."""
        self.path.unlink(missing_ok=True)


@dataclass(frozen=True)
class Call:
    """Runs a system command. ``may_fail`` is for commands that undo something that may not exist."""

    argv: Sequence[str]
    may_fail: bool = False
    is_needed: bool = field(default=True, init=False)

    def show(self) -> Iterator[str]:
        """Yield the command as a line."""
        yield f"run {' '.join(self.argv)}"

    def do(self) -> None:
        """Run the command.

        Raises:
            InfrastructureError: it fails and may not.
        """
        env = environment.for_user_git()
        run(*self.argv, env=env, timeout=_COMMAND_S, check=not self.may_fail, own_session=True)


@dataclass(frozen=True)
class Act:
    """Does something else, and returns what to print."""

    title: str
    act: Callable[[], str]
    is_needed: bool = field(default=True, init=False)

    def show(self) -> Iterator[str]:
        """Yield the change as a line."""
        yield self.title

    def do(self) -> str:
        """Do it."""
        return self.act()


Step = Write | Remove | Call | Act


@dataclass(frozen=True)
class Plan:
    """Steps in order. If no file changes, nothing is done and the commands are skipped too."""

    steps: Sequence[Step] = ()
    # Manual steps.
    then: Sequence[str] = ()

    @property
    def is_done(self) -> bool:
        """Return whether everything is up to date."""
        return not any(step.is_needed for step in self.steps if not isinstance(step, Call))

    def show(self) -> Iterator[str]:
        """Yield the changes, line by line."""
        for step in self._due:
            yield from step.show()

    def carry_out(self, *, commands: bool = True) -> Iterator[str]:
        """Carry out the steps, and print each before it is done. Without ``commands``, commands are only printed."""
        for step in self._due:
            line = next(step.show())
            yield line if commands or not isinstance(step, Call) else f"left to you: {line}"
            if commands or not isinstance(step, Call):
                try:
                    if output := step.do():
                        yield output
                except OSError as error:
                    fix = "A system service is installed as root: sudo kakeya-runner install --system ..."
                    raise InfrastructureError(f"{error.strerror}: {error.filename}", fix=fix) from error

    @property
    def _due(self) -> list[Step]:
        return [] if self.is_done else [step for step in self.steps if step.is_needed]


@dataclass(frozen=True)
class Service:
    """A service of one kind of system: its files, and the commands that start and stop it."""

    files: Mapping[Path, bytes]
    mode: int = 0o644
    start: Sequence[Call] = ()
    stop: Sequence[Call] = ()
    after_removal: Sequence[Call] = ()
    # Notes for the operator who installed or removed it.
    then: Sequence[str] = ()
    then_removed: Sequence[str] = ()

    def install(self, root: Path | None = None) -> Plan:
        """Return the plan that installs and starts the service."""
        writes = [Write(below(root, file), content, self.mode) for file, content in self.files.items()]
        return Plan([*writes, *self.start], self.then)

    def uninstall(self, root: Path | None = None) -> Plan:
        """Return the plan that stops and removes the service. Policy, state and log stay."""
        removals = [Remove(below(root, file)) for file in self.files]
        return Plan([*self.stop, *removals, *self.after_removal], self.then_removed)


def below(root: Path | None, path: Path) -> Path:
    """Return a file's path below ``root``, as if that were the system's root folder."""
    return path if root is None else Path(f"{root}{os.sep}{path.relative_to(path.anchor)}")
