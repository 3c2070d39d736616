"""Reading a signed answer: which key counts, and what is said when anything is not as it was signed."""

from __future__ import annotations

import json

import pytest

from bridge.bus import wire
from bridge.bus.folder import bus_folder
from bridge.client import Client
from bridge.errors import UsageError, VerificationError
from runner.serve.loop import once

pytestmark = pytest.mark.bus

LOG = ".mac-bridge/logs/noop-0.log"


@pytest.fixture
def answered(client, keyed):
    """The branch of a request with a signed answer."""
    run = client.run("noop")
    keyed.handle()
    return run.branch


@pytest.fixture
def reader(clone, keyed):
    """A client that pins the runner's key."""
    return Client(clone, public_key=keyed.key())


def signature(report):
    (check,) = [check for check in report.checks if check.name == "signature"]
    return check


def test_an_answer_signed_with_the_pinned_key_holds(reader, answered, keyed):
    report = reader.verify(answered)

    assert report.holds
    assert report.as_dict()["signed"] is True
    assert f"pinned by --key {keyed.key()}" in signature(report).message


def test_without_a_pin_a_signature_shows_nothing(client, answered):
    report = client.verify(answered)

    assert report.holds
    assert report.as_dict()["signed"] is False
    assert signature(report).ok is None
    assert "no key is pinned" in signature(report).message


def test_an_unsigned_answer_holds_only_where_nothing_is_pinned(client, reader, keyed):
    run = client.run("noop")
    keyed.handle("two", signed=False)

    assert signature(client.verify(run.branch)).ok is None
    report = reader.verify(run.branch)
    assert signature(report).ok is False
    assert "not signed" in signature(report).message
    assert not report.holds


def test_every_place_where_a_key_can_be_pinned(client, clone, answered, keyed, git, monkeypatch):
    """The order is that of how deliberate each one is; the first that says something decides alone."""
    other = keyed.key("other")
    (clone / ".kakeya").mkdir()
    (clone / ".kakeya" / "runner.pub").write_bytes(keyed.key().read_bytes())
    git(clone, "add", ".kakeya")
    git(clone, "commit", "--quiet", "-m", "Pin the runner's key")
    git(clone, "push", "--quiet", "origin", "HEAD:main")
    bus_folder.forget()  # this process asked a moment ago, when nothing was pinned
    assert signature(client.verify(answered)).message.endswith("pinned by .kakeya/runner.pub on origin/main")

    git(clone, "config", "kakeya.publicKey", str(other))
    assert signature(client.verify(answered)).ok is False
    git(clone, "config", "kakeya.publicKey", str(keyed.key()))
    assert signature(client.verify(answered)).message.endswith("pinned by git config kakeya.publicKey")

    monkeypatch.setenv("KAKEYA_PUBLIC_KEY", str(other))
    assert signature(client.verify(answered)).ok is False
    monkeypatch.setenv("KAKEYA_PUBLIC_KEY", keyed.key().read_text())
    assert signature(client.verify(answered)).message.endswith("pinned by KAKEYA_PUBLIC_KEY")

    assert signature(Client(clone, public_key=other).verify(answered)).ok is False


def test_a_relative_path_in_a_clone_s_settings_counts_in_all_its_folders(client, clone, answered, keyed, git):
    (clone / "keys").mkdir()
    (clone / "keys" / "runner.pub").write_bytes(keyed.key().read_bytes())
    git(clone, "config", "kakeya.publicKey", "keys/runner.pub")

    for folder in (clone, clone / "keys"):
        assert signature(Client(folder).verify(answered)).ok is True


def test_a_key_that_came_with_the_answer_is_never_used(client, answered, forger, keyed, git, clone):
    forger.put(answered, {".kakeya/runner.pub": keyed.key("other").read_bytes()})
    client.view(answered)
    git(clone, "fetch", "--quiet")

    assert signature(client.verify(answered)).ok is None


def test_several_runners_keys_may_be_pinned_in_one_file(clone, answered, keyed, tmp_path):
    both = tmp_path / "both.pub"
    both.write_text(keyed.key("other").read_text() + keyed.key().read_text())

    assert signature(Client(clone, public_key=both).verify(answered)).ok is True


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "cannot read the key"),
        ("nothing", "holds no public key"),
        ("-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n", "private key"),
        ("-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n", "not Ed25519"),
        ("-----BEGIN PUBLIC KEY-----\n!\n-----END PUBLIC KEY-----\n", "not valid PEM"),
    ],
)
def test_a_pin_that_cannot_be_read_is_an_error_and_not_no_pin(clone, tmp_path, text, said):
    path = tmp_path / "pin.pub"
    if text is not None:
        path.write_text(text)

    with pytest.raises(UsageError, match=said):
        _ = Client(clone, public_key=path).pin


def swapped_log(forger, branch):
    forger.rewrite(branch, {LOG: b"something else\n"})


def swapped_result(forger, branch):
    forger.rewrite(branch, reason={"code": "ok", "message": "it went very well"})


def other_host(forger, branch):
    host = json.loads(forger.read(branch, wire.RESULT))["host"]
    forger.rewrite(branch, host={**host, "fingerprint": "sha256:" + "0" * 64})


def other_preset(forger, branch):
    forger.rewrite(branch, preset_digest="sha256:" + "0" * 64)


def added_report(forger, branch):
    path, digest = (
        "results/research/added.json",
        "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a",
    )
    files = json.loads(forger.read(branch, wire.RESULT))["files"]
    forger.rewrite(branch, files=[*files, {"path": path, "sha256": digest, "size": 2}])
    forger.put(branch, {path: b"{}"})


