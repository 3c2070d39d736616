"""Records which requests this repository sent, in order, and finds the request that a user names.

Each request gets two private git references: one with its branch name, and one with an increasing number, because
branch names do not order requests of the same second, and clocks can be set back.
"""

import hashlib
import re
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass

from bridge.bus import branch_names, exact_refs, objects
from bridge.bus.branch_names import age_sort_key
from bridge.bus.history import RequestBranch
from bridge.bus.remote import Remote
from bridge.common.advice import REMOTE, Advice, command, step
from bridge.errors import GitError, InfrastructureError, UsageError
from bridge.requests.binding import repository_name
from bridge.system import git_output
from bridge.system.git import Git

DEFAULT_REMOTE = "origin"
_REFS = "refs/kakeya-sent/"
_ORDER = "refs/kakeya-order/"
# The same commits by the bus that each was sent to, if the settings list several.
_TO, _DEFAULT = "refs/kakeya-sent-to/", "default"
# The request made with an idempotency key, by a code for the key: see bridge.requests.idempotency.
KEYS = "refs/kakeya-keys/"
# The trailer in the last part of a request commit's message.
_BRANCH = re.compile(rb"^Branch: ([^\n]*)$", re.MULTILINE)
_TRIES = 100


@dataclass(frozen=True)
class Sent:
    """The records of sent requests."""

    git: Git
    # The place of the bus that requests are sent to; None if there is only one.
    place: str | None = None

    def add(self, branch: str, commit: str) -> None:
        """Record a request as the last one."""
        if self.place is not None:
            self.git("update-ref", f"{_TO}{self.place or _DEFAULT}/{branch}", commit)
        for _ in range(_TRIES):
            number = max(self._numbers().values(), default=0) + 1
            both = f"update {_REFS}{branch} {commit}\ncreate {_ORDER}{number} {commit}\n"
            # Another process that sends a request at the same time may take this number.
            if self.git("update-ref", "--stdin", stdin=both, ok=(0, 128)).returncode == 0:
                return
        self.git("update-ref", _REFS + branch, commit)

    def _numbers(self) -> dict[str, int]:
        numbers = {commit: name.removeprefix(_ORDER) for name, commit in self.git.refs(_ORDER).items()}
        return {commit: int(number) for commit, number in numbers.items() if number.isdecimal()}

    def commit_of(self, branch: str) -> str | None:
        """Return the request commit that was sent on a branch, or None."""
        return objects.resolve(self.git, _REFS + branch)

    def was_sent_here(self, branch: str) -> bool:
        """Return whether a request is recorded as sent to this bus."""
        sent = objects.resolve(self.git, f"{_TO}{self.place or _DEFAULT}/{branch}")
        return sent is not None and sent == self.commit_of(branch)

    def other_bus(self, branch: str, asked: Collection[str]) -> str | None:
        """Return the remote of the bus that a request was sent to, if it is none of those that were asked.

        "another bus" if its remote is not known here any more.
        """
        suffix, own = f"/{branch}", {place_of(remote) or _DEFAULT for remote in asked}
        places = {
            ref.removeprefix(_TO).removesuffix(suffix) for ref in self.git.refs(_TO) if ref.endswith(suffix)
        }
        if not places or places & own:
            return None
        names = {place_of(name) or _DEFAULT: name for name in git_output.lines(self.git("remote").stdout)}
        return next((names[place] for place in places if place in names), "another bus")

    def note(self, key: str, commit: str, instead_of: str | None = None) -> None:
        """Record the request of an idempotency key, unless a request other than ``instead_of`` is recorded."""
        before = instead_of or "0" * len(commit)
        self.git("update-ref", KEYS + key, commit, before, ok=(0, 128))

    def keyed(self, key: str) -> tuple[str, str] | None:
        """Return branch and commit of a key's request, pushed or not; no branch if the commit is no request."""
        commit = objects.resolve(self.git, KEYS + key)
        # Do not use `git log`: the user's settings for signatures, encodings and trailers change its output.
        raw = objects.read_commit(self.git, commit)
        match = _BRANCH.findall(git_output.last_paragraph(raw or b""))
        branch = git_output.decode(match[0]) if len(match) == 1 else ""
        return (branch if branch_names.parse_branch(branch) else "", commit) if commit else None

    def drop_note(self, key: str, commit: str) -> None:
        """Remove the record of an idempotency key if it still names this commit."""
        self.git("update-ref", "-d", KEYS + key, commit, ok=(0, 1, 128))

    def branches(self) -> list[str]:
        """Return all branches in the order in which they were sent. Older records, without a number, come first."""
        commits = {ref.removeprefix(_REFS): oid for ref, oid in self.git.refs(_REFS).items()}
        numbers = self._numbers()
        return sorted(commits, key=lambda branch: (numbers.get(commits[branch], 0), age_sort_key(branch)))

    def branches_of_bus(self) -> list[str]:
        """Return the branches that were sent to this bus, as far as that was recorded."""
        if self.place is None:
            return self.branches()
        others = {}
        for ref, oid in self.git.refs(_TO).items():
            place, _, branch = ref.removeprefix(_TO).partition("/")
            others[branch, oid] = place
        commits = {ref.removeprefix(_REFS): oid for ref, oid in self.git.refs(_REFS).items()}
        # Older records do not say it: then it was the default remote.
        own = self.place or _DEFAULT
        return [
            name for name in self.branches() if others.get((name, commits.get(name, "")), _DEFAULT) == own
        ]

    def forget(self, branch: str) -> None:
        """Remove a record."""
        if commit := self.commit_of(branch):
            others = [ref for ref, oid in self.git.refs(_ORDER, KEYS, _TO).items() if oid == commit]
            self.git.delete_refs([*others, _REFS + branch])


