"""Answers one manifest: admits, runs, judges and signs as for a branch of a bus, and writes the answer's folder."""

import fcntl
import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from bridge.bus import branch_names
from bridge.errors import ExitCode, InfrastructureError, KakeyaError, UsageError
from bridge.manifest import MAX_LIFETIME
from bridge.system.signals import Withdrawal
from bridge.verify.export import Fetched
from runner.context import open_runner
from runner.direct.store import create_bus
from runner.job.observer import Observer
from runner.ownership import own_files
from runner.policy import Bus, Policy
from runner.policy.model import Trust
from runner.serve.loop import once, write_results
from runner.state import signing_key
from runner.state.activity import read_facts
from runner.state.ledger import FENCED, Ledger
from runner.state.turn import FOLDER, Turn

# The name of all these jobs among those that take turns, and of their folder in the state folder.
NAME = "direct"
# How many jobs may wait for the machine in this way, each with a process.
MOST_WAITING = 16
# Nobody reads the private bus while the job runs.
_QUIET: dict[str, Any] = {"poll_s": 3600.0, "idle_poll_s": 3600.0, "lease_s": 86_400.0, "presence_s": None}


class WithdrawnError(KakeyaError):
    """The job was withdrawn before it had its turn, so there is no answer."""

    kind = "cancelled"
    exit_code = ExitCode.CANCELLED


def answer_manifest(
    policy: Policy, manifest: bytes, out: Path | None, *, withdrawal: Withdrawal, observer: Observer,
    tell: Callable[[str], None], use: Callable[[Path], None] = lambda _folder: None,
) -> Fetched:  # fmt: skip
    """Answer one manifest into a folder. Other jobs of this machine run first.

    Args:
        policy: of this host. Its bus is not used.
        manifest: the manifest as it came, valid or not.
        out: the folder; it must not exist, or be empty. None: one that is removed after ``use``.
        withdrawal: when it is set, the job is cancelled, and answered as cancelled.
        observer: is told what the job does.
        tell: called with what the runner says meanwhile.
        use: called with the answer's folder, before the next job begins.

    Raises:
        UsageError: the folder cannot be used.
        WithdrawnError: the job was withdrawn before it began.
        InfrastructureError: nothing was answered.
    """
    if out:
        check_place(out)
    last = ""

    def note(line: str) -> None:
        nonlocal last
        last = line
        tell(line)

    with own_files():
        folder = policy.state / NAME
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        turn = Turn(_turns_of(policy), NAME)
    with _place_in_line(folder), turn.hold_later(withdrawal.wait, tell) as is_held:
        if withdrawal.is_set() or not is_held:
            raise WithdrawnError(f"cancelled before the job began: {withdrawal.reason}")
        bus, own = folder / "bus.git", folder / "answer"
        _remove(bus, own, folder / "store.git")
        with own_files():
            name = create_bus(bus, manifest)
        try:
            with open_runner(_rules(policy, bus, folder), note, owner=policy) as context:
                _clear_ledger(context.ledger)
                if signing_key.must_warn(policy.state, signs=context.keys.signer is not None):
                    tell(signing_key.UNSIGNED)
                process = replace(context.process, withdrawal=withdrawal)
                operator = replace(context.operator, observer=observer)
                own_context = replace(context, turn=turn, process=process, operator=operator)
                once(own_context, name)
                if out:
                    check_place(out)  # another process may have filled it meanwhile
                answer = write_results(own_context, name, out or own)
            if answer:
                use(answer.folder)
        finally:
            _remove(bus, own)
    if answer is None:
        raise InfrastructureError(f"the manifest was not answered: {last or 'no reason is known'}")
    return answer


def _remove(*folders: Path) -> None:
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)


def check_place(out: Path) -> None:
    """Raise UsageError unless an answer can be written to a folder: it must be new or empty, and not a link."""
    fix = "Name a new or empty folder with --out."
    parent = out.absolute().parent
    try:
        is_free = not out.is_symlink() and (not out.exists() or (out.is_dir() and not any(out.iterdir())))
        parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"cannot write to {out}: {error.strerror}", fix=fix) from error
    if not is_free:
        raise UsageError(f"{out} is not an empty folder", fix=fix)
    if not os.access(parent, os.W_OK | os.X_OK):
        raise UsageError(f"{parent} cannot be written to", fix=fix)


def _rules(policy: Policy, bus: Path, folder: Path) -> Policy:
    """Return the policy for the job: the host's, but for the bus, and nobody's own code is trusted: none comes."""
    url = Bus(url=str(bus), token_file=policy.bus.token_file, **_QUIET)
    return policy.model_copy(
        update={"bus": url, "state": folder, "trust": Trust(), "retention": None, "lfs": None}
    )


def _turns_of(policy: Policy) -> Path:
    """Return the folder in which the service of this policy takes turns, or would take them."""
    facts = read_facts(policy.state)
    shared = facts.about.get("turns") if facts else None
    if isinstance(shared, str) and Path(shared).is_dir():
        return Path(shared)
    folder = policy.state / FOLDER
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder


@contextmanager
def _place_in_line(folder: Path) -> Iterator[None]:
    """Hold one of the places of those that wait or run."""
    for number in range(MOST_WAITING):
        slot = os.open(folder / f"place-{number}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(slot, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(slot)
            continue
        try:
            yield
        finally:
            os.close(slot)
        return
    message = f"{MOST_WAITING} other jobs wait for this machine"
    raise InfrastructureError(message, fix="Try again later.", code="busy")


def _clear_ledger(ledger: Ledger) -> None:
    """Give up what a killed process left, whose bus is gone, and forget requests that are too old to be replayed."""
    for pending in ledger.unsent_answers():
        ledger.mark_settled(branch=pending.branch, state=FENCED)
    oldest = time.time() - 2 * MAX_LIFETIME.total_seconds()

    def is_old(branch: str) -> bool:
        parsed = branch_names.parse_branch(branch)
        return parsed is not None and branch_names.nonce_time(parsed.nonce) < oldest

    ledger.forget(is_old)
