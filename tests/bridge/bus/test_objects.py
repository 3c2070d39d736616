"""Objects are made by plumbing: what is laid over a tree changes these files and nothing else."""

from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bridge.bus import objects
from bridge.bus.objects import BlobId, Identity
from bridge.bus.writer import Writer
from bridge.errors import InfrastructureError
from bridge.system.git import Git
from tests.properties import examples
from tests.trees import list_tree

WHO = Identity("A Tester", "tester@example.invalid")


@pytest.fixture
def store(tmp_path, git) -> Git:
    git(tmp_path, "init", "--quiet", "--bare", "--object-format=sha1", "store")
    return Git.of_user(tmp_path / "store")


def contents(git: Git, tree: str) -> dict[str, tuple[str, str]]:
    return {entry.path: (entry.mode, entry.oid) for entry in list_tree(git, tree, recursive=True)}


def texts(git: Git, tree: str) -> dict[str, bytes]:
    return {path: git("cat-file", "blob", oid).stdout for path, (_, oid) in contents(git, tree).items()}


def test_files_are_added_replaced_and_removed(store):
    base = objects.overlay(store, None, {"a": b"1", "d/b": b"2", "d/e/c": b"3"})
    tree = objects.overlay(store, base, {"a": b"one", "d/e/c": None, "d/new": b"4", "z/y/x": b"5"})
    assert texts(store, tree) == {"a": b"one", "d/b": b"2", "d/new": b"4", "z/y/x": b"5"}


def test_a_folder_is_removed_with_all_below_it(store):
    base = objects.overlay(store, None, {"a": b"1", "d/b": b"2", "d/e/c": b"3"})
    assert texts(store, objects.overlay(store, base, {"d": None})) == {"a": b"1"}


def test_a_folder_can_be_removed_and_filled_again_in_one_go(store):
    base = objects.overlay(store, None, {"d/old": b"1", "d/e/old": b"2"})
    assert texts(store, objects.overlay(store, base, {"d": None, "d/new": b"3"})) == {"d/new": b"3"}


def test_a_folder_takes_the_place_of_a_file(store):
    base = objects.overlay(store, None, {"d": b"a file"})
    assert texts(store, objects.overlay(store, base, {"d/x": b"1"})) == {"d/x": b"1"}


def test_folders_that_would_be_empty_go(store):
    base = objects.overlay(store, None, {"a": b"1", "d/e/c": b"3"})
    tree = objects.overlay(store, base, {"d/e/c": None})
    assert [entry.path for entry in list_tree(store, tree)] == ["a"]


def test_removing_what_is_not_there_changes_nothing(store):
    base = objects.overlay(store, None, {"a": b"1", "d/b": b"2"})
    assert objects.overlay(store, base, {"x": None, "d/y": None, "q/r/s": None}) == base


def test_a_blob_that_is_stored_already_is_named_by_its_id(store):
    oid = objects.write_blob(store, b"1")
    assert texts(store, objects.overlay(store, None, {"a": BlobId(oid)})) == {"a": b"1"}


def test_modes_links_and_submodules_stay_as_they_are(store):
    blob = objects.write_blob(store, b"x")
    commit = objects.commit(store, objects.overlay(store, None, {}), [], "A submodule's commit", WHO)
    lines = [f"100755 blob {blob}\trun", f"120000 blob {blob}\tlink", f"160000 commit {commit}\tsub"]
    inner = store.text("mktree", stdin="\n".join(lines) + "\n")
    base = store.text("mktree", stdin=f"040000 tree {inner}\td\n" + "\n".join(lines) + "\n")
    before = contents(store, base)

    tree = objects.overlay(store, base, {"d/new": b"1", "other": b"2"})

    after = contents(store, tree)
    assert {path: after[path] for path in before} == before
    assert after.keys() - before.keys() == {"d/new", "other"}


