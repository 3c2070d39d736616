"""Whether a request can be made from here: each thing that it needs, and what to do where it is missing."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path

from bridge.bus import branch_names, history, objects
from bridge.bus.wire import State
from bridge.checks import Check
from bridge.client import Client
from bridge.errors import KakeyaError, ProcessError
from bridge.requests.outbox import by_age
from bridge.requests.request_commit import identity
from bridge.system import engine_install, engine_probe, environment, git

# Of so many requests the states are read, to say which runner wrote last.
_LOOKED_AT = 50


def examine(repo: Path | str, remote: str) -> Iterator[Check]:
    """Yield what was found, in the order in which a request would need it."""
    yield _git()
    try:
        client = Client(repo, remote)
        namespace = client.namespace
        presets = client.presets
    except KakeyaError as error:
        yield Check("repository", ok=False, message=error.message, fix=error.fix)
        return
    yield Check("presets", ok=True, message=f"{len(presets)} installed")
    yield _commit(client)
    served = branch_names.matches(
        namespace.branch("noop", branch_names.new_nonce()), branch_names.DEFAULT_PATTERNS
    )
    where = f"requests go to {namespace.prefix}...{namespace.suffix}"
    fix = (
        None if served else "A runner serves this only where its policy lists the pattern under bus.patterns."
    )
    yield Check("namespace", ok=True if served else None, message=where, fix=fix)
    yield from _remote(client)
    yield engine()


def _commit(client: Client) -> Check:
    """Say whether there is a commit that a request can be about."""
    commit = objects.resolve(client.git, "HEAD")
    if commit is None:
        fix = "Make a first commit: a request is made upon one."
        return Check("commit", ok=False, message="HEAD names no commit", fix=fix)
    return Check("commit", ok=True, message=f"requests are made upon {commit[:12]} (HEAD)")


def _git() -> Check:
    try:
        found = git.version()
    except ProcessError as error:
        return Check("git", ok=False, message=error.message, fix="Install git and put it on the PATH.")
    text = ".".join(map(str, found))
    least = ".".join(map(str, git.MINIMUM))
    if found < git.MINIMUM:
        return Check("git", ok=False, message=f"{text} is too old", fix=f"Install git {least} or newer.")
    return Check("git", ok=True, message=text)


def _remote(client: Client) -> Iterator[Check]:
    try:
        url = client.remote.url
    except KakeyaError as error:
        yield Check("remote", ok=False, message=error.message, fix=error.fix)
        return
    yield from _reached(client, url)
    yield _github(url)


def _reached(client: Client, url: str) -> Iterator[Check]:
    try:
        listed = client.remote.listed(*client.patterns)
        newest_first = sorted(listed, key=by_age, reverse=True)[:_LOOKED_AT]
        here = client.remote.fetch_listed({branch: listed[branch] for branch in newest_first})
    except KakeyaError as error:
        yield Check("remote", ok=False, message=error.message, fix=error.fix)
        return
    yield Check("remote", ok=True, message=f"{url}: reached, {len(listed)} requests there")
    yield _push_right(client)
    views = history.read_views(client.git, here).values()
    newest = max((view.state for view in views if view.state), key=lambda state: state.at, default=None)
    waiting = sum(view.stands is State.REQUESTED for view in views)
    if newest:
        said = f"{newest.runner.id} last wrote at {newest.at} by its clock; requests that wait: {waiting}"
        yield Check("runner", ok=True, message=said)
    else:
        fix = "Start one on the machine that has the hardware: kakeya-runner serve"
        yield Check("runner", ok=None, message="none has answered on this remote yet", fix=fix)


def _push_right(client: Client) -> Check:
    """Try a push to the very namespace that a request would use, without sending anything."""
    repo = client.git
    empty = repo.text("mktree", stdin="")
    commit = objects.commit(repo, empty, [], "Nothing\n", identity(repo))
    branch = client.namespace.branch("doctor", branch_names.new_nonce())
    try:
        client.remote.try_push(branch, commit)
    except KakeyaError as error:
        return Check("push", ok=False, message=error.message, fix=error.fix)
    message = (
        f"a dry run to {branch} went through (rules that the server applies on arrival may still refuse)"
    )
    return Check("push", ok=True, message=message)


def _github(url: str) -> Check:
    token = environment.get("GH_TOKEN") or environment.get("GITHUB_TOKEN")
    if "github" not in url:
        return Check("github", ok=True, message="the remote is not on GitHub: git is all that is needed")
    if token:
        return Check("github", ok=True, message="a token is set: status and wait also show the Actions run")
    fix = "Set GH_TOKEN to let status and wait show the Actions run; nothing else needs it."
    return Check("github", ok=None, message="no token is set", fix=fix)


def engine() -> Check:
    """Say whether the engine works here. A client needs none, so its absence is no fault."""
    if importlib.util.find_spec("mlx") is None:
        message = "MLX is not installed; asking for jobs does not need it"
        fix = f"To run jobs here too. {engine_install.how(python=sys.executable)}"
        return Check("engine", ok=None, message=message, fix=fix)
    return engine_probe.engine(sys.executable, environment.for_user_git())
