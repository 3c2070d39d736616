"""The bus as the runner sees it: its own bare store, isolated git, prefix-limited fetches, compare-and-swap pushes."""

from __future__ import annotations

import base64
import re
import time
from collections import deque
from collections.abc import Mapping
from enum import Enum
from pathlib import Path
from urllib.parse import urlsplit

from bridge import environment, history, objects
from bridge.errors import GitError, InfrastructureError, PolicyError
from bridge.git import NETWORK_TIMEOUT, Git
from bridge.process import Completed
from runner import policy

HEADS = "refs/bus/"
KEPT = "refs/kept/"

_MANY_REFS = 500
_PORCELAIN_FIELDS = 3
# What git says of a reference that stays only because another one of the same transaction does.
_COLLATERAL = re.compile("atomic (push|transaction) fail|transaction failed", re.IGNORECASE)


class Pushed(Enum):
    """How a push ended. A push of ours that arrived counts as done even where git could not tell."""

    DONE = "done"
    STALE = "stale"
    FAILED = "failed"


class Bus:
    """A remote repository, and the store in which its request branches are mirrored."""

    def __init__(self, settings: policy.Bus, state: Path) -> None:
        self.url = settings.url
        self.patterns = tuple(settings.patterns)
        # Branches that are not fetched any more: their objects failed git's checks.
        self.hostile: set[str] = set()
        self.budget = Budget(settings.budget)
        self._secret = _token(settings)
        self._tips: dict[str, str] = {}
        self._loose = 0
        store = state / "store.git"
        config = {
            "core.hooksPath": "/dev/null",
            "core.fsmonitor": "false",
            "core.attributesFile": "/dev/null",
            "credential.helper": "",
            "fetch.fsckObjects": "true",
            "fetch.recurseSubmodules": "false",
            # Old histories hold modes and dates that git once wrote itself.
            "fetch.fsck.zeroPaddedFilemode": "ignore",
            "fetch.fsck.badTimezone": "ignore",
            "gc.auto": "0",
            "maintenance.auto": "false",
            "protocol.allow": "never",
            f"protocol.{_scheme(settings.url)}.allow": "always",
            "http.followRedirects": "initial",
            "safe.bareRepository": "all",
        }
        if self._secret:
            pair = base64.b64encode(f"x-access-token:{self._secret}".encode()).decode()
            parts = urlsplit(settings.url)
            config[f"http.{parts.scheme}://{parts.netloc}/.extraHeader"] = f"Authorization: Basic {pair}"
        self.git = Git.isolated(store, config=config)
        if not (store / "HEAD").exists():
            store.mkdir(parents=True, exist_ok=True)
            self.git("init", "--bare", "--quiet", "--template=", str(store))

    @property
    def secrets(self) -> list[str]:
        """What must never stand in a log."""
        return [self._secret] if self._secret else []

    def fetch(self) -> dict[str, str]:
        """Fetch all request branches and return `{branch: commit id}`. Raises InfrastructureError."""
        try:
            self._fetch_all()
        except InfrastructureError as error:
            if not _is_hostile(error):
                raise
            self._find_hostile()
            self._fetch_all()
        listed = self.git.text("for-each-ref", "--format=%(objectname) %(refname)", HEADS)
        pairs = (line.split(" ", 1) for line in listed.splitlines())
        tips = {ref.removeprefix(HEADS): oid for oid, ref in pairs}
        self._pack(tips)
        return tips

    def _fetch_all(self) -> None:
        wanted = (f"+refs/heads/{pattern}:{HEADS}{pattern}" for pattern in self.patterns)
        self._fetch("--prune", *wanted, *(f"^refs/heads/{branch}" for branch in self.hostile))

    def _find_hostile(self) -> None:
        """Fetch branch by branch, and take note of those whose objects no repository should hold."""
        heads = [f"refs/heads/{pattern}" for pattern in self.patterns]
        listed = self.git.text("ls-remote", "--", self.url, *heads, timeout=NETWORK_TIMEOUT)
        for oid, ref in (line.split("\t", 1) for line in listed.splitlines()):
            branch = ref.removeprefix("refs/heads/")
            if branch in self.hostile or objects.resolve(self.git, HEADS + branch) == oid:
                continue
            try:
                self._fetch(f"+{ref}:{HEADS}{branch}")
            except InfrastructureError as error:
                if not _is_hostile(error):
                    raise
                self.hostile.add(branch)

    def tip(self, branch: str) -> str | None:
        """Fetch one branch and return its commit id, or None where it does not exist. Raises InfrastructureError."""
        try:
            self._fetch(f"+refs/heads/{branch}:{HEADS}{branch}")
        except InfrastructureError as error:
            cause = error.__cause__
            if isinstance(cause, GitError) and b"couldn't find remote ref" in cause.stderr.lower():
                self.git("update-ref", "-d", HEADS + branch)
                return None
            raise
        return objects.resolve(self.git, HEADS + branch)

    def push(self, branch: str, commit: str, *, expect: str) -> Pushed:
        """Move a branch from `expect` to `commit`, which is built upon it, in one compare-and-swap.

        What the server says decides only where it is clear; otherwise the branch is fetched and looked at.
        """
        ref = f"refs/heads/{branch}"
        self.budget.spend()
        try:
            self.git(
                "push", "--quiet", "--porcelain", "--no-verify", "--no-signed", "--recurse-submodules=no",
                f"--force-with-lease={ref}:{expect}", "--", self.url, f"{commit}:{ref}", timeout=NETWORK_TIMEOUT,
            )  # fmt: skip
        except GitError:
            return self._after_failure(branch, commit, expect)
        self.git("update-ref", HEADS + branch, commit)
        return Pushed.DONE

    def delete(self, tips: Mapping[str, str]) -> list[str]:
        """Delete branches that still are where they are said to be, and return those that are gone then.

        Raises InfrastructureError where the bus cannot be reached. What may not be deleted stays, without an error.
        They are named on a command line: a thousand at once is well within what systems allow.
        """
        self._delete_at_once(tips)
        left = self.fetch()
        return [branch for branch in tips if branch not in left]

    def _delete_at_once(self, tips: Mapping[str, str]) -> None:
        """Delete branches in one transaction, without those that the bus keeps; where it knows none, one by one.

        Git writes its file of packed references anew for each deletion that is a transaction of its own, on the bus
        as in the store: of n branches among n that costs n squared.
        """
        allowed = dict(tips)
        while allowed:
            done = self._push_deletions(allowed, "--atomic")
            if done.returncode == 0:
                gone = "".join(f"delete {HEADS}{branch}\n" for branch in allowed)
                self.git("update-ref", "--no-deref", "--stdin", stdin=gone, ok=(0, 128))
                return
            kept = {branch for branch, why in _rejected(done.stdout) if not _COLLATERAL.search(why)}
            if kept.isdisjoint(allowed):
                break
            allowed = {branch: tip for branch, tip in allowed.items() if branch not in kept}
        if allowed:
            self._push_deletions(allowed)

    def _push_deletions(self, tips: Mapping[str, str], *flags: str) -> Completed:
        self.budget.spend()
        leases = [f"--force-with-lease=refs/heads/{branch}:{tip}" for branch, tip in tips.items()]
        return self.git(
            "push", "--quiet", "--porcelain", "--no-verify", "--no-signed", "--recurse-submodules=no", *flags,
            *leases, "--", self.url, *(f":refs/heads/{branch}" for branch in tips),
            timeout=NETWORK_TIMEOUT, ok=range(256),
        )  # fmt: skip

    def _after_failure(self, branch: str, commit: str, expect: str) -> Pushed:
        try:
            tip = self.tip(branch)
        except InfrastructureError:
            return Pushed.FAILED
        if tip is not None and (tip == commit or history.is_ancestor(self.git, commit, tip)):
            return Pushed.DONE
        return Pushed.FAILED if tip == expect else Pushed.STALE

    def keep(self, commit: str) -> None:
        """Keep a commit that is on no branch yet from being collected."""
        self.git("update-ref", KEPT + commit, commit)

    def release(self, commit: str) -> None:
        """Let go of a commit that was kept."""
        self.git("update-ref", "-d", KEPT + commit)

    def _pack(self, tips: dict[str, str]) -> None:
        """Put many new refs into one file: with ten thousand loose ones a poll takes four times as long."""
        self._loose += sum(1 for branch, tip in tips.items() if self._tips.get(branch) != tip)
        self._tips = tips
        if self._loose >= _MANY_REFS:
            self.git("pack-refs", "--all", "--prune")
            self._loose = 0

    def _fetch(self, *args: str) -> None:
        flags = ("--quiet", "--no-tags", "--no-write-fetch-head", "--no-recurse-submodules", "--refmap=")
        options = [arg for arg in args if arg.startswith("--")]
        specs = [arg for arg in args if not arg.startswith("--")]
        try:
            self.git("fetch", *flags, *options, "--", self.url, *specs, timeout=NETWORK_TIMEOUT)
        except GitError as error:
            raise InfrastructureError(
                f"cannot fetch from the bus: {error.last_line()}", code="unreachable"
            ) from error


