"""Measure what bombs on the bus cost: memory of runner and client, and how soon an honest request is answered.

    python benchmarks/bombs.py [--runs N] [--only NAME]

Each bomb is put on a bus of its own, as a push would leave it there, while a real runner serves. An honest request is
sent afterwards and followed with the real client; then the client looks at the bomb itself. Memory is the peak of the
process, and apart from it that of all git processes that it started together. The exit code is 1 if runner or client
took more than their goals, or if the honest request was not answered.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import subprocess
import sys
import threading
import time
import zlib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import psutil
from common import Figure, Place, git, make, options_of, policy_for, print_figures

MESSAGE_MB = 700
ENTRIES = 3_000_000
DEEP = 3_000
REFS = 100_000
OBJECTS = 1_000_000
TIMES = 4_000
WAIT = "180s"
# The most memory of the runner and of the client, in MB.
RUNNER_MB, CLIENT_MB = 150, 200


def message(place: Place) -> str:
    """A commit message of 700 MB."""
    body = b"tree %s\nauthor x <x> 1 +0000\ncommitter x <x> 1 +0000\n\n" % _tree_of(place)
    return _branch(place, _store(place, b"commit", body, b"m" * (1 << 20), MESSAGE_MB))


def wide(place: Place) -> str:
    """A folder of three million entries, at the top of the tree."""
    blob = bytes.fromhex(_store(place, b"blob", b"x"))
    entries = b"".join(b"100644 %07d\0" % i + blob for i in range(ENTRIES))
    return _branch(place, _commit(place, _store(place, b"tree", entries)))


def deep(place: Place) -> str:
    """A folder in a folder, three thousand deep, where the bridge's files are."""
    tree = _store(place, b"tree", b"100644 x\0" + bytes.fromhex(_store(place, b"blob", b"x")))
    for _ in range(DEEP):
        tree = _store(place, b"tree", b"40000 .mac-bridge\0" + bytes.fromhex(tree))
    return _branch(place, _commit(place, tree))


def refs(place: Place) -> str:
    """A hundred thousand branches."""
    head = _head(place)
    names = [f"mac-bridge/noop-{1_700_000_000 + i}-{i:08x}" for i in range(REFS)]
    lines = "".join(f"{head} refs/heads/{name}\n" for name in [*names, "main"])
    (place.bus / "packed-refs").write_text(
        f"# pack-refs with: peeled fully-peeled sorted \n{lines}", encoding="utf-8"
    )
    return names[-1]


def names(place: Place) -> str:
    """Four thousand names for one file of 16 MB: 64 GB in a push of some kilobytes."""
    base = os.urandom(1 << 10) * (1 << 14)
    first = _store(place, b"blob", base)
    entries = b"".join(b"100644 %05d\0" % i + bytes.fromhex(first) for i in range(TIMES))
    reports = _store(place, b"tree", b"40000 research\0" + bytes.fromhex(_store(place, b"tree", entries)))
    return _branch(place, _commit(place, _store(place, b"tree", b"40000 results\0" + bytes.fromhex(reports))))


