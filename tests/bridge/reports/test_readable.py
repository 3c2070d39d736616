"""People read a log without its lines of digests, however the log is cut into pieces."""

from __future__ import annotations

import itertools
import random
import sys

import pytest

from bridge.bus import objects, wire
from bridge.cli import main
from bridge.reports.readable import Readable, readable, without_digests
from bridge.requests.liveness import last_line
from bridge.show.build import excerpt

DIGEST, NAME = "a" * 64, "b" * 16
HIDDEN = [
    f"kakeya-report {DIGEST}",
    f"kakeya-rows {NAME} 3 {DIGEST}",
    f"kakeya-rows 3 {DIGEST}",
    f"kakeya-end {NAME} {DIGEST}",
    f"kakeya-file {DIGEST} {DIGEST}",
]
# What a user prints and only begins like a line of digests.
STAYS = [
    "kakeya-",
    "kakeya-reports are good",
    f"kakeya-rows {DIGEST}",
    f"kakeya-end {NAME} {DIGEST} ",
    f"x kakeya-report {DIGEST}",
    f"kakeya-report {DIGEST.upper()}",
    f"kakeya-report {DIGEST}0",
    "",
]
LOG = "\n".join([*itertools.chain(*itertools.zip_longest(STAYS, HIDDEN, fillvalue="x")), HIDDEN[0]])
SHOWN = (
    "\n".join([*STAYS[: len(HIDDEN)], *(line for stay in STAYS[len(HIDDEN) :] for line in (stay, "x"))])
    + "\n"
)


@pytest.mark.parametrize("line", STAYS)
def test_a_line_that_is_no_digest_stays(line):
    assert readable(f"{line}\n{HIDDEN[0]}\n{line}") == f"{line}\n{line}"


@pytest.mark.parametrize("line", HIDDEN)
def test_a_line_of_digests_is_hidden_wherever_it_stands(line):
    assert readable(f"{line}\na\n{line}\n{line}\nb\n{line}") == "a\nb\n"


def test_a_log_in_pieces_reads_like_the_whole():
    assert readable(LOG) == without_digests(LOG.encode()).decode() == SHOWN
    rng = random.Random(7)
    for _ in range(300):
        cuts = [0, *sorted(rng.sample(range(len(LOG)), rng.randrange(12))), len(LOG)]
        people = Readable()
        pieces = [people.add(LOG[start:end]) for start, end in itertools.pairwise(cuts)]
        assert "".join([*pieces, people.end()]) == SHOWN, cuts


def test_only_the_beginning_of_a_line_of_digests_waits_for_its_end():
    people = Readable()
    assert [*map(people.add, ("a kakeya-", "\nkake", "ya-rows", " of mine"))] == ["a kakeya-", "\n", "", ""]
    assert people.add("?") == "kakeya-rows of mine?"
    assert (people.add(HIDDEN[0]), people.end()) == (HIDDEN[0], "")


def test_a_report_shows_a_log_without_them():
    log = excerpt("x", f"one\n{HIDDEN[1]}\ntwo\n{HIDDEN[3]}\n".encode(), cut_short=False)
    assert (log.head, log.left_out, log.tail) == (("one", "two"), 0, ())


@pytest.mark.bus
def test_a_log_on_the_bus_keeps_them_for_whoever_asks(clone, client, monkeypatch, capsys):
    def printed(*args):
        monkeypatch.setattr(sys, "argv", ["kakeya", "-C", str(clone), "logs", *args])
        with pytest.raises(SystemExit):
            main()
        return capsys.readouterr().out

    pieces = [
        f"{HIDDEN[0]}\nstep 1\n{HIDDEN[1][:30]}",
        f"{HIDDEN[1][30:]}\nkakeya-rows are mine\n",
        HIDDEN[3],
    ]
    run, git = client.run("noop"), client.git
    branch = client.view(run.branch)
    for i, piece in enumerate(pieces):
        state = wire.StateFile(
            schema_version=2, state=wire.State.RUNNING, branch=run.branch, request=branch.request, salt=f"{i}", token=1,
            sequence=i, lease_s=60.0, runner=wire.Runner(id="i", instance="x", version="1"), at="t",
        )  # fmt: skip
        files = {wire.STATE: state.to_bytes(), wire.STREAM: piece.encode()}
        tree = objects.overlay(git, f"{branch.tip}^{{tree}}", files)
        tip = objects.commit(git, tree, [branch.tip], "a state\n", objects.Identity("R", "r@example.invalid"))
        git("push", "--quiet", "origin", f"{tip}:refs/heads/{run.branch}")
        branch = client.view(run.branch)

    shown = "step 1\nkakeya-rows are mine\n"
    assert printed() == shown
    assert printed("-f", "--timeout", "0s") == shown
    assert printed("--raw") == "".join(pieces)
    assert printed("-f", "--raw", "--timeout", "0s") == "".join(pieces)
    assert run.logs() == "".join(pieces)
    assert last_line(git, branch) == "kakeya-rows are mine"