def test_names_that_are_no_utf8_survive(store):
    blob = objects.write_blob(store, b"x")
    base = store.text("mktree", "-z", stdin=b"100644 blob " + blob.encode() + b"\tb\xff\xfe\n d\0")
    tree = objects.overlay(store, base, {"a": b"1"})
    assert b"b\xff\xfe\n d\0" in store("ls-tree", "-z", "--name-only", tree).stdout


def test_a_blob_is_read_up_to_a_limit(store):
    tree = objects.overlay(store, None, {"d/a": b"12345"})
    assert objects.read_blob(store, tree, "d/a", max_bytes=5) == b"12345"
    with pytest.raises(InfrastructureError) as caught:
        objects.read_blob(store, tree, "d/a", max_bytes=4)
    assert caught.value.code == "too_large"


def test_what_is_no_regular_file_is_not_read(store):
    blob = objects.write_blob(store, b"/etc/passwd")
    tree = store.text("mktree", stdin=f"120000 blob {blob}\tlink\n")
    tree = objects.overlay(store, tree, {"d/a": b"1"})
    assert objects.read_blob(store, tree, "link", max_bytes=100) is None
    assert objects.read_blob(store, tree, "d", max_bytes=100) is None
    assert objects.read_blob(store, tree, "nothing", max_bytes=100) is None


def test_many_blobs_are_read_in_one_call_and_the_missing_and_the_large_are_none(store):
    tree = objects.overlay(store, None, {"a": b"1\n2", "empty": b"", "large": b"x" * 100, "d/a": b"1\n2"})
    names = [f"{tree}:{path}" for path in ("a", "nothing", "empty", "d", "large", "d/a", "a")]
    assert objects.read_many(store, names, max_bytes=50) == [b"1\n2", None, b"", None, None, b"1\n2", b"1\n2"]
    assert objects.read_many(store, ["0" * 40 + ":a"], max_bytes=50) == [None]
    assert objects.read_many(store, [], max_bytes=50) == []


def test_a_commit_is_by_whom_it_is_said_to_be(store):
    tree = objects.overlay(store, None, {"a": b"1"})
    first = objects.commit(store, tree, [], "First\n", WHO)
    second = objects.commit(store, tree, [first], "Second\n", WHO)
    assert store.text("show", "-s", "--format=%an|%ae|%cn|%ce", second) == "|".join([WHO.name, WHO.email] * 2)
    assert objects.parents_of(store, second) == [first]
    assert objects.parents_of(store, first) == []
    assert objects.parents_of(store, second) == [first]


def test_names_of_commits_are_resolved_and_others_are_not(store):
    tree = objects.overlay(store, None, {"a": b"1"})
    commit = objects.commit(store, tree, [], "First\n", WHO)
    store("update-ref", "refs/heads/main", commit)
    assert objects.resolve(store, "main") == commit
    assert objects.resolve(store, commit[:10]) == commit
    for name in ("nothing", "--all", "-h", "", tree, "main..main", "main\nmain", "main^{/x}"):
        assert objects.resolve(store, name) is None, name


names = st.sampled_from(["a", "b", "c", "a.b", "a-"])
paths = st.lists(names, min_size=1, max_size=3).map("/".join)
trees = st.dictionaries(paths, st.binary(max_size=3), max_size=6)


def put(model: dict[str, bytes], path: str, content: bytes | None) -> None:
    """What it means to put a file into a tree, or to take a path out of it, in a dict of paths."""
    for other in list(model):
        if other == path or other.startswith(path + "/"):
            del model[other]
    if content is None:
        return
    for other in list(model):
        if path.startswith(other + "/"):
            del model[other]
    model[path] = content


def without_conflicts(files: dict[str, bytes | None]) -> dict[str, bytes | None]:
    """Leave out files that would lie below a file of the same change."""
    return {
        path: content
        for path, content in files.items()
        if not any(path.startswith(o + "/") and c is not None for o, c in files.items())
    }


