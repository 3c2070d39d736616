"""Whose turn it is: no requester keeps the others waiting, however many requests it pushes."""

from __future__ import annotations

import json
import subprocess
from collections import Counter

import pytest

from bridge.bus import history, objects, wire
from bridge.bus.branch_names import parse_branch, turn_cycle_lengths
from bridge.bus.history import RequestBranch
from bridge.bus.writer import Writer
from bridge.errors import PolicyError
from bridge.manifest import parse_time
from bridge.requests.binding import Binding
from bridge.system.git import Git
from bridge.system.git_output import refs
from runner.policy import load_policy
from runner.serve.compose import Composer
from runner.serve.queue import FairQueue, Requesters, take_turns
from runner.serve.tracked import TrackedRequest
from runner.state.ledger import Ledger
from tests.trees import list_tree

BEGAN = 1_700_000_000


def branch(requester, at):
    name = f"mac-bridge/noop-{BEGAN + at}-{at:06x}"
    return RequestBranch(name, requester, requester, None, None, has_foreign_commits=False)


def turns(asked, last=()):
    """Return the requesters in turn; `asked` names them in the order of their requests."""
    requests = [TrackedRequest(branch(name, at)) for at, name in enumerate(asked)]
    ordered = take_turns(requests, lambda v: tuple(v.branch.request.split(":")), Counter(dict(last)))
    return [request.branch.request for request in ordered]


@pytest.mark.parametrize(
    ("asked", "served"),
    [
        (["a:x", "a:x", "a:x"], ["a:x", "a:x", "a:x"]),
        (["a:x", "a:x", "a:x", "b:y"], ["a:x", "b:y", "a:x", "a:x"]),
        (["a:x", "b:y", "c:z", "a:x"], ["a:x", "b:y", "c:z", "a:x"]),
        # Many names under one prefix are still one prefix.
        (["a:1", "a:2", "a:3", "b:y", "b:y"], ["a:1", "b:y", "a:2", "b:y", "a:3"]),
        # Below a prefix the names take turns too.
        (["a:1", "a:1", "a:1", "a:2"], ["a:1", "a:2", "a:1", "a:1"]),
    ],
)
def test_requesters_take_turns_with_their_oldest_requests(asked, served):
    assert turns(asked) == served


def test_who_had_no_turn_for_longest_begins():
    last = {("a",): 3, ("a", "x"): 3, ("b",): 2, ("b", "y"): 2}

    assert turns(["a:x", "a:x", "b:y", "c:z"], last.items()) == ["c:z", "b:y", "a:x", "a:x"]


def put_requests(bus, requested_by, count, *, prefix="mac-bridge/", began=BEGAN, preset="noop"):
    """Put requests for a preset on the bus, older ones first, and return their branches."""
    git = Git.isolated(bus)
    head = git.text("rev-parse", "refs/heads/main")
    (upon,) = objects.read_many(git, [f"{head}:"], max_bytes=1 << 20, kind="tree")
    who = objects.Identity("R", "r@example.invalid")
    branches, updates, writer = [], [], Writer(git)
    for i in range(count):
        nonce = f"{began + i}-{i:06x}"
        manifest = {"schema_version": 1, "preset": preset, "params": {}, "ref": "main",
                    "requested_by": requested_by, "nonce": nonce}  # fmt: skip
        folder = writer.tree({"request.json": ("100644", writer.blob(json.dumps(manifest).encode()))})
        tree = writer.tree({wire.FOLDER: ("40000", folder)}, upon)
        branches.append(f"{prefix}{preset}-{nonce}")
        updates.append(f"create refs/heads/{branches[-1]} {writer.commit(tree, [head], 'r', who)}\n")
    writer.store()
    git("update-ref", "--stdin", stdin="".join(updates))
    return branches


@pytest.fixture
def now():
    """A time for requests, not too long ago."""
    import time  # noqa: PLC0415 - used here alone

    return int(time.time()) - 3600


def serve_some(keyed, poller, **policy):
    with keyed.context(**policy) as context:
        polls = Composer(context).poller()
        for _ in range(poller):
            polls.poll()


def answered(bus, branches):
    git = Git.isolated(bus)
    return [b for b in branches if list_tree(git, f"refs/heads/{b}", wire.RESULT)]


@pytest.fixture
def turns_of(bus, runners, tmp_path):
    """Serve what lies on the bus without running it, and return in which order; `comes` says what comes meanwhile."""
    git = Git.isolated(bus)
    policy = load_policy(runners.policy())
    ledger = Ledger(tmp_path / "turns.sqlite")

    def serve(jobs, comes):
        served = []
        order = FairQueue(git, policy, ledger, lambda _: None)
        for i in range(jobs):
            comes(i)
            tips = refs(git.text("for-each-ref", "--format=%(objectname) %(refname)", "refs/heads/").encode())
            branches = history.read_branches(
                git, {ref.removeprefix("refs/heads/"): oid for ref, oid in tips.items()}
            )
            waiting = [
                TrackedRequest(branch)
                for name, branch in branches.items()
                if parse_branch(name) and name not in served
            ]
            if not waiting:
                break
            first = order.order(waiting)[0]
            order.served(first)
            served.append(first.branch.name)
        return served

    yield serve
    ledger.close()


