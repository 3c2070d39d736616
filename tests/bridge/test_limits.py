"""Each limit on what a reader takes: at the limit it is taken, one more is not. The page names each with its value."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from pydantic import BaseModel

from bridge import gate
from bridge.bus import history, objects, trees, wire
from bridge.bus.objects import Identity
from bridge.cli.gate import reports_in
from bridge.common import limits
from bridge.errors import InfrastructureError, UsageError, VerificationError
from bridge.verify.answer_files import Contents
from runner.job import supervisor
from runner.job.collect import Collected

PAGE = Path(__file__).parents[2] / "docs" / "security.md"
NAMES = [name for name in vars(limits) if name.isupper() and name not in ("KIB", "MIB")]
STATE = (
    b'{"schema_version": 2, "state": "running", "branch": "b", "request": "%s", "salt": "s", "token": 1, "sequence": 1,'
    b' "lease_s": 1.0, "runner": {"id": "i", "instance": "x", "version": "1"}, "at": "t"}'
)


@pytest.fixture
def committed(user_git) -> Callable[..., str]:
    """Make a commit of files, upon another."""

    def make(files: dict[str, bytes], *parents: str, message: str = "x\n") -> str:
        tree = objects.overlay(user_git, None, files)
        return objects.commit(user_git, tree, parents, message, Identity("x", "x@y"))

    return make


def result_of(*files: tuple[str, int]) -> wire.Result:
    listed = [wire.FileDigest(path=path, sha256="", size=size) for path, size in files]
    return wire.Result.model_construct(files=listed, logs=[])


LOG = wire.LogDigest(path="", stream_sha256="", stream_bytes=0, kept_bytes=0, truncated=False)
WHO = wire.Runner(id="i", instance="x", version="1")
ENDED = {"exit_code": 0, "seconds": 1.0, "log": ""}
FAULT = wire.Violation(code="", message="")
WHOLE = {
    "schema_version": 2, "state": "refused", "reason": wire.Reason(code="", message=""), "branch": "b", "nonce": None,
    "request": "0" * 40, "workload": None, "requested_by": None, "preset": None, "preset_digest": None, "code": None,
    "params": {}, "commands": [], "exit_code": 4, "token": 1, "runner": WHO, "host": {}, "versions": {},
    "started_at": "", "finished_at": "", "seconds": 0.0, "logs": [], "files": [],
}  # fmt: skip
# Each list and dictionary of the wire: the model, its other fields, the field, an entry by its number, and the limit.
LISTS = {
    "files": (wire.Result, lambda i: wire.FileDigest(path=str(i), sha256="", size=1), limits.ANSWER_FILES),
    "commands": (wire.Result, lambda _: wire.CommandResult(argv=[], **ENDED), limits.ANSWER_STEPS),
    "logs": (wire.Result, lambda i: LOG.model_copy(update={"path": str(i)}), limits.ANSWER_STEPS),
    "skipped": (wire.Result, str, limits.ANSWER_NOTES),
    "params": (wire.Result, lambda i: (str(i), 1), limits.ANSWER_NAMES),
    "host": (wire.Result, lambda i: (str(i), 1), limits.ANSWER_NAMES),
    "versions": (wire.Result, lambda i: (str(i), "1"), limits.ANSWER_NAMES),
    "argv": (wire.CommandResult, str, limits.ANSWER_ARGUMENTS),
    "survivors": (wire.CommandResult, str, limits.ANSWER_NOTES),
    "peaks": (wire.CommandResult, lambda i: (str(i), 1), limits.ANSWER_NAMES),
    "violations": (wire.Gate, lambda _: FAULT, limits.ANSWER_NOTES),
    "notes": (wire.Gate, str, limits.ANSWER_NOTES),
    "labels": (wire.StateFile, str, 32),
}
OTHERS: dict[object, dict[str, object]] = {
    wire.Result: WHOLE,
    wire.CommandResult: {"argv": [], **ENDED},
    wire.Gate: {"verdict": "ACCEPTED"},
    wire.StateFile: json.loads(STATE % (b"0" * 40)),
}


def test_no_list_of_the_wire_is_without_a_limit():
    models = [kind for kind in vars(wire).values() if isinstance(kind, type) and issubclass(kind, BaseModel)]
    found = {
        name
        for kind in models
        for name, about in kind.model_fields.items()
        if {"list", "dict"} & {*re.findall(r"\w+", str(about.annotation))}
    }

    assert found == set(LISTS)


@pytest.mark.parametrize("more", [0, 1])
@pytest.mark.parametrize("field", LISTS)
def test_lists_of_an_answer(field, more):
    model, entry, most = LISTS[field]
    entries = [entry(i) for i in range(most + more)]
    named = field in ("params", "host", "versions", "peaks")
    fields = {**OTHERS[model], field: dict(entries) if named else entries}
    if not more:
        assert len(getattr(model(**fields), field)) == most
        return
    with pytest.raises(ValueError, match=f"at most {most} items"):
        model(**fields)


def test_each_step_has_a_log_of_its_own():
    with pytest.raises(ValueError, match="two steps have the same log"):
        wire.Result(**{**WHOLE, "logs": [LOG, LOG]})


def test_what_a_runner_writes_stays_within_what_a_reader_takes():
    assert supervisor.truncate_survivors(["1 x"] * limits.ANSWER_NOTES) == ["1 x"] * limits.ANSWER_NOTES
    assert supervisor.truncate_survivors(["1 x"] * 1000)[-2:] == ["1 x", "and 901 more"]
    assert len(supervisor.truncate_survivors(["1 x"] * 1000)) == limits.ANSWER_NOTES
    skipped = Collected()
    for i in range(1000):
        skipped.skip(str(i), "no")
    assert len(skipped.skipped) < limits.ANSWER_NOTES
    assert gate.MAX_VIOLATIONS == limits.ANSWER_NOTES


def test_limits_on_the_page_have_their_values():
    units = {"KiB": limits.KIB, "MiB": limits.MIB, "": 1}
    shown = re.findall(r"`([A-Z_]+)` \(([\d,]+) ?(KiB|MiB|)\)", PAGE.read_text(encoding="utf-8"))

    assert len(shown) > 25
    assert {name: int(value.replace(",", "")) * units[unit] for name, value, unit in shown} == {
        name: getattr(limits, name) for name, *_ in shown
    }


def test_every_limit_is_explained_where_it_stands():
    """A comment stands above a limit, or above the limits that stand with it."""
    groups = Path(limits.__file__).read_text(encoding="utf-8").split("\n\n")
    explained = {
        name
        for group in groups
        if group.startswith("#")
        for name in re.findall(r"^([A-Z_]+) = ", group, re.MULTILINE)
    }

    assert set(NAMES) - explained == set()


@pytest.mark.parametrize("more", [0, 1])
def test_bytes_of_an_answer_are_counted_by_what_is_stored(committed, user_git, monkeypatch, more):
    monkeypatch.setattr(limits, "ANSWER_BYTES", 20)
    commit = committed({f"{wire.REPORTS}/a": b"0123456789", f"{wire.REPORTS}/b": b"0123456789" + b"x" * more})
    listed = result_of((f"{wire.REPORTS}/a", 1), (f"{wire.REPORTS}/b", 1))
    if not more:
        assert Contents.of(user_git, commit, listed)
        return
    with pytest.raises(VerificationError, match="together are larger"):
        Contents.of(user_git, commit, listed)


@pytest.mark.parametrize("more", [0, 1])
def test_one_file_of_an_answer(committed, user_git, monkeypatch, more):
    monkeypatch.setattr(wire, "MAX_FILE", 10)
    commit = committed({f"{wire.REPORTS}/a": b"0123456789" + b"x" * more})
    if not more:
        assert Contents.of(user_git, commit, result_of((f"{wire.REPORTS}/a", 1)))
        return
    with pytest.raises(VerificationError, match="one of its files is larger"):
        Contents.of(user_git, commit, result_of((f"{wire.REPORTS}/a", 1)))


@pytest.mark.parametrize("more", [0, 1])
@pytest.mark.parametrize("deep", [False, True])
def test_paths(committed, user_git, monkeypatch, more, deep):
    monkeypatch.setattr(limits, "PATHS", 5)
    empty = committed({"other": b""})
    names = [f"d/{i}/x" if deep else f"d/{i}" for i in range(5 + more)]
    commit = committed({"other": b"", **dict.fromkeys(names, b"x")})
    if not more:
        assert sorted(trees.files_below(user_git, commit, "d")) == names
        assert (
            trees.changed_paths(user_git, empty, commit)
            == trees.changed_paths(user_git, commit, empty)
            == names
        )
        return
    for look in (trees.files_below, trees.changed_paths):
        with pytest.raises(VerificationError, match="more than 5 files"):
            look(user_git, commit, "d" if look is trees.files_below else empty)


@pytest.mark.parametrize("more", [0, 1])
def test_the_length_of_a_path(committed, user_git, monkeypatch, more):
    monkeypatch.setattr(limits, "PATH_LENGTH", 10)
    commit = committed({f"d/{'x' * (8 + more)}": b""})
    if not more:
        assert trees.files_below(user_git, commit, "d")
        return
    with pytest.raises(VerificationError, match="longer than 10"):
        trees.files_below(user_git, commit, "d")


@pytest.mark.parametrize("more", [0, 1])
def test_the_length_of_a_path_in_a_result(more):
    path = "results/research/" + "x" * (limits.PATH_LENGTH - 17 + more)
    if not more:
        assert wire.FileDigest(path=path, sha256="", size=0).path == path
        return
    with pytest.raises(ValueError, match="at most 1024"):
        wire.FileDigest(path=path, sha256="", size=0)


@pytest.mark.parametrize("more", [0, 1])
def test_one_folder(committed, user_git, monkeypatch, more):
    # Mode, space, name, NUL, and 20 bytes of the id.
    monkeypatch.setattr(limits, "TREE_BYTES", 6 + 1 + 4 + 1 + 20 - more)
    commit = committed({"d/name": b""})
    if not more:
        assert trees.files_below(user_git, commit, "d")
        return
    with pytest.raises(VerificationError, match="a folder of the tree"):
        trees.files_below(user_git, commit, "d")


@pytest.mark.parametrize("more", [0, 1])
def test_one_commit(committed, user_git, monkeypatch, more):
    commit = committed({"a": b""})
    size = objects.object_sizes(user_git, [commit])[commit]
    monkeypatch.setattr(limits, "COMMIT_BYTES", size - more)
    if not more:
        assert objects.parents_of(user_git, commit) == []
        return
    with pytest.raises(InfrastructureError, match="no commit of up to"):
        objects.parents_of(user_git, commit)


@pytest.mark.parametrize("more", [0, 1])
@pytest.mark.parametrize("limit", ["PIECE_BYTES", "STREAM_BYTES"])
def test_pieces_of_log(committed, user_git, monkeypatch, limit, more):
    monkeypatch.setattr(limits, limit, 2000)
    request = committed({"a": b""})
    state = STATE % request.encode()
    tip = committed({wire.STATE: state, wire.STREAM: b"x" * (2000 + more)}, request)

    [(_, _, piece)] = history.streamed_states(user_git, request, tip)

    assert len(piece) == (0 if more else 2000)


@pytest.mark.parametrize("more", [0, 1])
def test_a_log_that_is_shown(committed, client, monkeypatch, more):
    monkeypatch.setattr(limits, "LOG_BYTES", 10)
    log = wire.LogDigest(
        path=f"{wire.LOGS}/a-0.log", stream_sha256="", stream_bytes=1, kept_bytes=1, truncated=False
    )
    tip = committed({log.path: b"0123456789" + b"x" * more})
    stands = wire.State.SUCCEEDED
    monkeypatch.setattr(
        type(client),
        "view",
        lambda *_: history.RequestBranch("b", tip, tip, _final(tip), None, has_foreign_commits=False),
    )
    monkeypatch.setattr(
        "bridge.requests.status.read_result", lambda *_: wire.Result.model_construct(files=[], logs=[log])
    )
    assert stands.is_final
    if not more:
        assert client.logs("b") == "0123456789"
        return
    with pytest.raises(UsageError, match="the log is larger") as caught:
        client.logs("b")
    assert caught.value.fix == "Write it to disk: kakeya fetch b"


def _final(request: str) -> wire.StateFile:
    state = wire.parse_state((STATE % request.encode()).replace(b"running", b"succeeded"))
    assert state is not None
    return state


@pytest.mark.parametrize("more", [0, 1])
def test_reports_in_memory(committed, user_git, more):
    commit = committed({f"{wire.REPORTS}/a": b"12345", f"{wire.REPORTS}/b": b"12345" + b"6" * more})
    contents = Contents.of(user_git, commit, result_of())
    paths = [f"{wire.REPORTS}/a", f"{wire.REPORTS}/b"]

    assert sorted(contents.read(paths, 10)) == (paths[:1] if more else paths)


@pytest.mark.parametrize("more", [0, 1])
def test_files_for_the_gate(tmp_path, monkeypatch, more):
    monkeypatch.setattr(limits, "GATE_FILES", 3)
    for i in range(3 + more):
        (tmp_path / f"{i}.json").touch()
    if not more:
        assert len(reports_in(tmp_path)) == 3
        return
    with pytest.raises(UsageError, match="more than 3 reports"):
        reports_in(tmp_path)
