"""The only module that runs git for requests: to read, build, push, fetch and verify them.

Git is called as a program, with argv lists, and never through a library: repositories come in forms
(worktrees, alternates, partial clones, reftable) that only git itself reads in full.
"""

import os
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from bridge.common import environment, limits
from bridge.errors import GitError, ProcessError, UsageError, no_folder_error
from bridge.system import batch, storage_faults
from bridge.system.git_output import refs
from bridge.system.process import MOST_OUTPUT, Child, Completed, run
from bridge.system.spawn import ResourceLimits

MINIMUM = (2, 34)
NETWORK_TIMEOUT = 300.0

# Options of every fetch: it writes only the references that it is told to. It filters no objects, because a
# partial clone would ask the server for each missing object when it is read.
FETCH_FLAGS = (
    "--quiet", "--no-tags", "--no-write-fetch-head", "--no-recurse-submodules", "--no-filter", "--refmap=",
)  # fmt: skip

# The code of the error if git cannot write to its repository.
UNWRITABLE = "unwritable"

# Commands that talk to a server. Git collects the server's answers in memory.
_TALKING = frozenset({"fetch", "ls-remote", "push"})

# Commands that add objects, remove objects, or move the end of a shallow history.
_CHANGING = frozenset({"fetch", "gc", "prune", "repack", "init"})

# Whatever a repository's own configuration says, these calls run no hook, no file-system monitor and no maintenance.
_QUIET = (
    "-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false", "-c", "gc.auto=0", "-c", "maintenance.auto=false",
)  # fmt: skip


def silence_settings() -> dict[str, str]:
    """Return the settings with which git gives up on an HTTP server that is silent.

    Git's keep-alive sends one byte a second, so a server that works for long does not count as silent.
    """
    return {"http.lowSpeedLimit": "1", "http.lowSpeedTime": f"{limits.SILENCE_S:g}"}