def removed_file(forger, branch):
    files = json.loads(forger.read(branch, wire.RESULT))["files"]
    forger.rewrite(branch, files=[about for about in files if about["path"] != wire.SUMMARY])
    forger.put(branch, {wire.SUMMARY: None})


def squashed(forger, branch):
    request = json.loads(forger.read(branch, wire.RESULT))["request"]
    forger.put(branch, {}, request)


def stripped(forger, branch):
    forger.put(branch, {wire.EVIDENCE: None})


def broken_signature(forger, branch):
    envelope = json.loads(forger.read(branch, wire.EVIDENCE))
    envelope["signatures"][0]["sig"] = "A" * 86 + "=="
    forger.put(branch, {wire.EVIDENCE: json.dumps(envelope).encode()})


def changed_payload(forger, branch):
    envelope = json.loads(forger.read(branch, wire.EVIDENCE))
    envelope["payload"] = "e30="
    forger.put(branch, {wire.EVIDENCE: json.dumps(envelope).encode()})


def no_envelope(forger, branch):
    forger.put(branch, {wire.EVIDENCE: b'{"payload": 1, "payloadType": [], "signatures": [{}]}'})


def cancel_of(forger, branch) -> bytes:
    request = json.loads(forger.read(branch, wire.RESULT))["request"]
    about = {
        "schema_version": 2,
        "branch": branch,
        "request": request,
        "by": "x",
        "at": "2026-01-31T12:00:00Z",
    }
    return json.dumps(about).encode()


@pytest.mark.rows(1)
@pytest.mark.parametrize("place", ["answer", "below it"])
def test_row_125_a_cancellation_that_the_runner_never_saw_is_no_part_of_its_answer(
    reader, answered, forger, git, bus, place
):
    note = {wire.CANCEL: cancel_of(forger, answered)}
    upon = ()
    if place != "answer":
        answer = forger.tip(answered)
        below = git(bus, "rev-parse", f"{answer}^")
        git(bus, "update-ref", f"refs/heads/{answered}", below)
        upon = (forger.put(answered, note, below),)
        git(bus, "update-ref", f"refs/heads/{answered}", answer)
    forger.put(answered, note, *upon)
    reader.view(answered)

    report = reader.verify(answered)

    assert not report.holds
    assert "cancel.json is not covered by the signature" in signature(report).message


def test_a_signed_answer_to_a_cancelled_request_holds(client, reader, keyed):
    run = client.run("noop")
    run.cancel("enough")
    keyed.handle()

    report = reader.verify(run.branch)

    assert (report.holds, report.signed) == (True, True)


CHANGES = [
    (swapped_log, [f"'{LOG}' was changed: signed as", "here"]),
    (swapped_result, ["'.mac-bridge/result.json' was changed"]),
    (other_host, ["host was changed: signed as", f"here 'sha256:{'0' * 64}'"]),
    (other_preset, ["preset_digest was changed", "configuration was changed"]),
    (added_report, ["'results/research/added.json' is not covered by the signature"]),
    (removed_file, ["'.mac-bridge/logs/summary.json' was signed and is missing"]),
    (squashed, ["the history was rewritten"]),
    (stripped, ["not signed, and a key is pinned"]),
    (broken_signature, ["the signature does not fit"]),
    (changed_payload, ["the signature does not fit"]),
    (no_envelope, ["is not a DSSE envelope"]),
]


def test_what_changed_after_signing_is_named(reader, answered, forger, git, bus):
    whole = forger.tip(answered)
    for change, said in CHANGES:
        git(bus, "update-ref", f"refs/heads/{answered}", whole)
        change(forger, answered)
        reader.view(answered)

        report = reader.verify(answered)

        check = signature(report)
        assert check.ok is False, change
        assert [part for part in said if part not in check.message] == []
        assert not report.holds
        assert report.as_dict()["signed"] is False


def test_nothing_is_written_of_an_answer_that_the_pinned_key_did_not_sign(clone, answered, keyed, tmp_path):
    with pytest.raises(VerificationError, match="signed with another key"):
        Client(clone, public_key=keyed.key("other")).fetch(answered, tmp_path / "out")

    assert not (tmp_path / "out").exists()


def test_what_is_fetched_includes_the_evidence(reader, answered, tmp_path):
    fetched = reader.fetch(answered, tmp_path / "out")

    assert fetched.report.signed
    assert (tmp_path / "out" / wire.EVIDENCE).exists()


def test_a_late_commit_of_the_requester_does_not_spoil_a_signature(client, reader, keyed, forger):
    """The answer is made anew upon it, and the commit that was signed upon stays below."""
    run = client.run("noop")
    keyed.key()
    late: list[str] = []
    with keyed.context() as context:
        push = context.bus.push

        def push_after_the_requester(branch, commit, *, expect):
            final = b'"succeeded"' in context.bus.git("show", f"{commit}:{wire.STATE}").stdout
            if final and not late:
                late.append(forger.put(branch, {}, expect))
            return push(branch, commit, expect=expect)

        context.bus.push = push_after_the_requester
        once(context, run.branch)

    assert late
    check = signature(reader.verify(run.branch))
    assert check.ok is True, check.message


def test_verifying_asks_no_server(reader, answered, bus):
    reader.view(answered)
    bus.rename(bus.with_name("gone.git"))

    assert reader.verify(answered).signed