class Budget:
    """A sliding minute of pushes. Claims and answers are always allowed; heartbeats ask first."""

    def __init__(self, per_minute: int) -> None:
        self.per_minute = per_minute
        self._times: deque[float] = deque()

    def spend(self) -> None:
        """Count one push."""
        self._times.append(time.monotonic())

    def spare(self, reserve: int = 2) -> bool:
        """Say whether a push may be made that is not needed, leaving `reserve` for those that are."""
        now = time.monotonic()
        while self._times and now - self._times[0] > 60:  # noqa: PLR2004 - seconds in the sliding minute
            self._times.popleft()
        return len(self._times) + reserve < self.per_minute

    @property
    def interval_s(self) -> float:
        """How far apart heartbeats should lie for the budget to last."""
        return max(0.5, 60 / max(1, self.per_minute - 2))


def _token(settings: policy.Bus) -> str | None:
    """Return the token for the bus: from the file named in the policy, else from the environment of an Actions job."""
    if settings.token_file is None:
        return environment.get("KAKEYA_BUS_TOKEN")
    path = settings.token_file.expanduser()
    try:
        if path.stat().st_mode & 0o077:
            raise PolicyError(f"others may read {path}", fix=f"Run: chmod 600 {path}")
        return path.read_text(encoding="utf-8").strip()
    except OSError as error:
        raise PolicyError(f"cannot read the token file {path}: {error.strerror}") from error


def _is_hostile(error: InfrastructureError) -> bool:
    """Say whether git refused what was sent, rather than failed to get it."""
    return isinstance(error.__cause__, GitError) and b"fsck error" in error.__cause__.stderr


def _rejected(porcelain: bytes) -> list[tuple[str, str]]:
    """Return the branches that a push did not move, each with the reason that git gives."""
    lines = (line.split("\t") for line in porcelain.decode("utf-8", "replace").splitlines())
    return [
        (line[1].partition(":")[2].removeprefix("refs/heads/"), line[2])
        for line in lines
        if line[0] == "!" and len(line) == _PORCELAIN_FIELDS
    ]


def _scheme(url: str) -> str:
    scheme = urlsplit(url).scheme
    if scheme in ("http", "https", "ssh", "git", "file"):
        return scheme
    return "file" if url.startswith(("/", "./", "../")) else "ssh"
