"""Rows of the attack table that are about a request on its way in: 1, 3, 6 to 8, 10 to 12, 17 and 18.

Each test pushes what a hostile requester could push, or races over it, and shows what the host did with it. A job
of any preset here leaves a line behind, so a test also sees that nothing ran that should not.
"""

from __future__ import annotations

import json
import stat
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from bridge.bus import objects, wire
from bridge.bus.branch_names import new_nonce
from bridge.bus.wire import State
from bridge.cli import cli
from bridge.errors import GitError, PolicyError, RefusedError
from bridge.manifest import format_time
from bridge.system import git as door
from bridge.system.git import Git
from runner.context import open_runner
from runner.policy import load_policy
from runner.serve import dispatch, lease, loop
from runner.serve.compose import Composer
from tests.trees import write_tree

STRANGER = objects.Identity("A Stranger", "stranger@example.invalid")


def moment(seconds: float) -> str:
    return format_time(datetime.fromtimestamp(time.time() + seconds, UTC))


@dataclass
class Target:
    """A host, and a stranger who puts on its bus whatever git can hold."""

    bus: Path
    folder: Path
    ran: Path
    runners: Any
    told: list[str] = field(default_factory=list)

    @property
    def git(self) -> Git:
        return Git.isolated(self.bus)

    @property
    def runs(self) -> list[str]:
        """What the jobs that ran left behind."""
        return self.ran.read_text().splitlines() if self.ran.exists() else []

    def manifest(self, preset: str, **changes: object) -> dict[str, object]:
        """Return a valid manifest with changes."""
        return {
            "schema_version": 2, "preset": preset, "params": {}, "ref": "HEAD", "requested_by": "a stranger",
            "nonce": new_nonce(), "workload": self.git.text("rev-parse", "main"), "created_at": moment(0),
            "expires_at": moment(3600), "code": "request" if preset == "here" else "installed",
        } | changes  # fmt: skip

    def ask(
        self,
        preset: str = "count",
        *,
        branch: str = "",
        files: dict[str, Any] | None = None,
        **changes: object,
    ) -> str:
        """Put a request on the bus and return its branch, in which `{}` stands for the nonce."""
        manifest = self.manifest(preset, **changes)
        name = (branch or f"mac-bridge/{preset}-{{}}").replace("{}", str(manifest["nonce"]))
        return self.put(name, {**(files or {"tests": {"what.txt": "as asked\n"}})}, manifest)

    def put(self, branch: str, files: dict[str, Any], manifest: object, *parents: str) -> str:
        """Set a branch to a commit of these files with a manifest, by default upon the workload."""
        whole = {**files, ".mac-bridge": {"request.json": json.dumps(manifest)}}
        upon = parents or (self.git.text("rev-parse", "main"),)
        commit = objects.commit(self.git, write_tree(self.git, whole), upon, "a request\n", STRANGER)
        self.git("update-ref", f"refs/heads/{branch}", commit)
        return branch

    def tip(self, branch: str) -> str:
        return self.git.text("rev-parse", f"refs/heads/{branch}")

    @contextmanager
    def context(self, name: str = "one", **policy: Any) -> Any:
        """Open the context of the runner `name`, which runs everybody's code: that is not what holds anything here."""
        rules = {"preset_folder": str(self.folder), "trust": {"code_request": "allow"}, **policy}
        with open_runner(load_policy(self.runners.policy(name, **rules)), self.told.append) as context:
            yield context

    def handle(self, name: str = "one", **policy: Any) -> None:
        """Let the runner handle whatever there is."""
        with self.context(name, **policy) as context:
            poller = Composer(context).poller()
            while poller.poll():
                pass

    def result(self, branch: str) -> wire.Result | None:
        blob = objects.read_blob(self.git, f"refs/heads/{branch}", wire.RESULT, max_bytes=wire.MAX_RESULT)
        return wire.parse_result(blob) if blob else None

    def refused(self, branch: str) -> str:
        """See that a request was refused and ran no command; return the reason."""
        result = self.result(branch)
        assert result is not None, "it was not answered"
        assert (result.state, result.commands) == (State.REFUSED, []), result.reason
        return result.reason.code


