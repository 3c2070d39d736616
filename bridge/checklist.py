"""A check with its result, and how ``verify``, ``doctor`` and ``kakeya-runner check`` print lists of them."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from bridge.common.advice import printed
from bridge.common.cli.output import Colored, put, put_json, say
from bridge.common.environment import current_door
from bridge.errors import ExitCode, KakeyaError

# The name of the check that says whose key signed an answer.
SIGNATURE = "signature"


@dataclass(frozen=True)
class Check:
    """The result of one check. ``ok`` is None for a note that is neither good nor bad."""

    name: str
    ok: bool | None
    message: str
    fix: str | None = None
    # The message without quoted text from others.
    own_message: str | None = None

    @classmethod
    def failed(cls, name: str, error: KakeyaError, *, ok: bool | None = False) -> "Check":
        """Return a check that ended with an error."""
        return cls(name, ok, error.message, error.fix, error.own_message)

    def as_dict(self) -> dict[str, object]:
        """Return the object that ``--json`` prints."""
        return {"name": self.name, "ok": self.ok, "message": self.message, "fix": self.fix}


def show(checks: Iterable[Check]) -> None:
    """Print checks for people, each with its fix below it."""
    marks = {True: ("ok", "green"), False: ("FAIL", "red"), None: ("--", "yellow")}
    for check in checks:
        word, color = marks[check.ok]
        put(Colored(f"{word:<4}", color), f"  {check.name:<12} {check.message}")
        if check.fix and check.ok is not True:
            put(f"{'':<19}{printed(check.fix, current_door())}")


def show_incrementally(
    checks: Iterable[Check], next_step: str | Callable[[Sequence[Check]], str], *, as_json: bool
) -> ExitCode:
    """Print each check when it is done, and at the end whether all passed. Returns the exit code."""
    shown = []
    for check in checks:
        shown.append(check)
        if not as_json:
            show([check])
    ready = all(check.ok is not False for check in shown)
    if as_json:
        put_json({"ready": ready, "checks": [check.as_dict() for check in shown]})
    else:
        next_step = next_step if isinstance(next_step, str) else next_step(shown)
        say(f"ready: {next_step}" if ready else "not ready: see the lines marked FAIL")
    return ExitCode.SUCCEEDED if ready else ExitCode.FAILED
