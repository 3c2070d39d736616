"""Builds a request commit: the workload's tree plus a manifest, without files of earlier runs."""

import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

from bridge.bus import branch_names, objects, wire
from bridge.bus.branch_names import Namespace
from bridge.bus.objects import Identity
from bridge.common import environment
from bridge.common.advice import AGAINST, EXPIRES, REF, SNAPSHOT, Advice
from bridge.errors import GitError, UsageError
from bridge.manifest import MAX_LIFETIME, Request, format_time, parse_manifest
from bridge.presets import Preset
from bridge.requests.binding import Binding, subject
from bridge.system import git_output
from bridge.system.git import Git

DEFAULT_LIFETIME = timedelta(days=1)


@dataclass(frozen=True)
class Prepared:
    """A request commit that has not been pushed."""

    branch: str
    commit: str
    request: Request


class Content(NamedTuple):
    """The content of a request commit: its branch, and the ids of its tree and of the workload."""

    branch: str
    tree: str
    workload: str


@dataclass(frozen=True)
class Draft:
    """A request before it has a branch and a commit. ``params`` are checked."""

    preset: Preset
    params: Mapping[str, object]
    ref: str
    snapshot: bool
    lifetime: timedelta
    labels: Sequence[str]
    requested_by: str | None
    # The commit to compare the workload with, as the user names it; None: run the workload alone.
    against: str | None = None
    # The ids of the workload and the baseline if they are known already; None: resolve the names.
    resolved: tuple[str, str | None] | None = None


def prepare(
    git: Git,
    draft: Draft,
    namespace: Namespace,
    *,
    bind: Callable[[str], Binding] | None = None,
    nonce: str | None = None,
    prove: Callable[[Content], str] | None = None,
) -> Prepared:
    """Build the request commit in the user's repository, of which HEAD, branches, index and working tree stay the same.

    With ``draft.snapshot``, the tracked files as they are in the working tree become the workload. Untracked files stay
    out, because they may be secret or large. With ``bind``, the commit is signed for the binding that ``bind`` returns
    for the branch. ``prove`` returns one more trailer for the commit's message.

    Raises:
        UsageError: ``draft.ref`` is not a commit, or the user has no key to sign with.
    """
    workload, baseline = resolve(git, draft)
    check_lifetime(draft.lifetime)
    who = identity(git)
    request = build_manifest(
        draft.preset, draft.params, ref=draft.ref, requested_by=draft.requested_by or who.email, nonce=nonce,
        workload=workload, lifetime=draft.lifetime, labels=draft.labels, against=baseline,
    )  # fmt: skip
    files = {wire.FOLDER: None, wire.REQUEST: request.to_json().encode()}
    tree = objects.overlay(git, f"{workload}^{{tree}}", files)
    branch = namespace.branch(request.preset, request.nonce)
    trailers = bind(branch).trailers if bind else f"Branch: {branch}\n"
    trailers += prove(Content(branch, tree, workload)) if prove else ""
    message = f"{subject(request.preset)}\n\n{trailers}"
    make = _commit_signed if bind else objects.commit
    # The baseline is a parent, so that the request branch brings its files to the runner.
    parents = [workload, baseline] if baseline else [workload]
    return Prepared(branch, make(git, tree, parents, message, who), request)


def build_manifest(
    preset: Preset, params: Mapping[str, object], *, ref: str, requested_by: str, workload: str, lifetime: timedelta,
    labels: Sequence[str], nonce: str | None = None, against: str | None = None,
) -> Request:  # fmt: skip
    """Return the manifest of a request that is made now, as a runner will read it."""
    now = datetime.now(UTC)
    return parse_manifest(
        Request.model_construct(
            schema_version=2,
            preset=preset.name,
            params=dict(params),
            ref=ref,
            requested_by=requested_by,
            nonce=nonce or branch_names.new_nonce(now.timestamp()),
            workload=workload,
            created_at=format_time(now),
            expires_at=format_time(now + lifetime),
            code=preset.code,
            labels=list(labels) or None,
            against=against,
        ).to_json()
    )


def check_lifetime(lifetime: timedelta) -> None:
    """Raise UsageError if a request may not wait for so long."""
    if not timedelta(seconds=1) <= lifetime <= MAX_LIFETIME:
        message = f"a request must expire within {MAX_LIFETIME.days} days, and not at once"
        raise UsageError(message, fix=Advice("Say how long it may wait for a runner, such as ", EXPIRES, "."))


def resolve(git: Git, draft: Draft) -> tuple[str, str | None]:
    """Return the workload's commit and that of the baseline, if there is one. Raises UsageError as ``prepare`` does."""
    if draft.resolved:
        return draft.resolved
    workload = _snapshot(git) if draft.snapshot else objects.resolve(git, draft.ref)
    if workload is None:
        is_empty = draft.ref == "HEAD" and not git.maybe("rev-list", "-n1", "--all")
        other = Advice("Name a branch, a tag or a commit that exists here with ", REF, ".")
        fix = "Make a first commit." if is_empty else other
        raise UsageError(f"{draft.ref!r} is not a commit in this repository", fix=fix)
    return workload, _baseline(git, draft, workload) if draft.against is not None else None


