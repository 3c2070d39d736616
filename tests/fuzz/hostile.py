"""A pusher without scruples: writes whatever objects and references chance brings straight into a bare repository."""

from __future__ import annotations

import copy
import hashlib
import json
import os
import random
import shutil
import subprocess
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

WHO = b"A Stranger <stranger@example.invalid> 1700000000 +0000"
WHOM = (b"", b"x", b"<> 99999999999999999999 +9999", b"\xff\x00")
MODES = (
    b"40000",
    b"100644",
    b"100755",
    b"120000",
    b"160000",
    b"100664",
    b"0100644",
    b"0",
    b"777777",
    b"1",
    b"",
)
NAMES = (
    b".mac-bridge", b"request.json", b"state.json", b"result.json", b"cancel.json", b"logs", b"results", b"research",
    b"stream.log", b"evidence.dsse.json", b".git", b".GIT", b"git~1", b"..", b".", b"", b"a/b", b"\xff\xfe", b"-x",
    b"\xe2\x80\xa8", b"\x1b]52;c;aGk=\x07", b"n\nn", b".gitmodules", b".gitattributes", "ﬃ".encode(), b"CON",
    b"x" * 300, b"y" * 4000,
)  # fmt: skip
WORDS = (
    "", "x", "noop", "succeeded", "running", "../../x", "/etc/passwd", "\x00", "\x1b[2J", "\u2028", "\u202e",
    "[red]x[/]", "<script>", "--help", "\ud800", "${ENV:HOME}", "x" * 70_000, "::set-env name=x::y",
    "\r\nok   verified",
)  # fmt: skip
VALUES: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 2**53, 10**18, 10**400, 1e308, -0.0, 1.5, [], {}, [[]], {"": {}}, *WORDS,
    [1] * 3000, {str(i): i for i in range(500)},
)  # fmt: skip
TOKENS = (
    b"NaN",
    b"Infinity",
    b"-0",
    b"1e999",
    b"[" * 5000,
    b'{"a":' * 2000,
    b'"\\ud800"',
    b"\xff",
    b"\x00",
    b"//",
    b"}",
)