@pytest.fixture
def target(bus, presets, runners, tmp_path):
    ran = tmp_path / "ran"
    words = {"type": "enum", "values": ["one", "two"], "default": "one"}
    note, show = f"echo ran >> {ran}", f'cat "$1" >> {ran}'
    folder = presets(
        count={
            "params": {
                "n": {"type": "int", "min": 1, "max": 50, "default": 1},
                "word": words,
                "loud": {"type": "flag", "option": "--loud"},
            },
            "steps": [{"argv": ["/bin/sh", "-c", note, "sh", "{n}", "{word}", "{loud}"]}],
        },
        here={
            "code": "request",
            "params": {"path": {"type": "path", "under": ["tests"], "default": "tests/what.txt"}},
            "steps": [{"argv": ["/bin/sh", "-c", show, "sh", "{path}"]}],
        },
    )
    return Target(bus, folder, ran, runners)


# Row 3: the request's tip moves after it was validated.


def swap(target: Target, branch: str, *parents: str, keep: bool = False) -> None:
    """Put other code under the manifest of a request, perhaps with what runners added to it."""
    manifest = json.loads(target.git.text("show", f"{branch}:{wire.REQUEST}"))
    content = {"tests/what.txt": b"swapped\n"}
    if not keep:
        target.put(branch, {"tests": {"what.txt": "swapped\n"}}, manifest, *parents)
        return
    tree = objects.overlay(target.git, f"{branch}^{{tree}}", content)
    target.git(
        "update-ref", f"refs/heads/{branch}", objects.commit(target.git, tree, parents, "x\n", STRANGER)
    )


@pytest.mark.parametrize("how", ["on top", "in its place"])
def test_row_03_a_push_between_the_validation_and_the_claim_runs_nothing(target, monkeypatch, how):
    branch = target.ask("here")
    real, moved = dispatch.admit, []

    def admit(git, asked, *rest):
        admitted = real(git, asked, *rest)
        if not moved:
            swap(target, branch, *([asked.branch.tip] if how == "on top" else []))
            moved.append(target.tip(branch))
        return admitted

    monkeypatch.setattr(dispatch, "admit", admit)
    target.handle()

    assert target.result(branch) is None
    assert target.told[-1] == f"{branch}: another runner was faster"
    target.handle()
    assert target.refused(branch) == "replayed"
    assert target.result(branch).request == moved[0]
    assert target.runs == []


@pytest.mark.parametrize("keep", [True, False], ids=["upon the claim", "without the claim"])
def test_row_03_a_push_between_the_claim_and_the_run_runs_what_was_validated(target, monkeypatch, keep):
    branch = target.ask("here")
    validated = target.tip(branch)
    real = lease.Lease.advance

    def advance(held, state, **more):
        pushed = real(held, state, **more)
        if state is State.CLAIMED:
            swap(target, branch, target.tip(branch), keep=keep)
        return pushed

    monkeypatch.setattr(lease.Lease, "advance", advance)
    target.handle()
    target.handle()

    # Whether the push was seen while the job ran or afterwards: never the other code.
    assert target.runs in ([], ["as asked"])
    assert target.result(branch).request == validated or target.refused(branch) == "replayed"


# Row 6: values that begin with a dash, name a file, are empty or hold what ends a text or a line.

VALUES = {
    "an option of git": "--upload-pack=/bin/sh", "a short option": "-x", "a file of arguments": "@/etc/passwd",
    "the end of options": "--", "empty": "", "NUL": "one\0-x", "a newline": "one\n", "a carriage return": "one\r",
}  # fmt: skip


@pytest.mark.parametrize("value", VALUES.values(), ids=VALUES)
def test_row_06_a_value_that_a_program_reads_in_another_way_is_refused(target, monkeypatch, value):
    called = []
    start = door.Child
    monkeypatch.setattr(door, "Child", lambda argv, **how: called.append(argv) or start(argv, **how))
    expected = {
        target.ask(params={"word": value}): "out_of_range",
        target.ask(params={"n": value}): "bad_type",
        target.ask(params={"loud": value}): "bad_type",
        target.ask("here", params={"path": value}): "path_escape",
        target.ask("here", params={"path": f"tests/{value}/../../x"}): "path_escape",
        target.ask(branch="mac-bridge/count-{}", preset=value): "bad_manifest",
        target.ask(ref=value, workload=value): "bad_manifest",
    }
    called.clear()
    target.handle()

    assert {branch: target.refused(branch) for branch in expected} == expected
    assert target.runs == []
    # And git was never given it.
    assert len(called) > 10
    whole = [arg for argv in called for arg in argv if arg != "--"]
    assert not [arg for arg in whole if arg == value or (len(value) > 2 and value in arg)]


