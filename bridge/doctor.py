"""Checks whether this clone can send requests: each thing that is needed, and how to fix it if it is missing."""

import importlib.util
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

from bridge.bus import branch_names, history, objects
from bridge.bus.branch_names import age_sort_key
from bridge.bus.history import RequestBranch
from bridge.bus.hosts import address
from bridge.bus.remote import Remote
from bridge.bus.wire import State
from bridge.buses import Buses
from bridge.checklist import Check
from bridge.client import Client
from bridge.common import environment, install
from bridge.common.advice import SNAPSHOT, Advice, command
from bridge.errors import InfrastructureError, KakeyaError, ProcessError, RefusedError, one_line
from bridge.presets import Preset, Presets
from bridge.presets.load import INSTALLED
from bridge.requests.on_branch import carry
from bridge.requests.request_commit import identity
from bridge.requests.runners import with_jobs
from bridge.requests.sighting import Availability, RunnerSighting
from bridge.requests.waiting import QueuePosition, WaitingRequest, explain_wait
from bridge.system import engine_probe, git, gitpython
from bridge.verify.public_keys import HOW_TO_PIN

# At most this many runners are listed.
_SHOWN = 5
# The states of this many requests are read to find the runner that wrote last.
_LOOKED_AT = 50
# At most this many remotes are listed.
_NAMED = 5


def examine(repo: Path | str, remote: str | None = None, public_key: str | None = None) -> Iterator[Check]:
    """Yield the results, in the order in which a request needs them. Without ``remote``, all listed buses count."""
    yield _git()
    try:
        buses = Buses.of(repo, remote, public_key=public_key)
        client = buses.first.client
        namespace = client.namespace
        presets = client.presets
    except KakeyaError as error:
        yield Check.failed("repository", error)
        return
    yield from _tried("repository", partial(_repository, client))
    yield _presets(presets)
    yield from _tried("commit", lambda: iter([_commit(client)]))
    branch = namespace.branch("noop", branch_names.new_nonce())
    served = branch_names.matches(branch, branch_names.DEFAULT_PATTERNS)
    where = f"requests go to {namespace.prefix}...{namespace.suffix}"
    fix = "On the runner's machine, add a pattern for this prefix to bus.patterns in the policy."
    yield Check("namespace", ok=served or None, message=where, fix=None if served else fix)
    yield from _several(buses) if buses.several else _one_bus(client)
    yield engine()


def _one_bus(client: Client) -> Iterator[Check]:
    yield _key(client)
    yield from _tried("remote", partial(_remote, client))


def _several(buses: Buses) -> Iterator[Check]:
    """Yield the checks of each bus. If one can be used, faults of the others do not keep requests from being sent."""
    checks: dict[str, list[Check]] = {}
    for answer in buses.ask(lambda client: [*_one_bus(client)]):
        error = answer.error or InfrastructureError("it does not answer")
        checks[answer.bus.label] = answer.value or [Check.failed("remote", error)]
    is_usable = any(all(check.ok is not False for check in some) for some in checks.values())
    for label, some in checks.items():
        for check in some:
            ok = None if is_usable and check.ok is False else check.ok
            yield replace(check, name=f"{check.name} {label}", ok=ok)


def _presets(presets: Presets) -> Check:
    """Say how many presets come from each source, and which files cannot be used."""
    places = Counter(presets.sources[name] for name in presets)
    counted = ", ".join(
        f"{count} {source if source == INSTALLED else f'from {source}'}" for source, count in places.items()
    )
    if not presets.broken:
        return Check("presets", ok=True, message=counted)
    name, error = next(iter(presets.broken.items()))
    more = f" (and {len(presets.broken) - 1} more)" if len(presets.broken) > 1 else ""
    message = (
        f"{counted}; {name} from {presets.sources[name]} cannot be used{more}: {one_line(error.message)}"
    )
    return Check(
        "presets", ok=None, message=message, fix=error.fix, own_message=f"{counted}; some cannot be used"
    )


def _tried(name: str, checks: Callable[[], Iterator[Check]]) -> Iterator[Check]:
    """Yield checks. An error ends them: it becomes the last check."""
    try:
        yield from checks()
    except KakeyaError as error:
        yield Check.failed(name, error)


