"""Git completes names that it takes for short. Branches and tags that only it could mean change nothing for us."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from bridge.bus import objects, presence, wire
from bridge.client import Client
from bridge.errors import UsageError
from bridge.requests.outbox import Sent
from bridge.system.git import Git
from runner.serve.compose import Composer

pytestmark = pytest.mark.bus

ROOT = Path(__file__).parents[2]
STRANGER = objects.Identity("A Stranger", "stranger@example.invalid")
# Where git looks for `refs/heads/x`, besides there.
PLACES = ("refs/{}", "refs/heads/{}", "refs/tags/{}", "refs/remotes/{}", "refs/remotes/{}/HEAD")


# The last is a folder of the name before it.
@pytest.fixture(params=[PLACES[:-1], PLACES[-1:]], ids=["names", "HEAD"])
def squat(request, bus):
    """Put a stranger's commit, or one that is given, wherever git would look for a reference of this name."""
    there = Git.isolated(bus)

    def put(ref: str, commit: str | None = None) -> str:
        made = commit or objects.commit(there, there.text("rev-parse", "main^{tree}"), [], "x\n", STRANGER)
        for place in request.param:
            there("update-ref", place.format(ref), made)
        return made

    put.places = lambda: there.text("for-each-ref", "--format=%(refname) %(objectname)")
    return put


def test_row_121_a_squatted_name_keeps_no_request_from_its_answer_and_cancellation(client, keyed, squat):
    run, other = client.run("noop"), client.run("noop")
    for each in (run, other):
        squat(f"refs/heads/{each.branch}")
    other.cancel()

    keyed.handle()

    assert run.status().state is wire.State.SUCCEEDED
    assert other.status().state is wire.State.CANCELLED
    assert run.verify().holds


def test_row_121_a_squatted_name_takes_no_push_and_no_deletion(client, squat, bus, git):
    commit = client.git.text("rev-parse", "HEAD")
    branch = "mac-bridge/noop-1790000000-abc123"
    squat(f"refs/heads/{branch}")
    before = squat.places()

    assert client.remote.push(branch, commit, expect=None)
    assert client.remote.push(branch, commit, expect="1" * 40), "it is there already"
    assert git(bus, "rev-parse", f"refs/heads/{branch}") == commit
    assert client.remote.fetch(branch) == {branch: commit}
    assert client.remote.delete(branch, expect=commit)

    assert squat.places() == before
    assert client.remote.fetch(branch) == {}


def test_row_121_nothing_stands_in_for_a_request_that_is_gone(client, keyed, squat, bus, git):
    run = client.run("noop")
    keyed.handle()
    answer = git(bus, "rev-parse", f"refs/heads/{run.branch}")
    squat(f"refs/heads/{run.branch}", answer)
    git(bus, "update-ref", "-d", f"refs/heads/{run.branch}")

    with pytest.raises(UsageError, match="there is no request"):
        run.status()
    with keyed.context() as context:
        assert context.bus.tip(run.branch) is None


def test_row_121_a_runner_announces_itself_and_deletes_answers_beside_squatted_names(
    client, keyed, squat, bus, git
):
    run = client.run("noop")
    with keyed.context() as context:
        reference = f"{presence.REFS}{context.identity.instance}"
        squat(reference)
        context.announcer.begin()
        poller = Composer(context).poller()
        while poller.poll():
            pass
        context.announcer.announce_if_due()
        assert context.announcer.refused == ""
        assert git(bus, "rev-parse", f"{reference}^{{commit}}") == git(
            bus, "for-each-ref", "--format=%(objectname)", reference
        )
        squat(f"refs/heads/{run.branch}")
        tips = context.bus.fetch()

        assert context.bus.delete(tips) == [run.branch]

    assert len(client.runners()) == 1


def test_row_121_longer_names_outlive_a_deletion(client, bus, git):
    """Also those that this clone tracks, of which a plain lease would find that they are where they were."""
    commit = client.git.text("rev-parse", "HEAD")
    branch = "mac-bridge/noop-1790000000-abc123"
    names = [branch, f"{branch}4", f"{branch}-b876"]
    for name in names:
        git(client.git.directory, "push", "--quiet", "origin", f"{commit}:refs/heads/{name}")
    git(client.git.directory, "fetch", "--quiet")

    assert client.remote.delete(branch, expect=commit)

    left = git(bus, "for-each-ref", "--format=%(refname:lstrip=2)", "refs/heads/mac-bridge/").splitlines()
    assert sorted(left) == sorted(names[1:])


def test_row_121_a_runner_deletes_one_of_several_names_that_begin_alike(client, keyed, bus, git):
    commit = client.git.text("rev-parse", "HEAD")
    branch = "mac-bridge/noop-1790000000-abc123"
    names = [branch, f"{branch}4", f"{branch}-b876"]
    for name in names:
        git(client.git.directory, "push", "--quiet", "origin", f"{commit}:refs/heads/{name}")
    with keyed.context() as context:
        context.bus.fetch()

        assert context.bus.delete({branch: commit}) == [branch]

    left = git(bus, "for-each-ref", "--format=%(refname:lstrip=2)", "refs/heads/mac-bridge/").splitlines()
    assert sorted(left) == sorted(names[1:])


def test_row_121_a_branch_of_a_bare_clone_stands_in_for_no_note(bus, tmp_path, git):
    """A bare clone has all branches of the bus as its own."""
    branch = "mac-bridge/noop-1790000000-abc123"
    git(bus, "update-ref", f"refs/heads/refs/kakeya-sent/{branch}", "main")
    git(tmp_path, "clone", "--quiet", "--bare", str(bus), "bare")

    assert Sent(Client(tmp_path / "bare").git).commit_of(branch) is None


TALKING = ("fetch", "push", "ls-remote", "pull", "fetch-pack", "send-pack")
# Options that take no name, and the tree of a commit whose id is known.
EXACT = re.compile(r"'--[a-z-]+(=[a-z]+)?'|'index'|f'\{[a-z.]+\}\^\{\{tree\}\}'")


def calls_of_git(file: Path) -> list[tuple[str, list[str]]]:
    """Return the first word of what may be calls of git in a module, each with the other arguments."""
    calls = [
        node for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))) if isinstance(node, ast.Call)
    ]
    # Classes begin with a capital letter: a check or a tool may be called fetch.
    functions = [call for call in calls if not re.search(r"(?:^|\.)_?[A-Z]", ast.unparse(call.func))]
    words = [(call.args[0], call.args[1:]) for call in functions if call.args]
    return [
        (word.value, [ast.unparse(argument) for argument in others])
        for word, others in words
        if isinstance(word, ast.Constant) and isinstance(word.value, str)
    ]


def test_only_one_module_names_references_to_a_server():
    talking, looking_up = set(), []
    for file in [*ROOT.glob("bridge/**/*.py"), *ROOT.glob("runner/**/*.py")]:
        for word, others in calls_of_git(file):
            if word in TALKING and others:
                talking.add(file.relative_to(ROOT).as_posix())
            if word == "rev-parse" and not all(map(EXACT.fullmatch, others)):
                looking_up.append((file.name, others))

    assert talking == {"bridge/bus/exact_refs.py"}
    assert looking_up == []