def test_row_06_good_values_become_whole_elements_of_the_argument_list(target):
    good = target.ask(params={"n": 7, "word": "two", "loud": True})
    target.handle()

    script = f"echo ran >> {target.ran}"
    assert target.result(good).commands[0].argv == ["/bin/sh", "-c", script, "sh", "7", "two", "--loud"]


# Row 7: hostile names of branches.

NAMES = {
    "a command": "mac-bridge/$(touch${IFS}pwned)-{}", "backquotes": "mac-bridge/`id`-{}",
    "a second command": "mac-bridge/count;id-{}", "a pipe": "mac-bridge/count|sh-{}",
    "quotes": "mac-bridge/'\"-{}", "reordered text": "mac-bridge/co\u202eunt-{}",
    "letters that look alike": "mac-bridge/c\u043eunt-{}", "a variable": "mac-bridge/${HOME}/count-{}",
    "a percent sign": "mac-bridge/%s%n-{}", "an option": "mac-bridge/--upload-pack=id-{}",
    "a dash": "mac-bridge/-x-{}", "a list": "mac-bridge/a,b=c-{}",
}  # fmt: skip


def test_row_07_a_hostile_name_is_matched_strictly_and_shown_escaped(target, clone):
    branches, beside = [target.ask(branch=name) for name in NAMES.values()], target.ask()
    target.handle()

    assert target.result(beside).state is State.SUCCEEDED
    assert target.runs == ["ran"]
    for branch in branches:
        assert target.result(branch) is None or target.refused(branch) == "branch_mismatch", branch
    assert not [*target.bus.parent.rglob("pwned")]
    assert all(line.isascii() and line.isprintable() for line in target.told)
    listed = CliRunner().invoke(cli, ["-C", str(clone), "list"])
    assert listed.exit_code == 0, listed.output
    assert all(line.isascii() and line.isprintable() for line in listed.output.splitlines())


def test_row_07_a_hostile_name_that_is_handed_to_once_is_refused(target):
    with target.context() as context:
        for name in (*NAMES.values(), "-x", "--upload-pack=id", "../main", "mac-bridge/a\nb"):
            with pytest.raises(RefusedError) as caught:
                loop.once(context, name)

            assert caught.value.code in ("branch_not_served", "no_such_request")
            assert caught.value.message.isprintable()
            assert "\u202e" not in caught.value.message
    assert target.runs == []


# Row 8: paths that lead elsewhere.

PATHS = {
    "up": ({"..": {"escaped": "x"}}, None),
    ".GIT": ({".GIT": {"config": "x"}}, None),
    "a link to a file outside": ({"tests": {"what.txt": ("120000", "/etc/passwd")}}, None),
    "a link to a folder outside": ({"tests": ("120000", "../../.."), "x": "x"}, None),
    "two spellings": ({"tests": {"what.txt": "x"}, "Tests": {"what.txt": "y"}}, None),
    "path up": ({"tests": {"what.txt": "x"}}, "tests/../../escaped"),
    "path absolute": ({"tests": {"what.txt": "x"}}, "/etc/passwd"),
    "path into .git": ({"tests": {"what.txt": "x"}}, "tests/.git/config"),
}  # fmt: skip


def test_row_08_a_path_that_leads_elsewhere_is_refused(target, tmp_path):
    branches = {
        what: target.ask("here", files=files, **({"params": {"path": path}} if path else {}))
        for what, (files, path) in PATHS.items()
    }
    beside = target.ask()
    target.handle()

    assert target.runs == ["ran"], "only the request beside them ran"
    assert target.result(beside).state is State.SUCCEEDED
    for what, branch in branches.items():
        # Where git itself refuses the objects, the branch is not even fetched.
        if target.result(branch) is not None:
            assert target.refused(branch) in ("hostile_tree", "path_escape", "no_such_path"), what
    assert not [*tmp_path.rglob("escaped")]
    assert list((tmp_path / "runners" / "state-one" / "work").iterdir()) == []


