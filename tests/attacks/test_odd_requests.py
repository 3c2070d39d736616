"""Requests that git itself would never have made, on odd hosts: rows 83 to 85 of the tables in docs/security.md."""

from __future__ import annotations

import json
import shlex
import stat
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from bridge.bus import objects, wire
from bridge.bus.branch_names import new_nonce
from bridge.bus.wire import State
from bridge.client import Client, Run
from bridge.system.git import Git
from runner.cli import cli
from tests.conftest import RunnerProcess

pytestmark = pytest.mark.bus

STRANGER = objects.Identity("A Stranger", "stranger@example.invalid")


@dataclass
class Stranger:
    """Somebody who may push, and writes requests byte by byte."""

    bus: Path
    client: Client
    keyed: Any

    @property
    def git(self) -> Git:
        return Git.isolated(self.bus)

    def blob(self, content: bytes) -> str:
        return objects.write_blob(self.git, content)

    def tree(self, *entries: tuple[bytes, bytes, str]) -> str:
        """Write a folder of modes, names and ids as they are; folders come last, which suits the names used here."""
        raw = b"".join(mode + b" " + name + b"\0" + bytes.fromhex(oid) for mode, name, oid in entries)
        return self.git.text("hash-object", "-t", "tree", "-w", "--literally", "--stdin", stdin=raw)

    def manifest(self, **changes: object) -> tuple[str, bytes]:
        """Return a branch, and a valid manifest for it with changes."""
        nonce = new_nonce()
        whole = {
            "schema_version": 1, "preset": "noop", "params": {}, "ref": "HEAD", "requested_by": "a stranger",
            "nonce": nonce,
        } | changes  # fmt: skip
        return f"mac-bridge/noop-{nonce}", json.dumps(whole).encode()

    def put(self, branch: str, tree: str) -> None:
        upon = [self.git.text("rev-parse", "main")]
        commit = objects.commit(self.git, tree, upon, "a request\n", STRANGER)
        self.git("update-ref", f"refs/heads/{branch}", commit)

    def answer(self, branch: str) -> tuple[State, str]:
        """Let a runner handle whatever there is, beside an honest request, and return what it answered."""
        honest = self.client.run("noop")
        self.keyed.handle(signed=False)
        assert self.state(honest.branch) == (State.SUCCEEDED, "ok")
        return self.state(branch)

    def state(self, branch: str) -> tuple[State, str]:
        blob = objects.read_blob(self.git, f"refs/heads/{branch}", wire.RESULT, max_bytes=wire.MAX_RESULT)
        assert blob is not None, self.keyed.told
        result = wire.parse_result(blob)
        assert result is not None
        return result.state, result.reason.code


@pytest.fixture
def stranger(bus, client, keyed) -> Stranger:
    return Stranger(bus, client, keyed)


# Row 83: entries of a tree that git refuses to write again.


ODD = (
    (b"20000", "file"),
    (b"160000", "file"),
    (b"160000", "folder"),
    (b"777777", "file"),
    (b"7" * 300, "file"),
)


def test_entries_that_fit_no_object_are_passed_on_and_the_request_is_answered(stranger):
    branches = {}
    for mode, of in ODD:
        branch, manifest = stranger.manifest()
        blob = stranger.blob(manifest)
        inner = stranger.tree((b"100644", b"request.json", blob))
        odd = (mode, b"a", blob if of == "file" else inner)
        research = stranger.tree(odd, (b"40000", b"research", stranger.tree(odd)))
        bridge = stranger.tree(odd, (b"100644", b"request.json", blob))
        root = stranger.tree((b"40000", b".mac-bridge", bridge), odd, (b"40000", b"results", research))
        stranger.put(branch, root)
        branches[branch] = (mode, of)
    stranger.answer(branch)

    for branch, what in branches.items():
        assert stranger.state(branch) == (State.SUCCEEDED, "ok"), what
        checks = {check.name: check.ok for check in stranger.client.verify(branch).checks}
        assert checks["files"], what


def _where_answers_go(s: Stranger, manifest: bytes) -> dict[str, list[tuple[bytes, bytes, str]]]:
    """Return entries of requests with something else where an answer has a file or a folder, or an odd manifest."""
    blob, link, commit = s.blob(manifest), s.blob(b"elsewhere"), s.git.text("rev-parse", "main")
    honest = (b"40000", b".mac-bridge", s.tree((b"100644", b"request.json", blob)))
    others = {"file": (b"100644", blob), "link": (b"120000", link), "submodule": (b"160000", commit)}
    found = {}
    for kind, (mode, oid) in others.items():
        found[f"{kind} for results"] = [honest, (mode, b"results", oid)]
        research = s.tree((mode, b"research", oid))
        found[f"{kind} for research"] = [honest, (b"40000", b"results", research)]
        found[f"{kind} for the folder"] = [(mode, b".mac-bridge", oid)]
    for mode, oid in ((b"100755", blob), (b"120000", link), (b"160000", commit)):
        folder = s.tree((mode, b"request.json", oid))
        found[f"manifest with {mode.decode()}"] = [(b"40000", b".mac-bridge", folder)]
    return found