def tiny(place: Place) -> str:
    """A pack of a million objects of a few bytes."""
    head, out = _head(place), [b"feature done\n"]
    out += [b"blob\nmark :%d\ndata 7\n%07d\n" % (i + 1, i) for i in range(OBJECTS)]
    out.append(
        b"commit refs/heads/mac-bridge/tiny\ncommitter x <x> 1 +0000\ndata 0\nfrom %s\n" % head.encode()
    )
    out += [
        b"M 100644 :%d f%d/%d/%d\n" % (i + 1, i // 10_000, i // 100 % 100, i % 100) for i in range(OBJECTS)
    ]
    git(place.bus, "fast-import", "--quiet", "--done", stdin=b"".join([*out, b"done\n"]))
    name = "mac-bridge/noop-1700000000-abcdef"
    tip = subprocess.run(
        ["git", "rev-parse", "mac-bridge/tiny"], cwd=place.bus, capture_output=True, text=True, check=True
    )
    git(place.bus, "update-ref", "-d", "refs/heads/mac-bridge/tiny")
    git(place.bus, "update-ref", f"refs/heads/{name}", tip.stdout.strip())
    return name


def unfolding(place: Place) -> str:
    """A folder below .mac-bridge that unfolds to a million paths from a handful of objects."""
    tree = _store(place, b"tree", b"100644 x\0" + bytes.fromhex(_store(place, b"blob", b"x")))
    for _ in range(3):
        tree = _store(place, b"tree", b"".join(b"40000 %03d\0" % i + bytes.fromhex(tree) for i in range(100)))
    return _branch(
        place, _commit(place, _store(place, b"tree", b"40000 .mac-bridge\0" + bytes.fromhex(tree)))
    )


BOMBS: dict[str, Callable[[Place], str]] = {
    "message": message, "wide": wide, "deep": deep, "refs": refs, "names": names, "tiny": tiny,
    "unfolding": unfolding,
}  # fmt: skip

# The bombs that took more than the goals allow.
MISSED: list[str] = []


class Peak:
    """The largest memory of a process, and of what it started, sampled while it runs."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self.own = self.family = 0.0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        with suppress(psutil.Error):
            process = psutil.Process(self._pid)
            while not self._over.wait(0.05):
                self.own = max(self.own, process.memory_info().rss / 1e6)
                below = 0.0
                for child in process.children(recursive=True):
                    with suppress(psutil.Error):
                        below += child.memory_info().rss / 1e6
                self.family = max(self.family, below)

    def stop(self) -> None:
        """End."""
        self._over.set()
        self._thread.join()


def figure(bomb: Callable[[Place], str]) -> Figure:
    """Return what measures one bomb."""

    def measured(folder: Path, options: argparse.Namespace) -> None:
        del options
        place = make(folder)
        argv = [sys.executable, "-P", "-m", "runner", "--policy", str(policy_for(folder, place)), "serve"]
        with (folder / "log").open("wb") as log:
            runner = subprocess.Popen(argv, stderr=log, cwd=folder)
        peak = Peak(runner.pid)
        try:
            _kakeya(place, "run", "noop", "--wait", WAIT)
            branch = bomb(place)
            time.sleep(1)
            code, seconds, client, _ = _kakeya(place, "run", "noop", "--wait", WAIT)
            answered = f"answered in {seconds:.1f} s" if code == 0 else f"NOT answered (exit code {code})"
            looked = [(verb, *_kakeya(place, verb, *more)) for verb, *more in _looks(branch)]
            time.sleep(5)
        finally:
            runner.terminate()
            runner.wait(60)
            peak.stop()
        most = max(client, *(one[3] for one in looked))
        if code or peak.own > RUNNER_MB or most > CLIENT_MB:
            MISSED.append(bomb.__name__)
        said = ", ".join(f"{verb} {seconds:.1f} s, exit code {code}" for verb, code, seconds, _, _ in looked)
        print(f"{bomb.__doc__}\n  honest request {answered}; runner {peak.own:.0f} MB (goal < {RUNNER_MB} MB), "
              f"its git processes {peak.family:.0f} MB; client {most:.0f} MB (goal < {CLIENT_MB} MB), "
              f"its git processes {max(one[4] for one in looked):.0f} MB; {said}", flush=True)  # fmt: skip

    return measured


def _looks(branch: str) -> list[tuple[str, ...]]:
    return [("list",), ("status", branch), ("verify", branch)]


def _kakeya(place: Place, *args: str) -> tuple[int, float, float, float]:
    """Run a client command; return its exit code, its seconds, and the peaks of its memory and of its git's."""
    program = Path(sys.executable).with_name("kakeya")
    began = time.perf_counter()
    child = subprocess.Popen(
        [program, "-C", place.clone, *args], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    peak = Peak(child.pid)
    code = child.wait()
    peak.stop()
    return code, time.perf_counter() - began, peak.own, peak.family


def _store(place: Place, kind: bytes, content: bytes, piece: bytes = b"", times: int = 0) -> str:
    """Write an object into the bus: `content`, and a piece that many times over."""
    digest, packer = hashlib.sha1(), zlib.compressobj(1)
    draft = place.bus / "objects" / "draft"
    with draft.open("wb") as file:
        for part in (b"%s %d\0" % (kind, len(content) + len(piece) * times), content, *([piece] * times)):
            digest.update(part)
            file.write(packer.compress(part))
        file.write(packer.flush())
    oid = digest.hexdigest()
    path = place.bus / "objects" / oid[:2] / oid[2:]
    path.parent.mkdir(exist_ok=True)
    draft.replace(path)
    return oid


def _commit(place: Place, tree: str) -> str:
    lines = b"tree %s\nparent %s\nauthor x <x> 1 +0000\ncommitter x <x> 1 +0000\n\nx\n"
    return _store(place, b"commit", lines % (tree.encode(), _head(place).encode()))


def _branch(place: Place, commit: str) -> str:
    name = f"mac-bridge/noop-{int(time.time())}-abcdef"
    git(place.bus, "update-ref", f"refs/heads/{name}", commit)
    return name


def _head(place: Place) -> str:
    done = subprocess.run(
        ["git", "rev-parse", "main"], cwd=place.bus, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def _tree_of(place: Place) -> bytes:
    done = subprocess.run(["git", "rev-parse", "main^{tree}"], cwd=place.bus, capture_output=True, check=True)
    return done.stdout.strip()


if __name__ == "__main__":
    print_figures(options_of(__doc__, runs=1), {name: figure(bomb) for name, bomb in BOMBS.items()})
    if MISSED:
        sys.exit(f"beyond the goals: {', '.join(MISSED)}")
