"""A key that ever signed stays findable, and a process reports the key that it uses, whatever lies on the disk."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

from bridge.client import Client
from bridge.errors import PolicyError, UsageError
from bridge.verify.public_keys import read_public_keys
from runner.cli import cli
from runner.doctor.status import checks, overview
from runner.policy import load_policy
from runner.state import signing_key
from runner.state.activity import StatusFile


def listed(state):
    return list(read_public_keys((state / "runner.pub").read_text(), "runner.pub"))


def test_every_key_that_signed_stays_listed_below_the_new_one(tmp_path):
    keys = [signing_key.make_key(tmp_path, force=i > 0) for i in range(3)]
    assert list(signing_key.public_keys(tmp_path)) == listed(tmp_path) == keys[::-1]


@pytest.mark.parametrize("lost", ["missing", "empty", "another's", "no key"])
def test_the_old_key_stays_findable_if_the_file_of_public_keys_is_damaged(tmp_path, lost):
    old, other = signing_key.make_key(tmp_path), signing_key.make_key(tmp_path / "other")
    public = tmp_path / "runner.pub"
    public.unlink()
    content = {
        "empty": "",
        "another's": other.text,
        "no key": "-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n",
    }
    if lost in content:
        public.write_text(content[lost])
    new = signing_key.make_key(tmp_path, force=True)
    assert listed(tmp_path)[:2] == [new, old]
    assert signing_key.public_keys(tmp_path)[0] == new


def test_a_new_key_after_the_private_one_was_deleted_stands_above_the_old_one(tmp_path):
    old = signing_key.make_key(tmp_path)
    (tmp_path / "runner.key").unlink()
    new = signing_key.make_key(tmp_path)
    assert listed(tmp_path) == [new, old]


def test_a_key_that_was_put_in_place_by_hand_is_listed_once_it_is_used(host, keyed):
    state = host.bus.parent / "runners" / "state-one"
    first = signing_key.make_key(state, force=True)
    other = signing_key.make_key(state.parent / "elsewhere")
    (state.parent / "elsewhere" / "runner.key").replace(state / "runner.key")
    with keyed.context() as context:
        assert context.keys.public[:2] == (other, first)
    assert listed(state)[:2] == [other, first]


def run(policy, *args):
    return CliRunner().invoke(cli, ["--policy", str(policy), *args])


@pytest.fixture
def serving(runners, monkeypatch):
    """A runner whose process serves and signs with the given key, as the status file says."""
    policy = load_policy(runners.policy())
    policy.state.mkdir(parents=True, exist_ok=True)

    def begin(key):
        file = StatusFile(policy.state)
        file.set_serving(serving=True, key=key and key.short, id="one", bus="a bus")
        monkeypatch.setattr("runner.cli.first.serving_process", lambda _state: SimpleNamespace(pid=7))

    return SimpleNamespace(policy=policy, file=runners.folder / "one.yaml", begin=begin)


def key_line(policy):
    (check,) = [check for check in checks(overview(policy, blas=False)) if check.name == "key"]
    return check.ok, f"{check.message}. {check.fix or ''}"


def test_keygen_says_what_a_serving_runner_goes_on_to_do(serving):
    old = signing_key.make_key(serving.policy.state)
    done = run(serving.file, "keygen", "--force")
    assert "until it is restarted" not in done.output, "no runner serves"
    assert "keep the old public keys" in done.output
    assert "keep the old" not in run(serving.file, "keygen", "--show").output
    current = signing_key.public_key(serving.policy.state)

    serving.begin(current)
    done = run(serving.file, "keygen", "--force")
    assert f"process 7, signs with the old key {current.short} until it is restarted" in done.output
    assert read_public_keys(done.output, "")[1:] == (current, old)
    told = json.loads(run(serving.file, "keygen", "--force", "--json").stdout)
    assert (told["needs_restart"], len(told["older_key_ids"])) == (True, 3)
    assert len(read_public_keys(told["public_key"], "")) == 4


def test_keygen_says_that_a_serving_runner_without_a_key_goes_on_without(serving):
    serving.begin(None)
    done = run(serving.file, "keygen")
    assert "does not sign its answers until it is restarted" in done.output


FAILS = "signed with {used}; its next start fails"
# What happens to the key file while the runner serves: what `status` says, and what it must not say.
HARM = {
    "nothing": (lambda _: None, True, "signed with {used}", "restart"),
    "replaced": (lambda state: signing_key.make_key(state, force=True), None, "{used}. After a restart, sha256:", ""),
    "deleted": (lambda state: (state / "runner.key").unlink(), None, "{used}. After a restart, nothing is signed", ""),
    "damaged": (lambda state: (state / "runner.key").write_text("x"), False, FAILS, ""),
    "readable by others": (lambda state: (state / "runner.key").chmod(0o644), False, FAILS, ""),
}  # fmt: skip


@pytest.mark.parametrize(("harm", "ok", "said", "unsaid"), HARM.values(), ids=HARM)
def test_status_names_the_key_that_the_process_uses(serving, harm, ok, said, unsaid):
    used = signing_key.make_key(serving.policy.state)
    serving.begin(used)
    harm(serving.policy.state)
    found, line = key_line(serving.policy)
    assert found is ok
    assert said.format(used=used.short) in line
    assert not unsaid or unsaid not in line


def test_status_says_that_a_process_without_a_key_signs_nothing(serving):
    serving.begin(None)
    signing_key.make_key(serving.policy.state)
    ok, line = key_line(serving.policy)
    assert ok is None
    assert line.startswith("answers are not signed. After a restart, sha256:")


def test_status_says_what_the_next_start_uses_if_none_serves(serving):
    assert key_line(serving.policy) == (None, "answers are not signed. Create a key: kakeya-runner keygen")
    key = signing_key.make_key(serving.policy.state)
    assert key_line(serving.policy) == (True, f"answers are signed with {key.short}. ")
    (serving.policy.state / "runner.key").write_text("x")
    ok, line = key_line(serving.policy)
    assert (ok, line.startswith("it does not start: ")) == (False, True)


def test_status_names_the_bus_that_the_process_serves(serving):
    serving.begin(None)
    found = overview(serving.policy, blas=False)
    assert (found["id"], found["bus"]) == ("one", "a bus")


@pytest.mark.bus
def test_answers_of_the_old_key_verify_with_all_keys_and_say_what_to_do_with_the_new_one(
    client, keyed, tmp_path, clone
):
    run = client.run("noop")
    keyed.handle()
    state = keyed.runners.folder / "state-one"
    signing_key.make_key(state, force=True)
    pin = tmp_path / "pin"

    pin.write_text(signing_key.public_key(state).text)
    report = Client(clone, public_key=pin).verify(run.branch)
    (check,) = [check for check in report.checks if check.name == "signature"]
    assert (report.holds, check.ok) == (False, False)
    assert "signed with another key" in check.message
    assert "pin all its public keys in one file, old ones below the new one" in check.fix
    assert "kakeya-runner keygen --show" in check.fix

    pin.write_text("".join(key.text for key in signing_key.public_keys(state)))
    assert Client(clone, public_key=pin).verify(run.branch).holds


@pytest.mark.bus
def test_a_runner_knows_its_own_answers_again_after_its_key_was_replaced(client, keyed):
    """With `trust.runners`, or it would answer them a second time."""
    run = client.run("noop")
    keyed.handle()
    state = keyed.runners.folder / "state-one"
    others = state.parent / "others.pub"
    others.write_text(signing_key.make_key(state.parent / "other").text)
    signing_key.make_key(state, force=True)
    with keyed.context(trust={"runners": [str(others)]}) as context:
        branch = context.keys.reader.read_branch(context.bus.git, run.branch, context.bus.fetch()[run.branch])
    assert branch.current_state.is_final
    assert branch.unsigned is None


def test_a_policy_that_lists_keys_still_needs_one_of_its_own(serving):
    policy = serving.policy.model_copy(
        update={"trust": serving.policy.trust.model_copy(update={"runners": [serving.file]})}
    )
    with pytest.raises(PolicyError, match="has no key to sign"):
        signing_key.reader(policy)
    with pytest.raises(UsageError, match="there is no key"):
        signing_key.public_keys(serving.policy.state)
