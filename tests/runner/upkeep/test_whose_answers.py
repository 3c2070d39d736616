"""What strangers write never makes a runner delete somebody else's answer: its own ledger and clock decide."""

from __future__ import annotations

import sqlite3
import time
from contextlib import closing
from datetime import timedelta

import pytest

from bridge.bus import wire
from bridge.bus.branch_names import new_nonce
from bridge.bus.wire import State, StateFile
from bridge.client import Client
from bridge.manifest import format_time, parse_time
from bridge.system.git import Git
from runner.policy import Retention
from runner.serve.compose import Composer
from runner.state.ledger import FOREIGN, NOT_RUN, RAN, AnswerOnBus, Ledger
from runner.upkeep.retention import choose

DAY = 86_400.0
NOW = 1_800_000_000.0


def branches(bus):
    listed = Git.isolated(bus).text("for-each-ref", "--format=%(refname)", "refs/heads/mac-bridge/")
    return sorted(ref.removeprefix("refs/heads/") for ref in listed.splitlines())


def name(i, days=100.0):
    return f"mac-bridge/noop-{int(NOW - days * DAY)}-{i:06x}"


def answer(i, kind, days, asked_days=100.0):
    return AnswerOnBus(name(i, asked_days), kind, NOW - days * DAY)


# (rule, answers in the order in which this runner knows them, the indices of those that go)
CHOICES = {
    "the newest of its own stay": ({"keep": 2}, [(RAN, 5), (RAN, 4), (RAN, 3)], [0]),
    "foreign ones displace nothing": ({"keep": 2}, [(RAN, 5), (RAN, 4), *[(FOREIGN, 1)] * 5], []),
    "foreign ones are not counted": ({"keep": 1}, [(FOREIGN, 9)] * 5, []),
    "refusals displace nothing": ({"keep": 2}, [(RAN, 5), (RAN, 4), *[(NOT_RUN, 3)] * 4], [2, 3]),
    "answers of jobs displace no refusal": ({"keep": 1}, [(NOT_RUN, 5), (RAN, 4), (RAN, 3)], [1]),
    "each kind leaves by age": ({"days": 30}, [(RAN, 31), (FOREIGN, 31), (NOT_RUN, 31), (RAN, 29)], [0, 1, 2]),
    "a foreign one leaves by the age since it was seen": ({"days": 30}, [(FOREIGN, 1), (FOREIGN, 31)], [1]),
    "within the hour all stay": ({"keep": 1, "days": 0.001}, [(RAN, 0.01), (RAN, 0.01)], []),
    "the order decides, not the time": ({"keep": 1}, [(RAN, 0.05), (RAN, 90)], [0]),
}  # fmt: skip


@pytest.mark.parametrize(("rule", "answers", "gone"), CHOICES.values(), ids=CHOICES)
def test_which_answers_go(rule, answers, gone):
    known = [answer(i, kind, days) for i, (kind, days) in enumerate(answers)]
    assert choose(known, Retention(**rule), NOW) == [known[i].branch for i in gone]


@pytest.mark.parametrize(("asked_days", "goes"), [(1, False), (31, True), (-36_500, True)])
def test_the_time_of_the_request_helps_against_a_clock_that_was_behind(asked_days, goes):
    """A machine may have begun to serve in 1970. A time that no clock here has reached shows nothing."""
    known = [answer(0, RAN, NOW / DAY, asked_days)]
    assert bool(choose(known, Retention(days=30), NOW)) is goes


@pytest.fixture
def ledger(tmp_path):
    with closing(Ledger(tmp_path / "ledger.sqlite")) as ledger:
        yield ledger


def known(ledger, *names, now=NOW, listed=None):
    found = ledger.answers_on_bus(set(names), set(names if listed is None else listed), now)
    return [(each.branch, each.kind, each.at) for each in found]


def test_what_it_gave_stands_in_its_order_and_what_it_only_sees_counts_from_then(ledger):
    ledger.note_given("b", ran=True, at=NOW - 9)
    ledger.note_given("a", ran=False, at=NOW - 8)
    assert known(ledger, "a", "b", "c") == [("b", RAN, NOW - 9), ("a", NOT_RUN, NOW - 8), ("c", FOREIGN, NOW)]
    assert known(ledger, "c", now=NOW + 60) == [("c", FOREIGN, NOW)]


def test_a_second_answer_keeps_the_place_of_the_first(ledger):
    ledger.note_given("a", ran=True, at=NOW - 9)
    ledger.note_given("b", ran=True, at=NOW - 8)
    ledger.note_given("a", ran=True, at=NOW)
    assert known(ledger, "a", "b") == [("a", RAN, NOW), ("b", RAN, NOW - 8)]


def test_an_answer_of_a_time_that_did_not_come_is_new(ledger):
    ledger.note_given("a", ran=True, at=NOW + 1000 * DAY)
    assert known(ledger, "a") == [("a", RAN, NOW)]
    assert known(ledger, "a", now=NOW + 9) == [("a", RAN, NOW)]


def test_what_left_the_bus_is_forgotten_and_comes_back_as_foreign(ledger):
    """Or strangers would push old requests again, whose answers are published again, in place of new ones."""
    ledger.note_given("a", ran=True, at=NOW - 9)
    known(ledger, listed=())
    assert known(ledger, "a") == [("a", RAN, NOW - 9)], "one look may show an older state of the bus"
    known(ledger, listed=(), now=NOW + 4000)
    assert known(ledger, "a", now=NOW + 4000) == [("a", FOREIGN, NOW + 4000)]


