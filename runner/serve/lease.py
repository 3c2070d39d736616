"""Holds a claim on a request, or leaves a request to others. Every state is a commit on top of the last one.

Two runners that claim the same tip make different commits, so at most one push succeeds: it is a compare-and-swap. Each
later claim has a higher fencing token, so a runner that was suspended can no longer publish.
"""

import secrets
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from bridge.bus import objects, wire
from bridge.bus.history import RequestBranch
from bridge.bus.objects import BlobId, Files
from bridge.bus.wire import WAITS_FOR_APPROVAL, State, StateFile
from bridge.bus.writer import Writer
from bridge.errors import one_line
from bridge.manifest import Request, format_time
from bridge.presets import Presets
from bridge.verify.state_signature import signed_message
from runner.bus.bus import Pushed
from runner.bus.others import OtherRunners
from runner.job.logs import LogStream, Piece
from runner.parts import Author
from runner.serve.pace import Pace
from runner.state.identity import WHO

# How many pushes whose reply was lost are tried again.
_MOST_UNSURE = 4


def with_reason(message: str, reason: str) -> str:
    """Return a message with the requester's own reason for cancelling, if one was given."""
    return f"{message}: {one_line(reason)}" if reason else message


class Lease:
    """One request that this runner works on, from the claim to the answer."""

    def __init__(self, author: Author, branch: RequestBranch) -> None:
        self._author = author
        self._bus = author.bus
        entry = objects.entry_at(self._bus.git, branch.request, wire.REQUEST)
        # The manifest's entry, whatever it is, which is part of each commit of a state. A folder there is not kept.
        self.manifest = entry if entry and entry.kind != "tree" else None
        self.request_branch = branch
        self.budget = self._bus.budget
        self.branch = branch.name
        self.request = branch.request
        self.tip = branch.tip
        self.token = wire.next_count(branch.token)
        # Output of the job that is not on the branch yet.
        self.log = LogStream(author.prints)
        self.pace = Pace(author.lease_s, self._bus.budget, author.longest_lease_s)
        self._sequence = branch.sequence
        self._salts: set[str] = set()
        # Commits whose push got no reply: the bus may have any of them.
        self._unsure: dict[str, Piece] = {}

    def advance(self, state: State, *, detail: str = "") -> Pushed:
        """Push a new state on top of the last one. STALE means that somebody else has moved the branch."""
        return self._push(self.commit(state, {}, self.tip, detail=detail), Piece())

    def beat(self, step: int) -> Pushed:
        """Push a heartbeat with the next piece of the job's output."""
        piece = self.log.next_piece()
        return self._push(self.running_commit(piece, self.tip, step=step), piece)

    def running_commit(
        self, piece: Piece, parent: str, *, step: int | None = None, writer: Writer | None = None
    ) -> str:
        """Create the commit for a heartbeat and a piece of log. See ``commit`` for ``writer``."""
        files: Files = {wire.STREAM: piece.data} if piece.data else {}
        left_out = piece.left_out if piece.data else 0
        return self.commit(State.RUNNING, files, parent, step=step, left_out=left_out, writer=writer)

    def _push(self, commit: str, piece: Piece) -> Pushed:
        pushed = self._bus.push(self.branch, commit, expect=self.tip)
        if pushed is Pushed.DONE:
            self._arrived(commit, piece)
            return pushed
        is_found = self._bus.sightings.is_overtaken(self.branch) and self._find_unsure()
        if not is_found:
            self._unsure[commit] = piece
        return Pushed.FAILED if is_found else pushed

    def _find_unsure(self) -> bool:
        """Return whether the branch is at an earlier commit whose reply was lost: then the same push succeeds again."""
        for commit, piece in list(self._unsure.items())[:_MOST_UNSURE]:
            if self._bus.push(self.branch, commit, expect=self.tip) is Pushed.DONE:
                self._arrived(commit, piece)
                return True
        return False

    def _arrived(self, commit: str, piece: Piece) -> None:
        self.tip = commit
        self.log.mark_sent(piece)
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
        writer: Writer | None = None,
    ) -> str:
        """Commit a state on ``parent``, with the request's tree and ``files``. The owner of a ``writer`` stores it."""
        self._sequence = wire.next_count(self._sequence)
        now = StateFile(
            schema_version=2,
            state=state,
            branch=self.branch,
            request=self.request,
            salt=secrets.token_hex(8),
            token=self.token,
            sequence=self._sequence,
            lease_s=self.pace.plan(),
            runner=self._author.identity,
            at=format_time(datetime.now(UTC)),
            step=step,
            detail=detail[:1000],
            left_out=left_out,
            labels=self._author.labels,
        )
        self._salts.add(now.salt)
        self._author.ledger.record_write(branch=self.branch, salt=now.salt)
        content: dict[str, bytes | BlobId | None] = {wire.FOLDER: None, **files, wire.STATE: now.to_bytes()}
        if self.manifest:
            content[wire.REQUEST] = BlobId(self.manifest.oid, self.manifest.mode)
        if self.request_branch.cancel:
            content[wire.CANCEL] = self.request_branch.cancel.to_bytes()
        builder = writer or self.writer()
        tree = objects.overlay(self._bus.git, f"{self.request}^{{tree}}", content, builder)
        # GitHub starts no workflow for a push whose head commit contains this, so an answer never triggers another run.
        message = f"{title or f'kakeya: {state}'}\n\nClaim {self.token} of {self.branch}\n\n[skip ci]\n"
        message = signed_message(
            message, self._author.keys.signer, branch=self.branch, parent=parent, tree=tree
        )
        commit = builder.commit(tree, [parent], message, WHO)
        if writer is None:
            builder.store()
        return commit

    def writer(self, *, durable: bool = False) -> Writer:
        """Return a writer of objects of this runner's store; a durable one syncs them."""
        return Writer(self._bus.durable_git if durable else self._bus.git)

    def fetch_changes(self) -> RequestBranch | None:
        """Fetch the branch. Return it if somebody else added a commit, None if not.

        A deleted branch returns an empty one.

        Raises:
            InfrastructureError: the bus cannot be reached.
        """
        tip = self._bus.tip(self.branch)
        if tip in self._unsure:
            # The push was reported as failed, but it had succeeded.
            self._arrived(tip, self._unsure[tip])
        if tip == self.tip:
            return None
        if tip is None:
            return RequestBranch(self.branch, "", self.request, None, None, has_foreign_commits=True)
        return self._author.keys.reader.read_branch(self._bus.git, self.branch, tip)

    def build_on(self, branch: RequestBranch) -> None:
        """Continue on top of the commit that the requester added to the branch."""
        self.request_branch = branch
        self.tip = branch.tip or self.tip

    def owns_state(self, branch: RequestBranch) -> bool:
        """Return whether the last state is still this runner's, with only unsigned states on top of it."""
        ours = branch.state is not None and branch.state.salt in self._salts
        return ours and branch.unsigned is not None and not branch.has_foreign_commits

    def hand_back(self, detail: str, state: str) -> bool:
        """Give up the claim, and return whether that succeeded. If not, the ledger still lists the claim."""
        if is_done := self.advance(State.REQUESTED, detail=detail) is Pushed.DONE:
            self._author.ledger.mark_settled(branch=self.branch, state=state)
        return is_done

    def is_fenced(self, branch: RequestBranch) -> bool:
        """Return whether another runner has claimed or answered the request, so that this one can publish nothing."""
        return (
            branch.state is not None and branch.state.salt not in self._salts and branch.token >= self.token
        )