def _repository(client: Client) -> Iterator[Check]:
    """Describe the repository, and which of its files a request does not include."""
    try:
        about = gitpython.describe(client.git.directory)
    except KakeyaError as error:
        fix = "Requests work without it: they are made by git itself."
        yield Check("repository", ok=None, message=error.message, fix=fix)
        return
    parts = [f"branch {about.branch}" if about.branch else "no branch is checked out"]
    parts += ["bare"] if about.bare else []
    parts += [f"{about.worktrees} worktrees"] if about.worktrees > 1 else []
    known = about.name and about.email
    who = f"you are {about.name} <{about.email}>" if known else "git has no user.name or no user.email"
    remotes = ", ".join(about.remotes[:_NAMED]) + (", ..." if len(about.remotes) > _NAMED else "")
    parts += [who, f"remotes: {remotes or 'none'}"]
    yield Check("repository", ok=True, message="; ".join(parts))
    if about.changed:
        message = "the working tree has changes, which a request does not contain"
        fix = Advice(
            "To send changes of tracked files, add ",
            SNAPSHOT,
            " to ",
            command("run"),
            "; `git add` new files first.",
        )
        yield Check("changes", ok=None, message=message, fix=fix)


def _commit(client: Client) -> Check:
    commit = objects.resolve(client.git, "HEAD")
    if commit is None:
        fix = "Make a first commit in this clone: a request needs one as its parent."
        return Check("commit", ok=False, message="HEAD points to no commit", fix=fix)
    return Check("commit", ok=True, message=f"requests will be about {commit[:12]} (HEAD)")


def _key(client: Client) -> Check:
    """Check the public key by which answers are judged: an unreadable key would fail every wait."""
    try:
        pin = client.pin
    except KakeyaError as error:
        return Check("key", ok=False, message=error.message, fix=error.fix or HOW_TO_PIN)
    if pin is None:
        message = "no key is pinned, so nobody knows who writes answers"
        return Check("key", ok=None, message=message, fix=HOW_TO_PIN)
    return Check("key", ok=True, message=f"answers must be signed by {pin.shown} ({pin.source})")


def _git() -> Check:
    try:
        version = git.version()
    except ProcessError as error:
        return Check("git", ok=False, message=error.message, fix=error.fix, own_message=error.own_message)
    text, least = (".".join(map(str, numbers)) for numbers in (version, git.MINIMUM))
    if version < git.MINIMUM:
        return Check("git", ok=False, message=f"{text} is too old", fix=f"Install git {least} or newer.")
    return Check("git", ok=True, message=text)


def _remote(client: Client) -> Iterator[Check]:
    try:
        url = client.remote.url
        listed = client.remote.list_branches(*client.patterns)
        newest_first = sorted(listed, key=age_sort_key, reverse=True)[:_LOOKED_AT]
        here = client.remote.fetch_listed({branch: listed[branch] for branch in newest_first})
    except KakeyaError as error:
        yield Check.failed("remote", error)
        return
    yield Check("remote", ok=True, message=f"{url}: reached, with {len(listed)} requests on it")
    yield from check_addresses(client.remote, url)
    yield _push_right(client)
    branches = history.read_branches(client.git, here)
    yield from _runners(client, branches)


def check_addresses(remote: Remote, url: str) -> Iterator[Check]:
    """Report risks in git's settings for the remote."""
    if address.parse(url).scheme == "https" and not remote.is_verified:
        message = "the server's certificate is not checked: whoever is on the way can read your token and forge answers"
        fix = "Unset GIT_SSL_NO_VERIFY and http.sslVerify, and name your own authority with http.sslCAInfo."
        yield Check("remote", ok=None, message=message, fix=fix)
    if remote.push_url != url:
        message = f"requests are pushed to another address, {remote.push_url}"
        fix = "It must be the same repository. See: git config --get-regexp '^(remote|url)\\.'"
        yield Check("remote", ok=None, message=message, fix=fix)


def _runners(client: Client, branches: Mapping[str, RequestBranch]) -> Iterator[Check]:
    """Report who serves: from the runners' own records or, without any, from the last states."""
    try:
        runners = with_jobs(client.runners(), branches)
    except KakeyaError as error:
        own = "the runners' records cannot be read"
        yield Check("runner", ok=None, message=f"{own}: {error.message}", own_message=own)
        runners = []
    now = time.time()
    alive = [sighting for sighting in runners if sighting.is_alive(now)]
    for sighting in alive[:_SHOWN]:
        yield _runner(sighting, client.presets, now)
    if len(alive) > _SHOWN:
        yield Check("runner", ok=True, message=f"and {len(alive) - _SHOWN} more runners")
    if runners and not alive:
        nobody = explain_wait(WaitingRequest("", ""), runners, QueuePosition(), now)
        yield Check("runner", ok=None, message=nobody.message, fix=nobody.fix)
    if not runners:
        yield _unpinned(client) or _last_writer(branches.values())


