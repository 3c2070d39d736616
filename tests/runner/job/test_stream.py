"""The output of several steps on its way to the branch: in order, bounded, and what `verify` finds in the logs."""

from __future__ import annotations

import hashlib
import itertools
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.bus.wire import LogDigest
from bridge.verify.plausibility import compare_logs
from runner.job import logs
from runner.job.logs import CHUNK_BYTES, LogSink, LogStream

PLENTY = 1 << 20

# What happens while a step runs: it prints, a heartbeat arrives, or one is pushed and nobody knows whether it arrived.
PRINTS = st.text(st.sampled_from("ab\né\U0001f600"), min_size=1, max_size=30).map(str.encode)
HAPPENS = PRINTS | st.sampled_from(["beat", "lost"])
STEPS = st.lists(st.lists(HAPPENS, max_size=12), min_size=1, max_size=4)


@dataclass
class Job:
    """The steps of a job under one stream, and the pieces that reached the branch."""

    keep: int = PLENTY
    stream: LogStream = field(default_factory=LogStream)
    sent: list[tuple[int | None, bytes]] = field(default_factory=list)
    logs: list[LogDigest] = field(default_factory=list)
    kept: dict[str, bytes] = field(default_factory=dict)
    printed: bytes = b""

    def beat(self) -> None:
        piece = self.stream.next_piece()
        if piece.data:
            self.sent.append((piece.left_out, piece.data))
        self.stream.mark_sent(piece)

    def step(self, happens) -> None:
        sink = LogSink(self.keep, stream=self.stream)
        for what in happens:
            if what == "beat":
                self.beat()
            elif what == "lost":
                self.stream.next_piece()
            else:
                sink.write(what)
                self.printed += what
        sink.close()
        sink.seal()
        path = f"step-{len(self.logs)}.log"
        self.kept[path] = sink.kept
        digest = LogDigest(
            path=path, stream_sha256=sink.sha256, stream_bytes=sink.total, kept_bytes=len(sink.kept),
            truncated=sink.truncated,
        )  # fmt: skip
        self.logs.append(digest)

    def found(self):
        return compare_logs(self.sent, self.logs, self.kept.__getitem__)


@pytest.fixture
def small_pieces(monkeypatch):
    monkeypatch.setattr(logs, "CHUNK_BYTES", 40)


@given(STEPS, st.sampled_from([9, 40, PLENTY]), st.sampled_from([40, CHUNK_BYTES]))
def test_whatever_the_steps_and_heartbeats_do_the_logs_are_what_was_streamed(steps, keep, most):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(logs, "CHUNK_BYTES", most)
        job = Job(keep)
        for step in steps:
            job.step(step)
        job.beat()  # the last piece goes out with the answer

    found = job.found()
    assert (found is None) == (not job.sent)
    assert found is None or found.ok, found
    end = 0
    for left_out, piece in job.sent:
        end += left_out
        assert job.printed[end : end + len(piece)] == piece
        assert len(piece) <= most
        piece.decode()
        end += len(piece)
    if most == CHUNK_BYTES:
        assert b"".join(piece for _, piece in job.sent) == job.printed


@given(STEPS, st.data())
def test_a_byte_that_was_changed_is_found_in_any_piece(steps, data):
    job = Job()
    for step in steps:
        job.step(step)
    job.beat()
    if not job.sent:
        return
    which = data.draw(st.integers(0, len(job.sent) - 1))
    left_out, piece = job.sent[which]
    at = data.draw(st.integers(0, len(piece) - 1))
    job.sent[which] = (left_out, piece[:at] + bytes([piece[at] ^ 1]) + piece[at + 1 :])

    assert job.found().ok is False


def test_pieces_in_another_order_are_found():
    job = Job()
    job.step([b"one\n", "beat", b"the rest of one\n"])
    job.step([b"two\n", "beat", b"the rest of two\n"])
    job.beat()
    assert job.found().ok

    orders = [list(order) for order in itertools.permutations(job.sent)][1:]
    assert [Job(sent=order, logs=job.logs, kept=job.kept).found().ok for order in orders] == [False] * 5


def test_more_than_the_logs_hold_is_found():
    job = Job()
    job.step([b"one\n", "beat"])
    job.sent.append((0, b"x"))

    assert "5 bytes were streamed while the job ran, and its logs had 4" in job.found().message
    assert job.found().ok is False


def test_what_was_left_out_is_said_and_what_was_not_is_still_compared(small_pieces):
    job = Job()
    job.step([b"x" * 100, "beat", b"tail\n", "beat"])

    assert job.sent == [(0, b"x" * 40), (60, b"tail\n")]
    assert job.found().message == "the 45 of 105 bytes that were streamed while the job ran are in them"
    job.kept["step-0.log"] = b"x" * 99 + b"y" + b"tail\n"
    assert job.found().ok, "the byte that differs was not streamed"
    job.kept["step-0.log"] = b"x" * 100 + b"tale\n"
    assert job.found().ok is False


def test_a_log_of_which_head_and_tail_are_kept_is_compared_by_its_digest_if_all_of_it_was_streamed():
    job = Job(keep=9)
    job.step([b"0123456789\n", "beat"])
    assert job.logs[0].truncated
    assert job.found().ok

    job.sent = [(0, b"0123456780\n")]
    assert job.found().ok is False


def test_of_a_log_that_was_neither_kept_nor_streamed_whole_nothing_can_be_said(small_pieces):
    job = Job(keep=9)
    job.step([b"x" * 100, "beat"])

    assert job.found().ok


def test_pieces_of_a_runner_that_did_not_count_gaps_are_not_compared():
    job = Job()
    job.step([b"one\n", "beat"])
    job.sent = [(None, b"anything")]

    assert job.found() is None


def test_what_comes_after_the_end_of_a_step_is_no_part_of_its_log():
    job = LogStream()
    first = LogSink(PLENTY, stream=job)
    first.write(b"one\n")
    first.close()
    first.seal()
    LogSink(PLENTY, stream=job).write(b"two\n")
    first.write(b"late\n")

    assert job.next_piece().data == b"one\ntwo\n"
    assert first.sha256 == hashlib.sha256(b"one\n").hexdigest()


def test_a_piece_stays_until_it_has_arrived():
    log = LogStream()
    log.add(b"one ")
    first = log.next_piece()
    log.add(b"two")
    assert log.next_piece().data == b"one two"

    log.mark_sent(first)
    assert log.next_piece().data == b"two"
    log.mark_sent(log.next_piece())
    assert not log.has_pending
    assert (log.next_piece().data, log.next_piece().left_out) == (b"", 0)


def test_what_waits_is_bounded_and_ends_with_a_whole_letter():
    log = LogStream()
    log.add(b"x" + "é".encode() * CHUNK_BYTES)
    log.add(b"more")

    piece = log.next_piece()
    assert len(piece.data) == CHUNK_BYTES - 1
    piece.data.decode()
    log.mark_sent(piece)
    log.add(b"later")
    assert (log.next_piece().left_out, log.next_piece().data) == (CHUNK_BYTES + 2 + 4, b"later")