@pytest.mark.long
def test_with_r_requesters_one_waits_at_most_r_minus_1_jobs(bus, turns_of, now):
    """However many requests the others send, before and meanwhile, and however old they say that these are."""
    for i in range(4):
        put_requests(bus, f"flood {i}", 12, began=now + 100 * i)
    mine: dict[str, int] = {}

    def comes(job):
        if job % 7 == 3:
            (branch,) = put_requests(bus, "someone", 1, began=now + 50_000 + job)
            mine[branch] = job
        put_requests(bus, f"flood {job % 4}", 2, began=now - 50_000 + 10 * job)

    served = turns_of(30, comes)

    waited = [served.index(branch) - came for branch, came in mine.items()]
    assert len(waited) == 4
    assert max(waited) <= 4, waited
    # It is a bound that is reached, and the requesters share alike.
    assert turn_cycle_lengths([("mac-bridge/", "here", "", name) for name in "abcde"]).popitem()[1] - 1 == 4
    assert max(waited) >= 3


def test_row_80_a_copy_of_a_request_in_a_folder_leaves_the_request_its_turns(bus, turns_of, now):
    """Anybody can put a branch at the same commit, or name that commit in a state: the copy queues where it lies."""
    put_requests(bus, "someone", 12, prefix="mac-bridge/zz/", began=now)
    (mine,) = put_requests(bus, "someone", 1, began=now + 1000)
    git = Git.isolated(bus)
    copy = mine.replace("mac-bridge/", "mac-bridge/zz/")
    git("update-ref", f"refs/heads/{copy}", f"refs/heads/{mine}")

    served = turns_of(20, lambda _job: None)

    assert served.index(mine) <= 1
    assert served.index(copy) > 10


@pytest.mark.parametrize("bound_to", ["its branch", "another branch", "no branch"])
def test_row_80_a_signature_counts_for_turns_on_its_own_branch_alone(bus, tmp_path, now, bound_to):
    """Signed commits are public: copies of them must not use up their signer's turns."""
    (name,) = put_requests(bus, "someone", 1, began=now)
    key, signers = tmp_path / "key", tmp_path / "signers"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
    signers.write_text(f"somebody {key.with_suffix('.pub').read_text()}")
    git = Git.isolated(bus).with_env(
        GIT_CONFIG_COUNT="1", GIT_CONFIG_KEY_0="user.signingkey", GIT_CONFIG_VALUE_0=str(key)
    )
    binding = {"its branch": name, "another branch": f"{name}0"}.get(bound_to)
    trailers = Binding(binding, "x", "y").trailers if binding else ""
    commit = objects.commit(
        git,
        f"refs/heads/{name}^{{tree}}",
        ["main"],
        f"r\n\n{trailers}",
        objects.Identity("R", "r@x"),
        sign=True,
    )
    branch = RequestBranch(name, commit, commit, None, None, has_foreign_commits=False)

    found = Requesters(git, signers, ["mac-bridge/*"]).of([TrackedRequest(branch)])

    here = ("mac-bridge/", "here", "", "someone")
    assert [*found.values()] == [("signer", "somebody") if bound_to == "its branch" else here]


@pytest.mark.long
def test_with_folders_one_waits_at_most_as_the_shares_of_the_steps_say(bus, turns_of, now):
    who = {
        "claude/mac-bridge-": ("claude/mac-bridge-", "here", "", "one"),
        "mac-bridge/": ("mac-bridge/", "here", "", "one"),
        "mac-bridge/a/": ("mac-bridge/", "below", "a/", "one"),
        "mac-bridge/b/": ("mac-bridge/", "below", "b/", "one"),
    }
    for i, prefix in enumerate(who):
        put_requests(bus, "one", 12, prefix=prefix, began=now + 100 * i)
    bounds = turn_cycle_lengths(who.values())
    assert [bounds[one] for one in who.values()] == [2, 4, 8, 8]

    served = turns_of(32, lambda _job: None)

    for prefix, one in who.items():
        turns_taken = [i for i, branch in enumerate(served) if parse_branch(branch).prefix == prefix]
        gaps = [b - a - 1 for a, b in zip([-1, *turns_taken], turns_taken, strict=False)]
        assert max(gaps) <= bounds[one] - 1, prefix


