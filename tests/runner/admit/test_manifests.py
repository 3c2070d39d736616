"""Each manifest is read and parsed once, whatever becomes of its request, and its parameters are checked once."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path

import pytest

import runner
from bridge.bus import history, objects, wire
from bridge.bus.branch_names import new_nonce
from bridge.bus.history import RequestBranch
from bridge.errors import InfrastructureError
from bridge.presets import Preset
from bridge.system.git import Git
from runner.admit import manifests
from runner.admit.manifests import read_candidate, read_some, read_together
from runner.refusal import Refusal
from runner.serve import queue
from runner.serve.compose import Composer
from runner.serve.queue import Requesters
from runner.serve.tracked import TrackedRequest


@pytest.fixture
def parsed(monkeypatch):
    """How often each manifest was parsed, by its text."""
    count: Counter[bytes] = Counter()
    real = manifests.parse_manifest

    def parse(text):
        count[text] += 1
        return real(text)

    monkeypatch.setattr(manifests, "parse_manifest", parse)
    return count


@pytest.mark.long
@pytest.mark.bus
def test_from_the_queue_to_the_answer_a_manifest_is_parsed_once(host, requester, parsed, monkeypatch):
    checked: Counter[str] = Counter()

    def counted(real):
        def check(preset, given):
            params = real(preset, given)
            checked[preset.name] += 1
            return params

        return check

    monkeypatch.setattr(
        Preset, "check_params", counted(Preset.check_params)
    )  # those given as text come to it too
    done, older, refused = requester.manifest(), requester.older(), requester.manifest(params={"x": 1})
    for manifest in (done, older, refused):
        requester.send(manifest)
    requester.send(requester.manifest("count", params={"n": 3}, labels=["elsewhere"]))
    requester.send(b"{")
    with host.context() as context:
        poller = Composer(context).poller()
        for _ in range(8):
            poller.poll()

    assert sorted(parsed.values()) == [1] * 5
    assert checked == {"touch": 2}


def test_one_module_of_the_runner_parses_manifests():
    files = Path(runner.__file__).parent.rglob("*.py")
    using = [
        file.name for file in files if re.search(r"\bparse_manifest\b", file.read_text(encoding="utf-8"))
    ]
    assert using == ["manifests.py"]


@pytest.fixture
def branch(requester):
    """Return a new request branch with these files."""

    def of(content: bytes | None, **files: object) -> RequestBranch:
        named: dict[str, object] = {"x": b"y", **files}
        named |= {wire.REQUEST: content} if content is not None else {}
        commit = requester.commit(named)
        return RequestBranch(
            f"mac-bridge/touch-{new_nonce()}", commit, commit, None, None, has_foreign_commits=False
        )

    return of


def test_what_is_kept_is_not_read_again(requester, branch, parsed):
    text = json.dumps(requester.manifest()).encode()
    one, bad = (TrackedRequest(branch(content)) for content in (text, b"[]"))
    who = Requesters(requester.git, None, ["mac-bridge/*"])

    for _ in range(2):
        assert [requester[-1] for requester in who.of([one, bad]).values()] == ["a stranger", ""]
    assert read_candidate(requester.git, one.branch, one.manifest).request is one.manifest
    with pytest.raises(Refusal, match="not a JSON object"):
        read_candidate(requester.git, bad.branch, bad.manifest).require_request()
    assert parsed == {text: 1, b"[]": 1}

    assert read_candidate(requester.git, one.branch).request is not None
    assert parsed[text] == 2


def test_beyond_the_budget_a_manifest_is_read_again_at_its_turn(requester, branch, parsed, monkeypatch):
    monkeypatch.setattr(queue, "CACHE_BYTES", manifests.ENTRY_OVERHEAD + 1000)
    requests = [TrackedRequest(branch(json.dumps(requester.manifest()).encode())) for _ in range(3)]

    assert len(Requesters(requester.git, None, ["mac-bridge/*"]).of(requests)) == 3
    assert [one.manifest is not None for one in requests] == [True, False, False]
    read = [read_candidate(requester.git, one.branch, one.manifest) for one in requests]
    assert all(one.request for one in read)
    assert sorted(parsed.values()) == [1, 2, 2]


@pytest.mark.parametrize(
    ("content", "code"),
    [(None, "no_manifest"), (b" " * 70_000, "too_large"), (b"{", "bad_json"), (b"[]", "bad_manifest")],
    ids=["missing", "too large", "no JSON", "no object"],
)
def test_a_refusal_is_the_same_read_alone_and_read_together(requester, branch, content, code):
    asked = branch(content)
    known, _ = read_together(requester.git, [asked.request]).get(asked.request, (None, 0))
    for found in (read_candidate(requester.git, asked, known), read_candidate(requester.git, asked)):
        assert found.request is None
        with pytest.raises(Refusal) as refused:
            found.require_request()
        assert refused.value.code == code


@pytest.mark.bus
def test_a_manifest_behind_a_link_is_no_manifest(host, requester):
    """Read together with others, what a link leads to and what it says cannot be told apart."""
    manifest = requester.manifest()
    git = requester.git
    blob = git.text("hash-object", "-w", "--stdin", stdin=json.dumps(manifest))
    folder = git.text("mktree", stdin=f"120000 blob {blob}\trequest.json\n")
    entries = git("ls-tree", requester.head).stdout.decode()
    tree = git.text("mktree", stdin=f"{entries}040000 tree {folder}\t{wire.FOLDER}\n")
    commit = objects.commit(
        git, tree, [requester.head], "a link\n", objects.Identity("x", "x@example.invalid")
    )
    branch = f"mac-bridge/touch-{manifest['nonce']}"
    requester.push(commit, branch)

    assert host.answer(branch).reason.code == "no_manifest"
    assert not host.ran.exists()


def test_a_store_that_fails_is_no_refusal(requester, branch, monkeypatch):
    asked = branch(b"{}")

    def fails(*_args: object, **_more: object) -> None:
        raise InfrastructureError("the disk is gone", code="unreachable")

    monkeypatch.setattr(objects, "read_blob", fails)
    with pytest.raises(InfrastructureError, match="disk"):
        read_candidate(requester.git, asked)


def test_one_that_cannot_be_read_is_found_among_others(requester, branch, monkeypatch):
    good, bad = branch(b"{}"), branch(b"[]")
    real = objects.read_many

    def fails(git: Git, names: list[str], **more: object) -> list[bytes | None]:
        if f"{bad.request}:{wire.REQUEST}" in names:
            raise InfrastructureError("odd")
        return real(git, names, **more)

    monkeypatch.setattr(objects, "read_many", fails)
    names = [f"{one.request}:{wire.REQUEST}" for one in (good, bad)]
    assert read_some(requester.git, names) == [b"{}", None]


def test_a_request_belongs_to_a_branch_that_was_built_upon_it(requester, branch):
    fresh = branch(b"{}")
    later = requester.commit({}, fresh.request)
    assert manifests.belongs(requester.git, fresh)
    assert manifests.belongs(
        requester.git,
        RequestBranch(fresh.name, later, fresh.request, None, None, has_foreign_commits=False),
    )
    assert not manifests.belongs(
        requester.git, RequestBranch(fresh.name, fresh.tip, later, None, None, has_foreign_commits=False)
    )
    assert history.is_ancestor(requester.git, fresh.request, later)
