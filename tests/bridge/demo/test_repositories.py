"""The repositories of a runner on this machine."""

from __future__ import annotations

from bridge.local_runner import make_repositories


def test_a_demonstrations_repositories_are_those_that_are_named(git, tmp_path, monkeypatch):
    """Whatever the user's defaults and an outer hook say."""
    (tmp_path / "elsewhere").mkdir()
    for name in ("GIT_DIR", "GIT_COMMON_DIR", "GIT_OBJECT_DIRECTORY"):
        monkeypatch.setenv(name, str(tmp_path / "elsewhere"))
    monkeypatch.setenv("GIT_DEFAULT_HASH", "sha256")
    bare, clone = tmp_path / "bus.git", tmp_path / "clone"

    make_repositories(bare, clone, {"kakeya.publicKey": "/key"})

    monkeypatch.undo()
    assert list((tmp_path / "elsewhere").iterdir()) == []
    assert git(bare, "rev-parse", "--is-bare-repository", "--show-object-format").split() == ["true", "sha1"]
    who = "A requester requester@localhost A requester A workload"
    assert git(clone, "log", "--format=%an %ae %cn %s") == who
    assert git(clone, "status", "--porcelain") == ""
    assert git(clone, "config", "kakeya.publicKey") == "/key"
    assert git(clone, "remote", "get-url", "origin") == str(bare)
