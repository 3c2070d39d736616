"""Notes on commits at ``refs/notes/kakeya``, which ``git log --notes=kakeya`` shows.

A note is changed by compare-and-swap: two programs that write at the same time both keep what they wrote.
"""

import secrets
from collections.abc import Callable
from dataclasses import replace

from bridge.bus import objects
from bridge.bus.writer import Identity
from bridge.common.advice import TRY_AGAIN, Advice
from bridge.errors import InfrastructureError, UsageError
from bridge.system.git import Git
from bridge.system.git_output import decode

REF = "refs/notes/kakeya"
NOTE_BYTES = 64 << 10
_DRAFTS = "refs/notes/kakeya-draft-"
_ATTEMPTS = 20


def change_note(git: Git, commit: str, who: Identity, change: Callable[[str], str]) -> None:
    """Replace the text of a commit's note (empty without a note) by what ``change`` returns for it.

    Raises:
        UsageError: the commit is not here, or its note is larger than ``NOTE_BYTES``.
        InfrastructureError: others changed the notes all the time.
    """
    if not objects.is_commit(git, commit):
        raise UsageError(f"the commit {commit[:12]} is not in this clone", fix="Fetch it, and try again.")
    own = replace(git, options=(*git.options, "-c", f"user.name={who.name}", "-c", f"user.email={who.email}"))
    for _ in range(_ATTEMPTS):
        tip = objects.resolve(git, REF)
        before = _read(git, commit) if tip else ""
        after = change(before).strip()
        if after == before or _replace(own, commit, after, tip):
            return
        if objects.resolve(git, REF) == tip:
            fix = f"See what is in its way: git for-each-ref {REF}"
            raise InfrastructureError(f"{REF} cannot be written", fix=fix)
    raise InfrastructureError(f"{REF} changed faster than a note could be added", fix=Advice(TRY_AGAIN, "."))


def subject_of(git: Git, request: str, workload: str | None) -> str | None:
    """Return the commit for a note about a job: its workload, if the request's commit is a child of that."""
    return workload if workload in objects.parents_of(git, request) else None


def _read(git: Git, commit: str) -> str:
    """Return the text of a commit's note; empty if it has none."""
    blob = git.maybe("notes", f"--ref={REF}", "list", commit)
    if not blob:
        return ""
    (content,) = objects.read_many(git, [blob], max_bytes=NOTE_BYTES)
    if content is None:
        fix = f"Remove it, and try again: git notes --ref=kakeya remove {commit[:12]}"
        raise UsageError(f"the note of {commit[:12]} in {REF} is larger than {NOTE_BYTES} bytes", fix=fix)
    return decode(content).strip()


def _replace(git: Git, commit: str, text: str, tip: str | None) -> bool:
    """Replace a note if the notes still are at ``tip``. Returns whether they were."""
    draft = f"{_DRAFTS}{secrets.token_hex(8)}"
    try:
        if tip:
            git("update-ref", draft, tip, "")
        git("notes", f"--ref={draft}", "add", "--force", "--file=-", commit, stdin=text)
        new = objects.resolve(git, draft) or ""
        return git("update-ref", REF, new, tip or "", ok=(0, 1, 128)).returncode == 0
    finally:
        git.delete_refs([draft])
