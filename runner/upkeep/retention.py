"""Retention: answered requests leave the bus by age and by number, each into an archive first.

The archive is a bare repository. It holds the branches under their own names and shares what they have in common,
and a client reads it as it reads the bus: `kakeya verify --remote ARCHIVE BRANCH`.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from bridge.bus import branch_names, times
from bridge.bus.history import View
from bridge.errors import InfrastructureError, one_line
from bridge.manifest import parse_time
from bridge.system import git_output
from bridge.system.git import Git
from runner.bus.bus import KEPT
from runner.bus.reading import read_each
from runner.bus.tips import HEADS
from runner.policy import Retention
from runner.serve.next_action import answered_before_keys
from runner.session import Session

# A client that waits polls every few seconds, and may have to fetch a large answer.
_AT_LEAST_S = 3600.0
_DAY_S = 86_400.0
# As many are archived, and then deleted, in one transaction.
_AT_ONCE = 1000


@dataclass(frozen=True)
class Swept:
    """What one round of retention did, or would do."""

    answered: int
    unanswered: int
    deleted: list[str]
    # Chosen and archived, and still on the bus: moved meanwhile, or the bus does not let them go.
    stayed: list[str]
    archive: str

    def as_dict(self) -> dict[str, object]:
        """Return the form that `--json` prints."""
        return asdict(self)


def sweep(session: Session, rule: Retention, *, dry_run: bool = False, most: int | None = None) -> Swept:
    """Archive and delete the answered requests that the rule lets go, the oldest first and at `most` so many.

    Raises InfrastructureError without the bus.

    A request without an answer is never touched, however old it is: `serve` answers it first, with `refused`. How old
    an answer is does not depend on this machine's clock alone: as much time has passed as something on the bus shows.
    """
    archive = session.policy.archive
    tips = session.bus.fetch()
    views = read_each(
        session.bus.git,
        tips,
        lambda branch, error: session.tell(f"{branch} cannot be read: {error}"),
        session.reader,
    )
    answered = [
        view for view in views.values() if view.stands.is_final or answered_before_keys(session, view)
    ]
    now = times.at_least(time.time(), times.requested_below(session.bus.git, HEADS))
    chosen = {view.branch: view.tip for view in choose(answered, rule, now)[:most]}
    deleted: list[str] = []
    if not dry_run:
        for portion in _portions(chosen):
            # Each is safe before it goes, so a runner that is killed here goes on where it was.
            store(session.bus.git, archive, portion)
            deleted += session.bus.delete(portion)
    if chosen and len(chosen) != most and not dry_run:
        _tidy(session)
    gone = dict.fromkeys(chosen if dry_run else deleted)
    stayed = [branch for branch in chosen if branch not in gone]
    return Swept(len(answered), len(tips) - len(answered), list(gone), stayed, str(archive))


def choose(answered: list[View], rule: Retention, now: float) -> list[View]:
    """Return the answered requests that are to go, oldest answer first."""
    oldest_first = sorted(answered, key=lambda view: (answered_at(view), view.branch))
    too_many = max(0, len(oldest_first) - rule.keep) if rule.keep else 0
    oldest = now - rule.days * _DAY_S if rule.days else float("-inf")
    return [
        view
        for i, view in enumerate(oldest_first)
        if (i < too_many or answered_at(view) < oldest) and answered_at(view) <= now - _AT_LEAST_S
    ]


def answered_at(view: View) -> float:
    """Return when a request was answered by the clock of whoever answered; where that is no time, when it was made."""
    try:
        return parse_time(view.state.at if view.state else "").timestamp()
    except ValueError:
        parsed = branch_names.parse_branch(view.branch)
        return float(branch_names.nonce_time(parsed.nonce)) if parsed else 0.0


def store(git: Git, archive: Path, tips: Mapping[str, str]) -> None:
    """Copy branches from the runner's store into the archive and make sure that they are there.

    What the archive holds already is never replaced: a branch of a name that it has goes below `refs/again/`.
    """
    kept = Git.isolated(archive, config={"gc.auto": "0", "core.hooksPath": "/dev/null"})
    if not (archive / "HEAD").exists():
        archive.mkdir(parents=True, exist_ok=True)
        kept("init", "--bare", "--quiet", "--template=", str(archive))
    there = _refs(kept)
    places = {}
    for branch, tip in tips.items():
        taken = there.get(f"refs/heads/{branch}", tip) != tip
        places[branch] = f"refs/again/{tip}" if taken else f"refs/heads/{branch}"
    flags = ("--quiet", "--no-tags", "--no-write-fetch-head", "--refmap=", "--stdin")
    specs = "".join(f"{HEADS}{branch}:{place}\n" for branch, place in places.items())
    kept("fetch", *flags, "--", str(git.directory), stdin=specs)
    kept("pack-refs", "--all")
    there = _refs(kept)
    missing = [branch for branch, place in places.items() if there.get(place) != tips[branch]]
    if missing:
        raise InfrastructureError(f"{archive} does not hold {missing[0]}: nothing is deleted")
    _check_whole(kept, set(tips.values()), set(there.values()))


def _check_whole(archive: Git, new: set[str], all_there: set[str]) -> None:
    """Walk what was archived down to each file. Raises InfrastructureError where something is missing or damaged.

    What was archived earlier was walked then, so a sweep costs no more than what it archives.
    """
    earlier = [f"^{tip}" for tip in sorted(all_there - new)]
    walked = archive(
        "rev-list", "--objects", "--quiet", "--stdin", stdin="\n".join([*new, *earlier]), ok=range(256)
    )
    if walked.returncode != 0:
        said = git_output.lines(walked.stderr) or ["objects are missing"]
        raise InfrastructureError(
            f"{archive.directory} is damaged, so nothing is deleted: {one_line(said[-1])}"
        )


def _portions(chosen: Mapping[str, str]) -> Iterator[dict[str, str]]:
    """Split what is to go into parts that go at once."""
    branches = list(chosen)
    for i in range(0, len(branches), _AT_ONCE):
        yield {branch: chosen[branch] for branch in branches[i : i + _AT_ONCE]}


def _refs(git: Git) -> dict[str, str]:
    """Return every reference with its commit."""
    return git_output.refs(git("for-each-ref", "--format=%(objectname) %(refname)").stdout)


def _tidy(session: Session) -> None:
    """Let the store forget what was deleted. Answers that wait to be pushed are held by references of their own."""
    git = session.bus.git
    waiting = {pending.answer for pending in session.ledger.pending()}
    for ref in git_output.lines(git("for-each-ref", "--format=%(refname)", KEPT).stdout):
        if ref.removeprefix(KEPT) not in waiting:
            git("update-ref", "-d", ref)
    # Not `git gc`: of what is not reachable it would make a file for each object, to keep it for a while.
    git("repack", "-a", "-d", "--quiet")
    git("pack-refs", "--all", "--prune")
    git("prune", "--expire=1.hour.ago")
