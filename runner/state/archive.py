"""The archive: a bare repository with the requests that retention removed from the bus, perhaps their only copy.

It contains the branches under their own names. Everything written to it is synced. If it is damaged nevertheless, a
new archive is created from all intact objects, and the damaged one stays beside it.
"""

import re
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from bridge.bus import branch_names, exact_refs
from bridge.bus.exact_refs import HEADS
from bridge.errors import InfrastructureError, KakeyaError, one_line
from bridge.system import git_output
from bridge.system.git import Git
from bridge.system.process import Completed
from runner.bus.damage import damage, finish_replacing, replace, salvage
from runner.bus.packed_refs import APART
from runner.bus.stale_files import find_stale_lock

AGAIN = "refs/again/"
_CONFIG = {"gc.auto": "0", "core.hooksPath": "/dev/null", "core.fsync": "committed,reference"}
_PACKED = re.compile(rb"([0-9a-f]{40}) (\S+)")
_LOOSE = re.compile(rb"([0-9a-f]{40})\n?")

Tell = Callable[[str], None]


def store(git: Git, archive: Path, tips: Mapping[str, str], tell: Tell = lambda _: None) -> None:
    """Copy branches from the runner's store into the archive, and check that they arrived.

    The archive never overwrites a branch: a second branch of the same name is kept below ``refs/again/``. A branch
    whose name conflicts with an earlier one's is kept below ``refs/apart/``. A damaged archive is repaired first.

    Raises:
        InfrastructureError: the branches did not arrive, or the damaged archive cannot be repaired.
    """
    try:
        _store(git, archive, tips)
    except KakeyaError:
        if not mend(archive, tell, quick=False):
            raise
        _store(git, archive, tips)


def mend(archive: Path, tell: Tell, *, quick: bool = True) -> bool:
    """Replace a damaged archive, or remove a lock that a killed git left. Returns whether that was needed."""
    archive = archive.resolve()
    finish_replacing(archive)
    # Another folder that a policy names by mistake is not ours to move.
    if not all((archive / name).is_dir() for name in ("objects", "refs")):
        return False
    if lock := find_stale_lock(archive):
        lock.unlink(missing_ok=True)
        tell(f"the archive was locked by a git that was killed: {lock} was removed")
        return True
    reason = damage(archive, quick=quick, is_walked=not quick)
    if not reason:
        return False
    refs = _listed(archive)
    endings = ("new", f"damaged-{time.time_ns():x}")
    new, aside = (archive.with_name(f"{archive.name}.{ending}") for ending in endings)
    salvage(archive, new, unpacks=True)
    repository = _open(new)
    whole = _whole(repository, sorted(refs.items()))
    repository("update-ref", "--stdin", stdin="".join(f"create {ref} {oid}\n" for ref, oid in whole))
    repository("pack-refs", "--all")
    replace(archive, aside, new)
    branches = f"{len(whole)} of its {len(refs)} branches are whole and in a new one"
    tell(f"the archive is damaged: {one_line(reason)}; it was moved to {aside}, and {branches}")
    return True


def _open(archive: Path) -> Git:
    repository = Git.isolated(archive, config=_CONFIG)
    if not (archive / "HEAD").exists():
        archive.mkdir(parents=True, exist_ok=True)
        repository("init", "--bare", "--quiet", "--template=", str(archive))
    return repository


def _store(git: Git, archive: Path, tips: Mapping[str, str]) -> None:
    repository = _open(archive)
    there = repository.refs()
    heads = {ref.removeprefix(HEADS): oid for ref, oid in there.items() if ref.startswith(HEADS)}
    within = {folder for name in heads for folder in branch_names.folders(name)}
    refs = {}
    for branch, tip in tips.items():
        folders = branch_names.folders(branch)
        if heads.get(branch, tip) != tip:
            refs[branch] = f"{AGAIN}{tip}"
        elif branch in within or not heads.keys().isdisjoint(folders):
            refs[branch] = f"{APART}{tip}/{branch}"
        else:
            refs[branch] = f"{HEADS}{branch}"
            heads[branch] = tip
            within.update(folders)
    wanted = {target: tips[branch] for branch, target in refs.items()}
    exact_refs.fetch(repository, str(git.directory), wanted)
    repository("pack-refs", "--all")
    there = repository.refs()
    for branch, target in refs.items():
        if there.get(target) != tips[branch]:
            raise InfrastructureError(f"{archive} does not hold {branch}: nothing is deleted")
    _check_whole(repository, set(tips.values()), set(there.values()))


def _check_whole(archive: Git, new: set[str], all_there: set[str]) -> None:
    """Check each new object in the archive, down to the files. Earlier ones were checked when they were archived."""
    walked = _walk(archive, [*new, *(f"^{tip}" for tip in sorted(all_there - new))])
    if walked.returncode != 0:
        reason = one_line((git_output.lines(walked.stderr) or ["objects are missing"])[-1])
        raise InfrastructureError(f"{archive.directory} is damaged, so nothing is deleted: {reason}")


def _walk(git: Git, commits: Sequence[str]) -> Completed:
    return git("rev-list", "--objects", "--quiet", "--stdin", stdin="\n".join(commits), ok=range(256))


def _listed(archive: Path) -> dict[str, str]:
    """Return the references in the files of a damaged archive as far as they can be read, without git."""
    refs = {}
    packed = archive / "packed-refs"
    for line in packed.read_bytes().split(b"\n") if packed.is_file() else ():
        if match := _PACKED.fullmatch(line):
            refs[match[2].decode("utf-8", "replace")] = match[1].decode()
    for path in (archive / "refs").rglob("*"):
        if path.is_file() and (match := _LOOSE.fullmatch(path.read_bytes())):
            refs[path.relative_to(archive).as_posix()] = match[1].decode()
    return {ref: oid for ref, oid in refs.items() if branch_names.is_safe(_branch(ref))}


def _branch(ref: str) -> str:
    """Return the branch of a reference, which git must accept as a name; empty if the reference is not one of ours."""
    prefix = next((prefix for prefix in (HEADS, AGAIN, APART) if ref.startswith(prefix)), ref)
    name = ref.removeprefix(prefix)
    return name.partition("/")[2] if prefix == APART else name


def _whole(git: Git, refs: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return the references whose objects are all there. Halving the list finds the others."""
    if not refs or _walk(git, [oid for _, oid in refs]).returncode == 0:
        return list(refs)
    if len(refs) == 1:
        return []
    middle = len(refs) // 2
    return _whole(git, refs[:middle]) + _whole(git, refs[middle:])