def test_row_08_what_is_no_file_where_one_is_expected_is_refused(target):
    """Git shows each of these as a submodule, of which a request brings nothing."""
    fifo, device, disk, socket, submodule = "10644", "20644", "60644", "140644", "160000"
    branches = {
        mode: target.ask(
            "here", files={"tests": {"what.txt": (mode, "1" * 40 if mode == submodule else "x")}}
        )
        for mode in (fifo, device, disk, socket, submodule)
    }
    beside = target.ask()
    target.handle()

    assert {mode: target.refused(branch) for mode, branch in branches.items()} == {
        **dict.fromkeys((fifo, device, disk, socket), "hostile_tree"), submodule: "no_such_path",
    }  # fmt: skip
    assert target.result(beside).state is State.SUCCEEDED
    assert target.runs == ["ran"], "only the request beside them ran"


# Row 10: submodules and hooks.


def hooks(sentinel: Path) -> dict[str, Any]:
    """Hooks in every place from which some git was once made to take them."""
    hook = ("100755", f"#!/bin/sh\ntouch {sentinel}\n")
    return dict.fromkeys(("post-checkout", "post-merge", "reference-transaction", "pre-push"), hook)


def modules(path: str, url: str, extra: str = "") -> str:
    return f'[submodule "x"]\n\tpath = {path}\n\turl = {url}\n{extra}'


MODULES = {
    "a command for the update": lambda at: {
        ".gitmodules": modules("x", "../x", f"\tupdate = !touch {at}\n"), "x": ("160000", "2" * 40)},
    "a link in another case (CVE-2024-32002)": lambda at: {
        ".gitmodules": modules("A/modules/x", "../evil.git"), "A": {"modules": {"x": ("160000", "2" * 40)}},
        "a": ("120000", ".git"), "y": {"hooks": hooks(at)}},
    "a carriage return (CVE-2025-48384)": lambda at: {
        ".gitmodules": modules('"sub\r"', "../evil.git"), "sub": ("160000", "2" * 40),
        "sub\r": ("120000", "./hooks"), "hooks": hooks(at)},
    "hooks in the tree": lambda at: {"hooks": hooks(at), ".githooks": hooks(at), ".husky": hooks(at)},
    "a bare repository in the tree": lambda at: {
        "HEAD": "ref: refs/heads/main\n", "objects": {"x": "x"}, "refs": {"x": "x"}, "hooks": hooks(at),
        "config": f"[core]\n\tbare = true\n\tfsmonitor = touch {at}\n\thooksPath = hooks\n"},
}  # fmt: skip


@pytest.mark.parametrize("make", MODULES.values(), ids=MODULES)
def test_row_10_submodules_and_hooks_of_a_request_never_run(target, tmp_path, make):
    sentinel = tmp_path / "sentinel"
    files = {**make(sentinel), "tests": {"what.txt": "as asked\n"}}
    branch, beside = target.ask("here", files=files), target.ask()
    target.handle()

    assert not sentinel.exists()
    assert target.result(beside).state is State.SUCCEEDED
    result = target.result(branch)
    if result is None or result.state is State.REFUSED:
        assert target.runs == ["ran"]
    else:
        assert (result.state, sorted(target.runs)) == (State.SUCCEEDED, ["as asked", "ran"])


def test_row_10_hooks_of_the_host_s_user_do_not_run_either(target, tmp_path):
    sentinel, place = tmp_path / "sentinel", tmp_path / "hooks"
    place.mkdir()
    for name, (_, script) in hooks(sentinel).items():
        (place / name).write_text(script)
        (place / name).chmod(stat.S_IRWXU)
    with (Path.home() / ".gitconfig").open("a") as config:
        config.write(f"[core]\n\thooksPath = {place}\n\tfsmonitor = touch {sentinel}\n")
        config.write(f"[init]\n\ttemplateDir = {place.parent}\n")
    branch = target.ask("here")
    target.handle()

    assert target.result(branch).state is State.SUCCEEDED
    assert target.runs == ["as asked"]
    assert not sentinel.exists()


# Row 11: filters that attributes call for.


