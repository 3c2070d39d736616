"""Replaces the Git LFS pointers in a request's tree with their files: within limits, and checked by digest."""

import hashlib
import os
import shutil
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from runner.lfs.pointer import Missing, Pointer
from runner.policy import Bus, Lfs

if TYPE_CHECKING:
    from runner.lfs.http import LfsServer

_NAMED = 5

# Files that stay pointers, each with the reason.
Unfilled = dict[str, str]


def fill(
    pointers: Sequence[Pointer],
    root: Path,
    bus: Bus,
    secret: str | None,
    rule: Lfs | None,
    attend: Callable[[], None],
) -> Unfilled:
    """Replace the pointers below ``root`` with files from the bus, if the policy allows.

    Each object is fetched once. Returns what stays a pointer, and why. ``attend`` is called often meanwhile, and may
    raise.
    """
    if not pointers:
        return {}
    if rule is None:
        return _all(
            pointers,
            "a request uploads no LFS objects: `git lfs push` them to the bus; this runner fetches none, which its "
            "operator can change with lfs in the policy",
        )
    missing = _beyond_limits(pointers, rule)
    wanted = [pointer for pointer in pointers if pointer.path not in missing]
    by_oid: dict[str, list[Pointer]] = defaultdict(list)
    for pointer in wanted:
        by_oid[pointer.oid].append(pointer)
    ends = time.monotonic() + rule.timeout_s

    def attend_in_time() -> None:
        attend()
        if time.monotonic() > ends:
            raise Missing(f"the files did not arrive within lfs.timeout_s, {rule.timeout_s} s")

    from runner.lfs.http import LfsServer  # noqa: PLC0415 - loads an HTTP library, which few requests need

    try:
        server = LfsServer(bus, secret, rule.hosts)
        server.announce([same[0] for same in by_oid.values()])
    except Missing as problem:
        return missing | _all(wanted, str(problem))
    for same in by_oid.values():
        draft = root.with_name(f"{root.name}.lfs")
        try:
            _fetch(same, server, draft, attend_in_time)
            _put(same, root, draft)
        except Missing as problem:
            missing |= _all(same, str(problem))
        finally:
            draft.unlink(missing_ok=True)
    return missing


def message(missing: Unfilled) -> str:
    """Return a message for the requester about files that stayed pointers: some names, and the first one's reason."""
    names = sorted(missing)
    shown = ", ".join(ascii(name)[1:-1] for name in names[:_NAMED])
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    how_many = "1 file is a pointer" if len(names) == 1 else f"{len(names)} files are pointers"
    return f"{how_many} of Git LFS and not the content: {shown}{more}. {names[0]!a}: {missing[names[0]]}"


def _all(pointers: Sequence[Pointer], reason: str) -> Unfilled:
    return {pointer.path: reason for pointer in pointers}


def _beyond_limits(pointers: Sequence[Pointer], rule: Lfs) -> Unfilled:
    """Return the files that the policy does not allow to fetch: single ones, or all if their sum is too large."""
    missing = {pointer.path: reason for pointer in pointers if (reason := _too_much(pointer, rule))}
    wanted = [pointer for pointer in pointers if pointer.path not in missing]
    if len(wanted) > rule.files:
        return missing | _all(wanted, f"there are {len(wanted)} of them, and lfs.files allows {rule.files}")
    if sum(pointer.size for pointer in wanted) > rule.total_mb << 20:
        return missing | _all(wanted, f"together they are larger than lfs.total_mb, {rule.total_mb} MiB")
    return missing


def _too_much(pointer: Pointer, rule: Lfs) -> str | None:
    if not pointer.plain:
        return "its pointer names an extension of git-lfs, which is not run here"
    if pointer.size > rule.file_mb << 20:
        return f"it holds {pointer.size >> 20} MiB, and lfs.file_mb allows {rule.file_mb}"
    return None


def _fetch(same: Sequence[Pointer], server: "LfsServer", draft: Path, attend: Callable[[], None]) -> None:
    """Write an object of the size and the digest that its pointer gives to ``draft``."""
    wanted, digest, size = same[0], hashlib.sha256(), 0
    if any(pointer.size != wanted.size for pointer in same):
        raise Missing("pointers to it disagree about its size")
    attend()
    with draft.open("xb") as file:
        for chunk in server.read(wanted):
            attend()
            size += len(chunk)
            if size > wanted.size:
                raise Missing("the download is larger than the pointer says")
            digest.update(chunk)
            file.write(chunk)
    if size != wanted.size or digest.hexdigest() != wanted.oid:
        raise Missing("the download does not have the size and the SHA-256 of the pointer")


def _put(same: Sequence[Pointer], root: Path, draft: Path) -> None:
    """Replace each pointer to an object with the file. The mode stays. The runner wrote these pointers itself."""
    for n, pointer in enumerate(same):
        target = root / pointer.path
        copy = draft
        if n + 1 < len(same):
            copy = draft.with_name(f"{draft.name}.copy")
            shutil.copyfile(draft, copy)
        copy.chmod(target.stat().st_mode & 0o777)
        os.replace(copy, target)  # noqa: PTH105 - both are files of ours