class Pusher:
    """Chance with a push right; `broken`: on a server that has lost objects and holds references of any kind.

    A server that works takes a branch only at a commit below which nothing is missing, and only under a valid name.
    """

    def __init__(self, bus: Path, chance: random.Random, *, broken: bool = False) -> None:
        self._bus = bus
        self._chance = chance
        self._broken = broken
        # Requests with their branches, honest ones too, of which bad copies are made.
        self.branches: list[str] = []
        self._trees: list[str] = []
        self._blobs: list[str] = []
        self._commits: list[str] = []
        # The files of honest answers: `path` to content, as material.
        self.material: list[dict[str, bytes]] = []
        self.counts: dict[str, int] = {}
        self.refused = 0
        self._head = (bus / "refs" / "heads" / "main").read_text().strip()

    def act(self) -> None:
        """Do one bad thing."""
        deeds: list[tuple[Callable[[], None], int]] = [
            (self.forge, 10), (self.litter, 4), (self.misname, 3), (self.move, 3), (self.bury, 1), (self.wreck_tree, 4),
        ]  # fmt: skip
        deeds += [(self.break_ref, 1)] if self._broken else []
        deed = self._chance.choices([d for d, _ in deeds], [w for _, w in deeds])[0]
        self.counts[deed.__name__] = self.counts.get(deed.__name__, 0) + 1
        deed()

    # What is put where.

    def forge(self) -> None:
        """A request with bad files in its folder, or commits of states and answers upon it."""
        branch = self._new_branch()
        request = self.commit(self._folder({"request.json": self._manifest(branch)}), [self._main()])
        tip = request
        for _ in range(self._chance.choice((0, 1, 1, 1, 2, 5))):
            files = {"request.json": self._manifest(branch), "state.json": self._state(branch, request)}
            if self._chance.random() < 0.5:
                files["result.json"] = self._result(branch, request)
            if self._chance.random() < 0.3:
                files["cancel.json"] = self._cancel(branch, request)
            if self._chance.random() < 0.3:
                files["stream.log"] = self._noise()
            for name in ("logs", "evidence.dsse.json"):
                if self._chance.random() < 0.2:
                    files[name] = self._noise()
            tip = self.commit(self._folder(files), [tip])
        self.put(branch, tip)

    def litter(self) -> None:
        """A branch with a good name at anything."""
        self.put(self._new_branch(), self._anything())

    def misname(self) -> None:
        """A branch with a bad name."""
        good = self._new_branch().encode()
        bad = self._chance.choice((
            lambda: bytes(b if self._chance.random() > 0.05 else self._chance.randrange(33, 256) for b in good),
            lambda: good + self._chance.choice(NAMES).replace(b"\n", b"").replace(b"\x00", b""),
            lambda: b"mac-bridge/" + b"/".join([b"d"] * self._chance.randrange(1, 900)),
            lambda: good + b"/" + good,
            lambda: b"mac-bridge",
            lambda: b"mac-bridge/noop-" + b"9" * self._chance.randrange(1, 300) + b"-abcdef",
            lambda: good.replace(b"noop", self._chance.choice((b"..", b"-p", b"@{-1}", b"a.lock", b"NOOP", b""))),
        ))()  # fmt: skip
        self._pack(bad, self._some(self._commits) or self._anything())

    def move(self) -> None:
        """Set a hostile branch to another one's commit, back, or away."""
        if not self.branches:
            return
        branch = self._chance.choice(self.branches)
        path = self._bus / "refs" / "heads" / branch
        if self._chance.random() < 0.3:
            if path.is_file():
                path.unlink()
            return
        self.put(branch, self._some(self._commits) or self._main())

    def bury(self) -> None:
        """A folder in a folder in a folder, thousands deep, where a reader would look."""
        tree = self.tree([(b"100644", b"f", self.blob(b"x"))])
        for _ in range(self._chance.choice((70, 600, 3000))):
            tree = self.tree([(b"40000", self._chance.choice((b"d", b".mac-bridge", b"results")), tree)])
        self.put(self._new_branch(), self.commit(tree, [self._main()]))

    def break_ref(self) -> None:
        """A reference that is none, or points at another one."""
        path = self._bus / "refs" / "heads" / self._new_branch()
        text = self._chance.choice((
            "ref: refs/heads/main\n", "ref: refs/heads/mac-bridge/gone\n", "ref: HEAD\n", f"{'0' * 40}\n", "rubbish\n",
            "", f"{'f' * 40}\n", "ref: ../../../etc/passwd\n", f"ref: {path.relative_to(self._bus)}\n",
        ))  # fmt: skip
        if not any(parent.is_file() for parent in path.parents):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)

    def wreck_tree(self) -> None:
        """A request whose tree holds what no git would put there: as a request's own code, or as an answer."""
        branch = self._new_branch()
        entries = [
            (
                self._chance.choice(MODES),
                self._chance.choice(NAMES),
                self._some(self._blobs + self._trees) or "0" * 40,
            )
            for _ in range(self._chance.choice((1, 3, 30, 2000)))
        ]
        entries.append((b"40000", b".mac-bridge", self._manifest_folder(branch)))
        if self._chance.random() < 0.5:
            entries.sort(key=lambda entry: entry[1])
        self.put(branch, self.commit(self.tree(entries), [self._main()]))

    # What it is made of.

    def _manifest_folder(self, branch: str) -> str:
        return self.tree([(b"100644", b"request.json", self.blob(self._manifest(branch)))])

    def _folder(self, files: dict[str, bytes]) -> str:
        """Return a commit's tree with these files in the bridge's folder, some of them in a bad way."""
        entries = []
        for name, content in sorted(files.items()):
            oid, mode = self.blob(content), b"100644"
            if self._chance.random() < 0.04:
                mode = self._chance.choice(MODES)
            if self._chance.random() < 0.03:
                oid = self._some(self._trees) or "1" * 40
            entries.append((mode, name.encode(), oid))
            if self._chance.random() < 0.02:
                entries.append((b"100644", name.encode(), self.blob(self._noise())))
        inner = self.tree(entries)
        top = [
            (self._chance.choice(MODES) if self._chance.random() < 0.03 else b"40000", b".mac-bridge", inner)
        ]
        if self._chance.random() < 0.2 and self._trees:
            top.append(
                (b"40000", b"results", self.tree([(b"40000", b"research", self._chance.choice(self._trees))]))
            )
        return self.tree(top)

    def _manifest(self, branch: str) -> bytes:
        preset, _, nonce = branch.rpartition("/")[2].partition("-")
        now = time.gmtime()
        whole = {
            "schema_version": 2, "preset": preset, "params": {}, "ref": "HEAD", "requested_by": "x",
            "nonce": nonce, "workload": self._main(), "created_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", now),
            "expires_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 3600)),
            "code": "request" if preset == "look" else "installed",
        }  # fmt: skip
        return self._spoil(whole, 0.6)

    def _state(self, branch: str, request: str) -> bytes:
        states = (
            "requested",
            "claimed",
            "running",
            "succeeded",
            "failed",
            "refused",
            "cancelled",
            "lost",
            "gate_rejected",
        )
        whole = {
            "schema_version": 2, "state": self._chance.choice(states), "branch": branch, "request": request,
            "salt": f"{self._chance.getrandbits(64):016x}", "token": self._chance.choice((0, 1, 2, 10**12, 10**12 + 1)),
            "sequence": self._chance.choice((1, 2, 10**12)),
            "lease_s": self._chance.choice((1e-6, 5.0, 86_400.0, 86_401.0)),
            "runner": {"id": "x", "instance": "x", "version": "0"}, "at": "2026-01-01T00:00:00Z",
            "step": None, "detail": "",
        }  # fmt: skip
        return self._spoil(whole, 0.4)

    def _cancel(self, branch: str, request: str) -> bytes:
        whole = {"schema_version": 2, "branch": branch, "request": request, "by": "x", "at": "", "reason": ""}
        return self._spoil(whole, 0.5)

    def _result(self, branch: str, request: str) -> bytes:
        some = [files["result.json"] for files in self.material if "result.json" in files]
        if not some:
            return self._noise()
        whole = json.loads(self._chance.choice(some))
        if self._chance.random() < 0.7:
            whole |= {"branch": branch, "request": request}
        return self._spoil(whole, 0.7)

    def _spoil(self, whole: dict[str, Any], often: float) -> bytes:
        """Return an object as JSON, mostly with something wrong in it: a value, a key, or the text itself."""
        if self._chance.random() > often:
            return json.dumps(whole).encode()
        for _ in range(self._chance.choice((1, 1, 2, 5))):
            place: Any = whole
            key: Any = self._chance.choice(list(place) or [""])
            while (
                isinstance(place.get(key) if isinstance(place, dict) else None, dict)
                and self._chance.random() < 0.7
            ):
                place = place[key]
                key = self._chance.choice(list(place) or ["x"])
            what = self._chance.random()
            if what < 0.6:
                place[key] = copy.deepcopy(self._chance.choice(VALUES))
            elif what < 0.8:
                place.pop(key, None)
            else:
                place[self._chance.choice(WORDS[:-3])] = copy.deepcopy(self._chance.choice(VALUES))
        text = json.dumps(whole, ensure_ascii=self._chance.random() < 0.7).encode("utf-8", "surrogatepass")
        if self._chance.random() < 0.25:
            at = self._chance.randrange(len(text) + 1)
            cut = at + self._chance.choice((0, 1, 30))
            text = text[:at] + self._chance.choice(TOKENS) + text[cut:]
        return text

    def _noise(self) -> bytes:
        return self._chance.choice((
            b"", b"\x00" * 100, b"a line\n" * 50, b"\x1b]0;x\x07\x9b2J\xe2\x80\xae\r\n",
            self._chance.randbytes(3000), b"{" * 20_000, b"z" * (1 << 20), b"[" + b"[]," * 5000 + b"1]",
        ))  # fmt: skip

    def _anything(self) -> str:
        return self._chance.choice((
            lambda: self.blob(self._noise()),
            lambda: self._some(self._trees) or "2" * 40,
            lambda: f"{self._chance.getrandbits(160):040x}",
            lambda: self.commit("3" * 40, [self._main()]),
            lambda: self.commit(self._main_tree(), ["4" * 40]),
            lambda: self.commit(self._main_tree(), [self._main()] * self._chance.choice((2, 300))),
            lambda: self.raw("commit", self._chance.choice((b"", b"tree x\n\n", b"parent \n", self._noise()))),
            lambda: self.raw("tag", b"object %s\ntype commit\ntag t\ntagger %s\n\n" % (self._main().encode(), WHO)),
            lambda: self.commit(self._main_tree(), [self._main()], message=b"m" * (1 << 20)),
            lambda: self.commit(self._main_tree(), [self._main()], who=self._chance.choice(WHOM)),
        ))()  # fmt: skip

    def _new_branch(self) -> str:
        preset = self._chance.choice(("noop", "noop", "look", "data", "none"))
        place = self._chance.choice(("", "", "", "a/", f"x{self._chance.randrange(50)}/"))
        branch = f"mac-bridge/{place}{preset}-{int(time.time())}-{self._chance.getrandbits(48):012x}"
        self.branches.append(branch)
        return branch

    def _main(self) -> str:
        return self._head

    def _main_tree(self) -> str:
        return self._some(self._trees) or "5" * 40

    def _some(self, known: list[str]) -> str | None:
        return self._chance.choice(known) if known else None

    # How it is written down.

    def blob(self, content: bytes) -> str:
        """Store a blob."""
        self._blobs.append(self.raw("blob", content))
        return self._blobs[-1]

    def tree(self, entries: list[tuple[bytes, bytes, str]]) -> str:
        """Store a tree, whatever its entries are."""
        raw = b"".join(mode + b" " + name + b"\0" + bytes.fromhex(oid) for mode, name, oid in entries)
        self._trees.append(self.raw("tree", raw))
        return self._trees[-1]

    def commit(self, tree: str, parents: list[str], *, message: bytes = b"x\n", who: bytes = WHO) -> str:
        """Store a commit."""
        lines = [b"tree " + tree.encode(), *(b"parent " + parent.encode() for parent in parents)]
        lines += [b"author " + who, b"committer " + who, b"", message]
        self._commits.append(self.raw("commit", b"\n".join(lines)))
        return self._commits[-1]

    def raw(self, kind: str, content: bytes) -> str:
        """Store an object of any content, some damaged, some never."""
        whole = b"%s %d\0" % (kind.encode(), len(content)) + content
        oid = hashlib.sha1(whole).hexdigest()
        chance = self._chance.random()
        path = self._bus / "objects" / oid[:2] / oid[2:]
        if path.exists() or (self._broken and chance < 0.005):
            return oid
        path.parent.mkdir(exist_ok=True)
        packed = zlib.compress(whole, 1)
        path.write_bytes(packed[: len(packed) // 2] if self._broken and chance < 0.01 else packed)
        return oid

    def put(self, branch: str, commit: str) -> None:
        """Set a branch."""
        path = self._bus / "refs" / "heads" / branch
        if not self._is_taken(commit):
            self.refused += 1
            return
        if path.is_dir() or any(parent.is_file() for parent in path.parents):
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{commit}\n")

    def _is_taken(self, commit: str) -> bool:
        """Say whether the server takes a branch at an object."""
        if self._broken:
            return True
        walk = ["git", "rev-list", "--objects", "--quiet", commit, "--not", "main"]
        kind = ["git", "cat-file", "-t", commit]
        if subprocess.run(kind, cwd=self._bus, capture_output=True, check=False).stdout != b"commit\n":
            return False
        return subprocess.run(walk, cwd=self._bus, capture_output=True, check=False).returncode == 0

    def _pack(self, name: bytes, oid: str) -> None:
        """Put a reference among the packed ones, where its name need not be one that a file can have."""
        said = ["git", "check-ref-format", b"refs/heads/" + name]
        if b"\0" in name or not (self._is_taken(oid) and subprocess.run(said, check=False).returncode == 0):
            self.refused += 1
            return
        file = self._bus / "packed-refs"
        lines = [line for line in file.read_bytes().split(b"\n") if line] if file.exists() else []
        refs = {line.partition(b" ")[2]: line for line in lines if not line.startswith((b"#", b"^"))}
        name = b"refs/heads/" + name.replace(b"\n", b"").replace(b" ", b"").replace(b"\0", b"")
        loose = (
            path.relative_to(self._bus)
            for path in (self._bus / "refs" / "heads").rglob("*")
            if path.is_file()
        )
        there = {*refs, *(os.fsencode(path) for path in loose)}
        if not self._broken and any(
            name.startswith(one + b"/") or one.startswith(name + b"/") for one in there
        ):
            self.refused += 1
            return
        refs[name] = oid.encode() + b" " + name
        head = b"# pack-refs with: peeled fully-peeled sorted "
        fresh = file.with_suffix(".new")
        fresh.write_bytes(b"\n".join([head, *(refs[key] for key in sorted(refs)), b""]))
        fresh.replace(file)

    def tidy(self, most: int = 400) -> None:
        """Remove the oldest branches, so that a long run is not about their number."""
        while len(self.branches) > most:
            path = self._bus / "refs" / "heads" / self.branches.pop(0)
            if path.is_file():
                path.unlink()
        if self._chance.random() < 0.02:
            (self._bus / "packed-refs").unlink(missing_ok=True)
            self.put("main", self._head)
            shutil.rmtree(self._bus / "refs" / "heads" / "mac-bridge" / "a", ignore_errors=True)
