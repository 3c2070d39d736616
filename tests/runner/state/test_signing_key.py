"""Signing an answer: the key and how it is kept, and what the evidence says."""

from __future__ import annotations

import base64
import errno
import json
import stat

import pytest
from click.testing import CliRunner
from cryptography.hazmat.primitives.serialization import load_pem_public_key

from bridge.bus import wire
from bridge.errors import PolicyError, UsageError
from runner.cli import cli
from runner.state import signing_key


def evidence_of(forger, branch):
    envelope = json.loads(forger.read(branch, wire.EVIDENCE))
    return envelope, json.loads(base64.b64decode(envelope["payload"]))


def test_keygen_prints_the_public_key_and_keeps_the_private_one_to_itself(runners):
    policy = runners.policy()
    state = runners.folder / "state-one"

    done = CliRunner().invoke(cli, ["--policy", str(policy), "keygen"])

    assert done.exit_code == 0, done.output
    assert (state / "runner.pub").read_text() in done.output
    assert ".kakeya/runner.pub" in done.output
    assert stat.S_IMODE((state / "runner.key").stat().st_mode) == 0o600
    assert stat.S_IMODE(state.stat().st_mode) == 0o700
    assert "PRIVATE" not in done.output


def test_a_key_is_replaced_only_where_that_is_asked_for(tmp_path):
    first = signing_key.make_key(tmp_path / "state")

    with pytest.raises(UsageError, match="there is a key already"):
        signing_key.make_key(tmp_path / "state")
    assert signing_key.public_key(tmp_path / "state") == first

    second = signing_key.make_key(tmp_path / "state", force=True)
    assert second != first
    assert signing_key.load_signer(tmp_path / "state").public_key.keyid == second.id
    assert stat.S_IMODE((tmp_path / "state" / "runner.key").stat().st_mode) == 0o600


def test_the_key_id_is_the_digest_of_the_key_as_every_tool_computes_it(tmp_path):
    import hashlib  # noqa: PLC0415 - used here alone

    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat  # noqa: PLC0415

    key = signing_key.make_key(tmp_path)
    loaded = load_pem_public_key((tmp_path / "runner.pub").read_bytes())

    der = loaded.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    assert hashlib.sha256(der).hexdigest() == key.id


def test_a_key_that_others_may_read_is_not_used(runners, keyed):
    keyed.key()
    (runners.folder / "state-one" / "runner.key").chmod(0o644)

    with pytest.raises(PolicyError, match="others may read"), keyed.context():
        pass


def test_the_public_half_of_a_key_is_shown_without_its_file_or_with_another_one(tmp_path):
    """A runner may be killed between the two files of a pair."""
    key = signing_key.make_key(tmp_path)
    (tmp_path / "runner.pub").unlink()
    assert signing_key.public_key(tmp_path) == key
    (tmp_path / "runner.pub").write_text(signing_key.make_key(tmp_path / "other").text)
    assert signing_key.public_key(tmp_path) == key


@pytest.mark.parametrize(
    "content", [b"", b"not a key", b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"]
)
def test_a_key_that_is_none_stops_the_runner(tmp_path, content):
    (tmp_path / "runner.key").write_bytes(content)
    (tmp_path / "runner.key").chmod(0o600)

    with pytest.raises(PolicyError, match="is not a private key"):
        signing_key.load_signer(tmp_path)


def test_a_link_in_the_place_of_a_key_is_not_followed(tmp_path):
    signing_key.make_key(tmp_path / "elsewhere")
    (tmp_path / "runner.key").symlink_to(tmp_path / "elsewhere" / "runner.key")

    with pytest.raises(PolicyError, match="cannot read the signing key"):
        signing_key.load_signer(tmp_path)


@pytest.mark.bus
def test_the_evidence_is_an_in_toto_statement_that_any_tool_can_check(client, keyed, forger):
    run = client.run("noop")
    keyed.handle()

    envelope, statement = evidence_of(forger, run.branch)

    assert envelope["payloadType"] == "application/vnd.in-toto+json"
    assert statement["_type"] == "https://in-toto.io/Statement/v1"
    assert statement["predicateType"] == "https://in-toto.io/attestation/test-result/v0.1"
    assert statement["predicate"]["result"] == "PASSED"
    assert statement["predicate"]["passedTests"] == ["noop-0"]
    payload, kind = base64.b64decode(envelope["payload"]), envelope["payloadType"].encode()
    signed = b"DSSEv1 %d %s %d %s" % (len(kind), kind, len(payload), payload)
    public = load_pem_public_key(keyed.key().read_bytes())
    public.verify(base64.b64decode(envelope["signatures"][0]["sig"]), signed)


@pytest.mark.bus
def test_the_evidence_binds_every_file_the_request_and_the_workload(client, keyed, forger, clone, git):
    run = client.run("noop")
    keyed.handle()

    _, statement = evidence_of(forger, run.branch)
    result = json.loads(forger.read(run.branch, wire.RESULT))

    subjects = {subject["name"]: subject["digest"] for subject in statement["subject"]}
    assert subjects["request"] == {"gitCommit": run.commit}
    assert subjects["workload"] == {"gitCommit": git(clone, "rev-parse", "HEAD")}
    files = {wire.RESULT, wire.REQUEST, *(about["path"] for about in result["files"])}
    assert {name for name, digest in subjects.items() if "sha256" in digest} == files
    bound = statement["predicate"]["kakeya"]
    assert bound["branch"] == run.branch
    assert bound["preset_digest"] == result["preset_digest"]
    assert bound["host"] == result["host"]["fingerprint"]
    assert bound["runner"] == result["runner"]
    assert (bound["token"], bound["state"], bound["gate"]) == (result["token"], "succeeded", None)


@pytest.mark.bus
def test_a_refusal_is_signed_too(client, keyed, forger):
    run = client.run("noop")
    keyed.handle(presets=["other-*"])

    _, statement = evidence_of(forger, run.branch)

    assert statement["predicate"]["result"] == "FAILED"
    assert statement["predicate"]["kakeya"]["state"] == "refused"
    assert statement["predicate"]["kakeya"]["reason"] == "preset_not_allowed"


@pytest.mark.bus
def test_a_runner_without_a_key_answers_without_evidence(client, keyed, bus, files_of):
    run = client.run("noop")
    keyed.handle(signed=False)

    found = files_of(bus, run.branch)
    assert wire.RESULT in found
    assert wire.EVIDENCE not in found


def test_a_key_that_a_full_disk_cuts_off_is_no_key(tmp_path, monkeypatch):
    def full(_descriptor):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("os.fsync", full)
        with pytest.raises(OSError, match="No space left"):
            signing_key.make_key(tmp_path / "state")
    assert [*(tmp_path / "state").iterdir()] == []
    made = signing_key.make_key(tmp_path / "state")
    assert signing_key.public_key(tmp_path / "state") == made
