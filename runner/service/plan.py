"""The planned changes of an installation, as a list that can be shown before they are made."""

import difflib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path

from bridge.common import environment
from bridge.errors import InfrastructureError
from bridge.system.process import run

_COMMAND_S = 60


@dataclass(frozen=True)
class Step:
    """One change: the lines that show it (the first is its title), and its action, which may return a text."""

    lines: Sequence[str]
    act: Callable[[], str | None]
    is_needed: bool = True
    is_call: bool = False
    # Undoes the action, even if it failed half-way.
    undo: Callable[[], object] = lambda: None


def write(path: Path, content: bytes, mode: int = 0o644) -> Step:
    """Return the step that writes a file atomically. A new file is shown whole, a changed one as a diff."""
    before = path.read_bytes() if path.is_file() else b""
    old, new = before.decode(errors="replace").splitlines(), content.decode().splitlines()
    changed = difflib.unified_diff(old, new, "as it is", "as it will be", lineterm="") if old else new

    draft = path.with_name(f".{path.name}.new")
    old_mode = path.stat().st_mode if path.is_file() else None
    new_folders = [folder for folder in path.parents if not folder.exists()]

    def act() -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        draft.write_bytes(content)
        draft.chmod(mode)
        draft.replace(path)

    def undo() -> None:
        draft.unlink(missing_ok=True)
        if old_mode is not None:
            path.write_bytes(before)
            path.chmod(old_mode)
            return
        path.unlink(missing_ok=True)
        for folder in new_folders:
            folder.rmdir()

    lines = [f"{'change' if old else 'write'} {path}", *(f"    {line}" for line in changed)]
    return Step(lines, act, is_needed=not path.is_file() or before != content, undo=undo)


def remove(path: Path) -> Step:
    """Return the step that removes a file."""
    return Step([f"remove {path}"], lambda: path.unlink(missing_ok=True), is_needed=path.exists())


def call(*argv: str, may_fail: bool = False, undo: Step | None = None) -> Step:
    """Return the step that runs a system command. Use ``may_fail`` to undo something that may not exist."""

    def act() -> None:
        with suppress(InfrastructureError) if may_fail else nullcontext():
            run(*argv, env=environment.for_user_git(), timeout=_COMMAND_S, own_session=True)

    return Step([f"run {' '.join(argv)}"], act, is_call=True, undo=undo.act if undo else lambda: None)


@dataclass(frozen=True)
class Plan:
    """Steps in order. If no file changes, nothing is done and the commands are skipped too."""

    steps: Sequence[Step] = ()
    # Manual steps.
    then: Sequence[str] = ()
    # The advice if a command fails. The plan is then undone.
    if_fails: str = ""

    @property
    def is_done(self) -> bool:
        """Return whether everything is up to date."""
        return not any(step.is_needed for step in self.steps if not step.is_call)

    def show(self) -> Iterator[str]:
        """Yield the changes, line by line."""
        for step in self._due:
            yield from step.lines

    def carry_out(self, *, commands: bool = True) -> Iterator[str]:
        """Carry out the steps, and print each before it is done. Without ``commands``, commands are only printed.

        Raises:
            InfrastructureError: a step failed. If the plan says what helps then, all steps were undone.
        """
        begun: list[Step] = []
        for step in self._due:
            is_done = commands or not step.is_call
            yield step.lines[0] if is_done else f"left to you: {step.lines[0]}"
            begun.append(step)
            try:
                if is_done and (output := step.act()):
                    yield output
            except OSError as error:
                self._undo(begun)
                fix = "A system service is installed as root: sudo kakeya-runner install --system ..."
                raise InfrastructureError(f"{error.strerror}: {error.filename}", fix=fix) from error
            except InfrastructureError as error:
                if not self._undo(begun):
                    raise
                raise InfrastructureError(
                    f"{error.message}; all changes were undone", fix=self.if_fails
                ) from error

    def _undo(self, begun: Sequence[Step]) -> bool:
        for step in reversed(begun) if self.if_fails else ():
            with suppress(OSError, InfrastructureError):
                step.undo()
        return bool(self.if_fails)

    @property
    def _due(self) -> list[Step]:
        return [] if self.is_done else [step for step in self.steps if step.is_needed]


@dataclass(frozen=True)
class Service:
    """A service of one kind of system: its files, and the commands that start and stop it."""

    files: Mapping[Path, bytes]
    mode: int = 0o644
    start: Sequence[Step] = ()
    stop: Sequence[Step] = ()
    after_removal: Sequence[Step] = ()
    # Notes for the operator after the service was installed or removed.
    then: Sequence[str] = ()
    then_removed: Sequence[str] = ()
    # The advice if no service manager answers.
    if_fails: str = ""
    # Reads the command that starts the service from the content of its first file.
    argv_in: Callable[[bytes], Sequence[str]] = lambda _: ()

    def install(self, root: Path | None = None) -> Plan:
        """Return the plan that installs and starts the service."""
        writes = [write(below(root, file), content, self.mode) for file, content in self.files.items()]
        return Plan([*writes, *self.start], self.then, self.if_fails)

    def uninstall(self, root: Path | None = None) -> Plan:
        """Return the plan that stops and removes the service. Policy, state and log stay."""
        removals = [remove(below(root, file)) for file in self.files]
        return Plan([*self.stop, *removals, *self.after_removal], self.then_removed)


def below(root: Path | None, path: Path) -> Path:
    """Return a file's path below ``root``, as if that were the system's root folder."""
    return path if root is None else Path(f"{root}{os.sep}{path.relative_to(path.anchor)}")
