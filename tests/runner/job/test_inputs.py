"""A job's inputs: files of the request's tree that are read as data, and of which nothing is run."""

from __future__ import annotations

import json

import pytest

from bridge.bus.wire import State
from bridge.presets import Inputs, load_presets
from bridge.system.git import Git
from runner.job.workspace import export_inputs
from runner.refusal import Refusal

INPUTS = Inputs(under="results/research", ending=".json", files=3, file_mb=1, total_mb=2)


@pytest.fixture
def store(clone):
    return Git.of_user(clone)


@pytest.fixture
def tree(store):
    """Make a tree whose results/research holds these entries: name to (mode, content or object id)."""

    def make(entries: dict[str, tuple[str, bytes | str]]) -> str:
        lines = ""
        for name, (mode, content) in entries.items():
            oid = content
            if isinstance(content, bytes):
                oid = store.text("hash-object", "-w", "--stdin", stdin=content)
            lines += f"{mode} {'commit' if mode == '160000' else 'blob'} {oid}\t{name}\n"
        research = store.text("mktree", "--missing", stdin=lines)
        results = store.text("mktree", stdin=f"040000 tree {research}\tresearch\n")
        return store.text("mktree", stdin=f"040000 tree {results}\tresults\n")

    return make


def test_files_of_the_ending_are_written_and_nothing_else(store, tree, tmp_path):
    made = tree({
        "a.json": ("100644", b"{}"), "b.json": ("100755", b"[]"), "c.py": ("100644", b"import os"),
        "link": ("120000", b"/etc/passwd"), "sub": ("160000", "1" * 40),
    })  # fmt: skip
    export_inputs(store, made, INPUTS, tmp_path / "out")
    found = {str(path.relative_to(tmp_path / "out")): path.read_bytes()
             for path in (tmp_path / "out").rglob("*") if path.is_file()}  # fmt: skip
    assert found == {"results/research/a.json": b"{}", "results/research/b.json": b"[]"}


def test_a_tree_without_the_folder_has_no_inputs(store, tmp_path):
    export_inputs(store, "HEAD", INPUTS, tmp_path / "out")
    assert not (tmp_path / "out").exists()


REFUSED = {
    "a link": ({"a.json": ("120000", b"/etc/passwd")}, "bad_inputs"),
    "a submodule": ({"a.json": ("160000", "1" * 40)}, "bad_inputs"),
    "a file that is too large": ({"a.json": ("100644", b"x" * ((1 << 20) * 2))}, "inputs_too_large"),
    "too many": ({f"{n}.json": ("100644", b"{}") for n in range(4)}, "inputs_too_large"),
    "too much together": (
        {f"{n}.json": ("100644", b"x" * ((1 << 20) - n)) for n in range(3)},
        "inputs_too_large",
    ),
    "two spellings of one name": ({"a.json": ("100644", b"{}"), "A.json": ("100644", b"{}")}, "hostile_tree"),
}


@pytest.mark.parametrize("row", REFUSED)
def test_what_is_no_plain_file_or_too_much_is_refused_and_named(store, tree, tmp_path, row):
    entries, code = REFUSED[row]
    inputs = INPUTS.model_copy(update={"total_mb": 1}) if row == "too much together" else INPUTS
    with pytest.raises(Refusal) as caught:
        export_inputs(store, tree(entries), inputs, tmp_path / "out")
    assert caught.value.code == code
    assert not (tmp_path / "out").exists()


def test_a_fifo_is_refused(store, tree, tmp_path):
    """Git writes no such mode, so its tree is made by hand."""
    entry = b"10644 a.json\0" + bytes.fromhex("1" * 40)
    research = store.text("hash-object", "-w", "-t", "tree", "--literally", "--stdin", stdin=entry)
    results = store.text("mktree", stdin=f"040000 tree {research}\tresearch\n")
    made = store.text("mktree", stdin=f"040000 tree {results}\tresults\n")
    with pytest.raises(Refusal, match="is not a file"):
        export_inputs(store, made, INPUTS, tmp_path / "out")


def test_the_evidence_gate_runs_nothing_of_the_request(host, requester):
    """A tree that holds a `bridge` of its own, and every hook that Python knows, changes nothing."""
    evil = f"open({str(host.ran)!r}, 'w').close()\n".encode()
    files = dict.fromkeys(("bridge/__init__.py", "sitecustomize.py", "results/research/conftest.py"), evil)
    files["results/research/it.json"] = json.dumps({"kind": "nothing"}).encode()
    branch = requester.send(requester.manifest("k3-evidence-gate"), files=files)
    result = host.answer(branch)
    assert (result.state, result.commands[0].exit_code) == (State.FAILED, 5)
    assert not host.ran.exists()


def test_the_evidence_gate_refuses_a_report_that_is_a_link(host, requester):
    assert load_presets()["k3-evidence-gate"].code == "installed"
    git = requester.git
    git("checkout", "--quiet", "-b", "linked")
    folder = git.directory / "results" / "research"
    folder.mkdir(parents=True)
    (folder / "it.json").symlink_to("/etc/passwd")
    git("add", "--all")
    git("commit", "--quiet", "-m", "A link")
    requester.head = git.text("rev-parse", "HEAD")
    result = host.answer(requester.send(requester.manifest("k3-evidence-gate")))
    assert (result.state, result.reason.code) == (State.REFUSED, "bad_inputs")
    assert "commit the file itself" in result.reason.message
