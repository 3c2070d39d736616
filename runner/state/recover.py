"""Rebuilds a damaged ledger: moves it aside and refills a new one from the store's copy of the bus.

With an empty ledger, a copied request would look new. The branches have the needed facts: each claimed branch names its
request and nonce, and unpushed answers have git references in the store.
"""

import time
from collections.abc import Callable
from pathlib import Path

from bridge.bus import branch_names, history, objects, wire
from bridge.errors import InfrastructureError
from bridge.system.git import Git
from bridge.verify.signed_history import Reader
from runner.bus.bus import KEPT
from runner.bus.packed_refs import APART, HEADS
from runner.state.ledger import Ledger

_FILES = ("", "-wal", "-shm")


def open_ledger(path: Path, store: Git, archive: Path, tell: Callable[[str], None], reader: Reader) -> Ledger:
    """Open the ledger. If it is damaged or missing, create one and fill it from the store and the archive."""
    try:
        ledger = Ledger(path)
    except InfrastructureError as error:
        if error.code != "damaged":
            raise
        aside = path.with_name(f"{path.name}.damaged-{int(time.time())}")
        for ending in _FILES:
            if (file := path.with_name(path.name + ending)).exists():
                file.rename(aside.with_name(aside.name + ending))
        tell(f"the ledger is damaged; it was moved to {aside} and is rebuilt from the bus")
        ledger = Ledger(path)
    if not ledger.is_filled:
        count = _refill(ledger, store, HEADS, tell, reader)
        if (archive / "HEAD").exists():
            for prefix in ("refs/heads/", APART):
                count += _refill(ledger, Git.isolated(archive), prefix, tell, reader)
        _find_pending(ledger, store, tell)
        ledger.mark_filled()
        if count:
            tell(
                f"the ledger knows {count} requests again; what left the bus without an archive is forgotten, "
                "and so are the turns that requesters had in the last hour. Approvals still count"
            )
    release_settled(ledger, store)
    return ledger


def _refill(ledger: Ledger, git: Git, prefix: str, tell: Callable[[str], None], reader: Reader) -> int:
    """Record each request that a runner has claimed. Returns how many there are."""
    tips = {ref.removeprefix(prefix): oid for ref, oid in git.refs(prefix).items()}
    if prefix == APART:
        tips = {name.partition("/")[2]: oid for name, oid in tips.items()}
    safe = {name: tip for name, tip in tips.items() if branch_names.is_safe(name)}
    branches = reader.read_each(git, safe, lambda name, error: tell(f"{name} cannot be read: {error}"))
    touched = [branch for branch in branches.values() if branch.state]
    for branch in touched:
        ledger.restore(branch.request, branch=branch.name, state=str(branch.current_state))
    return len(touched)


def _find_pending(ledger: Ledger, store: Git, tell: Callable[[str], None]) -> None:
    """Find recorded answers that were not pushed. Each goes on top of the newest commit shared with its branch."""
    for ref in store.refs(KEPT):
        answer = ref.removeprefix(KEPT)
        try:
            _note_pending(ledger, store, answer)
        except InfrastructureError as error:
            tell(f"the answer {answer[:12]}, which was kept, cannot be read: {error.message}")


def _note_pending(ledger: Ledger, store: Git, answer: str) -> None:
    state = wire.parse_state(objects.read_blob(store, answer, wire.STATE, max_bytes=wire.MAX_STATE))
    tip = objects.resolve(store, HEADS + state.branch) if state else None
    if not (state and tip) or history.is_ancestor(store, answer, tip):
        return
    if expect := store.maybe("merge-base", answer, tip):
        ledger.restore(state.request, branch=state.branch, state=str(state.state))
        ledger.record_answer(branch=state.branch, state=str(state.state), answer=answer, expect=expect)


def release_settled(ledger: Ledger, store: Git) -> None:
    """Remove references of answers that are not pending: left by a runner killed before recording or after pushing."""
    waiting = {KEPT + pending.answer for pending in ledger.unsent_answers()}
    store.delete_refs(ref for ref in store.refs(KEPT) if ref not in waiting)
