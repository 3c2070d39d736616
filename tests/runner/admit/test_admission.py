"""Every refusal is a row: what is pushed, the reason that comes back, and nothing ran."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from bridge.bus import history, objects, wire
from bridge.bus.branch_names import new_nonce
from bridge.bus.wire import State
from bridge.errors import ExitCode
from bridge.system.git import Git
from runner.admit.admission import admit
from runner.admit.manifests import read_candidate
from runner.serve.compose import Composer
from runner.state.ledger import FENCED

NOW = int(time.time())


def _old(seconds):
    return {"nonce": f"{int(time.time()) - seconds}-abcdef"}


def _moment(seconds):
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + seconds))


def _count(**params):
    return {"preset": "count", "params": params}


def _where(path):
    return {"preset": "where", "params": {"path": path}, "code": "request"}


# name: (changes to a valid version-2 manifest, expected reason). Hours may pass until it is sent.
FIELDS = {
    "unknown preset": ({"preset": "tuch"}, "unknown_preset"),
    "preset is a path": ({"preset": "../touch"}, "bad_manifest"),
    "preset not allowed here": ({"preset": "needs-setting"}, "preset_not_allowed"),
    "unknown parameter": (_count(n=1, m=2), "unknown_param"),
    "missing parameter": (_count(), "missing_param"),
    "below the range": (_count(n=0), "out_of_range"),
    "above the range": (_count(n=51), "out_of_range"),
    "negative": (_count(n=-1), "out_of_range"),
    "text for a number": (_count(n="5"), "bad_type"),
    "true for a number": (_count(n=True), "bad_type"),
    "fraction for a number": (_count(n=1.5), "bad_type"),
    "not one of the words": (_count(n=1, word="three"), "out_of_range"),
    "leading dash": (_count(n=1, word="--upload-pack=evil"), "out_of_range"),
    "at file": (_count(n=1, word="@/etc/passwd"), "out_of_range"),
    "text for a flag": (_count(n=1, loud="true"), "bad_type"),
    "parameter is a list": (_count(n=[1]), "bad_manifest"),
    "parameter is null": (_count(n=None), "bad_manifest"),
    "parameter's name is an option": (_count(**{"--n": 1}), "bad_manifest"),
    "path leads up": (_where("tests/../../etc/passwd"), "path_escape"),
    "path is absolute": (_where("/etc/passwd"), "path_escape"),
    "path is at home": (_where("~/.ssh/id_ed25519"), "path_escape"),
    "path begins with a dash": (_where("--rootdir=/"), "path_escape"),
    "path has a dashed part": (_where("tests/-x"), "path_escape"),
    "path is empty": (_where(""), "path_escape"),
    "path ends a line": (_where("tests/x\n"), "path_escape"),
    "path holds NUL": (_where("tests/\0"), "path_escape"),
    "path is elsewhere": (_where("engine/x.py"), "path_escape"),
    "path is a near miss": (_where("tests2/x.py"), "path_escape"),
    "path is not there": (_where("tests/nowhere.py"), "no_such_path"),
    "nonce ends a line": ({"nonce": f"{NOW}-abcdef\n"}, "bad_nonce"),
    "nonce without time": ({"nonce": "abcdef"}, "bad_nonce"),
    "nonce too short": ({"nonce": f"{NOW}-abcde"}, "bad_nonce"),
    "nonce in capitals": ({"nonce": f"{NOW}-ABCDEF"}, "bad_nonce"),
    "nonce in other digits": ({"nonce": f"{NOW}-\u0661\u0662\u0663\u0664\u0665\u0666"}, "bad_nonce"),
    "expired": ({"created_at": _moment(-7200), "expires_at": _moment(-3600)}, "expired"),
    "expired a moment ago": ({"created_at": _moment(-7200), "expires_at": _moment(-60)}, "expired"),
    "nonce too old": (_old(8 * 86_400), "expired"),
    "made in the future": ({"created_at": _moment(86_400), "expires_at": _moment(90_000)}, "not_yet_valid"),
    "nonce of the future": (_old(-86_400), "not_yet_valid"),
    "lives too long": ({"expires_at": _moment(60 * 86_400)}, "bad_manifest"),
    "ends before it begins": ({"expires_at": _moment(-60)}, "bad_manifest"),
    "time is not UTC": ({"created_at": "2026-01-01T00:00:00+02:00"}, "bad_manifest"),
    "no such day": ({"created_at": "2026-02-31T00:00:00Z"}, "bad_manifest"),
    "unknown schema version": ({"schema_version": 3}, "unknown_schema_version"),
    "schema version is text": ({"schema_version": "2"}, "unknown_schema_version"),
    "schema version is true": ({"schema_version": True}, "unknown_schema_version"),
    "no schema version": ({"schema_version": None}, "unknown_schema_version"),
    "unknown field": ({"argv": ["/bin/sh"]}, "bad_manifest"),
    "field missing": ({"workload": None}, "bad_manifest"),
    "requester unprintable": ({"requested_by": "a\u202eb"}, "bad_manifest"),
    "workload is not the parent": ({"workload": "0" * 40}, "workload_mismatch"),
    "workload is a name": ({"workload": "main"}, "bad_manifest"),
    "other code than here": ({"code": "request"}, "code_mismatch"),
    "unknown code": ({"code": "mine"}, "bad_manifest"),
    "later field in version 1": ({"schema_version": 1}, "bad_manifest"),
}  # fmt: skip

POLICY = {"trust": {"code_request": "allow"}, "presets": ["touch", "count", "where", "tuch"]}


# A few of a table in `make test`, all in `make check`. One runner answers them all.
SOME_OR_ALL = pytest.mark.parametrize(
    "chosen", [slice(None, None, 9), pytest.param(slice(None), marks=pytest.mark.long)], ids=["some", "all"]
)


def _are_refused(host, reasons):
    """Check the answers to requests, given as `{branch: (what is wrong, reason)}`."""
    host.handle(**POLICY)
    for branch, (what, reason) in reasons.items():
        _is_answer(host, host.result(branch), reason, what)


def _is_refused(host, branch, reason, **policy):
    return _is_answer(host, host.answer(branch, **{**POLICY, **policy}), reason)


def _is_answer(host, answer, reason, what=""):
    assert answer is not None, f"{what}: it was not answered"
    assert (answer.state, answer.reason.code) == (State.REFUSED, reason), (what, answer.reason.message)
    assert answer.commands == []
    assert not host.ran.exists(), "it ran"
    return answer


@pytest.mark.long
def test_the_request_that_the_rows_differ_from_runs(host, requester):
    for manifest in (requester.manifest(), requester.manifest(**_count(n=50, word="two", loud=False))):
        answer = host.answer(requester.send(manifest), **POLICY)

        assert answer.state is State.SUCCEEDED, answer.reason
    assert host.ran.exists()


@SOME_OR_ALL
def test_a_manifest_is_refused_on_its_branch_and_nothing_runs(host, requester, chosen):
    reasons = {}
    for what, (changes, reason) in [*FIELDS.items()][chosen]:
        manifest = requester.manifest(**changes)
        branch = f"mac-bridge/{manifest['preset']}-{manifest['nonce'].strip()}"
        if not branch.isascii() or ".." in branch or branch in reasons:
            branch = f"mac-bridge/touch-{new_nonce()}"
        reasons[requester.send(manifest, branch=branch)] = what, reason

    _are_refused(host, reasons)


OLDER = {
    "number as text out of range": ({"preset": "count", "params": {"n": "51"}}, "out_of_range"),
    "number with a sign": ({"preset": "count", "params": {"n": "-5"}}, "bad_type"),
    "number in other digits": ({"preset": "count", "params": {"n": "\u0665"}}, "bad_type"),
    "unknown parameter": ({"params": {"x": "1"}}, "unknown_param"),
    "nonce too old": (_old(8 * 86_400), "expired"),
    "nonce of the future": (_old(-86_400), "not_yet_valid"),
    "field of version 2": ({"labels": ["mac"]}, "bad_manifest"),
    "code of the requester": ({"preset": "where", "params": {"path": "/etc/passwd"}}, "path_escape"),
}


@SOME_OR_ALL
def test_an_older_manifest_is_judged_by_the_same_rules(host, requester, chosen):
    rows = [*OLDER.items()][chosen]
    _are_refused(
        host,
        {requester.send(requester.older(**changes)): (what, reason) for what, (changes, reason) in rows},
    )


def _text(requester, change):
    return change(json.dumps(requester.manifest())).encode()


BYTES = {
    "not JSON": (lambda text: text[:-1], "bad_json"),
    "empty": ("".format, "bad_json"),
    "a list": (lambda text: f"[{text}]", "bad_manifest"),
    "text": ('"touch"'.format, "bad_manifest"),
    "key twice": (lambda text: text.replace("{", '{"preset": "count", ', 1), "bad_json"),
    "NaN": (lambda text: text.replace('"params": {}', '"params": {"n": NaN}'), "bad_json"),
    "Infinity": (lambda text: text.replace('"params": {}', '"params": {"n": -Infinity}'), "bad_json"),
    "1e999": (lambda text: text.replace('"params": {}', '"params": {"n": 1e999}'), "bad_json"),
    "huge integer": (lambda text: text.replace('"params": {}', '"params": {"n": ' + "9" * 5000 + "}"), "bad_json"),
    "half a surrogate pair": (lambda text: text.replace("a stranger", "\\ud800"), "bad_json"),
    "deeply nested": (lambda text: text.replace('"params": {}', '"params": ' + "[" * 9000 + "]" * 9000), "bad_json"),
    "10 MB": (lambda text: text + " " * (10 << 20), "too_large"),
    "a comment": (lambda text: text + "// yes", "bad_json"),
}  # fmt: skip


@SOME_OR_ALL
def test_a_text_with_more_than_one_meaning_or_none_is_refused(host, requester, chosen):
    rows = [*BYTES.items()][chosen]
    _are_refused(
        host, {requester.send(_text(requester, change)): (what, reason) for what, (change, reason) in rows}
    )


def test_text_that_is_not_utf_8_is_refused(host, requester):
    _is_refused(host, requester.send(b"\xff\xfe{}"), "bad_json")


def test_a_manifest_that_is_no_regular_file_is_refused(host, requester):
    git, reasons = requester.git, {}
    places = {
        "a symbolic link": f"120000 blob {objects.write_blob(git, b'/etc/passwd')}\trequest.json\n",
        "a submodule": f"160000 commit {requester.head}\trequest.json\n",
        "a folder": f"040000 tree {git.text('rev-parse', f'{requester.head}^{{tree}}')}\trequest.json\n",
        "missing": "",
    }
    for what, line in places.items():
        root = git.text("mktree", stdin=f"040000 tree {git.text('mktree', stdin=line)}\t.mac-bridge\n")
        branch = f"mac-bridge/touch-{new_nonce()}"
        requester.push(objects.commit(git, root, [requester.head], "a request\n", None), branch)
        reasons[branch] = (what, "no_manifest")

    _are_refused(host, reasons)


def test_a_folder_of_the_bridge_that_is_a_link_is_refused(host, requester):
    git = requester.git
    link = objects.write_blob(git, b"elsewhere")
    root = git.text("mktree", stdin=f"120000 blob {link}\t.mac-bridge\n")
    branch = f"mac-bridge/touch-{new_nonce()}"
    requester.push(objects.commit(git, root, [requester.head], "a request\n", None), branch)

    _is_refused(host, branch, "no_manifest")


NAMES = {
    "another preset": "mac-bridge/count-{nonce}",
    "another nonce": "mac-bridge/touch-1700000000-abcdef",
    "more before": "mac-bridge/x/touchy-{nonce}",
    "no nonce": "mac-bridge/touch",
    "capitals after": "mac-bridge/touch-{nonce}-ABC",
}


def _send_as(requester, name):
    manifest = requester.manifest()
    return requester.send(manifest, branch=name.format(nonce=manifest["nonce"]))


def test_a_branch_that_is_not_called_as_its_manifest_says_is_refused(host, requester):
    sent = {_send_as(requester, name): (what, "branch_mismatch") for what, name in NAMES.items()}

    _are_refused(host, sent)


def test_a_branch_outside_the_patterns_or_with_odd_characters_is_left_alone(host, requester):
    names = "other/touch-{nonce}", "mac-bridge/$(id)-{nonce}", "mac-bridge/tou\u202ech-{nonce}"
    sent = [_send_as(requester, name) for name in names]

    host.handle()

    assert [host.result(branch) for branch in sent] == [None] * len(sent)
    assert not host.ran.exists()


def test_a_merge_commit_is_no_request(host, requester):
    other = requester.commit({"other.txt": b"x"})
    manifest = requester.manifest()

    _is_refused(host, requester.send(manifest, parents=(requester.head, other)), "workload_mismatch")


def test_a_parent_that_git_does_not_read_is_none(host, requester):
    """Git reads parents directly below the tree: a commit that names one further below is made upon nothing."""
    manifest = requester.manifest()
    git, commit = requester.git, requester.commit({wire.REQUEST: json.dumps(manifest).encode()})
    header, _, message = git("cat-file", "commit", commit).stdout.partition(b"\n\n")
    tree, parent, *people = header.split(b"\n")
    raw = b"\n".join([tree, *people, parent]) + b"\n\n" + message
    rootless = git.text("hash-object", "-t", "commit", "-w", "--literally", "--stdin", stdin=raw)
    branch = f"mac-bridge/touch-{manifest['nonce']}"
    requester.push(rootless, branch)

    _is_refused(host, branch, "workload_mismatch")


@pytest.mark.parametrize(("limit", "allowed"), [(7, 7), (9_999, 60)])
def test_a_job_gets_the_time_of_its_preset_and_no_more_than_the_host_allows(host, requester, limit, allowed):
    name = requester.send(requester.manifest())
    with host.context(limits={"timeout_s": limit}) as context:
        git = context.bus.git
        candidate = read_candidate(git, history.read_branch(git, name, context.bus.tip(name)))
        admitted = admit(git, candidate, context.presets, context.policy, context.ledger)

    assert admitted.timeout_s == allowed


def test_code_of_the_requester_needs_the_host_s_consent(host, requester):
    manifest = requester.manifest(**_where("tests/test_ok.py"))

    _is_refused(host, requester.send(manifest), "untrusted_code", trust={"code_request": "deny"})


def test_code_of_the_requester_runs_where_the_host_consents(host, requester):
    answer = host.answer(requester.send(requester.manifest(**_where("tests/test_ok.py"))), **POLICY)

    assert answer.state is State.SUCCEEDED
    assert host.ran.exists()


def test_a_setting_that_the_host_lacks_is_named_with_where_to_set_it(host, requester):
    branch = requester.send(requester.manifest("needs-setting"))

    answer = _is_refused(host, branch, "missing_env", presets=["*"])

    assert "KAKEYA_MAC_VERIFIER_PATH" in answer.reason.message
    assert "policy" in answer.reason.message


def test_a_setting_that_the_host_has_is_used(host, requester, tmp_path):
    branch = requester.send(requester.manifest("needs-setting"))

    answer = host.answer(branch, env={"KAKEYA_MAC_VERIFIER_PATH": str(tmp_path / "model")})

    assert answer.commands[0].argv[-1] == str(tmp_path / "model")


@pytest.mark.parametrize("changes", [{"labels": ["gpu"]}, {"preset": "elsewhere"}], ids=["asked", "preset"])
def test_a_request_for_other_runners_is_left_to_them(host, requester, changes):
    branch = requester.send(requester.manifest(**changes))

    assert host.answer(branch) is None
    assert not host.ran.exists()
    assert host.answer(branch, labels=["gpu"]).state is State.SUCCEEDED


class TestReplay:
    """A nonce is good for one request commit, and that for one answer."""

    @pytest.fixture
    def done(self, host, requester):
        """A request that ran, and its manifest."""
        manifest = requester.manifest()
        branch = requester.send(manifest)
        assert host.answer(branch).state is State.SUCCEEDED
        host.ran.unlink()
        return branch, manifest

    @pytest.mark.long
    @pytest.mark.rows(1)
    @pytest.mark.parametrize("what", ["manifest", "commit"])
    def test_what_others_copy_under_a_name_of_theirs_does_not_use_a_request_up(self, host, requester, what):
        """Whoever may push can ask for anything under a name of their own, and for nothing under another's."""
        manifest = requester.manifest()
        branch = f"mac-bridge/touch-{manifest['nonce']}"
        commit = requester.commit({wire.REQUEST: json.dumps(manifest).encode()})
        copy = f"claude/{branch.replace('/', '-')}"
        if what == "commit":
            requester.push(commit, copy)
        else:
            requester.send(manifest, branch=copy, files={"x": b"y"})
        assert host.answer(copy).state is State.SUCCEEDED
        requester.push(commit, branch)

        assert host.answer(branch).state is State.SUCCEEDED

    def test_the_branch_pushed_anew_with_another_commit_is_refused(self, host, requester, done):
        branch, manifest = done
        requester.delete(branch)
        requester.send(manifest, branch=branch, files={"x": b"y"})

        _is_refused(host, branch, "replayed")

    def test_the_branch_pushed_anew_with_the_same_commit_gets_the_same_answer(self, host, requester, done):
        branch, _ = done
        before = host.result(branch)
        requester.delete(branch)
        requester.push(before.request, branch)

        assert host.answer(branch) == before
        assert not host.ran.exists()

    def test_the_branch_set_back_to_the_request_gets_the_same_answer(self, host, requester, done):
        branch, _ = done
        before = host.result(branch)
        requester.push(before.request, branch, force=True)

        assert host.answer(branch) == before
        assert not host.ran.exists()

    def test_an_answer_that_the_bus_lost_is_given_again_though_the_claim_was_fenced_since(self, host, done):
        """The branch is set back to this runner's claim, which another one seemed to have taken over."""
        branch, _ = done
        before, git = host.result(branch), Git.isolated(host.bus)
        git("update-ref", f"refs/heads/{branch}", f"refs/heads/{branch}~1")
        with host.context(bus={"lease_s": 1, "max_lease_s": 1}) as context:
            context.ledger.mark_settled(branch=branch, state=FENCED)
            poller = Composer(context).poller()
            while host.result(branch) is None:
                poller.poll()

        assert host.result(branch) == before
        assert not host.ran.exists()

    def test_a_request_whose_answer_was_dropped_does_not_run_on_a_new_branch(self, host, requester):
        """As when its branch is deleted under its job: what it did cannot be undone."""
        branch = requester.send(requester.manifest())
        commit = requester.git.text("rev-parse", f"refs/remotes/origin/{branch}")
        requester.delete(branch)
        with host.context() as context:
            context.ledger.begin(commit, branch=branch)
            context.ledger.mark_settled(branch=branch, state=FENCED)
        requester.push(commit, branch)

        _is_refused(host, branch, "replayed")

    def test_without_the_answer_that_was_given_it_is_refused(self, host, requester, done):
        branch, _ = done
        commit = host.result(branch).request
        requester.delete(branch)
        with host.context() as context:
            context.bus.fetch()
            context.bus.git("reflog", "expire", "--all", "--expire=now")
            context.bus.git("prune", "--expire=now")
        requester.push(commit, branch)

        _is_refused(host, branch, "replayed")

    def test_an_answer_is_never_a_request(self, host, done, git):
        branch, _ = done
        before = git(host.bus, "rev-parse", branch)

        host.handle()

        assert git(host.bus, "rev-parse", branch) == before
        assert not host.ran.exists()


