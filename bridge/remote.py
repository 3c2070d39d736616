"""The user's remote as a bus: fetch request branches into private refs, push commits by id."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from bridge.errors import GitError, InfrastructureError, RefusedError, UsageError
from bridge.git import NETWORK_TIMEOUT, Git

# Neither branches nor tags: nothing that the user lists, merges or pushes by habit.
PRIVATE = "refs/kakeya/"

_NO_RIGHT = (
    "denied",
    "403",
    "not allowed",
    "protected branch",
    "hook declined",
    "not permitted",
    "read-only",
    "prohibited",
)
_NO_ACCESS = (
    "could not read",
    "does not appear to be a git repository",
    "authentication failed",
    "terminal prompts disabled",
)


class Pushed(Enum):
    """How a push ended."""

    DONE = "done"
    STALE = "stale"


@dataclass(frozen=True)
class Remote:
    """A remote of the user's repository."""

    git: Git
    name: str

    @classmethod
    def of(cls, git: Git, name: str) -> Remote:
        """Return the remote of that name, or of that URL. Raises UsageError where there is none."""
        known = git.text("remote").split()
        if name not in known and "/" not in name and ":" not in name:
            fix = f"Remotes here: {', '.join(known)}. Choose one with --remote." if known else (
                "Add one with: git remote add origin URL"
            )  # fmt: skip
            raise UsageError(f"this repository has no remote {name!r}", fix=fix)
        return cls(git, name)

    @property
    def url(self) -> str:
        """The URL that is fetched from."""
        return self.git.maybe("remote", "get-url", self.name) or self.name

    def fetch(self, *patterns: str) -> dict[str, str]:
        """Fetch the branches under the patterns and return `{branch: commit id}`.

        The server is asked for these prefixes alone. Only private refs are written; branches that are gone go.
        """
        specs = [f"+refs/heads/{pattern}:{PRIVATE}{pattern}" for pattern in patterns]
        try:
            self._fetch(*specs)
        except GitError as error:
            if (
                len(patterns) == 1
                and "*" not in patterns[0]
                and "couldn't find remote ref" in error.message.lower()
            ):
                self.git("update-ref", "-d", PRIVATE + patterns[0])
                return {}
            raise self._explain(error) from error
        return self.known(*patterns)

    def _fetch(self, *specs: str) -> None:
        flags = (
            "--quiet",
            "--no-tags",
            "--no-write-fetch-head",
            "--no-recurse-submodules",
            "--prune",
            "--refmap=",
        )
        self.git("fetch", *flags, self.name, *specs, timeout=NETWORK_TIMEOUT)

    def known(self, *patterns: str) -> dict[str, str]:
        """Return what the last fetches brought, without asking the server."""
        globs = [PRIVATE + pattern for pattern in patterns]
        listed = self.git.text("for-each-ref", "--format=%(objectname) %(refname)", *globs)
        pairs = (line.split(" ", 1) for line in listed.splitlines())
        return {ref.removeprefix(PRIVATE): oid for oid, ref in pairs}

    def push(self, branch: str, commit: str, *, expect: str | None) -> Pushed:
        """Set a branch to a commit if it still is at `expect` (None: if it does not exist).

        Raises RefusedError where the server says no, InfrastructureError where it cannot be reached.
        """
        ref = f"refs/heads/{branch}"
        try:
            self.git(
                "push", "--quiet", "--porcelain", "--no-verify", "--no-signed", "--recurse-submodules=no",
                f"--force-with-lease={ref}:{expect or ''}", self.name, f"{commit}:{ref}",
                timeout=NETWORK_TIMEOUT,
            )  # fmt: skip
        except GitError as error:
            if b"[rejected]" in error.stdout or b"[rejected]" in error.stderr:
                return Pushed.STALE
            raise self._explain(error, branch) from error
        self.git("update-ref", PRIVATE + branch, commit)
        return Pushed.DONE

    def try_push(self, branch: str, commit: str) -> None:
        """Go through all of a push but the sending. Raises as `push` does."""
        try:
            flags = ("--quiet", "--dry-run", "--no-verify", "--recurse-submodules=no")
            self.git("push", *flags, self.name, f"{commit}:refs/heads/{branch}", timeout=NETWORK_TIMEOUT)
        except GitError as error:
            raise self._explain(error, branch) from error

    def delete(self, branch: str, *, expect: str) -> Pushed:
        """Delete a branch if it still is at `expect`."""
        ref = f"refs/heads/{branch}"
        flags = ("--quiet", "--porcelain", "--no-verify", f"--force-with-lease={ref}:{expect}")
        try:
            self.git("push", *flags, self.name, f":{ref}", timeout=NETWORK_TIMEOUT)
        except GitError as error:
            if b"[rejected]" in error.stdout:
                return Pushed.STALE
            raise self._explain(error, branch) from error
        self.git("update-ref", "-d", PRIVATE + branch)
        return Pushed.DONE

    def _explain(self, error: GitError, branch: str | None = None) -> Exception:
        """Turn git's words into what happened and what to do."""
        said = (error.stderr + error.stdout).decode("utf-8", "replace").lower()
        if "shallow update not allowed" in said:
            fix = "Run: git fetch --unshallow"
            return UsageError(
                "the remote cannot take a commit whose history this shallow clone lacks", fix=fix
            )
        if branch and ("directory file conflict" in said or "cannot lock ref" in said):
            blocking = branch.rsplit("/", 1)[0]
            fix = f"Delete the branch {blocking!r} on the remote, or choose another place with --prefix."
            return RefusedError(
                f"a branch named {blocking!r} stands in the way of {branch!r}", fix=fix, code="squatted"
            )
        if branch and any(word in said for word in _NO_RIGHT):
            fix = "Choose a prefix this account may push to with --prefix; `kakeya doctor` tries it without sending."
            return RefusedError(
                f"{self.name} does not let you push {branch!r}: {error.last_line()}",
                fix=fix,
                code="no_push_right",
            )
        if any(word in said for word in _NO_ACCESS):
            fix = f"Check the URL with: git remote get-url {self.name}; and your access with: git ls-remote {self.name}"
            return InfrastructureError(
                f"cannot reach {self.name}: {error.last_line()}", fix=fix, code="unreachable"
            )
        return InfrastructureError(
            f"{self.name}: {error.last_line()}",
            code="remote_failed",
            fix="Try again; `kakeya doctor` checks the remote.",
        )
