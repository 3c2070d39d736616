"""The only module that passes names of a server's references to git, in forms that git does not complete.

Git completes names in refspecs and in the patterns of a listing, even ``refs/heads/x``. So a branch whose full name is
``refs/heads/refs/heads/x``, or such a tag, makes ``refs/heads/x`` ambiguous, and is used instead if the branch ``x`` is
gone. Only a listing's lines, object ids, and both sides of a refspec with an asterisk are exact.

If git fails, as when the server cannot be reached, every function raises a GitError. If a push or a deletion fails, it
is a PushError, which says whether anything was sent.
"""

import secrets
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

from bridge.bus.hosts.push_end import PushError, reporting
from bridge.common import limits
from bridge.errors import GitError, KakeyaError
from bridge.system import git_output
from bridge.system.git import FETCH_FLAGS, NETWORK_TIMEOUT, Git
from bridge.system.process import Child, Completed

HEADS = "refs/heads/"
# Local references to what is being pushed, below a random name for each push.
OUTGOING = "refs/kakeya-push/"

_PUSH_FLAGS = (
    "--quiet", "--porcelain", "--no-verify", "--no-signed", "--no-follow-tags", "--recurse-submodules=no",
)  # fmt: skip


def start_listing(git: Git, address: str, *flags: str, timeout: float = NETWORK_TIMEOUT) -> Child:
    """Start a listing of a server's references. The caller compares its lines."""
    return git.start("ls-remote", "--refs", *flags, "--", address, timeout=timeout)


def each_ref(
    git: Git, address: str, *flags: str, timeout: float = NETWORK_TIMEOUT
) -> Iterator[tuple[str, str]]:
    """Yield name and object id of each reference on a server. To git, a listing that nobody reads has failed."""
    child = start_listing(git, address, *flags, timeout=timeout)
    try:
        yield from git_output.each_ref(git_output.each_line(child.chunks()))
    finally:
        child.close()


def find_head(git: Git, address: str, timeout: float = NETWORK_TIMEOUT) -> tuple[str, str] | None:
    """Return a server's default branch and its commit's id; None without a default branch, or without a commit.

    If the server's ``HEAD`` is detached, the branch is called ``HEAD``.
    """
    child = git.start("ls-remote", "--symref", "--", address, "HEAD", timeout=timeout)
    try:
        head = git_output.head(git_output.each_line(child.chunks()))
    finally:
        child.close()
    return (head[0].removeprefix(HEADS) or "HEAD", head[1]) if head else None


def find_ref(git: Git, address: str, ref: str, timeout: float = NETWORK_TIMEOUT) -> str | None:
    """Return the object id of a server's reference, given by its whole name, or None if there is no such reference."""
    return dict(pair for pair in each_ref(git, address, timeout=timeout) if pair[0] == ref).get(ref)


def find_branch(git: Git, address: str, branch: str, timeout: float = NETWORK_TIMEOUT) -> str | None:
    """Return the id of a branch's commit on a server, or None if the server has no such branch."""
    return find_branches(git, address, branch.__eq__, timeout).get(branch)


def find_branches(
    git: Git, address: str, is_wanted: Callable[[str], bool], timeout: float = NETWORK_TIMEOUT
) -> dict[str, str]:
    """Return ``{branch: commit id}`` of the wanted branches on a server."""
    listed = each_ref(git, address, "--heads", timeout=timeout)
    heads = ((ref.removeprefix(HEADS), oid) for ref, oid in listed if ref.startswith(HEADS))
    return {branch: oid for branch, oid in heads if is_wanted(branch)}


def fetch(
    git: Git,
    address: str,
    commits: Mapping[str, str],
    *,
    flags: Sequence[str] = FETCH_FLAGS,
    timeout: float = NETWORK_TIMEOUT,
) -> None:
    """Fetch commits by their ids. ``commits`` maps each new local reference to the id of its commit."""
    specs = "".join(f"+{oid}:{ref}\n" for ref, oid in commits.items())
    git("fetch", *flags, "--stdin", "--", address, stdin=specs, timeout=timeout)


def fetch_objects(git: Git, address: str, oids: Iterable[str], flags: Sequence[str] = FETCH_FLAGS) -> None:
    """Fetch objects by their ids, without a reference to them."""
    git("fetch", *flags, "--stdin", "--", address, stdin="".join(f"{oid}\n" for oid in oids))


