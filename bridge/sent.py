"""Which requests were sent from this repository, so that "the last one" means one's own: a private ref for each."""

from __future__ import annotations

from dataclasses import dataclass

from bridge import gitout, names, objects
from bridge.git import Git

_REFS = "refs/kakeya-sent/"


@dataclass(frozen=True)
class Sent:
    """The notes on what was sent."""

    git: Git

    def add(self, branch: str, commit: str) -> None:
        """Note a request."""
        self.git("update-ref", _REFS + branch, commit)

    def commit_of(self, branch: str) -> str | None:
        """Return the request commit that was sent on a branch, or None."""
        return objects.resolve(self.git, _REFS + branch)

    def branches(self) -> list[str]:
        """Return all branches, oldest first."""
        listed = gitout.lines(self.git("for-each-ref", "--format=%(refname)", _REFS).stdout)
        return sorted((ref.removeprefix(_REFS) for ref in listed), key=by_age)

    def forget(self, branch: str) -> None:
        """Remove a note."""
        self.git("update-ref", "-d", _REFS + branch)


def by_age(branch: str) -> tuple[int, str]:
    """Order request branches, oldest first, by the time in their nonces."""
    return (asked_at(branch), branch)


def asked_at(branch: str) -> int:
    """Return the unix seconds at which a request was made, 0 for a branch that is none."""
    parsed = names.parse_branch(branch)
    return names.nonce_time(parsed.nonce) if parsed else 0
