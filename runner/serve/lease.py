"""Holding a request: every state is a commit upon the one before, pushed by compare-and-swap.

Two runners that claim the same tip make different commits, so at most one push wins. Whoever claims later has
the higher token; a runner that slept finds the branch moved and can publish nothing.
"""

from __future__ import annotations

import secrets
from datetime import UTC, datetime

from bridge.bus import objects, times, wire
from bridge.bus.history import View
from bridge.bus.objects import Existing, Files, Identity
from bridge.bus.wire import State, StateFile
from bridge.manifest import format_time
from bridge.verify.state_signature import signed_message
from runner.bus.bus import Pushed
from runner.job.stream import LogStream, Piece
from runner.session import Session

# More than these bounds readers do not take.
_LABEL, _LABELS = 64, 32

WHO = Identity("kakeya-mac-bridge", times.RUNNER_EMAIL)


class Lease:
    """One request in this runner's hands, from the claim to the answer."""

    def __init__(self, session: Session, view: View) -> None:
        self._bus = session.bus
        self._ledger = session.ledger
        self._identity = session.identity
        self._signer = session.signer
        self._reader = session.reader
        self._lease_s = session.policy.bus.lease_s
        self._labels = [label for label in session.policy.labels if len(label) <= _LABEL][:_LABELS]
        found = objects.list_tree(self._bus.git, view.request, wire.REQUEST, sizes=False)
        # The manifest's blob, which every commit of this runner carries on.
        self.manifest = found[0].oid if found and found[0].is_file else None
        self.view = view
        self.branch = view.branch
        self.request = view.request
        self.tip = view.tip
        self.token = wire.next_count(view.token)
        # The job's output that is not on the branch yet.
        self.log = LogStream()
        self._sequence = view.sequence
        self._salts: set[str] = set()
        # What was pushed upon the tip without an answer: any of it may have arrived.
        self._unsure: dict[str, Piece] = {}

    def advance(self, state: State, *, detail: str = "") -> Pushed:
        """Push a new state upon the last one. STALE means that the branch is no longer where this runner left it."""
        return self._push(self.commit(state, {}, self.tip, detail=detail), Piece())

    def beat(self, step: int) -> Pushed:
        """Push a heartbeat with the next piece of the job's output."""
        piece = self.log.piece()
        return self._push(self.running(piece, self.tip, step=step), piece)

    def running(self, piece: Piece, parent: str, *, step: int | None = None) -> str:
        """Make the commit that brings a piece of log."""
        files: Files = {wire.STREAM: piece.data} if piece.data else {}
        left_out = piece.left_out if piece.data else 0
        return self.commit(State.RUNNING, files, parent, step=step, left_out=left_out)

    def _push(self, commit: str, piece: Piece) -> Pushed:
        pushed = self._bus.push(self.branch, commit, expect=self.tip)
        if pushed is Pushed.DONE:
            self._arrived(commit, piece)
        else:
            self._unsure[commit] = piece
        return pushed

    def _arrived(self, commit: str, piece: Piece) -> None:
        self.tip = commit
        self.log.sent(piece)
        self._unsure.clear()

    def commit(
        self,
        state: State,
        files: Files,
        parent: str,
        *,
        step: int | None = None,
        detail: str = "",
        title: str = "",
        left_out: int = 0,
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
            left_out=left_out,
            labels=self._labels,
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
        message = signed_message(message, self._signer, branch=self.branch, parent=parent, tree=tree)
        return objects.commit(git, tree, [parent], message, WHO)

    def moved(self) -> View | None:
        """Fetch the branch. Return how it stands where somebody else put a commit on it, else None.

        Raises InfrastructureError where the bus cannot be reached. A branch that is gone counts as moved, to
        an empty view.
        """
        tip = self._bus.tip(self.branch)
        if tip in self._unsure:
            # The push was reported as failed, and it had arrived.
            self._arrived(tip, self._unsure[tip])
        if tip == self.tip:
            return None
        if tip is None:
            return View(self.branch, "", self.request, None, None, foreign=True)
        return self._reader.view(self._bus.git, self.branch, tip)

    def build_on(self, view: View) -> None:
        """Take what the requester put on the branch as the ground for what comes next."""
        self.view = view
        self.tip = view.tip or self.tip

    def stands(self, view: View) -> bool:
        """Say whether the branch still stands at a state of this runner, with nothing but unsigned states on top."""
        ours = view.state is not None and view.state.salt in self._salts
        return ours and view.unsigned is not None and not view.foreign

    def is_fenced(self, view: View) -> bool:
        """Say whether somebody else's claim or answer stands on the branch, so that nothing more can be published."""
        return view.state is not None and view.state.salt not in self._salts and view.token >= self.token
