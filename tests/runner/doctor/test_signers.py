"""`kakeya-runner check` and `serve` say that no key on the list of signers can verify anything."""

from __future__ import annotations

import pytest

from runner.doctor.readiness import trust
from runner.policy import load_policy


@pytest.fixture
def judged(runners, signers):
    """Return the check of a list that holds this text."""

    def judge(text: str | bytes):
        signers.file.write_bytes(text.encode() if isinstance(text, str) else text)
        signers.file.chmod(0o644)
        policy = {"code_request": "signed", "allowed_signers": str(signers.file)}
        return trust(load_policy(runners.policy("one", trust=policy)))

    return judge


def line(signers, start: str) -> str:
    key = " ".join(signers.key("alice").with_suffix(".pub").read_text().split()[:2])
    return f"{start} {key} a comment\n"


@pytest.mark.parametrize(
    "start",
    [
        "alice@example.invalid",
        'alice namespaces="file,git"',
        'alice namespaces="*",valid-before="20990101"',
        "*,alice",
        '"alice"',
        "*@example.invalid cert-authority",
    ],
)
def test_one_line_that_counts_is_enough(judged, signers, start):
    found = judged("# people\nnonsense\nbob ssh-ed25519 AAAA\n\n" + line(signers, start))

    assert (found.ok, "signed with a key in" in found.message) == (True, True)


@pytest.mark.parametrize(
    "start",
    ["# alice", "*", "*@example.invalid", 'alice namespaces="file"', 'alice valid-before="20200101"', ""],
)
def test_a_key_that_counts_for_nobody_is_said_to(judged, signers, start):
    found = judged(line(signers, start))

    assert found.ok is None
    assert "can verify a signature now: only the code of approved requests runs" in found.message
    assert found.fix


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\n\n",
        "# nobody yet\n",
        "alice ssh-ed25519 AAAA\n",
        "alice ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI\n",
        "ssh-ed25519\n",
        b"\xff\x00\xfe",
        "-----BEGIN PGP PUBLIC KEY BLOCK-----\n\nmDMEY\n-----END PGP PUBLIC KEY BLOCK-----\n",
    ],
)
def test_a_list_without_a_line_that_can_be_read_is_said_to_list_nobody(judged, text):
    assert judged(text).ok is None


def test_serving_says_it_too(runners, signers, wait_for):
    signers.file.write_text("# nobody yet\n")
    runner = runners.start(trust={"code_request": "signed", "allowed_signers": str(signers.file)})

    wait_for(lambda: f"no line of {signers.file} can verify a signature now" in runner.said())
