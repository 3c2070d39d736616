"""The sandbox around every command of a job: chosen and tested once per runner process."""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Literal

from bridge.common import environment
from bridge.errors import PolicyError
from bridge.presets import Preset
from runner.job.sandbox import bubblewrap, hub, seatbelt
from runner.job.sandbox.paths import Needed, both_ways, model_path_with_blobs, needed_by
from runner.job.sandbox.private_files import REPOSITORY, hidden_below, is_private
from runner.job.sandbox.probe import find_fault
from runner.job.workspace import Workspace
from runner.policy import Policy

Kind = Literal["bubblewrap", "seatbelt", "off"]


@dataclass(frozen=True)
class Sandbox:
    """How this runner's jobs are confined. If the kind is ``off``, ``why`` gives the reason."""

    kind: Kind = "off"
    program: str = ""
    needed: Needed = field(default_factory=Needed)
    hidden: tuple[Path, ...] = ()
    settings: dict[str, str] = field(default_factory=dict)
    strict: bool = True
    why: str = "nothing was put around jobs"

    def around(self, argv: list[str], space: Workspace, preset: Preset | None = None) -> list[str]:
        """Return the argv prefix that confines a command; empty without a sandbox.

        The job can read what the interpreter needs, the program, and the paths in the host's settings that the preset
        uses, without the private files in them. It has the network that the preset declares; without a preset, none.
        """
        if self.kind == "off":
            return []
        bubble = partial(bubblewrap.prefix, strict=self.strict)
        prefix = bubble if self.kind == "bubblewrap" else seatbelt.prefix
        named = self._named_by(preset)
        return prefix(
            self.program,
            tree=space.tree,
            home=space.home,
            network=preset.network if preset else False,
            readable=[*self.needed.paths, *named, Path(argv[0])],
            hidden=[*self.hidden, *self._private(named)],
        )

    def variables(self, given: Mapping[str, str], space: Workspace, preset: Preset) -> dict[str, str]:
        """Return a job's variables, given the host's variables for it.

        In a sandbox, they name a cache of the job's own instead of the host's cache of the Hugging Face hub.
        """
        if self.kind == "off":
            return {**given}
        return hub.job_variables(given, space.home, hub.ids(self.settings, preset))

    def shown_by(self, argv: Sequence[str]) -> list[str]:
        """Return the paths that a prefix of this sandbox makes readable, besides the job's own folders."""
        return (bubblewrap.shown_by if self.kind == "bubblewrap" else seatbelt.shown_by)(argv)

    def hidden_settings(self, preset: Preset) -> dict[str, Path]:
        """Return the settings that a preset uses and whose paths its jobs do not see, because they are private."""
        paths = self._paths_of(preset)
        return {} if self.kind == "off" else {name: path for name, path in paths.items() if _is_private(path)}

    def repositories(self, preset: Preset | None) -> dict[str, Path] | None:
        """Return the repositories of the hub's cache that a preset's jobs see, by folder name; None without a cache."""
        caches = {name: str(path) for name, path in self._paths_of(preset).items() if name in hub.CACHES}
        return hub.repositories(caches, hub.ids(self.settings, preset)) if caches else None

    def _paths_of(self, preset: Preset | None) -> dict[str, Path]:
        names = (*preset.env_names, *preset.pass_env) if preset else ()
        return {name: Path(value) for name in names if (value := self.settings.get(name, "")).startswith("/")}

    def _named_by(self, preset: Preset | None) -> list[Path]:
        paths = [
            model_path_with_blobs(path)
            for name, path in self._paths_of(preset).items()
            if name not in hub.CACHES and not _is_private(path)
        ]
        repositories = [path for path in paths if REPOSITORY.fullmatch(path.name)]
        others = [path for path in paths if path not in repositories]
        repositories += (self.repositories(preset) or {}).values()
        return [*others, *(part for repository in repositories for part in hub.parts(repository))]

    def _private(self, named: Sequence[Path]) -> Iterator[Path]:
        """Yield what is hidden in the folders that are shown."""
        system = bubblewrap.SYSTEM if self.kind == "bubblewrap" else seatbelt.SYSTEM
        # The system's own folders hold no private files, but sources may have been put below them.
        installed = [path for path in self.needed.installed if str(path) not in system]
        roots = [root for root in self.needed.roots if any(root.is_relative_to(folder) for folder in system)]
        folders = both_ways([*installed, *self.needed.sources, *roots, *named])
        repositories = {part.parent for part in named}
        return hidden_below(folders, named=repositories, installed=set(both_ways(installed)))


def _is_private(path: Path) -> bool:
    return any(map(is_private, (path, *path.parents)))


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
        fault = find_fault(around, state_folder=policy.state, interpreter=interpreter)
        if fault is None:
            return candidate
        faults.append(f"{candidate.kind}: {fault}")
    reason = faults[-1] if faults else f"there is none on this host ({_MISSING})"
    if policy.sandbox == "require":
        fix = f"Mend it ({_REMEDY}), or set `sandbox: auto` in the policy to run jobs without."
        raise PolicyError(f"the policy requires a sandbox: {reason}", fix=fix, code="no_sandbox")
    tell(f"WARNING: jobs run WITHOUT a sandbox, as this user: {reason}")
    return Sandbox(why=reason)


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
    hidden = [*environment.private_homes(), policy.state]
    if policy.bus.token_file:
        hidden.append(environment.expand(policy.bus.token_file))
    hidden += hub.roots(policy.env)
    needed = needed_by(interpreter)
    box = Sandbox(kind, program, needed, hidden=tuple(hidden), settings=policy.settings)
    return [box] if kind == "seatbelt" else [box, replace(box, strict=False)]
