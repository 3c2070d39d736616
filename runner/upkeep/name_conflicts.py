"""Branch names in conflict: git cannot hold ``mac-bridge`` beside ``mac-bridge/x``, so it blocks all requests."""

from collections.abc import Sequence
from dataclasses import dataclass

from bridge.bus import branch_names, exact_refs
from bridge.errors import InfrastructureError, ProcessError
from runner.bus.bus import Bus


@dataclass(frozen=True)
class NameConflicts:
    """Branches on the bus that block requests, and those that block only on a server that ignores case."""

    blocking: tuple[str, ...] = ()
    similar: tuple[str, ...] = ()

    @property
    def message(self) -> str:
        """A message about the conflicts; empty if there are none."""
        if self.blocking:
            names = _shown(self.blocking)
            return f"no request can be made below {names}: a branch of that name is on the bus"
        if self.similar:
            return f"a server that ignores case takes no request because of the branch {_shown(self.similar)}"
        return ""

    @property
    def fix(self) -> str:
        """The remedy."""
        names = self.blocking or self.similar
        return (
            f"Rename the branch {_shown(names)} on the bus, or let requests begin with another prefix: name it in "
            "bus.patterns of the policy, and requesters in --prefix."
        )


def find_conflicts(bus: Bus) -> NameConflicts:
    """Return the branches that block requests; InfrastructureError if the bus cannot be reached."""
    # The folders of the patterns, such as `claude` for `claude/mac-bridge-*`.
    needed = {folder for pattern in bus.patterns for folder in branch_names.folders(pattern)}
    folded = {name.casefold() for name in needed}
    try:
        there = exact_refs.find_branches(bus.git, bus.url, lambda name: name.casefold() in folded)
    except ProcessError as error:
        raise InfrastructureError(f"cannot list the bus: {error.summary()}", code="unreachable") from error
    in_use = {folder.casefold() for branch in bus.listing.tips for folder in branch_names.folders(branch)}
    return NameConflicts(
        tuple(name for name in there if name in needed),
        tuple(name for name in there if name not in needed and name.casefold() not in in_use),
    )


def _shown(names: Sequence[str]) -> str:
    return ", ".join(map(ascii, names))
