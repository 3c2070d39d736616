"""Whether a request can be made from here: each thing that it needs, and what to do where it is missing."""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Iterator
from pathlib import Path

from bridge import environment, git, history, names, objects
from bridge.checks import Check
from bridge.client import Client
from bridge.errors import KakeyaError, ProcessError
from bridge.process import run
from bridge.send import identity
from bridge.sent import by_age

_ENGINE_S = 120
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
    served = names.matches(namespace.branch("noop", names.new_nonce()), names.DEFAULT_PATTERNS)
    where = f"requests go to {namespace.prefix}...{namespace.suffix}"
    fix = (
        None if served else "A runner serves this only where its policy lists the pattern under bus.patterns."
    )
    yield Check("namespace", ok=True if served else None, message=where, fix=fix)
    yield from _remote(client)
    yield _github(client)
    yield engine()


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
        listed = client.remote.listed(*client.patterns)
        some = sorted(listed, key=by_age)[-_LOOKED_AT:]
        tips = client.remote.fetch_listed({branch: listed[branch] for branch in some})
    except KakeyaError as error:
        yield Check("remote", ok=False, message=error.message, fix=error.fix)
        return
    yield Check("remote", ok=True, message=f"{url}: reached, {len(listed)} requests there")
    yield _push_right(client)
    answers = [view for view in history.read_views(client.git, tips).values() if view.state]
    newest = max(answers, key=lambda view: view.state.at if view.state else "", default=None)
    if newest and newest.state:
        yield Check("runner", ok=True, message=f"{newest.state.runner.id} last wrote at {newest.state.at}")
    else:
        fix = "Start one on the machine that has the hardware: kakeya-runner serve"
        yield Check("runner", ok=None, message="none has answered on this remote yet", fix=fix)


def _push_right(client: Client) -> Check:
    """Try a push to the very namespace that a request would use, without sending anything."""
    repo = client.git
    empty = repo.text("mktree", stdin="")
    commit = objects.commit(repo, empty, [], "Nothing\n", identity(repo))
    branch = client.namespace.branch("doctor", names.new_nonce())
    try:
        client.remote.try_push(branch, commit)
    except KakeyaError as error:
        return Check("push", ok=False, message=error.message, fix=error.fix)
    message = (
        f"a dry run to {branch} went through (rules that the server applies on arrival may still refuse)"
    )
    return Check("push", ok=True, message=message)


def _github(client: Client) -> Check:
    token = environment.get("GH_TOKEN") or environment.get("GITHUB_TOKEN")
    if "github" not in client.remote.url:
        return Check("github", ok=True, message="the remote is not on GitHub: git is all that is needed")
    if token:
        return Check("github", ok=True, message="a token is set: status and wait also show the Actions run")
    fix = "Set GH_TOKEN to let status and wait show the Actions run; nothing else needs it."
    return Check("github", ok=None, message="no token is set", fix=fix)


def engine() -> Check:
    """Say whether the engine works here. A client needs none, so its absence is no fault."""
    if importlib.util.find_spec("mlx") is None:
        fix = "To run jobs here: pip install 'kakeya-bridge[cpu]' (Linux), [mac] or [cuda]."
        return Check(
            "engine", ok=None, message="MLX is not installed; asking for jobs does not need it", fix=fix
        )
    argv = (sys.executable, "-P", "-m", "engine", "probe", "--json")
    try:
        probe = json.loads(run(*argv, env=environment.for_user_git(), timeout=_ENGINE_S, check=False).stdout)
    except (ProcessError, ValueError):
        return Check("engine", ok=None, message="the probe failed", fix="See why: kakeya-engine probe")
    return _engine_said(probe)


def _engine_said(probe: dict[str, object]) -> Check:
    versions, blas = probe.get("versions"), probe.get("blas")
    mlx = versions.get("mlx") if isinstance(versions, dict) else None
    library = blas.get("name") if isinstance(blas, dict) else None
    if not probe.get("healthy"):
        return Check(
            "engine", ok=None, message="MLX is installed and not usable", fix="See why: kakeya-engine probe"
        )
    message = f"MLX {mlx} on {probe.get('device')}, BLAS {library}"
    slow = probe.get("device") == "cpu" and library not in ("openblas", "accelerate")
    fix = (
        "For fast float32 on this CPU install OpenBLAS: apt-get install libopenblas0-pthread"
        if slow
        else None
    )
    return Check("engine", ok=None if slow else True, message=message, fix=fix)