def find_branch(name: str | None, sent: Sent, listed: Callable[[], Iterable[str]]) -> str:
    """Return the branch that ``name`` matches; without a name, the last one sent from here.

    ``listed`` returns the branches on the remote. It is called only if no request sent from here matches.

    Raises:
        UsageError: none or several match.
    """
    if name is not None and branch_names.parse_branch(name):
        return name
    own = sent.branches()
    if name is None:
        if not own:
            fix = step("Send one", "run", "noop", "--wait")
            raise UsageError("no request was sent from this repository", fix=fix)
        return own[-1]
    fitting = [branch for branch in own if name in branch]
    fitting = fitting or [branch for branch in listed() if name in branch]
    if len(fitting) == 1:
        return fitting[0]
    if fitting:
        some = ", ".join(sorted(fitting)[:3])
        raise UsageError(f"{len(fitting)} requests fit {name!r}: {some} ...", fix="Give more of the name.")
    raise UsageError(
        f"no request fits {name!r}", fix=Advice(command("list"), " shows the requests on the remote.")
    )


def pushed_elsewhere(remote: Remote) -> str | None:
    """Return a warning if git pushes to other repositories than the one that it fetches from, judged by name."""
    git = remote.git
    pushed = git_output.lines(git("remote", "get-url", "--push", "--all", remote.name, ok=(0, 2, 128)).stdout)
    top = git.base()
    if not pushed or repository_name(remote.url, top) in {repository_name(url, top) for url in pushed}:
        return None
    return f"{remote.name} is read from {remote.url}, but git pushes to {', '.join(pushed)}"


def unseen_where_read(remote: Remote, branch: str) -> str | None:
    """Return the warning of ``pushed_elsewhere`` if a pushed branch is missing where git fetches from."""
    places = pushed_elsewhere(remote)
    with suppress(GitError):
        return None if places and exact_refs.find_branch(remote.git, remote.name, branch) else places
    return None


def place_of(remote: str) -> str:
    """Return the name under which a clone with several buses records what it knows of one; "" for the default one."""
    if remote == DEFAULT_REMOTE:
        return ""
    return hashlib.sha256(remote.encode("utf-8", "surrogateescape")).hexdigest()[:16]


def no_such_request(branch: str, remote: Remote, other: str | None = None) -> UsageError:
    """Return the error for a branch that is not on the remote; ``other`` is the bus that it was sent to."""
    fix: str = Advice(
        "It may have been collected after its end, or never sent. ", command("list"), " shows what is there."
    )
    if places := pushed_elsewhere(remote):
        fix = f"{places}: both must be the same repository."
    if other:
        fix = Advice(f"It was sent to {other}: choose that bus with ", REMOTE, ".")
    return UsageError(f"there is no request {branch} on {remote.name}", fix=fix, code="no_such_request")


def require_answer(branch: RequestBranch) -> RequestBranch:
    """Return a request's branch with its answer; InfrastructureError without an answer."""
    if branch.current_state.is_final:
        return branch
    message = f"{branch.name} has no answer yet: it is {branch.current_state}"
    raise InfrastructureError(message, fix=step("Wait for it", "wait", branch.name), code="no_answer_yet")
