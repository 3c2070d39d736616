"""A program in a real pseudo-terminal, which is its controlling one: Ctrl-C is a key."""

import codecs
import os
import pty
import re
import select
import subprocess
import sys
import termios
import time

ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[ -/]*[0-~])")
# Becomes the leader of a session with the terminal on its descriptor 0, and then the program.
LEAD = (
    "import fcntl, os, sys, termios; os.setsid(); fcntl.ioctl(0, termios.TIOCSCTTY, 0); "
    "os.execv(sys.argv[1], sys.argv[1:])"
)
PASTES = "\x1b[?2004h"  # a line editor says that it is ready
PROMPT = "[prompt]"  # stands for that in what is shown
SECONDS = 60
CTRL_C, CTRL_D, ENTER = "\x03", "\x04", "\r"


class Terminal:
    """A running program, and what it has shown that nobody waited for yet, without escape sequences."""

    def __init__(self, *argv, columns=80, stdout=None, **env):
        self.ours, self.theirs = pty.openpty()
        termios.tcsetwinsize(self.theirs, (24, columns))
        self._mode = termios.tcgetattr(self.theirs)
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self.shown = self.raw = ""
        self.process = subprocess.Popen(
            [sys.executable, "-c", LEAD, sys.executable, "-P", "-m", "engine", *argv],
            stdin=self.theirs, stdout=self.theirs if stdout is None else stdout, stderr=self.theirs,
            env={**os.environ, "TERM": "xterm", "PROMPT_TOOLKIT_NO_CPR": "1", **env},
        )  # fmt: skip

    def type(self, text):
        """Press keys, or paste."""
        os.write(self.ours, text.encode())

    def until(self, text, seconds=SECONDS):
        """Return what was shown before a text, once it has come."""
        end = time.monotonic() + seconds
        while text not in self.shown:
            assert time.monotonic() < end, f"no {text!r} in {self.shown!r}"
            assert self._read(0.1) or self.process.poll() is None, f"ended without {text!r}: {self.shown!r}"
        before, _, self.shown = self.shown.partition(text)
        return before

    def ended(self, seconds=SECONDS):
        """Return the exit code, once the program has ended."""
        end = time.monotonic() + seconds
        while self.process.poll() is None:
            assert time.monotonic() < end, f"it did not end: {self.shown!r}"
            self._read(0.05)
        while self._read(0):
            pass
        return self.process.returncode

    @property
    def is_restored(self):
        """Whether the terminal has the mode that it had at first."""
        return termios.tcgetattr(self.theirs)[:4] == self._mode[:4]

    def hang_up(self):
        """Close the terminal, as its window does."""
        os.close(self.theirs)
        os.close(self.ours)
        self.ours = None

    def _read(self, seconds):
        if not select.select([self.ours], [], [], seconds)[0]:
            return False
        text = self._decoder.decode(os.read(self.ours, 65536))
        self.raw += text
        self.shown += ESCAPES.sub("", text.replace(PASTES, PROMPT)).replace("\r", "")
        return True

    def __enter__(self):
        return self

    def __exit__(self, *error):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(SECONDS)
        if self.ours is not None:
            os.close(self.ours)
            os.close(self.theirs)
