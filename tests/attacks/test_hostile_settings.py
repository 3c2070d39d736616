"""Row 87: settings of git that name programs, in a clone, a home or the environment, around what the bus delivers.

The user's own settings are trusted. But what comes from the bus must not make git start what they name, and they must
neither weaken a check nor stop a command.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from bridge.checklist import SIGNATURE
from bridge.client import Client

pytestmark = pytest.mark.bus

HOOKS = (
    "fsmonitor-watchman",
    "post-checkout",
    "post-index-change",
    "pre-auto-gc",
    "pre-push",
    "reference-transaction",
)
ALIASES = (
    "cat-file",
    "commit-tree",
    "config",
    "fetch",
    "for-each-ref",
    "log",
    "ls-remote",
    "push",
    "rev-parse",
)
PROGRAMS = (
    "core.alternateRefsCommand", "core.askPass", "core.editor", "core.fsmonitor", "core.gitProxy", "core.pager",
    "core.sshCommand", "credential.helper", "diff.evil.command", "diff.evil.textconv", "diff.external",
    "filter.evil.clean", "filter.evil.smudge", "gpg.program", "gpg.ssh.defaultKeyCommand", "gpg.x509.program",
    "interactive.diffFilter", "merge.evil.driver", "sequence.editor", "uploadpack.packObjectsHook",
)  # fmt: skip
OTHERS = {
    "color.ui": "always", "column.ui": "always", "commit.gpgSign": "true", "core.abbrev": "4",
    "core.autocrlf": "true", "core.commentChar": "K", "core.logAllRefUpdates": "always", "core.quotePath": "true",
    "fetch.fsckObjects": "false", "fetch.negotiationAlgorithm": "noop", "fetch.prune": "true",
    "fetch.pruneTags": "true",
    "fetch.recurseSubmodules": "true", "fetch.unpackLimit": "1", "fetch.writeCommitGraph": "true",
    "format.pretty": "raw", "gc.auto": "1", "gpg.format": "x509", "gpg.ssh.allowedSignersFile": "/dev/null",
    "http.proxy": "http://127.0.0.1:9/", "i18n.commitEncoding": "latin1", "i18n.logOutputEncoding": "utf-16",
    "log.date": "relative", "log.decorate": "full", "log.showSignature": "true", "maintenance.auto": "true",
    "protocol.ext.allow": "always", "push.default": "matching", "push.followTags": "true", "push.gpgSign": "if-asked",
    "push.recurseSubmodules": "check", "receive.fsckObjects": "false", "remote.origin.tagOpt": "--tags",
    "remote.pushDefault": "nowhere", "status.submoduleSummary": "true", "submodule.recurse": "true",
    "tag.gpgSign": "true", "trailer.separators": "=", "transfer.fsckObjects": "false",
    "url.ext::/nonexistent .insteadOf": "elsewhere:", "url./nonexistent/.pushInsteadOf": "elsewhere:",
}  # fmt: skip


@pytest.fixture
def ran(tmp_path) -> Path:
    """The folder in which each program that is started leaves its arguments."""
    folder = tmp_path / "started"
    folder.mkdir()
    return folder


@pytest.fixture
def settings(tmp_path, ran) -> dict[str, str]:
    """The settings. Whatever is asked of the program that checks signatures, it says yes."""

    def program(name: str, then: str = "exit 0") -> str:
        path = tmp_path / "programs" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(f'#!/bin/sh\necho "$*" >> "{ran}/{name}"\n{then}\n')
        path.chmod(0o755)
        return str(path)

    for hook in HOOKS:
        program(hook)
    (tmp_path / "attributes").write_text("* filter=evil diff=evil merge=evil\n")
    sign = program(
        "gpg.ssh.program",
        'if [ "$2" = sign ]; then exec ssh-keygen "$@"; fi\necho \'Good "git" signature for alice@example.invalid\'',
    )
    named = {name: program(name) for name in PROGRAMS}
    aliases = {f"alias.{name}": "!" + program(f"alias.{name}") for name in ALIASES}
    places = {
        "core.hooksPath": str(tmp_path / "programs"),
        "core.attributesFile": str(tmp_path / "attributes"),
    }
    return {**OTHERS, **named, **aliases, **places, "gpg.ssh.program": sign}


@pytest.fixture(params=["repository", "home", "environment"])
def hostile(request, settings, clone, git, tmp_path, monkeypatch):
    """Put the settings somewhere, and say where."""

    def put() -> str:
        if request.param == "environment":
            monkeypatch.setenv("GIT_CONFIG_COUNT", str(len(settings)))
            for i, (name, value) in enumerate(settings.items()):
                monkeypatch.setenv(f"GIT_CONFIG_KEY_{i}", name)
                monkeypatch.setenv(f"GIT_CONFIG_VALUE_{i}", value)
            return request.param
        file = Path.home() / "hostile"
        for name, value in settings.items():
            git(clone, "config", "--file", str(file), name, value)
        where = ["--global"] if request.param == "home" else []
        git(clone, "config", *where, "includeIf.gitdir:/**.path", str(file))
        return request.param

    return put


def started(ran: Path) -> dict[str, str]:
    """Return what was started, with the arguments of each."""
    return {path.name: path.read_text() for path in ran.iterdir()}


def test_row_87_what_comes_from_the_bus_starts_nothing_and_all_commands_work(
    hostile, clone, bus, keyed, signers, git, ran
):
    git(clone, "config", "kakeya.publicKey", str(keyed.key()))
    git(clone, "config", "user.signingkey", f"{signers.key('alice')}.pub")
    # What the bus delivers asks for filters, drivers and submodules too.
    (clone / ".gitattributes").write_text("* filter=evil diff=evil merge=evil\n")
    (clone / ".gitmodules").write_text('[submodule "x"]\n\tpath = x\n\turl = elsewhere:x\n')
    git(clone, "update-index", "--add", "--cacheinfo", f"160000,{git(clone, 'rev-parse', 'HEAD')},x")
    git(clone, "add", ".gitattributes", ".gitmodules")
    git(clone, "commit", "--quiet", "-m", "Attributes")
    git(clone, "push", "--quiet", "origin", "HEAD:main")
    git(clone, "tag", "mine")
    where = hostile()

    client = Client(clone)
    run = client.run("noop", sign=True, idempotency_key="once")
    again = client.run("noop", sign=True, idempotency_key="once")
    assert (again.branch, again.existing) == (run.branch, True)
    assert [status.branch for status in client.list()] == [run.branch]
    keyed.handle()
    assert client.wait(run.branch).state == "succeeded"
    report = client.verify(run.branch)
    assert report.holds, [str(check) for check in report.checks]
    assert client.fetch(run.branch, clone.parent / "out").result.state == "succeeded"
    assert "nothing was asked for" in client.logs(run.branch)
    assert client.status(run.branch).state == "succeeded"

    # The user's own signing program signs, and is asked for nothing else.
    programs = started(ran)
    assert {line.partition("-n")[0] for line in programs.pop("gpg.ssh.program").splitlines()} == {"-Y sign "}
    # The bus is a folder here: the other end of a push is a git of the same user, with the settings in the home.
    other_end = {"core.alternateRefsCommand", "reference-transaction"}
    assert programs.keys() <= (other_end if where == "home" else set())
    assert subprocess.check_output(
        ["git", "-C", clone, "for-each-ref", "--format=%(refname)", "refs/tags"]
    ) == (b"refs/tags/mine\n")


def test_row_87_programs_that_approve_of_every_signature_weaken_no_check(hostile, trusting, clone, git, ran):
    git(clone, "config", "kakeya.publicKey", str(trusting.keyed.key()))
    run = trusting.ask(preset="installed")
    trusting.answer(run)
    hostile()
    assert trusting.client.verify(run.branch).holds
    trusting.forger.rewrite(run.branch, requested_by="somebody@example.invalid")

    report = Client(clone, presets=trusting.folder).verify(run.branch)
    assert report.holds, "what was fetched before is still what is checked"
    client = Client(clone, presets=trusting.folder)
    client.view(run.branch)
    (check,) = [check for check in client.verify(run.branch).checks if check.name == SIGNATURE]
    assert check.ok is False

    trusting.ran.unlink()
    assert "not on this host's list" in trusting.refused(trusting.ask("mallory"))
    assert "verify" not in started(ran).get("gpg.ssh.program", "")
