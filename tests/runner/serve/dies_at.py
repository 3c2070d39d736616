"""Real runners that kill themselves before their n-th step: `dies_at.py POLICY STEPS`, and each N as a line.

A runner is forked for each line, from a process that has imported what they need, and handles one request if it is not
killed. How it ended is printed as a number: negative for a signal.

A step is whatever leaves something behind: a call of git that writes, a change of the ledger, a file that is put in
place. A kill before a call that only reads leaves what one before the next step does. A push has a second step while
git is at it.
"""

from __future__ import annotations

import os
import signal
import sys
import traceback
from pathlib import Path

from bridge.system import process
from bridge.system.git import Git
from runner.context import open_runner
from runner.policy import load_policy
from runner.serve.loop import serve
from runner.state.ledger import Ledger

READS = {
    "cat-file", "check-ref-format", "count-objects", "for-each-ref", "log", "ls-remote", "ls-tree", "merge-base",
    "rev-list", "rev-parse",
}  # fmt: skip


def main(policy: str, steps: str) -> None:
    for line in sys.stdin:
        said, saying = os.pipe()
        if (child := os.fork()) == 0:
            os.dup2(saying, sys.stdout.fileno())
            os.dup2(saying, sys.stderr.fileno())
            os.close(said)
            os.close(saying)
            ended = 1
            try:
                run(policy, int(line), steps)
                ended = 0
            finally:
                if ended:
                    traceback.print_exc()
                os._exit(ended)
        os.close(saying)
        with os.fdopen(said, "rb") as pipe:  # until what the runner started has ended too
            sys.stderr.buffer.write(pipe.read())
            sys.stderr.flush()
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


def run(policy: str, last: int, steps: str) -> None:
    with Path(steps).open("w", encoding="utf-8") as noted:
        count = 0

        def step(name: str) -> None:
            nonlocal count
            if name.removeprefix("git ") in READS:
                return
            count += 1
            noted.write(f"{name}\n")
            noted.flush()
            if count == last:
                os.kill(os.getpid(), signal.SIGKILL)

        start, write, replace, bounds = Git.start, Ledger.transaction, Path.replace, process.LimitEnforcer

        def bound(child, *limits):
            if "push" in child.args:
                step("git push, under way")
            return bounds(child, *limits)

        Git.start = lambda git, *args, **more: (step(f"git {args[0]}"), start(git, *args, **more))[1]
        Ledger.transaction = lambda ledger: (step("ledger"), write(ledger))[1]
        Path.replace = lambda path, target: (step(f"replace {Path(target).name}"), replace(path, target))[1]
        process.LimitEnforcer = bound
        with open_runner(load_policy(Path(policy)), lambda line: print(line, flush=True)) as context:
            serve(context, limit=1)


if __name__ == "__main__":
    main(*sys.argv[1:])
