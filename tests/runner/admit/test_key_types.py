"""Keys of other kinds than Ed25519: on security keys in a host's list of signers, and of GPG and X.509."""

from __future__ import annotations

import base64
import hashlib
import struct

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from bridge.errors import PolicyError, UsageError
from bridge.verify.public_keys import read_public_keys

pytestmark = pytest.mark.bus

SK = b"sk-ssh-ed25519@openssh.com"
APPLICATION = b"ssh:"


def string(data: bytes) -> bytes:
    """Return bytes as SSH writes them."""
    return struct.pack(">I", len(data)) + data


class SecurityKey:
    """A security key, as far as its signatures go. It signs a hash of what it is asked to."""

    def __init__(self) -> None:
        self._key = Ed25519PrivateKey.generate()
        self.public = string(SK) + string(self._key.public_key().public_bytes_raw()) + string(APPLICATION)

    def line(self, options: str = 'namespaces="git"') -> str:
        """Return its line in a list of signers."""
        return f"carol@example.invalid {options} {SK.decode()} {base64.b64encode(self.public).decode()}\n"

    def sign(self, payload: bytes) -> bytes:
        """Return an SSH signature in the namespace `git`."""
        about = string(b"git") + string(b"") + string(b"sha512")
        said = b"SSHSIG" + about + string(hashlib.sha512(payload).digest())
        state = struct.pack(">BI", 1, 7)
        raw = self._key.sign(hashlib.sha256(APPLICATION).digest() + state + hashlib.sha256(said).digest())
        blob = b"SSHSIG" + struct.pack(">I", 1) + string(self.public) + about
        text = base64.b64encode(blob + string(string(SK) + string(raw) + state)).decode()
        lines = [text[i : i + 70] for i in range(0, len(text), 70)]
        return "\n".join(
            ["-----BEGIN SSH SIGNATURE-----", *lines, "-----END SSH SIGNATURE-----", ""]
        ).encode()


@pytest.fixture
def security_key() -> SecurityKey:
    return SecurityKey()


def put(trusting, run, armor: bytes) -> None:
    """Replace the signature on a signed request by another one."""
    git = trusting.client.git
    raw = git("cat-file", "commit", run.commit).stdout
    head, _, message = raw.partition(b"\n\n")
    field = b"\ngpgsig " + armor.rstrip(b"\n").replace(b"\n", b"\n ")
    kept = head[: head.index(b"\ngpgsig")]
    stored = git("hash-object", "-t", "commit", "-w", "--stdin", stdin=kept + field + b"\n\n" + message).text
    git("push", "--quiet", "--force", "origin", f"{stored}:refs/heads/{run.branch}")


def payload_of(trusting, run) -> bytes:
    head, _, message = trusting.client.git("cat-file", "commit", run.commit).stdout.partition(b"\n\n")
    return head[: head.index(b"\ngpgsig")] + b"\n\n" + message


def test_a_security_key_on_the_list_signs_requests(trusting, security_key):
    trusting.signers.file.write_text(security_key.line())
    run = trusting.ask("alice")
    put(trusting, run, security_key.sign(payload_of(trusting, run)))

    assert trusting.answer(run).trusted_by == "signature of carol@example.invalid"


@pytest.mark.rows(1)
@pytest.mark.parametrize(
    "line",
    [
        "carol@example.invalid sk-ssh-ed25519@openssh.com AAAA\n",
        "carol@example.invalid x509v3-sign-rsa AAAAB3NzaC1yc2EAAAADAQABAAABAQ==\n",
        "-----BEGIN PGP PUBLIC KEY BLOCK-----\n\nmDMEY\n-----END PGP PUBLIC KEY BLOCK-----\n",
    ],
    ids=["a damaged security key", "X.509", "GPG"],
)
def test_lines_of_other_kinds_list_nobody_and_keep_nobody_out(trusting, security_key, line):
    trusting.signers.file.write_text(line + security_key.line() + trusting.signers.allow("alice").read_text())
    assert trusting.answer(trusting.ask("alice")).trusted_by == "signature of alice@example.invalid"
    trusting.ran.unlink()
    trusting.signers.file.write_text(line)
    assert "not on this host's list" in trusting.refused(trusting.ask("alice"))


@pytest.mark.long
@pytest.mark.parametrize("kind", ["PGP SIGNATURE", "PGP MESSAGE", "SIGNED MESSAGE"])
def test_requests_that_gpg_or_x509_signed_are_refused(trusting, kind):
    run = trusting.ask("alice")
    put(trusting, run, f"-----BEGIN {kind}-----\n\niQEz\n-----END {kind}-----\n".encode())

    assert "the signature is not an SSH signature" in trusting.refused(run)


@pytest.mark.parametrize("form", ["openpgp", "x509"])
def test_a_requester_whose_git_signs_with_gpg_or_x509_is_told_what_is_missing(client, git, clone, bus, form):
    git(clone, "config", "gpg.format", form)
    git(clone, "config", "user.signingkey", "0xDEADBEEFDEADBEEF")

    with pytest.raises(UsageError, match="could not be signed") as error:
        client.run("noop", sign=True)

    assert "must name an SSH key" in error.value.fix
    assert git(bus, "for-each-ref", "--format=%(refname)") == "refs/heads/main"


def test_a_runners_key_of_another_kind_is_refused_where_it_is_listed(keyed, security_key, tmp_path):
    keyed.key()
    for text, said in (
        (security_key.line(), "holds no public key"),
        (
            "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n",
            "holds a certificate, not a public key",
        ),
        (
            "-----BEGIN PGP PUBLIC KEY BLOCK-----\n\nmDME\n-----END PGP PUBLIC KEY BLOCK-----\n",
            "not a public key",
        ),
    ):
        with pytest.raises(UsageError, match=said):
            read_public_keys(text, "a file")
        file = tmp_path / "other.pub"
        file.write_text(text)
        with pytest.raises(PolicyError, match="other"), keyed.context(trust={"runners": [str(file)]}):
            pass