@pytest.mark.long
@pytest.mark.bus
def test_a_flood_of_one_requester_does_not_keep_another_waiting(bus, keyed, now):
    flood = put_requests(bus, "flood", 300, began=now)
    (other,) = put_requests(bus, "someone", 1, began=now + 1000)

    serve_some(keyed, 2)

    assert answered(bus, [other]) == [other]
    assert len(answered(bus, flood)) == 1
    assert any("300 requests of mac-bridge/ flood wait; 100 are considered at once" in t for t in keyed.told)


@pytest.mark.bus
def test_a_requester_who_takes_many_names_under_one_prefix_gains_nothing(bus, keyed, now):
    for i in range(6):
        put_requests(bus, f"flood {i}", 1, began=now + 10 * i)
    (other,) = put_requests(bus, "someone", 1, prefix="claude/mac-bridge-", began=now + 1000)

    serve_some(keyed, 2)

    assert answered(bus, [other]) == [other]


@pytest.mark.long
@pytest.mark.bus
def test_row_33_folders_below_a_pattern_take_every_other_turn_at_most(bus, keyed, now):
    for i in range(40):
        put_requests(bus, "flood", 1, prefix=f"mac-bridge/x{i}/", began=now + 10 * i)
    honest = put_requests(bus, "someone", 2, began=now + 1000)

    serve_some(keyed, 4)

    assert answered(bus, honest) == honest


@pytest.mark.long
def test_row_33_a_name_that_is_new_queues_behind_those_that_are_here(bus, keyed, now):
    """New names without end would always be the ones that had no turn for longest."""
    honest = put_requests(bus, "someone", 2, began=now)
    with keyed.context() as context:
        polls = Composer(context).poller()
        for i in range(6):
            put_requests(bus, f"flood {i}", 1, prefix="mac-bridge/", began=now - 100 - 10 * i)
            polls.poll()

    assert answered(bus, honest) == honest


@pytest.mark.long
@pytest.mark.bus
def test_more_than_the_quota_of_an_hour_waits_and_is_not_refused(bus, keyed, now):
    many = put_requests(bus, "many", 4, began=now)
    (other,) = put_requests(bus, "someone", 1, began=now + 1000)
    limits = {"per_requester": {"per_hour": 2}}

    serve_some(keyed, 5, limits=limits)
    assert answered(bus, many) == many[:2]
    assert answered(bus, [other]) == [other]

    # Also after a restart: the count is in the ledger.
    serve_some(keyed, 2, limits=limits)
    assert answered(bus, many) == many[:2]

    serve_some(keyed, 2)
    assert answered(bus, many) == many


def test_turns_of_more_than_a_day_ago_are_forgotten(tmp_path):
    ledger = Ledger(tmp_path / "ledger.sqlite")
    at = parse_time("2026-01-01T00:00:00Z").timestamp()
    ledger.record_start("a", at)
    ledger.record_start("a", at + 100_000)

    assert ledger.taken_between(0, at + 100_000) == {"a": 1}
    ledger.close()


@pytest.fixture
def preferring(bus, runners, tmp_path):
    """Return the presets of waiting requests in the order in which they are served, under these priorities."""
    ledgers = []

    def serve(waiting, **priority):
        policy = load_policy(
            runners.policy(priority={name.replace("_", "-"): n for name, n in priority.items()})
        )
        ledgers.append(Ledger(tmp_path / f"turns-{len(ledgers)}.sqlite"))
        git = Git.isolated(bus)
        order = FairQueue(git, policy, ledgers[-1], lambda _: None)
        head = git.text("rev-parse", "refs/heads/main")
        requests = [
            TrackedRequest(RequestBranch(f"mac-bridge/{name}-{BEGAN + at}-{at:06x}", head, head))
            for at, name in enumerate(waiting)
        ]
        served = []
        while requests:
            first = order.order(requests)[0]
            order.served(first)
            requests.remove(first)
            served.append(parse_branch(first.branch.name).preset)
        return served

    yield serve
    for ledger in ledgers:
        ledger.close()


def test_requests_of_a_higher_priority_come_first(preferring):
    assert preferring(["slow", "plain", "probe"], probe=10, slow=-1) == ["probe", "plain", "slow"]
    assert preferring(["slow", "plain"]) == ["slow", "plain"]
    # Of several patterns the highest counts.
    assert preferring(["slow", "slow-not"], **{"slow*": -1, "slow-not": 2}) == ["slow-not", "slow"]


def test_a_request_of_a_low_priority_has_every_fourth_turn_at_the_latest(preferring):
    served = preferring(["slow", "slow", *["probe"] * 9], probe=100, slow=-100)

    assert [i for i, name in enumerate(served) if name == "slow"] == [3, 7]


@pytest.mark.parametrize("value", [{"x": 101}, {"x": 1.5}, {"x": "high"}, ["x"]], ids=str)
def test_a_priority_is_a_small_whole_number(runners, value):
    with pytest.raises(PolicyError):
        load_policy(runners.policy(priority=value))