def _unpinned(client: Client) -> Check | None:
    """Return a note on runners whose records the pinned key did not sign, if there are any."""
    try:
        sightings = client.runners(unsigned=True) if client.pin else []
    except KakeyaError:
        return None
    others = [sighting for sighting in sightings if sighting.is_alive(time.time())]
    if not others:
        return None
    own = "runners serve this bus whose records the pinned key did not sign: their answers will not verify"
    names = ", ".join(sighting.record.id for sighting in others[:_SHOWN])
    return Check("runner", ok=None, message=f"{own}: {names}", fix=HOW_TO_PIN, own_message=own)


_DOES = {
    Availability.FREE: "is free",
    Availability.QUIET: "was free when it last reported, as it does every few minutes while idle",
    Availability.FAULT: "reports a fault",
    Availability.BUSY: "is busy",
    Availability.MAINTENANCE: "is in maintenance",
    Availability.DRAINING: "is draining",
    Availability.STOPPED: "is stopped",
    Availability.GONE: "is gone",
}


def _runner(sighting: RunnerSighting, presets: Mapping[str, Preset], now: float) -> Check:
    record, availability = sighting.record, sighting.availability(now)
    does = f"runs {record.busy_with}" if availability is Availability.BUSY else _DOES[availability]
    if availability is Availability.QUIET and record.busy_with:
        does = f"held {record.busy_with}, and its lease has run out"
    labels = f"; labels: {', '.join(record.labels)}" if record.labels else ""
    known = record.presets or {}
    other = sum(name in presets and presets[name].digest != digest for name, digest in known.items())
    jobs = "" if record.presets is None else f"; {len(known)} presets"
    jobs += f", {other} of them defined otherwise than here" if other else ""
    message = f"{record.id} {record.version} {does}{labels}{jobs}; {sighting.last_seen(now)}"
    is_well = availability in (Availability.FREE, Availability.BUSY)
    fix = (
        f"On the machine of {record.id}: kakeya-runner status" if availability is Availability.FAULT else None
    )
    return Check("runner", ok=is_well or None, message=message, fix=fix)


def _last_writer(branches: Iterable[RequestBranch]) -> Check:
    branches = list(branches)
    newest = max(
        (branch.state for branch in branches if branch.state), key=lambda state: state.at, default=None
    )
    waiting = sum(branch.current_state is State.REQUESTED and not branch.is_withdrawn for branch in branches)
    if newest:
        also = f"waiting requests: {waiting}"
        message = f"{newest.runner.id} last wrote at {newest.at} by its own clock; {also}"
        own = f"a runner that keeps no record wrote here; {also}"
        return Check("runner", ok=True, message=message, own_message=own)
    fix = "Start a runner on the machine that should run the jobs: kakeya-runner serve"
    return Check("runner", ok=None, message="no runner has answered on this remote yet", fix=fix)


def _push_right(client: Client) -> Check:
    """Try a push to the very namespace that a request would use, without sending anything."""
    repo = client.git
    branch = client.namespace.branch("doctor", branch_names.new_nonce())
    try:
        commit = objects.commit(repo, repo.text("mktree", stdin=""), [], "Nothing\n", identity(repo))
        client.remote.try_push(branch, commit)
    except RefusedError as error:
        session = carry.usable_session(repo, client.remote)
        if session is None:
            return Check.failed("push", error)
        fix = "A runner takes them from there if its policy lists the branch under bus.forward."
        return Check("push", None, f"{error.message}; requests go on {session.branch} instead", fix)
    except KakeyaError as error:
        return Check.failed("push", error)
    message = f"a dry run to {branch} succeeded (the server's own rules may still refuse a real push)"
    return Check("push", ok=True, message=message)


def engine() -> Check:
    """Return whether the engine works here. A client does not need it, so its absence is no fault."""
    if importlib.util.find_spec("mlx") is None:
        message = "MLX is not installed here; it is not needed to request jobs"
        fix = f"Only if this machine should run jobs too: {install.engine(python=sys.executable)}"
        return Check("engine", ok=None, message=message, fix=fix)
    return engine_probe.engine(sys.executable, environment.for_user_git())
