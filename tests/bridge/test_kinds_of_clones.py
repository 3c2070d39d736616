"""Repositories as users have them: requests work from each kind, or one line says why they cannot."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from bridge import doctor
from bridge.bus.wire import State
from bridge.client import Client
from bridge.errors import UsageError

pytestmark = pytest.mark.bus

BRANCH = "mac-bridge/noop-1790000000-abc123"


def worktree(clone, bus, git):
    git(clone, "worktree", "add", "--quiet", "../kind", "-b", "side")


def shallow(clone, bus, git):
    git(clone.parent, "clone", "--quiet", "--depth=1", f"file://{bus}", "kind")


def partial(clone, bus, git):
    git(bus, "config", "uploadpack.allowFilter", "true")
    git(clone.parent, "clone", "--quiet", "--filter=tree:0", "--no-checkout", f"file://{bus}", "kind")


def bare(clone, bus, git):
    git(clone.parent, "clone", "--quiet", "--bare", str(bus), "kind")


def mirror(clone, bus, git):
    git(clone.parent, "clone", "--quiet", "--mirror", str(bus), "kind")


def pushes_nothing(clone, bus, git):
    shutil.copytree(clone, clone.parent / "kind")
    for name, value in (
        ("push.default", "nothing"),
        ("push.gpgSign", "true"),
        ("push.followTags", "true"),
        ("commit.gpgSign", "true"),
        ("user.signingKey", "no such key"),
        ("fetch.prune", "true"),
        ("transfer.fsckObjects", "true"),
        ("protocol.version", "0"),
        ("core.autocrlf", "true"),
    ):
        git(clone.parent / "kind", "config", name, value)


@pytest.mark.rows(1)
@pytest.mark.parametrize("kind", [worktree, shallow, partial, bare, mirror, pushes_nothing])
def test_a_request_is_sent_and_its_answer_is_read(
    kind, clone, bus, git, keyed, monkeypatch, tmp_path, presets
):
    monkeypatch.setenv("KAKEYA_PRESETS", str(presets(noop={"steps": [{"argv": ["/bin/echo", "done"]}]})))
    kind(clone, bus, git)
    client = Client(tmp_path / "kind")

    run = client.run("noop")
    keyed.handle(signed=False, preset_folder=str(tmp_path / "presets"))

    assert run.wait(120).state is State.SUCCEEDED
    assert [status.branch for status in client.list()] == [run.branch]
    assert run.fetch(tmp_path / "out").report.holds
    assert run.verify().holds


def reftable(clone, git):
    git(clone, "config", "core.repositoryFormatVersion", "1")
    git(clone, "config", "extensions.notYetKnown", "true")


def broken(clone, git):
    path = clone / ".git" / "config"
    path.write_text(path.read_text() + "[broken\n")


@pytest.mark.parametrize(
    ("spoil", "said"), [(reftable, "unknown repository extension found: notyetknown"), (broken, "bad config")]
)
def test_a_repository_that_git_cannot_read_is_not_said_to_be_none(spoil, said, clone, git):
    spoil(clone, git)
    with pytest.raises(UsageError, match=said) as failed:
        Client(clone)
    assert "git cannot read" in failed.value.message


def sha256(git, folder: Path, *flags: str) -> Path:
    git(folder.parent, "init", "--quiet", "--object-format=sha256", *flags, str(folder))
    return folder


def test_a_clone_or_a_bus_of_sha256_is_refused_in_plain_words(clone, git, tmp_path):
    with pytest.raises(UsageError, match="names its objects by SHA-256") as failed:
        Client(sha256(git, tmp_path / "here"))
    assert failed.value.code == "object_format"

    other = sha256(git, tmp_path / "other")
    git(other, "commit", "--quiet", "--allow-empty", "-m", "x")
    bus = sha256(git, tmp_path / "bus256.git", "--bare")
    git(other, "push", "--quiet", str(bus), f"HEAD:refs/heads/{BRANCH}")
    git(clone, "remote", "set-url", "origin", str(bus))
    client = Client(clone)
    for ask in (client.list, lambda: client.run("noop"), lambda: client.remote.fetch(BRANCH)):
        with pytest.raises(UsageError, match="origin names its objects by SHA-256"):
            ask()


def test_a_push_address_of_another_repository_is_named(clone, bus, git, tmp_path):
    other = tmp_path / "other.git"
    shutil.copytree(bus, other)
    git(clone, "config", "remote.origin.pushUrl", str(other))
    run = Client(clone).run("noop")
    with pytest.raises(UsageError, match="there is no request") as failed:
        run.status()
    assert str(other) in failed.value.fix
    assert str(bus) in failed.value.fix

    remote = Client(clone).remote
    (check,) = doctor.check_addresses(remote, remote.url)
    assert check.ok is None
    assert str(other) in check.message
