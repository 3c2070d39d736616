"""One thing that was looked at, and how a list of them is shown: `verify`, `doctor` and the runner's `check`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass

from bridge.console import Colored, put, put_json, say
from bridge.errors import ExitCode


@dataclass(frozen=True)
class Check:
    """One thing that was looked at. `ok` is None where it is not wrong, but worth knowing."""

    name: str
    ok: bool | None
    message: str
    fix: str | None = None

    def as_dict(self) -> dict[str, object]:
        """Return the form that `--json` prints."""
        return asdict(self)


def show(checks: Iterable[Check]) -> None:
    """Print checks for people, each with its remedy below it."""
    marks = {True: ("ok", "green"), False: ("FAIL", "red"), None: ("--", "yellow")}
    for check in checks:
        word, color = marks[check.ok]
        put(Colored(f"{word:<4}", color), f"  {check.name:<12} {check.message}")
        if check.fix and check.ok is not True:
            put(f"{'':<19}{check.fix}")


def show_as_they_come(
    checks: Iterable[Check], next_step: str | Callable[[Sequence[Check]], str], *, as_json: bool
) -> ExitCode:
    """Print checks while they are made, and at the end whether all is there. Returns the exit code for that."""
    found = []
    for check in checks:
        found.append(check)
        if not as_json:
            show([check])
    ready = all(check.ok is not False for check in found)
    if as_json:
        put_json({"ready": ready, "checks": [check.as_dict() for check in found]})
    else:
        next_step = next_step if isinstance(next_step, str) else next_step(found)
        say(f"ready: {next_step}" if ready else "not ready: see the lines marked FAIL")
    return ExitCode.SUCCEEDED if ready else ExitCode.FAILED