@settings(examples(25), suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(trees, st.dictionaries(paths, st.none() | st.binary(max_size=3), max_size=4))
def test_laying_over_is_the_same_as_changing_a_dict(user_git, tree, changes):
    model: dict[str, bytes] = dict(without_conflicts(tree))
    changes = without_conflicts(changes)
    base = objects.overlay(user_git, None, model)

    made = objects.overlay(user_git, base, changes)

    # What is taken away goes first: a folder may be emptied and filled in one change.
    for path in sorted(changes, key=lambda path: changes[path] is not None):
        put(model, path, changes[path])
    assert texts(user_git, made) == model


def test_a_writer_makes_the_objects_that_git_would_make(store):
    writer = Writer(store)
    contents = [b"", b"x" * 15, b"x" * 16, b"x" * 2047, b"x" * 2048, b"y" * (1 << 20), b"z" * ((1 << 20) + 1)]
    blobs = [writer.blob(content) for content in contents]
    folder = writer.tree({"f": ("100755", blobs[1])})
    # Git's order: a folder stands where its name with a slash would.
    tree = writer.tree({"a": ("040000", folder), "a.b": ("120000", blobs[1]), "a0": ("100644", blobs[0])})
    commit = writer.commit(tree, [], "words \N{SNOWMAN}\n", WHO)
    writer.store()

    assert [store("cat-file", "blob", blob).stdout for blob in blobs] == contents
    store("fsck", "--strict", "--no-dangling")
    assert store.text("log", "-1", "--format=%an <%ae> %B", commit) == (
        "A Tester <tester@example.invalid> words \N{SNOWMAN}\n"
    )
    listed = [f"{e.mode} {e.kind} {e.oid}\t{e.path}" for e in list_tree(store, tree)]
    assert [line.rpartition("\t")[2] for line in listed] == ["a.b", "a", "a0"]
    assert store.text("mktree", stdin="\n".join(listed) + "\n") == tree


def test_what_a_writer_holds_is_stored_once_and_not_before(store):
    writer = Writer(store)
    tree = objects.overlay(store, None, {"a": b"1"}, writer)
    assert objects.object_sizes(store, [tree]) == {}
    writer.store()
    assert texts(store, tree) == {"a": b"1"}


def put_tree(store: Git, *lines: bytes) -> str:
    return store.text("hash-object", "-t", "tree", "-w", "--literally", "--stdin", stdin=b"".join(lines))


def test_entries_of_odd_modes_stay_as_they_are_in_gits_order(store):
    oid = bytes.fromhex(store.text("hash-object", "-w", "--stdin", stdin=b"x"))
    empty = bytes.fromhex(put_tree(store))
    kept = [b"100664 a\0" + oid, b"40000 a.b\0" + empty, b"120777 b\xff\0" + oid, b"40755 d\0" + empty]
    base = put_tree(store, *kept[:2], b"100644 b\0" + oid, *kept[2:])

    made = objects.overlay(store, base, {"a.b0": b"x", "b": None, "d.e": b"x", "d0": b"x", "z/f": b"x"})

    z = bytes.fromhex(put_tree(store, b"100644 f\0" + oid))
    new = {name: b"100644 " + name + b"\0" + oid for name in (b"a.b0", b"d.e", b"d0")}
    assert made == put_tree(
        store, *kept[:2], new[b"a.b0"], kept[2], new[b"d.e"], kept[3], new[b"d0"], b"40000 z\0" + z
    )


@pytest.mark.long
def test_large_folders_in_each_other_are_not_taken_apart_in_memory(store):
    oid = bytes.fromhex(store.text("hash-object", "-w", "--stdin", stdin=b"x"))
    many = [b"100644 %05d\0" % i + oid for i in range(40_000)]
    tree = put_tree(store, *many)
    for name in (b"c", b"b", b"a"):
        tree = put_tree(store, *many, b"40000 %s\0" % name + bytes.fromhex(tree))

    tracemalloc.start()
    try:
        made = objects.overlay(store, tree, {"a/b/c/f": b"x"})
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()

    assert objects.entry_at(store, made, "a/b/c/f")
    # The folders have 7 MB as git stores them; an object for each entry would make that 45.
    assert peak < 25 << 20
