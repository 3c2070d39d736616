"""Holding a request: every state is a commit upon the one before, pushed by compare-and-swap.

Two runners that claim the same tip make different commits, so at most one push wins. Whoever claims later has
the higher token; a runner that slept finds the branch moved and can publish nothing.
"""

from __future__ import annotations

import secrets
from datetime import UTC, datetime

from bridge import history, objects, wire
from bridge.history import View
from bridge.manifest import format_time
from bridge.objects import Existing, Files, Identity
from bridge.wire import State, StateFile
from runner.bus import Pushed
from runner.session import Session

WHO = Identity("kakeya-mac-bridge", "kakeya-mac-bridge@localhost")


class Lease:
    """One request in this runner's hands, from the claim to the answer."""

    def __init__(self, session: Session, view: View) -> None:
        self._bus = session.bus
        self._ledger = session.ledger
        self._identity = session.identity
        self._lease_s = session.policy.bus.lease_s
        found = objects.list_tree(self._bus.git, view.request, wire.REQUEST, sizes=False)
        # The manifest's blob, which every commit of this runner carries on.
        self.manifest = found[0].oid if found and found[0].is_file else None
        self.view = view
        self.branch = view.branch
        self.request = view.request
        self.tip = view.tip
        self.token = wire.next_count(view.token)
        self._sequence = view.sequence
        self._salts: set[str] = set()

    def advance(
        self, state: State, *, step: int | None = None, chunk: bytes = b"", detail: str = ""
    ) -> Pushed:
        """Push a new state upon the last one. STALE means that the branch is no longer where this runner left it."""
        stream: Files = {wire.STREAM: chunk} if chunk else {}
        commit = self.commit(state, stream, self.tip, step=step, detail=detail)
        pushed = self._bus.push(self.branch, commit, expect=self.tip)
        if pushed is Pushed.DONE:
            self.tip = commit
        return pushed

    def commit(
        self,
        state: State,
        files: Files,
        parent: str,
        *,
        step: int | None = None,
        detail: str = "",
        title: str = "",
    ) -> str:
        """Make the commit of a state upon `parent`: the request's tree with its manifest, the state, and `files`."""
        self._sequence = wire.next_count(self._sequence)
        now = StateFile(
            schema_version=2,
            state=state,
            branch=self.branch,
            request=self.request,
            salt=secrets.token_hex(8),
            token=self.token,
            sequence=self._sequence,
            lease_s=self._lease_s,
            runner=self._identity,
            at=format_time(datetime.now(UTC)),
            step=step,
            detail=detail[:1000],
        )
        self._salts.add(now.salt)
        self._ledger.writes(branch=self.branch, salt=now.salt)
        content: dict[str, bytes | Existing | None] = {wire.FOLDER: None, **files, wire.STATE: now.to_bytes()}
        if self.manifest:
            content[wire.REQUEST] = Existing(self.manifest)
        if self.view.cancel:
            content[wire.CANCEL] = self.view.cancel.to_bytes()
        git = self._bus.git
        tree = objects.overlay(git, f"{self.request}^{{tree}}", content)
        # GitHub starts no workflow for a push whose head commit says this, so an answer never asks for another run.
        message = f"{title or f'kakeya: {state}'}\n\nClaim {self.token} of {self.branch}\n\n[skip ci]\n"
        return objects.commit(git, tree, [parent], message, WHO)

    def moved(self) -> View | None:
        """Fetch the branch. Return how it stands where somebody else put a commit on it, else None.

        Raises InfrastructureError where the bus cannot be reached. A branch that is gone counts as moved, to
        an empty view.
        """
        tip = self._bus.tip(self.branch)
        if tip == self.tip:
            return None
        if tip is None:
            return View(self.branch, "", self.request, None, None, foreign=True)
        return history.read_view(self._bus.git, self.branch, tip)

    def build_on(self, view: View) -> None:
        """Take what the requester put on the branch as the ground for what comes next."""
        self.view = view
        self.tip = view.tip or self.tip

    def is_fenced(self, view: View) -> bool:
        """Say whether somebody else's claim or answer stands on the branch, so that nothing more can be published."""
        return view.state is not None and view.state.salt not in self._salts and view.token >= self.token
