"""The folder for one run: a tree that cannot reach out of it, nothing of git's running, and no trace afterwards."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import tempfile
from functools import reduce
from pathlib import Path

import pytest

from bridge.bus import objects
from bridge.system.git import Git
from runner.admit.admission import Refusal
from runner.job import workspace as place
from runner.job.workspace import export_tree, remove, remove_leftovers, workspace
from runner.policy import Limits
from tests.trees import write_tree


@pytest.fixture
def store(tmp_path):
    """A bare repository to make hostile objects in."""
    git = Git.isolated(tmp_path / "store.git")
    git("init", "--bare", "--quiet", str(tmp_path / "store.git"))
    return git


@pytest.fixture
def root(tmp_path):
    """The folder that a tree is written into."""
    path = tmp_path / "run" / "tree"
    path.mkdir(parents=True)
    return path


@pytest.fixture
def tree(store):
    """Return a function that makes a commit of nested entries: text, (mode, content) or a dict for a folder."""

    def commit(entries):
        return objects.commit(store, write_tree(store, entries), [], "a tree\n", objects.Identity("a", "b"))

    return commit


def _outside(root):
    """Return everything that lies beside the tree."""
    return sorted(path.name for path in root.parent.iterdir())


HOSTILE = {
    ".git": {".git": {"config": "x"}},
    ".GIT": {".GIT": {"config": "x"}},
    ".git with a zero-width joiner": {".g\u200dit": {"config": "x"}},
    ".git with a byte order mark": {"\ufeff.git": {"config": "x"}},
    ".git with a trailing dot": {".git.": {"config": "x"}},
    ".git with a trailing space": {".Git ": {"config": "x"}},
    "short name": {"GIT~1": {"config": "x"}},
    ".git below": {"a": {"b": {".git": {"hooks": {"post-checkout": "x"}}}}},
    ".git as a stream": {".git::$INDEX_ALLOCATION": {"config": "x"}},
    ".git behind a backslash": {"a\\.git\\config": "x"},
    "up": {"..": {"escaped": "x"}},
    "up below": {"a": {"..": {"..": {"escaped": "x"}}}},
    "here": {".": {"escaped": "x"}},
    "a slash in a name": {"../escaped": "x"},
    "absolute": {"/tmp/escaped": "x"},
    "two spellings": {"File": "x", "file": "y"},
    "two spellings of a folder": {"Dir": {"a": "x"}, "dir": {"a": "y"}},
    "two normal forms": {"caf\u00e9": "x", "cafe\u0301": "y"},
    "a file and a folder": {"a": "x", "A": {"b": "y"}},
    "link and folder in two spellings": {"A": ("120000", "/tmp"), "a": {"escaped": "x"}},
    "link to an absolute path": {"link": ("120000", "/etc/passwd")},
    "link up": {"link": ("120000", "../../escaped")},
    "link up from below": {"a": {"link": ("120000", "b/../../../escaped")}},
    "link through a link": {"a": {"b": ("120000", "../x/y")}, "x": ("120000", "a"), "z": ("120000", "a/b/../../..")},
    "link chain": {"a": {"b": {"c": ("120000", "..")}}, "d": ("120000", "a/b/c/../../../escaped")},
    "link with NUL": {"link": ("120000", "a\0b")},
    "empty link": {"link": ("120000", "")},
    "loop of links": {"a": ("120000", "b"), "b": ("120000", "a")},
    "a name of 300 characters": {"x" * 300: "x"},
    "a path over 4,096": reduce(lambda below, _: {"y" * 200: below}, range(25), {"file": "x"}),
    "FIFO": {"pipe": ("10644", "x")},
    "device in a folder": {"a": {"b": {"disk": ("60644", "x")}}},
    "socket beside a submodule": {"a": {"sub": ("160000", "1" * 40), "socket": ("140644", "x")}},
    "file where the reports go": {"results": {"research": "x"}},
    "link where the reports go": {"Results": ("120000", "tests")},
}  # fmt: skip


@pytest.mark.parametrize("entries", HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_tree_is_refused_and_nothing_lies_outside(store, tree, root, entries):
    with pytest.raises(Refusal) as caught:
        export_tree(store, tree(entries), root, Limits())

    assert caught.value.code == "hostile_tree"
    assert _outside(root) == ["tree"]
    assert not (root / ".git").exists()


def test_links_that_leave_one_by_one_but_not_in_sum_are_refused(store, tree, root):
    """`a/b` leads to the root, so `a/b/..` leads out, though the text `a/b/../x` looks as if it stayed."""
    entries = {"a": {"b": ("120000", "..")}, "c": ("120000", "a/b/../escaped")}

    with pytest.raises(Refusal, match="leads out"):
        export_tree(store, tree(entries), root, Limits())


def test_a_file_below_a_link_is_never_written_through_it(store, root):
    twice = write_tree(store, [("link", ("120000", "../..")), ("link", {"escaped": "x"})])

    with pytest.raises(Refusal):
        export_tree(store, twice, root, Limits())

    assert _outside(root) == ["tree"]


def test_a_plain_tree_is_written_as_it_is(store, tree, root):
    entries = {
        "README": "text\n", "run.sh": ("100755", "#!/bin/sh\n"), "empty": "",
        "tests": {"test_x.py": "pass\n", "link.py": ("120000", "test_x.py"), "up": ("120000", "../README")},
        "vendor": ("160000", "1" * 40), "\u00e9 odd\tname": "x",
    }  # fmt: skip

    export_tree(store, tree(entries), root, Limits())

    assert (root / "README").read_text() == "text\n"
    assert stat.S_IMODE((root / "run.sh").stat().st_mode) & 0o111
    assert not stat.S_IMODE((root / "README").stat().st_mode) & 0o111
    assert (root / "tests" / "up").read_text() == "text\n"
    assert (root / "tests" / "link.py").is_symlink()
    assert list((root / "vendor").iterdir()) == []
    assert (root / "\u00e9 odd\tname").read_text() == "x"
    assert (root / "empty").read_text() == ""


def test_a_name_that_is_no_utf_8_is_written(store, root):
    export_tree(store, write_tree(store, {"\udcff": "x"}), root, Limits())

    assert [os.fsencode(path.name) for path in root.iterdir()] == [b"\xff"]


def test_attributes_filters_hooks_and_submodules_never_act(store, tree, root, tmp_path):
    sentinel = tmp_path / "sentinel"
    evil = f"touch {sentinel}"
    for key in ("filter.evil.smudge", "filter.evil.process", "filter.lfs.smudge", "core.fsmonitor"):
        store("config", key, evil)
    store("config", "filter.evil.required", "true")
    entries = {
        ".gitattributes": "* filter=evil text eol=crlf ident\n*.bin filter=lfs\n",
        ".gitmodules": f'[submodule "x"]\n\tpath = x\n\turl = {tmp_path}/none\n\tupdate = !{evil}\n',
        "file.txt": "$Id$\nline\n", "data.bin": "version https://git-lfs.github.com/spec/v1\n",
        "x": ("160000", "2" * 40), "post-checkout": ("100755", f"#!/bin/sh\n{evil}\n"),
    }  # fmt: skip

    export_tree(store, tree(entries), root, Limits())

    assert (root / "file.txt").read_bytes() == b"$Id$\nline\n"
    assert (root / "data.bin").read_text().startswith("version https://git-lfs")
    assert not sentinel.exists()


def test_a_tree_with_too_many_files_is_refused_before_any_is_written(store, tree, root):
    with pytest.raises(Refusal, match="12 files; 11 are the most") as caught:
        export_tree(store, tree({f"f{i}": "x" for i in range(12)}), root, Limits(tree_files=11))

    assert caught.value.code == "tree_too_large"
    assert list(root.iterdir()) == []


def test_a_tree_that_is_too_large_is_refused_before_any_is_written(store, tree, root):
    entries = {f"f{i}": "x" * 600_000 for i in range(4)}  # one blob, four times

    with pytest.raises(Refusal, match="tree holds 2 MiB; 1 are the most"):
        export_tree(store, tree(entries), root, Limits(tree_mb=1))

    assert list(root.iterdir()) == []


def test_a_tree_that_unfolds_a_thousandfold_is_refused_in_time(store, root):
    """Ten levels of ten names for one folder are 10^10 files in a handful of objects."""
    oid = write_tree(store, {f"f{i}": "x" for i in range(10)})
    for _ in range(9):
        oid = write_tree(store, {f"f{i}": ("40000", oid) for i in range(10)})

    with pytest.raises(Refusal) as caught:
        export_tree(store, oid, root, Limits(tree_files=5_000))

    assert caught.value.code == "tree_too_large"


def test_large_files_are_not_all_held_at_once(store, tree, root, monkeypatch):
    held = []
    real = objects.read_many

    def watch(git, names, *, max_bytes):
        found = real(git, names, max_bytes=max_bytes)
        held.append(sum(len(blob or b"") for blob in found))
        return found

    monkeypatch.setattr(place.objects, "read_many", watch)
    entries = {f"f{i}": str(i) * 5_000_000 for i in range(10)}
    export_tree(store, tree(entries), root, Limits())

    assert sum(held) == 50_000_000
    assert max(held) <= 40_000_000


class TestFolder:
    """The folder is there while a run lasts, and gone afterwards whatever the run did to it."""

    def test_it_is_private_and_empty_but_for_the_reports_folder(self, tmp_path):
        with workspace(tmp_path, "noop") as made:
            assert stat.S_IMODE(made.tree.parent.stat().st_mode) == 0o700
            assert [str(p.relative_to(made.tree)) for p in sorted(made.tree.rglob("*"))] == [
                "results",
                "results/research",
            ]
            assert made.home.is_dir()
        assert list((tmp_path / "work").iterdir()) == []

    def test_it_is_removed_when_the_run_raises(self, tmp_path):
        with pytest.raises(ZeroDivisionError), workspace(tmp_path, "noop"):
            raise ZeroDivisionError
        assert list((tmp_path / "work").iterdir()) == []

    SPOIL = """if True:
        import os, sys
        from pathlib import Path
        from runner.job.workspace import remove
        os.setuid(int(sys.argv[2]))
        root = Path(sys.argv[1]) / "root"
        for name in ("a/b/c", "a/d", "e"):
            (root / name).mkdir(parents=True)
            (root / name / "file").write_text("x")
        for name in ("a/b/c", "a/b", "a", "e", ""):
            (root / name).chmod(0)
        remove(root)
        sys.exit(root.exists())
    """

    @pytest.mark.parametrize("user", [os.geteuid(), 65534], ids=["as it is", "without root's rights"])
    def test_folders_without_permissions_are_removed(self, user):
        if os.geteuid() not in (0, user):
            pytest.skip("only root can become somebody else")
        with tempfile.TemporaryDirectory() as folder:
            Path(folder).chmod(0o777)
            argv = [sys.executable, "-P", "-c", self.SPOIL, folder, str(user)]
            done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=60)

        assert done.returncode == 0, done.stderr

    def test_what_links_point_to_is_not_removed(self, tmp_path):
        kept = tmp_path / "kept"
        kept.mkdir()
        (kept / "file").write_text("x")
        kept.chmod(0o555)
        root = tmp_path / "root"
        root.mkdir()
        (root / "link").symlink_to(kept)

        remove(root)

        assert (kept / "file").exists()
        assert stat.S_IMODE(kept.stat().st_mode) == 0o555

    def test_what_a_killed_run_left_is_swept(self, tmp_path):
        for name in ("noop-1", "noop-2"):
            (tmp_path / "work" / name / "tree").mkdir(parents=True)

        remove_leftovers(tmp_path)

        assert list((tmp_path / "work").iterdir()) == []

    def test_sweeping_where_nothing_is_does_nothing(self, tmp_path):
        remove_leftovers(tmp_path)