def test_an_answer_verifies_whatever_was_where_it_has_its_files(stranger, presets):
    script = "echo 1 >results/research/a.txt"
    reports = presets(
        reports={"steps": [{"argv": ["/bin/sh", "-c", script]}], "collect": ["results/research/*.txt"]}
    )
    branches = {}
    for what in _where_answers_go(stranger, b""):
        _, manifest = stranger.manifest(preset="reports", nonce=(nonce := new_nonce()))
        branches[what] = f"mac-bridge/reports-{nonce}"
        stranger.put(branches[what], stranger.tree(*_where_answers_go(stranger, manifest)[what]))
    reader = Client(stranger.client.git.directory, presets=reports, public_key=stranger.keyed.key())
    stranger.keyed.handle(preset_folder=str(reports))

    for what, branch in branches.items():
        is_refused = what.endswith(("for the folder", "120000", "160000"))
        assert stranger.state(branch)[0] is (State.REFUSED if is_refused else State.SUCCEEDED), what
        report = reader.verify(branch)
        assert [check for check in report.checks if check.ok is False] == [], what


# Row 84: what a runner inherits from whoever starts it.

GIT = {
    "GIT_DIR": "/x", "GIT_WORK_TREE": "/x", "GIT_INDEX_FILE": "/x", "GIT_OBJECT_DIRECTORY": "/x",
    "GIT_ALTERNATE_OBJECT_DIRECTORIES": "/x", "GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "core.hooksPath",
    "GIT_CONFIG_VALUE_0": "/x", "GIT_NAMESPACE": "x", "GIT_TRACE": "1", "GIT_EXEC_PATH": "/x", "GIT_PROTOCOL": "0",
    "GIT_DEFAULT_HASH": "sha256", "GIT_SHALLOW_FILE": "/x", "GIT_REPLACE_REF_BASE": "refs/x", "GIT_TEMPLATE_DIR": "/x",
    "GIT_AUTHOR_DATE": "x", "GIT_COMMITTER_DATE": "x", "GIT_SSH_COMMAND": "false", "GIT_ALLOW_PROTOCOL": "none",
}  # fmt: skip
WORDS = {
    "LANG": "tr_TR.UTF-8",
    "LC_ALL": "xx_YY.KOI8-R",
    "TZ": "XXX-167:59:59",
    "PYTHONIOENCODING": "ascii:strict",
}
NOWHERE = {
    "HOME": "/nonexistent",
    "TMPDIR": "/nonexistent",
    "XDG_STATE_HOME": "/proc/1",
    "XDG_CONFIG_HOME": "/x",
}


@dataclass
class Started:
    """A runner that a shell starts in an odd way, and a request to it."""

    stranger: Stranger
    runners: Any
    wait_for: Any

    def answers(self, *, before: str = "", after: str = "", **policy: Any) -> Run:
        run = self.stranger.client.run("noop")
        argv = [sys.executable, "-P", "-m", "runner", "--policy", str(self.runners.policy(**policy)), "serve"]
        with (self.runners.folder / "log").open("wb") as log:
            script = f'{before} exec "$@" {after}'
            process = subprocess.Popen(["/bin/sh", "-c", script, "sh", *argv], stdout=log, stderr=log)
        started = RunnerProcess(self.runners.policy(**policy), process, self.runners.folder / "log")
        self.runners.started.append(started)
        self.wait_for(lambda: run.status().state.is_final or process.poll() is not None)
        assert run.status().state is State.SUCCEEDED, started.said()
        assert started.stop() == 0
        return run


@pytest.fixture
def started(stranger, runners, wait_for) -> Started:
    return Started(stranger, runners, wait_for)


def test_odd_variables_change_nothing(started):
    variables = {**GIT, **WORDS, **NOWHERE}
    started.answers(
        before=" ".join(f"export {name}={shlex.quote(value)};" for name, value in variables.items())
    )


@pytest.mark.parametrize("after", ["<&- >&- 2>&-", ">/dev/full 2>&1"], ids=["closed", "full"])
def test_a_runner_that_cannot_print_serves(started, after):
    started.answers(after=after)


@pytest.mark.parametrize("mask", ["000", "777"])
def test_any_umask_leaves_files_that_others_cannot_change(started, runners, mask):
    started.answers(before=f"umask {mask};")

    modes = {stat.S_IMODE(path.stat().st_mode) for path in (runners.folder / "state-one").rglob("*")}
    assert [oct(mode) for mode in modes if mode & 0o022 or not mode & 0o400] == []