@dataclass(frozen=True)
class Git:
    """Git in one repository, under one environment."""

    directory: Path
    # Left out of `repr`, because the environment may contain tokens.
    env: Mapping[str, str] = field(repr=False)
    options: tuple[str, ...] = _QUIET
    own_session: bool = False
    # The largest address space of a call, in bytes, if the system can limit it.
    memory: int | None = None
    # The most memory, without mapped files, of a call that talks to a server.
    talking_memory: int | None = None
    locate: str = "-C"
    # Called with each failure, before it is raised.
    on_failure: Callable[[GitError], None] | None = field(default=None, repr=False, compare=False)

    @classmethod
    def of_user(cls, directory: Path | str) -> "Git":
        """Return git with the user's own settings, in the repository that holds ``directory``."""
        env = environment.for_user_git()
        if sys.stdin is None or not sys.stdin.isatty():
            env = environment.without_prompts(env)
        return cls(Path(directory), env, talking_memory=limits.TALKING_GIT_BYTES)

    @classmethod
    def isolated(
        cls, git_dir: Path, *, config: Mapping[str, str] | None = None, memory: int | None = None
    ) -> "Git":
        """Return git in a bare repository of ours: no user or system configuration, no prompt.

        ``config`` is passed in the environment, where neither other users nor the repository can read it.
        """
        pairs = list((config or {}).items())
        env = environment.for_isolated_git() | {"GIT_CONFIG_COUNT": str(len(pairs))}
        for i, (key, value) in enumerate(pairs):
            env |= {f"GIT_CONFIG_KEY_{i}": key, f"GIT_CONFIG_VALUE_{i}": value}
        return cls(git_dir, env, own_session=True, memory=memory, locate="--git-dir")

    def with_env(self, **extra: str) -> "Git":
        """Return the same git with more variables set."""
        return replace(self, env={**self.env, **extra})

    def __call__(
        self,
        *args: str,
        stdin: bytes | str = b"",
        timeout: float | None = None,
        ok: Iterable[int] = (0,),
        most: int = MOST_OUTPUT,
    ) -> Completed:
        """Run git.

        Raises:
            GitError: it ends with none of the ``ok`` codes.
        """
        done = self.start(*args, timeout=timeout).run(stdin, most)
        if done.returncode not in set(ok):
            message = f"git {args[0]} failed"
            raise self._failed(done.argv, done.returncode, done.stdout, done.stderr, message=message)
        return done

    def start(self, *args: str, timeout: float | None = None) -> Child:
        """Start git and return it with its pipes.

        Raises:
            GitError: it cannot be started.
        """
        if _CHANGING.intersection(args):
            batch.invalidate(self._location)  # this call may change the answers of kept processes
        talks = args[0] in _TALKING
        settings = (
            [part for pair in silence_settings().items() for part in ("-c", "=".join(pair))] if talks else ()
        )
        argv = ("git", self.locate, str(self.directory), *self.options, *settings, *args)
        own_memory = self.talking_memory if talks else None
        disk = self.directory if args[0] == "fetch" else None
        bounds = ResourceLimits(self.memory, own_memory, disk, limits.KEEP_FREE_BYTES)
        try:
            return Child(
                argv, env=self.env, own_session=self.own_session, resource_limits=bounds, timeout=timeout,
                error=self._failed,
            )  # fmt: skip
        except ProcessError as error:
            raise self._failed(argv, None, message=error.message) from error

    def acquire(self, *args: str) -> batch.CatFileProcess:
        """Return a process of ``git *args``, a kept one if possible. The caller releases it, or closes its child."""
        key = (self._location, args, self.options, self.memory, tuple(sorted(self.env.items())))
        return batch.acquire(key, lambda: self.start(*args))

    @property
    def _location(self) -> str:
        return os.path.abspath(self.directory)  # noqa: PTH100 - without following links

    def _failed(self, *args: Any, **more: Any) -> GitError:
        error = GitError(*args, **more)
        # If a push fails because the server cannot write, this repository is not at fault.
        is_push = "push" in error.argv
        if not is_push and (fault := storage_faults.find(error.output(), self.directory)):
            message, fix = fault
            error = GitError(*args, **{**more, "message": message, "fix": fix})
            error.code = UNWRITABLE
        if self.on_failure:
            self.on_failure(error)
        return error

    def text(self, *args: str, stdin: bytes | str = b"") -> str:
        """Run git and return its output, without the final newline."""
        return self(*args, stdin=stdin).text

    def maybe(self, *args: str) -> str | None:
        """Run git and return its output, or None if it exits with 1 or 128 (there is no such object)."""
        done = self(*args, ok=(0, 1, 128))
        return done.text if done.returncode == 0 else None

    def top(self) -> str | None:
        """Return the top folder of the working tree; None outside of one, as in a bare repository."""
        return self.maybe("rev-parse", "--show-toplevel")

    def base(self) -> Path:
        """Return where git resolves relative addresses and settings: the top of the working tree, or the repository."""
        return Path(self.top() or self.directory)

    def refs(self, *prefixes: str) -> dict[str, str]:
        """Return ``{name: object id}`` of this repository's references below the prefixes."""
        return refs(self("for-each-ref", "--format=%(objectname) %(refname)", *prefixes).stdout)

    def delete_refs(self, names: Iterable[str]) -> None:
        """Delete references of this repository together, if there are any."""
        if lines := "".join(f"delete {name}\n" for name in names):
            self("update-ref", "--stdin", stdin=lines)


def version() -> tuple[int, ...]:
    """Return git's version, such as (2, 39, 5).

    Raises:
        ProcessError: there is no git.
    """
    words = run("git", "--version", env=environment.for_isolated_git()).text.split()
    return tuple(int(part) for part in words[2].split(".")[:3] if part.isdecimal())


def open_repository(directory: Path | str) -> "Git":
    """Return git in the user's repository.

    Raises:
        UsageError: there is none or git is too old.
    """
    git = Git.of_user(directory)
    if not Path(directory).is_dir():
        raise UsageError(f"{directory} is not a folder", fix="Name a folder inside a git repository with -C.")
    folder = Path(directory).resolve()
    answer = git("rev-parse", "--git-dir", "--show-object-format", ok=(0, 128))
    if answer.returncode == 0:
        if answer.stdout.endswith(b"\nsha1\n"):
            return git
        fix = "Use a clone of a bus that was made with --object-format=sha1."
        message = f"{folder} names its objects by SHA-256, which no runner serves"
        raise UsageError(message, fix=fix, code="object_format")
    reason = answer.stderr.decode("utf-8", "replace")
    if "dubious ownership" in reason:
        fix = f"Run: git config --global --add safe.directory {folder}"
        raise UsageError(f"git does not trust {directory}: it belongs to another user", fix=fix)
    if "current working directory" in reason:
        raise no_folder_error()
    if "not a git repository" in reason:
        fix = "Run the command inside a clone of the repository whose remote is the bus, or name one with -C DIR."
        raise UsageError(f"{folder} is not inside a git repository", fix=fix)
    complaint = " ".join(reason.split()).removeprefix("fatal: ")
    fix = "Mend it, or use a version of git that can read it: whatever git does there fails in the same way."
    raise UsageError(f"git cannot read {folder}: {complaint}", fix=fix)