class TestForgery:
    """What a branch says of itself: its states, its presets, its policy."""

    @pytest.fixture
    def forged(self, requester):
        """Return a function that sends a request with a forged state."""

        def send(**changes):
            manifest = requester.manifest()
            branch = f"mac-bridge/touch-{manifest['nonce']}"
            state = {
                "schema_version": 2, "state": "running", "branch": branch, "request": requester.head,
                "salt": "aa", "token": 1, "sequence": 1, "lease_s": 1.0, "at": _moment(0),
                "runner": {"id": "one", "instance": "x", "version": "1"},
            } | changes  # fmt: skip
            files = {".mac-bridge/state.json": json.dumps(state).encode()}
            return requester.send(manifest, branch=branch, files=files)

        return send

    @pytest.mark.parametrize(
        ("request_id", "reason"),
        [
            pytest.param("0" * 40, "history_rewritten", id="unknown"),
            pytest.param("main", "no_manifest", id="workload"),
        ],
    )
    def test_a_state_that_names_a_foreign_request_is_refused(
        self, host, requester, forged, request_id, reason
    ):
        named = requester.head if request_id == "main" else request_id

        _is_refused(host, forged(state="requested", request=named), reason)

    def test_a_state_that_names_somebody_else_s_request_runs_nothing(self, host, requester):
        other = requester.commit({".mac-bridge/request.json": json.dumps(requester.manifest()).encode()})
        branch = f"mac-bridge/touch-{new_nonce()}"
        state = {
            "schema_version": 2, "state": "requested", "branch": branch, "request": other, "salt": "aa",
            "token": 0, "sequence": 0, "lease_s": 1.0, "at": _moment(0),
            "runner": {"id": "one", "instance": "x", "version": "1"},
        }  # fmt: skip
        files = {".mac-bridge/state.json": json.dumps(state).encode()}
        requester.push(requester.commit(files, other), branch)

        _is_refused(host, branch, "branch_mismatch")

    def test_a_request_that_says_it_is_answered_is_believed_and_nothing_runs(self, host, forged):
        assert host.answer(forged(state="succeeded")) is None
        assert not host.ran.exists()

    def test_a_state_that_names_anything_but_a_whole_commit_id_is_no_state(self, host, forged):
        words = "--all", "--output=/tmp/x", "main", "HEAD~1", "0" * 39, "0" * 40 + "\n"
        sent = {forged(state="succeeded", request=word): word for word in words}

        host.handle()

        for branch, word in sent.items():
            assert host.result(branch).state is State.SUCCEEDED, word
        assert host.ran.exists()

    def test_a_state_of_an_earlier_run_in_the_workload_does_not_count(self, host, requester):
        first = requester.send(requester.manifest())
        assert host.answer(first).state is State.SUCCEEDED
        requester.git("fetch", "--quiet", "origin", f"refs/heads/{first}:refs/heads/merged")
        merged = requester.git.text("rev-parse", "merged")
        host.ran.unlink()
        manifest = requester.manifest(workload=merged)
        branch = f"mac-bridge/touch-{manifest['nonce']}"
        content = {".mac-bridge/request.json": json.dumps(manifest).encode()}
        commit = requester.commit(content, merged, base=merged)
        requester.push(commit, branch)

        answer = host.answer(branch)

        assert answer.state is State.SUCCEEDED, answer.reason
        assert answer.request == commit
        assert host.ran.exists()

    def test_presets_and_policy_on_the_branch_are_not_read(self, host, requester, touching, tmp_path):
        widened = tmp_path / "widened"
        body = (touching / "touch.yaml").read_text().replace(str(host.ran), str(widened))
        files = {"presets/touch.yaml": body.encode(), "runner.yaml": b"trust: {code_request: allow}\n"}
        with host.context() as context:
            digest = context.presets["touch"].digest

        answer = host.answer(requester.send(requester.manifest(), files=files))

        assert answer.preset_digest == digest
        assert host.ran.exists()
        assert not widened.exists()


@pytest.mark.bus
class TestEndToEnd:
    """A refusal is an answer: the client reads it from the branch."""

    ROWS = (
        "unknown preset", "missing parameter", "above the range", "expired", "nonce ends a line",
        "unknown schema version", "workload is not the parent",
    )  # fmt: skip

    @pytest.mark.long
    def test_the_client_gets_the_reason_and_exit_code_4(self, host, requester, runners, client, touching):
        runners.start(preset_folder=str(touching), **POLICY)
        sent = {}
        for row in self.ROWS:
            manifest = requester.manifest(**FIELDS[row][0])
            name = f"{manifest['preset']}-{manifest['nonce'].strip()}"
            sent[row] = requester.send(manifest, branch=f"mac-bridge/{name}")

        for row, branch in sent.items():
            status = client.wait(branch, timeout=120)

            assert status.state is State.REFUSED, row
            assert status.exit_code == ExitCode.REFUSED
            assert client.result(branch).reason.code == FIELDS[row][1]
            assert client.verify(branch).holds, client.verify(branch)
        assert not Path(host.ran).exists()
