"""Fetches one commit of a remote, without history and files, into a temporary repository.

A clone may be shallow, or lack the history of the default branch: a plain fetch could load gigabytes into it, and a
shallow one would cut its history. So nothing is fetched into the clone.
"""

import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from bridge.bus import exact_refs
from bridge.errors import GitError
from bridge.system import batch, git_output
from bridge.system.git import FETCH_FLAGS, Git

_SHAPE = ("core.", "extensions.", "include.", "includeif.", "init.", "safe.", "gc.", "maintenance.")
_TRANSPORT = ("core.sshcommand", "core.gitproxy", "core.askpass")
_LEFT_OUT = (".promisor", ".partialclonefilter")
_FLAGS = tuple(flag for flag in FETCH_FLAGS if flag != "--no-filter")


@contextmanager
def fetched(git: Git, remote: str, commit: str) -> Iterator[Git]:
    """Yield git in a repository that holds a commit of a remote with its folders, and perhaps its files.

    The clone's settings for the remote apply: addresses, credentials, proxies.

    Raises:
        GitError: the remote does not give the commit.
    """
    base = git.base()
    folder = Path(tempfile.mkdtemp(prefix="kakeya-bus-"))
    try:
        git("init", "--quiet", "--bare", "--object-format=sha1", "--template=", str(folder))
        # Settings may hold tokens, so they are passed in the environment, which other users cannot read.
        settings = git_output.settings(git("config", "-z", "--list").stdout)
        for_remote = [
            (name, value)
            for name, value in settings
            if name in _TRANSPORT or not (name.startswith(_SHAPE) or name.endswith(_LEFT_OUT))
        ]
        env = {"GIT_DIR": str(folder), "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1"}
        env["GIT_CONFIG_COUNT"] = str(len(for_remote))
        for i, (name, value) in enumerate(for_remote):
            env |= {f"GIT_CONFIG_KEY_{i}": name, f"GIT_CONFIG_VALUE_{i}": value}
        store = replace(git.with_env(**env), directory=base)
        flags = (*_FLAGS, "--filter=blob:none", "--depth=1")
        exact_refs.fetch(store, remote, {"refs/heads/bus": commit}, flags=flags)
        yield store
    finally:
        batch.invalidate(str(base.absolute()))
        shutil.rmtree(folder, ignore_errors=True)


def fetch_blobs(store: Git, remote: str, blobs: Sequence[str]) -> None:
    """Fetch the commit's missing files, all at once."""
    if blobs:
        # A server without filters has already sent the file contents, and may refuse this request for them.
        with suppress(GitError):
            exact_refs.fetch_objects(store, remote, dict.fromkeys(blobs), _FLAGS)
