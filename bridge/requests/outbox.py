"""Which requests were sent from this repository, and in which order, so that "the last one" means one's own.

Two private refs for each, made in one transaction: the note, and a number that grows. Names do not tell the order of
requests that were sent within one second, and clocks can be set back.
"""

from __future__ import annotations

from dataclasses import dataclass

from bridge.bus import branch_names, objects
from bridge.system import git_output
from bridge.system.git import Git

_REFS = "refs/kakeya-sent/"
_ORDER = "refs/kakeya-order/"
_TRIES = 100


@dataclass(frozen=True)
class Sent:
    """The notes on what was sent."""

    git: Git

    def add(self, branch: str, commit: str) -> None:
        """Note a request as the last one."""
        for _ in range(_TRIES):
            number = max(self._numbers().values(), default=0) + 1
            both = f"update {_REFS}{branch} {commit}\ncreate {_ORDER}{number} {commit}\n"
            # Another process that sends at the same time may take the number.
            if self.git("update-ref", "--stdin", stdin=both, ok=(0, 128)).returncode == 0:
                return
        self.git("update-ref", _REFS + branch, commit)

    def _numbers(self) -> dict[str, int]:
        """Return the number of each request commit."""
        listed = self.git.text("for-each-ref", "--format=%(objectname) %(refname)", _ORDER).split("\n")
        pairs = (line.split(f" {_ORDER}") for line in listed if line)
        return {commit: int(number) for commit, number in pairs if number.isdecimal()}

    def commit_of(self, branch: str) -> str | None:
        """Return the request commit that was sent on a branch, or None."""
        return objects.resolve(self.git, _REFS + branch)

    def branches(self) -> list[str]:
        """Return all branches in the order in which they were sent. Older notes, without a number, come first."""
        listed = git_output.refs(self.git("for-each-ref", "--format=%(objectname) %(refname)", _REFS).stdout)
        commits = {ref.removeprefix(_REFS): oid for ref, oid in listed.items()}
        numbers = self._numbers()
        return sorted(commits, key=lambda branch: (numbers.get(commits[branch], 0), by_age(branch)))

    def forget(self, branch: str) -> None:
        """Remove a note."""
        number = self._numbers().get(self.commit_of(branch) or "")
        if number is not None:
            self.git("update-ref", "-d", f"{_ORDER}{number}")
        self.git("update-ref", "-d", _REFS + branch)


def by_age(branch: str) -> tuple[int, str]:
    """Order request branches, oldest first, by the time in their nonces."""
    return (asked_at(branch), branch)


def asked_at(branch: str) -> int:
    """Return the unix seconds at which a request was made, 0 for a branch that is none."""
    parsed = branch_names.parse_branch(branch)
    return branch_names.nonce_time(parsed.nonce) if parsed else 0
