"""The only module that uses GitPython: it describes the user's repository.

GitPython is imported when a function here is called, because the import alone takes about 0.1 s of processor time. It
inherits the environment, bounds neither the time nor the output of git, and reads configuration and references itself.
So no request is built, pushed or verified with it, and the runner does not use it (docs/decisions.md).
"""

from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from bridge.common import environment
from bridge.errors import InfrastructureError, one_line

if TYPE_CHECKING:
    import git

# GitPython's calls of git start no monitor and no hook, whatever the repository's configuration says.
_QUIET = ["core.fsmonitor=false", "core.hooksPath=/dev/null"]
# Ignore `refs/replace/`.
_AS_STORED = {"GIT_NO_REPLACE_OBJECTS": "1"}
# With one of these variables, GitPython would read and write another repository.
_ELSEWHERE = ("GIT_COMMON_DIR", "GIT_OBJECT_DIRECTORY")


@dataclass(frozen=True)
class RepositoryInfo:
    """Facts about a user's repository, for people."""

    # The current branch; None if HEAD is detached.
    branch: str | None
    name: str | None
    email: str | None
    remotes: tuple[str, ...]
    bare: bool
    # Whether files differ from the last commit, untracked ones included. False for a bare repository.
    changed: bool
    # How many working trees share the repository.
    worktrees: int


def describe(directory: Path | str) -> RepositoryInfo:
    """Describe the repository that holds a folder.

    Git must have accepted the repository before: GitPython reads the configuration of a repository that belongs to
    another user, which git refuses to do.

    Raises:
        InfrastructureError: GitPython cannot read it, or the environment would lead it elsewhere.
    """
    for name in _ELSEWHERE:
        if environment.get(name):
            message = f"{name} is set, and GitPython would follow it to another repository"
            raise InfrastructureError(message, fix=f"Unset {name}.", code="environment")
    import git  # noqa: PLC0415 - see above

    try:
        with closing(git.Repo(directory, search_parent_directories=True, expand_vars=False)) as repo:
            return _describe(repo)
    except Exception as error:
        # GitPython reads files of the repository in Python, and not all of them have the form that it expects.
        message = f"GitPython cannot read this repository: {type(error).__name__}: {error}"
        raise InfrastructureError(one_line(message), code="unreadable") from error


def _describe(repo: "git.Repo") -> RepositoryInfo:
    repo.git.set_persistent_git_options(c=_QUIET)
    config = repo.config_reader()
    environment = {"GIT_DIR": str(repo.git_dir), "GIT_INDEX_FILE": str(Path(repo.git_dir) / "index")}
    if repo.working_tree_dir:
        environment["GIT_WORK_TREE"] = str(repo.working_tree_dir)
    # Inherited from a hook, these would point git at another repository or at an unfinished index.
    with repo.git.custom_environment(**environment, **_AS_STORED, GIT_OPTIONAL_LOCKS="0", LC_ALL="C.UTF-8"):
        return RepositoryInfo(
            branch=None if repo.head.is_detached else repo.active_branch.name,
            name=_text(config, "name"),
            email=_text(config, "email"),
            remotes=tuple(sorted(remote.name for remote in repo.remotes)),
            bare=repo.bare,
            changed=not repo.bare and repo.is_dirty(untracked_files=True, submodules=False),
            worktrees=repo.git.worktree("list", "--porcelain").count("worktree "),
        )


def _text(config: "git.GitConfigParser", key: str) -> str | None:
    return str(config.get_value("user", key, "")) or None
