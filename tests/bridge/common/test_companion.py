import sys

from bridge.common import host
from bridge.common.process import Companion

ECHO = "import sys\nfor line in sys.stdin: print(line.strip().upper(), flush=True)"


def program(code):
    return Companion(sys.executable, "-I", "-S", "-c", code)


def test_each_line_gets_a_line_until_the_program_is_ended():
    companion = program(ECHO)
    assert [companion.ask(word, 60) for word in ("one", "two")] == ["ONE", "TWO"]
    companion.close()
    companion.close()
    assert companion.ask("three", 60) is None


def test_a_program_that_ends_answers_nothing():
    companion = program("")
    assert companion.ask("one", 60) is None
    companion.close()


def test_a_program_that_takes_too_long_is_ended():
    companion = program("import time; time.sleep(600)")
    assert companion.ask("one", 0.2) is None
    companion.close()


def test_the_peak_of_memory_is_this_process_own():
    """A process that was started by a large one does not count that one's memory."""
    mine = host.process_peak_bytes()
    code = "from bridge.common import host; print(host.process_peak_bytes(), flush=True); input()"
    companion = Companion(sys.executable, "-P", "-c", code)
    theirs = int(companion.ask("", 60) or 0)
    companion.close()
    assert 1 << 20 < theirs < 1 << 30
    assert mine >= host.process_bytes() * 0.9
