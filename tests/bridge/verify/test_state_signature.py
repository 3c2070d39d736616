"""The signature on the commit of a state: for one branch, one parent and one tree, by one of the keys."""

from __future__ import annotations

import pytest

from bridge.verify.public_keys import PublicKey
from bridge.verify.state_signature import is_signed, signed_message
from runner.state import signing_key

BRANCH, TREE, PARENT = "mac-bridge/noop-1", "a" * 40, "b" * 40


@pytest.fixture
def key(tmp_path):
    return signing_key.make_key(tmp_path)


@pytest.fixture
def message(tmp_path, key):
    signer = signing_key.load_signer(tmp_path)
    return signed_message("title\n\n[skip ci]\n", signer, branch=BRANCH, parent=PARENT, tree=TREE)


def commit(message, tree=TREE, parents=(PARENT,)):
    """Return a commit's content as git stores it."""
    lines = [
        f"tree {tree}",
        *(f"parent {parent}" for parent in parents),
        "author A <a> 1 +0000",
        "committer A <a> 1 +0000",
    ]
    return ("\n".join(lines) + "\n\n" + message).encode()


def test_what_was_signed_holds_for_its_key_alone(key, message):
    assert is_signed(commit(message), BRANCH, [key])
    assert is_signed(commit(message), BRANCH, [PublicKey(b"x" * 32), key])
    assert not is_signed(commit(message), BRANCH, [PublicKey(b"x" * 32)])
    assert not is_signed(commit(message), BRANCH, [])


@pytest.mark.parametrize(
    "where",
    [
        {"tree": "c" * 40}, {"parents": ["c" * 40]}, {"parents": []}, {"parents": [PARENT, PARENT]}, {"tree": "x"},
    ],
)  # fmt: skip
def test_a_signature_fits_no_other_commit(key, message, where):
    assert not is_signed(commit(message, **where), BRANCH, [key])


def test_a_signature_fits_no_other_branch(key, message):
    assert not is_signed(commit(message), BRANCH + "2", [key])


@pytest.mark.parametrize(
    "forged", ["", "x", "Kakeya-Signature: x", "{key} short==", "{key} " + "A" * 86 + "=="]
)
def test_what_is_no_signature_of_the_key_is_none(key, forged):
    line = forged.replace("{key}", f"Kakeya-Signature: {key.id}")
    assert not is_signed(commit(f"title\n\n{line}\n"), BRANCH, [key])


def test_a_key_that_is_no_point_signs_nothing(message):
    broken = PublicKey(b"\xff" * 32)
    line = f"title\n\nKakeya-Signature: {broken.id} {'A' * 86}==\n"
    assert not is_signed(commit(line), BRANCH, [broken])


def test_a_text_below_the_signature_makes_it_none(key, message):
    assert not is_signed(commit(message + "more\n"), BRANCH, [key])


def test_a_second_signature_takes_the_place_of_the_first(tmp_path, key, message):
    again = signed_message(
        message, signing_key.load_signer(tmp_path), branch=BRANCH, parent="c" * 40, tree=TREE
    )

    assert again.count("Kakeya-Signature") == 1
    assert again.startswith("title\n\n[skip ci]\n\nKakeya-Signature: ")
    assert is_signed(commit(again, parents=["c" * 40]), BRANCH, [key])
    assert not is_signed(commit(again), BRANCH, [key])


def test_without_a_key_nothing_is_signed_and_an_older_signature_goes(message):
    assert signed_message(message, None, branch=BRANCH, parent=PARENT, tree=TREE) == "title\n\n[skip ci]\n"