@dataclass(frozen=True)
class Leaving:
    """Leaves a request that this runner cannot run to others, before or after its claim."""

    author: Author
    others: OtherRunners
    presets: Presets
    # Whether this runner announces a preset.
    is_listed: Callable[[str], bool]
    tell: Callable[[str], None]

    def to_others(
        self, branch: RequestBranch, request: Request, reason: str = "", definition: str | None = None
    ) -> str:
        """Leave a request to other runners, and return why, as text for the operator; empty if none may run it.

        If other runners may think that this one runs the preset, this one notes on the branch that it does not, and
        why. For ``definition`` see ``OtherRunners.eligible_runners``.
        """
        names = self._eligible(branch, request, definition)
        if not names:
            return ""
        waits = branch.state is not None and branch.state.detail.startswith(WAITS_FOR_APPROVAL)
        if self.is_listed(request.preset) and not waits and not self.others.has_declined(branch):
            lease = Lease(self.author, branch)
            # Keep the old token: this does not count as an attempt to run the request.
            lease.token = branch.token
            lease.advance(State.REQUESTED, detail=self._note(branch, reason))
        return f"left to {', '.join(names)}, because this runner cannot run it"

    def hand_on(self, lease: Lease, request: Request, reason: str) -> bool:
        """Hand a claimed request on to other runners, and return whether any may run it."""
        branch = lease.request_branch
        names = self._eligible(branch, request)
        if names and lease.hand_back(self._note(branch, reason), "handed_on"):
            self.tell(f"{lease.branch}: handed on to {', '.join(names)}, because this runner cannot run it")
        return bool(names)

    def _eligible(self, branch: RequestBranch, request: Request, definition: str | None = None) -> list[str]:
        preset = self.presets.get(request.preset)
        return self.others.eligible_runners(branch, request, preset, definition)

    def _note(self, branch: RequestBranch, reason: str) -> str:
        return self.others.note(branch, reason, self.author.identity.id)