def start_fetch(git: Git, address: str, commits: Iterable[str], *flags: str, at: str = "") -> Child:
    """Start a fetch of commits by their ids, and return the process. The local reference ``at`` gets the last one."""
    child = git.start("fetch", *FETCH_FLAGS, "--stdin", *flags, "--", address, timeout=NETWORK_TIMEOUT)
    child.write("".join(f"+{oid}:{at}\n" if at else f"{oid}\n" for oid in commits))
    return child


def push(
    git: Git,
    address: str,
    commits: Mapping[str, str],
    expect: Mapping[str, str | None],
    *flags: str,
    timeout: float = NETWORK_TIMEOUT,
) -> Completed:
    """Set references of a server to commits.

    ``expect`` says at which commit each of them must still be (None: it must not exist). One that is not in it is
    overwritten.
    """
    folder = f"{OUTGOING}{secrets.token_hex(8)}/"
    # In the refspec, the asterisk matches the last character of each name.
    local = {ref: f"{folder}{i}/{ref[-1]}" for i, ref in enumerate(commits)}
    specs = [f"{'' if ref in expect else '+'}{here[:-1]}*:{ref[:-1]}*" for ref, here in local.items()]
    created = "".join(f"create {here} {commits[ref]}\n" for ref, here in local.items())
    try:
        git("update-ref", "--stdin", stdin=created)
    except GitError as error:
        raise PushError(error, commits, has_begun=False) from error
    try:
        return _push(git, commits, *flags, *_leases(expect), "--", address, *specs, timeout=timeout)
    finally:
        with suppress(KakeyaError):
            git.delete_refs(local.values())


def fetch_url(git: Git, name: str) -> str:
    """Return the URL of a remote's name or of an address, as ``url.X.insteadOf`` rewrites it; no server is asked."""
    return git("ls-remote", "--get-url", "--", name, stdin=b"", ok=(0, 2, 128)).text


def ask_primary(git: Git, address: str, known: Mapping[str, str]) -> dict[str, str | None]:
    """Return branches' commits on the server that takes pushes (None: no such branch), or {} if it does not answer.

    Readers may be served by copies that lag. This is the dry run of a push of commits that are here, so nothing is
    sent, and the right to push is needed.
    """
    whole = replace(git, options=(*git.options, "-c", "core.abbrev=40"))
    commits = {HEADS + branch: commit for branch, commit in known.items()}
    try:
        output = push(whole, address, commits, {}, "--dry-run", "--no-quiet", timeout=limits.TIP_S).stdout
    except PushError:
        return {}
    tips: dict[str, str | None] = {}
    for ref, (flag, summary) in git_output.push_statuses(output).items():
        if flag in " +":
            tips[ref] = summary.partition(".")[0]
        elif flag in "=*":
            tips[ref] = commits[ref] if flag == "=" else None
    return {ref.removeprefix(HEADS): oid for ref, oid in tips.items()}


def delete(
    git: Git,
    address: str,
    tips: Mapping[str, str],
    *flags: str,
    others: Collection[str] = (),
    ok: Iterable[int] = (0,),
) -> Completed:
    """Delete references of a server that still are at the commits in ``tips``.

    Git deletes by exact name only with ``--prune`` and a pattern, whose matches do not exist on this side. The pattern
    matches longer names too: leases keep the server's ``others``, and all that this side does not track.

    Raises:
        PushError: it ends with none of the ``ok`` codes; also if a longer name had to be left alone.
    """
    nothing = f"{OUTGOING}{secrets.token_hex(8)}/*"
    leases = _leases({**dict.fromkeys(others), **tips})
    specs = [f"{nothing}:{ref}*" for ref in tips]
    return _push(git, tips, "--prune", "--force-with-lease", *flags, *leases, "--", address, *specs, ok=ok)


def _push(
    git: Git, refs: Collection[str], *args: str, timeout: float = NETWORK_TIMEOUT, ok: Iterable[int] = (0,)
) -> Completed:
    with reporting(git) as (reporter, report):
        try:
            return reporter("push", *_PUSH_FLAGS, *args, timeout=timeout, ok=ok)
        except GitError as error:
            raise PushError(error, refs, has_begun=report.has_begun) from error


def _leases(expect: Mapping[str, str | None]) -> list[str]:
    return [f"--force-with-lease={ref}:{oid or ''}" for ref, oid in expect.items()]
