"""The sandbox around every command of a job: chosen and tested once per runner process."""

import sys
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Literal

from bridge.common import environment
from bridge.errors import PolicyError
from bridge.presets import Preset
from runner.job.sandbox import bubblewrap, seatbelt
from runner.job.sandbox.paths import interpreter_paths, model_path_with_blobs
from runner.job.sandbox.probe import find_fault
from runner.job.workspace import Workspace
from runner.policy import Policy

Kind = Literal["bubblewrap", "seatbelt", "off"]


@dataclass(frozen=True)
class Sandbox:
    """How this runner's jobs are confined. If the kind is ``off``, ``why`` gives the reason."""

    kind: Kind = "off"
    program: str = ""
    readable: tuple[Path, ...] = ()
    hidden: tuple[Path, ...] = ()
    settings: dict[str, str] = field(default_factory=dict)
    strict: bool = True
    why: str = "nothing was put around jobs"

    def around(self, argv: list[str], space: Workspace, preset: Preset | None = None) -> list[str]:
        """Return the argv prefix that confines a command; empty without a sandbox.

        The job can read what the interpreter needs, the program, and the paths in the host's settings that the preset
        uses. It has the network that the preset declares; without a preset, none.
        """
        if self.kind == "off":
            return []
        bubble = partial(bubblewrap.prefix, strict=self.strict)
        prefix = bubble if self.kind == "bubblewrap" else seatbelt.prefix
        return prefix(
            self.program,
            tree=space.tree,
            home=space.home,
            network=preset.network if preset else False,
            readable=[*self.readable, Path(argv[0])],
            hidden=self.hidden,
            named=self._named_by(preset),
        )

    def _named_by(self, preset: Preset | None) -> list[Path]:
        names = (*preset.env_names, *preset.pass_env) if preset else ()
        values = [self.settings.get(name, "") for name in names]
        return [model_path_with_blobs(Path(value)) for value in values if value.startswith("/")]


def choose(policy: Policy, tell: Callable[[str], None]) -> Sandbox:
    """Return the sandbox that the policy asks for, tested with a real job.

    If none works on this host, ``auto`` runs jobs unconfined and warns, and ``require`` raises PolicyError.
    """
    if policy.sandbox == "off":
        return Sandbox(why="the policy says so")
    # If the jobs' interpreter is missing, test the sandbox with this one: requests are refused with the reason anyway.
    interpreter = policy.interpreter if policy.interpreter.exists() else Path(sys.executable)
    faults = []
    for candidate in _candidates(policy, interpreter):
        around = partial(candidate.around, [str(interpreter)])
        fault = find_fault(around, state=policy.state, interpreter=interpreter)
        if fault is None:
            return candidate
        faults.append(f"{candidate.kind}: {fault}")
    why = faults[-1] if faults else f"there is none on this host ({_MISSING})"
    if policy.sandbox == "require":
        fix = f"Mend it ({_REMEDY}), or set `sandbox: auto` in the policy to run jobs without."
        raise PolicyError(f"the policy requires a sandbox: {why}", fix=fix, code="no_sandbox")
    tell(f"WARNING: jobs run WITHOUT a sandbox, as this user: {why}")
    return Sandbox(why=why)


_MISSING = "sandbox-exec is missing" if sys.platform == "darwin" else "bubblewrap is not installed"
_REMEDY = (
    "macOS brings sandbox-exec" if sys.platform == "darwin"
    else "apt-get install bubblewrap, and allow it user namespaces"
)  # fmt: skip


def _candidates(policy: Policy, interpreter: Path) -> list[Sandbox]:
    """Return the sandboxes that may work here, the strictest first."""
    kind: Kind = "seatbelt" if sys.platform == "darwin" else "bubblewrap"
    programs = (seatbelt.PROGRAM,) if kind == "seatbelt" else bubblewrap.PROGRAMS
    program = next((name for name in programs if Path(name).exists()), None)
    if program is None:
        return []
    hidden = [Path.home(), environment.config_home(), policy.state]
    if policy.bus.token_file:
        hidden.append(policy.bus.token_file.expanduser())
    readable = tuple(interpreter_paths(interpreter))
    box = Sandbox(kind, program, readable, hidden=tuple(hidden), settings=policy.settings)
    return [box] if kind == "seatbelt" else [box, replace(box, strict=False)]
