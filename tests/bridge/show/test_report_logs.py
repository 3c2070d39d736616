"""Of a log a report shows the first and the last lines, and never takes the others apart."""

from __future__ import annotations

import tracemalloc

import pytest

from bridge.show.build import HEAD_LINES, MAX_LINE, TAIL_LINES, excerpt

BOTH = HEAD_LINES + TAIL_LINES


@pytest.mark.parametrize("count", [0, 1, BOTH - 1, BOTH, BOTH + 1, BOTH + 100])
@pytest.mark.parametrize("end", [b"", b"\n"])
def test_the_first_and_the_last_lines_are_shown(count, end):
    lines = [str(i) for i in range(count)]
    log = excerpt("x", "\n".join(lines).encode() + (end if count else b""), cut_short=False)

    assert log.left_out == max(0, count - BOTH)
    assert [*log.head, *log.tail] == (lines if count <= BOTH else [*lines[:HEAD_LINES], *lines[-TAIL_LINES:]])


@pytest.mark.parametrize("line", [b"\n", b"x", b"\xff\n"], ids=["only ends", "no end", "odd bytes"])
def test_a_log_of_millions_of_lines_costs_little(line):
    data = line * (8 << 20)
    tracemalloc.start()
    log = excerpt("x", data, cut_short=False)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    assert len(log.head) + len(log.tail) <= BOTH
    assert all(len(line) <= MAX_LINE for line in (*log.head, *log.tail))
    assert most < 3 * len(data)