def _baseline(git: Git, draft: Draft, workload: str) -> str:
    """Return the commit to compare the workload with; UsageError if it cannot be compared."""
    if draft.preset.compare is None:
        message = f"the preset {draft.preset.name} does not say what to measure in two trees"
        section = "Add a `compare` section to it, on the runner too: docs/presets.md."
        fix = Advice(section, " Or leave ", AGAINST, " out.")
        raise UsageError(message, fix=fix)
    name = draft.against or ""
    baseline = objects.resolve(git, name)
    if baseline is None:
        here = "Name a branch, a tag or a commit that exists here with "
        fix = Advice(here, AGAINST, ", and fetch it first if need be.")
        raise UsageError(f"{name!r} is not a commit in this repository", fix=fix)
    if git.text("rev-parse", f"{baseline}^{{tree}}") == git.text("rev-parse", f"{workload}^{{tree}}"):
        workload_name = "the working tree" if draft.snapshot else draft.ref
        message = f"{workload_name} and {name} have the same files, so there is nothing to compare"
        raise UsageError(
            message, fix=Advice("Commit the change, or send it with ", SNAPSHOT, "; or name another commit.")
        )
    return baseline


def _commit_signed(git: Git, tree: str, parents: list[str], message: str, who: Identity) -> str:
    if not git.maybe("config", "user.signingkey") and not git.maybe("config", "gpg.ssh.defaultKeyCommand"):
        fix = "Name one: git config --global user.signingkey ~/.ssh/id_ed25519.pub"
        raise UsageError("git knows no SSH key of yours to sign with", fix=fix, code="no_signing_key")
    try:
        return objects.commit(git, tree, parents, message, who, sign=True)
    except GitError as error:
        fix = "git's user.signingkey must name an SSH key whose private half is here or in your agent."
        stderr = error.stderr.decode("utf-8", "replace").strip().replace("\n", "; ")
        raise UsageError(f"the request could not be signed: {stderr}", fix=fix, code="not_signed") from error


def current_branch(git: Git) -> str | None:
    """Return the checked-out branch, or None if HEAD is detached."""
    # Read the full name: git's short name of a branch is longer if a tag has the same name.
    head = git.maybe("symbolic-ref", "--quiet", "HEAD")
    return head.removeprefix("refs/heads/") if head else None


def identity(git: Git) -> Identity:
    """Return the user's git identity, or a default one: a machine without a configured name can send requests too."""
    settings = git("config", "-z", "--get-regexp", r"^user\.(name|email)$", ok=(0, 1, 128)).stdout
    # If a setting occurs several times, the last one counts.
    known = dict(pair.split("\n", 1) for pair in git_output.decode(settings).split("\0") if "\n" in pair)
    name = known.get("user.name") or environment.user_name()
    email = known.get("user.email") or f"{environment.user_name()}@localhost"
    return Identity(environment.get("GIT_AUTHOR_NAME") or name, environment.get("GIT_AUTHOR_EMAIL") or email)


def untracked(git: Git) -> list[str]:
    """Return the files and folders of the working tree that a snapshot leaves out, without those that git ignores."""
    top = Git.of_user(git.text("rev-parse", "--show-toplevel"))
    listed = top("ls-files", "-z", "--others", "--exclude-standard", "--directory", "--no-empty-directory")
    return [name for name in git_output.decode(listed.stdout).split("\0") if name]


def _snapshot(git: Git) -> str:
    """Commit the tracked files of the working tree through a copy of the index, and return the commit's id."""
    if git.text("rev-parse", "--is-bare-repository") == "true":
        fix = Advice("Leave ", SNAPSHOT, " out, or use ", REF, ".")
        raise UsageError("a bare repository has no working tree to snapshot", fix=fix)
    head = objects.resolve(git, "HEAD")
    top = Git.of_user(git.text("rev-parse", "--show-toplevel"))
    with tempfile.TemporaryDirectory(prefix="kakeya-") as folder:
        index = Path(folder) / "index"
        real = git.directory / git.text("rev-parse", "--git-path", "index")
        if real.exists():
            # The copied index contains file times, so unchanged files are not read again. Its own time is copied too:
            # git reads again what changed since then, for instance a file that kept its size within the same second.
            shutil.copy2(real, index)
        apart = top.with_env(GIT_INDEX_FILE=str(index))
        apart("add", "--update", "--", ".")
        tree = apart.text("write-tree")
    if head and git.text("rev-parse", f"{head}^{{tree}}") == tree:
        return head
    return objects.commit(git, tree, [head] if head else [], "Snapshot of the working tree\n", identity(git))