def test_the_ledger_of_an_earlier_version_knows_what_it_published(tmp_path):
    path = tmp_path / "ledger.sqlite"
    with closing(Ledger(path)) as ledger:
        for branch, state in (("b", "succeeded"), ("a", "refused"), ("c", "taken")):
            ledger.begin("0" * 40, branch=branch)
            ledger.mark_settled(branch=branch, state=state, published=None if branch == "c" else "1" * 40)
    with closing(sqlite3.connect(path)) as db:
        db.execute("DROP TABLE answers")
        db.commit()
    with closing(Ledger(path)) as ledger:
        assert known(ledger, "a", "b", "c") == [("b", RAN, NOW), ("a", NOT_RUN, NOW), ("c", FOREIGN, NOW)]


@pytest.fixture
def forge(requester):
    """Push a request with a final state that no runner of this bus wrote, dated as given."""

    def make(at: str) -> str:
        manifest = requester.manifest("touch", nonce=new_nonce(parse_time(at).timestamp()))
        branch = requester.send(manifest)
        tip = requester.git.text("rev-parse", f"refs/remotes/origin/{branch}")
        said = StateFile(
            schema_version=2, state=State.SUCCEEDED, branch=branch, request=tip, salt=new_nonce(), token=1, sequence=2,
            lease_s=120.0, runner=wire.Runner(id="x", instance="x", version="0"), at=at,
        )  # fmt: skip
        requester.push(requester.commit({wire.STATE: said.to_bytes()}, tip, base=tip), branch)
        return branch

    return make


@pytest.mark.rows(1)
@pytest.mark.parametrize("at", ["2099-01-01T00:00:00Z", "2001-01-01T00:00:00Z", "now"])
def test_forged_answers_displace_none_whatever_their_times(host, requester, ran, forge, at):
    honest = [requester.send(requester.manifest("touch")) for _ in range(2)]
    assert [host.answer(branch).state for branch in honest] == [State.SUCCEEDED] * 2
    forged = [forge(format_time(parse_time(at)) if at != "now" else format_time_now()) for _ in range(3)]
    with host.context() as context:
        for branch in honest:
            context.ledger.note_given(branch, ran=True, at=time.time() - 7200)
        assert Composer(context).sweeper().sweep(Retention(keep=2, days=1)).deleted == []
    assert branches(host.bus) == sorted(honest + forged)


def format_time_now():
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def test_refused_and_cancelled_requests_displace_no_answer(host, requester, ran):
    """Each is an answer of this runner that a stranger gets for nothing."""
    honest = requester.send(requester.manifest("touch"))
    assert host.answer(honest).state is State.SUCCEEDED
    refused = [requester.send(requester.manifest("no-such-preset")) for _ in range(3)]
    assert {host.answer(branch).state for branch in refused} == {State.REFUSED}
    with host.context() as context:
        known = context.ledger.answers_on_bus({honest, *refused}, {honest, *refused}, time.time())
        kinds = {each.branch: each.kind for each in known}
        assert kinds == {honest: RAN, **dict.fromkeys(refused, NOT_RUN)}
        for each in known:
            context.ledger.note_given(each.branch, ran=each.kind == RAN, at=time.time() - 7200)
        deleted = Composer(context).sweeper().sweep(Retention(keep=1)).deleted
    assert honest in branches(host.bus)
    assert set(deleted) < set(refused)


def test_an_old_request_that_is_pushed_again_does_not_count_as_new(host, requester, ran):
    branch = requester.send(requester.manifest("touch"))
    tip = requester.git.text("rev-parse", f"refs/remotes/origin/{branch}")
    assert host.answer(branch).state is State.SUCCEEDED
    with host.context() as context:
        context.ledger.note_given(branch, ran=True, at=time.time() - 7200)
        context.ledger.answers_on_bus(set(), set(), time.time())
    requester.delete(branch)
    requester.push(tip, branch)
    assert host.answer(branch).state is State.SUCCEEDED
    with host.context() as context:
        ((kind,),) = [(each.kind,) for each in context.ledger.answers_on_bus({branch}, {branch}, time.time())]
    assert kind == FOREIGN


def test_a_runner_that_lost_its_ledger_counts_from_what_it_sees(host, requester, ran):
    branch = requester.send(requester.manifest("touch"))
    assert host.answer(branch).state is State.SUCCEEDED
    for path in (host.bus.parent / "runners" / "state-one").glob("ledger.sqlite*"):
        path.unlink()
    with host.context() as context:
        assert Composer(context).sweeper().sweep(Retention(keep=1, days=0.0001)).deleted == []


def test_a_clone_deletes_only_what_it_sent(client, requester, host, ran):
    """Whoever may push can end anybody's request with a forged answer; without a pinned key it counts."""
    stranger = requester.send(requester.manifest("touch"))
    mine = client.run("touch" if "touch" in client.presets else "noop").branch
    host.answer(stranger)
    swept = client.sweep(timedelta(seconds=-60), remote=True)
    assert stranger not in swept.gone
    assert swept.others == 1
    assert any("--everybody" in line for line in swept.explain_unswept("0 days"))
    assert stranger in branches(host.bus)
    swept = Client(client.git.directory).sweep(timedelta(seconds=-60), remote=True, everybody=True)
    assert stranger in swept.gone
    assert stranger not in branches(host.bus)
    assert mine