def test_the_git_settings_of_the_runners_user_start_nothing(started, tmp_path, bus):
    home, ran = tmp_path / "home", tmp_path / "ran"
    hooks = home / "hooks"
    hooks.mkdir(parents=True)
    for name in ("pre-push", "reference-transaction", "post-index-change", "program"):
        (hooks / name).write_text(f"#!/bin/sh\necho {name} >> {ran}\nexit 1\n")
        (hooks / name).chmod(0o755)
    program = hooks / "program"
    (home / ".gitconfig").write_text(
        f"[core]\nhooksPath={hooks}\nfsmonitor={program}\nsshCommand={program}\n[gpg]\nprogram={program}\n"
        f'[url "/nonexistent/"]\ninsteadOf={bus.parent}/\n[commit]\ngpgsign=true\n[push]\ngpgSign=true\n'
        f"[credential]\nhelper=!{program}\n[protocol]\nallow=never\n[fetch]\nfsckObjects=false\n"
        f"[include]\npath={program}\n[i18n]\ncommitEncoding=utf-16\n[transfer]\nhideRefs=refs/heads\n"
    )
    started.answers(before=f"HOME={home}; export HOME;")

    assert not ran.exists()


# Row 85: what an operator approves is what would run.


def approve(trusting, what: str) -> Result:
    policy = trusting.keyed.runners.policy("one", **trusting.policy())
    return CliRunner().invoke(cli, ["--policy", str(policy), "approve", what])


def rewritten(trusting, run: Run, manifest: bytes, mode: str = "100644") -> str:
    """Put another manifest into a request, and return its new commit."""
    git = trusting.client.git
    folder = git.text("mktree", stdin=f"{mode} blob {objects.write_blob(git, manifest)}\trequest.json\n")
    root = [line for line in git.text("ls-tree", run.commit).split("\n") if wire.FOLDER not in line]
    tree = git.text("mktree", stdin="\n".join([*root, f"040000 tree {folder}\t{wire.FOLDER}"]) + "\n")
    commit = objects.commit(git, tree, objects.parents_of(git, run.commit), "a request\n", STRANGER)
    git("push", "--quiet", "--force", "origin", f"{commit}:refs/heads/{run.branch}")
    return commit


@pytest.mark.parametrize("layout", ["{}" + " " * 30_000, "\n" * 30_000 + "{}"], ids=["long", "far down"])
def test_an_approval_shows_the_manifest_as_the_runner_reads_it(trusting, layout):
    run = trusting.ask()
    manifest = trusting.client.git("cat-file", "blob", f"{run.commit}:{wire.REQUEST}").stdout
    commit = rewritten(trusting, run, layout.replace("{}", manifest.decode()).encode())

    shown = approve(trusting, run.branch).output

    assert '"preset": "here"' in shown
    assert commit in shown
    assert len(shown) < 2000


@pytest.mark.parametrize(
    ("mode", "change", "said"),
    [("120000", b"", "has no file"), ("100644", b"x", "is not JSON")],
    ids=["a link", "no JSON"],
)
def test_an_approval_says_that_the_runner_will_refuse_the_request(trusting, mode, change, said):
    run = trusting.ask()
    manifest = trusting.client.git("cat-file", "blob", f"{run.commit}:{wire.REQUEST}").stdout
    rewritten(trusting, run, manifest + change, mode)

    shown = approve(trusting, run.branch).output

    assert "will refuse" in shown
    assert said in shown
    assert '"preset"' not in shown


def test_a_request_that_is_amended_after_its_approval_does_not_run(trusting):
    run = trusting.ask()
    assert approve(trusting, run.commit).exit_code == 0
    manifest = trusting.client.git("cat-file", "blob", f"{run.commit}:{wire.REQUEST}").stdout
    rewritten(trusting, run, manifest + b"\n")

    assert "allows only to those it trusts" in trusting.refused(run)


@pytest.mark.parametrize("kind", ["rsa", "ecdsa"])
def test_a_signature_with_a_key_of_another_kind_counts_only_if_the_key_is_listed(trusting, kind):
    subprocess.run(
        [
            "ssh-keygen",
            "-q",
            "-t",
            kind,
            "-N",
            "",
            "-C",
            "carol",
            "-f",
            str(trusting.signers.folder / "carol"),
        ],
        check=True,
    )
    run = trusting.ask("carol")
    assert "not on this host's list" in trusting.refused(run)

    trusting.signers.allow("carol")
    assert trusting.answer(trusting.ask("carol")).trusted_by == "signature of carol@example.invalid"