@pytest.mark.parametrize("kind", ["smudge", "process", "clean"])
def test_row_11_a_filter_that_the_request_s_attributes_name_does_not_run(target, tmp_path, kind):
    """The host's user has filters, as who installed git-lfs; a request's `.gitattributes` picks them."""
    sentinel = tmp_path / "sentinel"
    with (Path.home() / ".gitconfig").open("a") as config:
        for name in ("lfs", "evil"):
            config.write(f'[filter "{name}"]\n\t{kind} = touch {sentinel}; cat\n\trequired = true\n')
        config.write(f'[diff "evil"]\n\ttextconv = touch {sentinel}; cat\n')
        config.write(f'[merge "evil"]\n\tdriver = touch {sentinel}\n')
    pointer = "version https://git-lfs.github.com/spec/v1"
    text = f"{pointer}\n$Id$\n"
    attributes = "* filter=evil diff=evil merge=evil ident text eol=crlf export-subst\n*.txt filter=lfs\n"
    files = {
        ".gitattributes": attributes,
        ".lfsconfig": f"[lfs]\n\turl = file://{tmp_path}/evil.git\n",
        "tests": {".gitattributes": attributes, "what.txt": text},
    }
    branch = target.ask("here", files=files)
    target.handle()

    assert not sentinel.exists()
    assert target.result(branch).state is State.SUCCEEDED
    assert target.ran.read_text() == text


# Row 12: hostile addresses, and objects that git would fetch when they are missed.


@pytest.mark.parametrize(
    "url", ["ext::sh -c 'touch {}'", "file://{}.git", "-u{}", "ssh://-oProxyCommand=touch {}/x"]
)
def test_row_12_an_address_that_a_request_names_is_never_asked(target, tmp_path, url):
    sentinel = tmp_path / "sentinel"
    url = url.format(sentinel)
    files = {
        ".gitmodules": modules("x", url), "x": ("160000", "2" * 40), ".lfsconfig": f"[lfs]\n\turl = {url}\n",
        "tests": {"what.txt": "as asked\n"},
    }  # fmt: skip
    branch = target.ask("here", files=files, ref=url)
    workload = target.ask(workload=url)
    target.handle()

    assert not sentinel.exists()
    assert target.refused(workload) == "bad_manifest"
    result = target.result(branch)
    assert target.runs == ([] if result is None or result.state is State.REFUSED else ["as asked"])


@pytest.mark.parametrize("url", ["ext::sh -c 'touch {}'", "fd::7", "-u{}", "ssh://-oProxyCommand=touch {}/x"])
def test_row_12_a_bus_at_such_an_address_is_refused_before_it_is_asked(target, tmp_path, url):
    sentinel = tmp_path / "sentinel"
    with (
        pytest.raises(PolicyError, match="not the address"),
        target.context(bus={"url": url.format(sentinel)}),
    ):
        pytest.fail("it was opened")

    assert not sentinel.exists()


def test_row_12_a_missing_object_is_not_fetched_from_a_remote_that_promises_it(target, tmp_path):
    """Not even where the store was made to believe in one, and the user's own settings allow the transport."""
    sentinel = tmp_path / "sentinel"
    with (Path.home() / ".gitconfig").open("a") as config:
        config.write('[protocol]\n\tallow = always\n[protocol "ext"]\n\tallow = always\n')
    missing = target.ask("here", files={"tests": {"what.txt": "gone\n"}})
    blob = target.git.text("rev-parse", f"{missing}:tests/what.txt")
    with target.context() as context:
        git = context.bus.git
        git("config", "core.repositoryFormatVersion", "1")
        git("config", "extensions.partialClone", "evil")
        git("config", "remote.evil.promisor", "true")
        git("config", "remote.evil.url", f"ext::sh -c touch% {sentinel}")
        with pytest.raises(GitError):
            git("cat-file", "blob", blob)
        (target.bus / "objects" / blob[:2] / blob[2:]).unlink()
        beside = target.ask()
        poller = Composer(context).poller()
        while poller.poll():
            pass
        assert set(context.bus.commits.reasons) == {missing}

    assert not sentinel.exists()
    assert target.result(beside).state is State.SUCCEEDED
    assert target.runs == ["ran"]
    # The trap works: git falls into it where the transport is allowed.
    git("-c", "protocol.ext.allow=always", "cat-file", "blob", blob, ok=range(256))
    assert sentinel.exists()
