"""Sweeps: one request for each point, sent, awaited, compared and cancelled as one group."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys

import pytest

from bridge.bus.branch_names import new_nonce
from bridge.requests.groups.plan import Plans
from bridge.system.git import Git
from tests.conftest import git

pytestmark = pytest.mark.bus


@pytest.fixture
def sweep(keyed, touching, monkeypatch, kakeya):
    """Run the command line with the runner's key; return the exit code and the text."""
    monkeypatch.setenv("KAKEYA_PRESETS", str(touching))
    monkeypatch.setenv("KAKEYA_PUBLIC_KEY", str(keyed.key()))
    return kakeya


@pytest.fixture
def handle(keyed, touching):
    """Let a runner that signs handle whatever there is."""
    return lambda: keyed.handle(preset_folder=str(touching))


def on_bus(bus):
    return git(bus, "for-each-ref", "--format=%(refname:short)", "refs/heads/mac-bridge/").split()


def group_in(text):
    return re.search(r"\b(?:group |kakeya wait )([0-9a-f]{12})\b", text)[1]


def document(text):
    """Return the JSON of a command, which is one line among what it told people."""
    return json.loads(next(line for line in text.splitlines() if line.startswith("{")))


def test_a_sweep_sends_a_request_for_each_point_and_compares_the_answers(sweep, handle, bus, clone):
    code, text = sweep("run", "count", "-p", "n=20,1,3")
    group = group_in(text)
    branches = re.findall(r"^n=\d+: (mac-bridge/.*)$", text, re.MULTILINE)
    assert code == 0
    assert text.startswith(f"{group}\n")
    assert sorted(branches) == sorted(on_bus(bus))
    manifests = [json.loads(git(bus, "show", f"{branch}:.mac-bridge/request.json")) for branch in branches]
    assert [manifest["params"]["n"] for manifest in manifests] == [20, 1, 3]
    assert all(manifest["nonce"].partition("-")[2].startswith(group) for manifest in manifests)
    assert "requested" in sweep("status", group)[1]

    handle()
    code, text = sweep("wait", group)
    assert code == 0
    assert all(f"n={n}: succeeded" in text for n in (1, 3, 20))
    # The answers are sorted by the parameter, and named by it.
    shown = sweep("report", group)[1]
    assert shown.index("n=1 ") < shown.index("n=3 ") < shown.index("n=20 ")
    assert "run 1" not in shown
    listed = [json.loads(line) for line in sweep("list", "--group", group, "--json")[1].splitlines()]
    assert {status["branch"] for status in listed} == {*branches}
    assert {status["group"] for status in listed} == {group}
    assert all(group in line for line in sweep("list")[1].splitlines()[1:4])
    assert sweep("verify", group)[0] == 0
    code, text = sweep("fetch", group, "--out", "answers")
    assert code == 0
    assert len([*(clone / "answers").iterdir()]) == 3
    assert sweep("logs", group)[0] == sweep("logs", "-f", group)[0] == 0


@pytest.mark.long
def test_two_parameters_make_their_cross_product(sweep, handle, bus):
    code, text = sweep("run", "count", "-p", "n=2,4", "-p", "word=two,one", "--json")
    sent = document(text)
    assert (code, len(on_bus(bus))) == (0, 4)
    names = ["n=2 word=two", "n=2 word=one", "n=4 word=two", "n=4 word=one"]
    assert [point["point"] for point in sent["points"]] == names
    handle()
    code, text = sweep("wait", sent["group"], "--json")
    answers = document(text)
    assert code == answers["exit_code"] == 0
    assert [(point["point"], point["state"]) for point in answers["points"]] == [
        (name, "succeeded") for name in names
    ]
    view = json.loads(sweep("report", sent["group"], "--json")[1])
    assert view["tables"][0]["rows"][0][0] == "n=2 word=one"


@pytest.mark.long
@pytest.mark.rows(1)
@pytest.mark.parametrize("again", ["the same command", "wait"])
def test_an_interrupted_sweep_goes_on(again, sweep, handle, bus, keyed, touching):
    full = bus / "hooks" / "pre-receive"
    # The remote takes two branches and then no more.
    full.parent.mkdir(exist_ok=True)
    full.write_text('#!/bin/sh\n[ "$(git for-each-ref refs/heads/mac-bridge | wc -l)" -lt 2 ]\n')
    full.chmod(0o755)
    command = ("run", "count", "-p", "n=1,2,3", "--wait")
    code, text = sweep(*command)
    group = group_in(text)
    assert code in (3, 4)
    assert "2 of 3 points were sent" in text
    assert f"kakeya wait {group}" in text
    first = on_bus(bus)
    full.unlink()
    runner = keyed.runners.start(preset_folder=str(touching))

    code, text = sweep(*command) if again == "the same command" else sweep("wait", group)
    runner.stop()
    assert code == 0, text
    assert group_in(text) == group
    assert {*first} < {*on_bus(bus)}
    assert len(on_bus(bus)) == 3
    # It has its answers, so the same command asks anew.
    code, text = sweep("run", "count", "-p", "n=1,2,3")
    assert group_in(text) != group
    assert len(on_bus(bus)) == 6


@pytest.mark.long
def test_an_interrupt_leaves_what_was_sent_and_says_how_to_go_on(
    sweep, clone, bus, wait_for, keyed, touching
):
    argv = [sys.executable, "-P", "-m", "bridge", "run", "count", "-p", "n=1,2,3", "--wait"]
    with subprocess.Popen(
        argv, cwd=clone, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        wait_for(lambda: len(on_bus(bus)) >= 1)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    group = group_in(err)
    assert f"kakeya wait {group}" in err
    assert f"kakeya cancel {group}" in err
    runner = keyed.runners.start(preset_folder=str(touching))
    code, text = sweep("run", "count", "-p", "n=1,2,3", "--wait")
    runner.stop()
    assert (code, len(on_bus(bus))) == (0, 3), text
    assert group_in(text) == group


def test_a_sweep_ends_with_the_exit_code_of_its_worst_point(sweep, keyed, presets, clone, monkeypatch):
    folder = presets(
        uneven={
            "params": {"n": {"type": "int", "min": 0, "max": 9}},
            "steps": [{"argv": ["/usr/bin/test", "{n}", "-lt", "5"]}],
        }
    )
    code, text = sweep("run", "uneven", "-p", "n=3,7,4", "--json")
    group = document(text)["group"]
    keyed.handle(preset_folder=str(folder))
    code, text = sweep("wait", group, "--json")
    points = {point["point"]: point["exit_code"] for point in document(text)["points"]}
    assert points == {"n=3": 0, "n=7": 1, "n=4": 0}
    assert code == 1


@pytest.mark.long
def test_the_gate_rejects_one_point(sweep, keyed, presets, clone):
    # A report that the job leaves, which claims what it did not measure.
    script = 'test "$1" = 2 || exit 0; mkdir -p results/research && echo "{}" > results/research/a.json'
    folder = presets(
        claims={
            "params": {"n": {"type": "int", "min": 0, "max": 9}},
            "steps": [{"argv": ["/bin/sh", "-c", script, "sh", "{n}"]}],
            "collect": ["results/research/*.json"],
            "gate": "reports",
        }
    )
    group = document(sweep("run", "claims", "-p", "n=1,2", "--json")[1])["group"]
    keyed.handle(preset_folder=str(folder))
    code, text = sweep("wait", group, "--json")
    states = {point["point"]: point["state"] for point in document(text)["points"]}
    assert states["n=2"] == "gate_rejected"
    # The reports of n=1 are incomplete, which is less bad.
    assert (states["n=1"], code) == ("gate_incomplete", 5)


def test_cancelling_a_group_cancels_what_has_not_ended(sweep, handle, bus):
    group = group_in(sweep("run", "count", "-p", "n=1,2")[1])
    # Without a name, the sweep was sent last.
    code, text = sweep("cancel", "--reason", "not needed")
    assert code == 0
    assert "cancelled 2 of 2 points" in text
    handle()
    code, text = sweep("wait", group, "--json")
    assert code == 6
    assert {point["state"] for point in document(text)["points"]} == {"cancelled"}
    assert "2 had ended before" in sweep("cancel", group)[1]


def test_what_was_not_sent_stays_so_after_a_cancellation(sweep, bus, clone):
    full = bus / "hooks" / "pre-receive"
    full.parent.mkdir(exist_ok=True)
    full.write_text('#!/bin/sh\n[ "$(git for-each-ref refs/heads/mac-bridge | wc -l)" -lt 1 ]\n')
    full.chmod(0o755)
    group = group_in(sweep("run", "count", "-p", "n=1,2,3")[1])
    full.unlink()
    code, text = sweep("cancel", group)
    assert (code, len(on_bus(bus))) == (0, 1)
    assert "2 were not sent, and will not be" in text
    assert group_in(sweep("run", "count", "-p", "n=1,2,3")[1]) != group


@pytest.mark.long
def test_answered_points_are_reused(sweep, handle, bus):
    sweep("run", "count", "-p", "n=1,2")
    handle()
    sent = document(sweep("run", "count", "-p", "n=1,2,3", "--reuse", "--json")[1])
    assert ["answered_at" in point for point in sent["points"]] == [True, True, False]
    assert len(on_bus(bus)) == 3
    handle()
    code, text = sweep("wait", sent["group"], "--json")
    assert code == 0
    assert len(document(text)["points"]) == 3
    shown = sweep("report", sent["group"])[1]
    assert all(f"n={n} " in shown for n in (1, 2, 3))


REFUSED = {
    "an invalid value": (("n=1,99,3",), "at the point n=99"),
    "no number": (("n=1,x",), "at the point n=x"),
    "nothing between commas": (("n=1,,2",), "at the point n="),
    "a value twice": (("n=1,2,01",), "lists '01' twice"),
    "an unknown parameter": (("m=1,2",), "has no parameter 'm'"),
    "a parameter twice": (("n=1", "n=2"), "is given twice"),
    "too many points": (
        (f"n={','.join(map(str, range(1, 51)))}", "word=one,two"),
        "make 100 points (50 x 2), and a sweep has at most 64",
    ),
}


def test_a_sweep_with_a_mistake_sends_nothing(sweep, bus, clone):
    for params, message in REFUSED.values():
        code, text = sweep("run", "count", *(word for param in params for word in ("-p", param)))
        assert (code, on_bus(bus)) == (2, []), text
        assert message in text
    for options in (("--expires", "900d"), ("--ref", "nothing"), ("--against", "HEAD"), ("--label", "a b")):
        code, text = sweep("run", "count", "-p", "n=1,2", *options)
        assert (code, on_bus(bus)) == (2, []), text
    assert not [*Plans(Git.of_user(clone)).folder.glob("*")]


def test_a_key_finds_the_same_group_again(sweep, bus):
    command = ("run", "count", "-p", "n=1,2", "--idempotency-key", "nightly")
    group = group_in(sweep(*command)[1])
    assert group_in(sweep(*command)[1]) == group
    assert len(on_bus(bus)) == 2
    code, text = sweep("run", "count", "-p", "n=1,2,3", "--idempotency-key", "nightly")
    assert (code, len(on_bus(bus))) == (2, 2)
    assert "was used for another sweep" in text


@pytest.mark.long
def test_another_clone_knows_a_group_by_its_branches(sweep, handle, bus, clone, tmp_path):
    group = group_in(sweep("run", "count", "-p", "n=1,2")[1])
    handle()
    for plan in Plans(Git.of_user(clone)).folder.glob("*"):
        plan.unlink()
    code, text = sweep("wait", group, "--json")
    assert code == 0
    assert [point["point"] for point in document(text)["points"]] == ["n=1", "n=2"]
    assert "without a branch" not in sweep("status", group)[1]
    git(bus, "update-ref", "-d", f"refs/heads/{document(text)['points'][1]['branch']}")
    assert "points without a branch: 1" in sweep("status", group)[1]
    assert sweep("list", "--group", "0" * 12)[1].startswith("no request on the remote is of the group")
    assert sweep("list", "--group", "../main")[0] == 2
    assert sweep("wait", "0" * 12)[0] == 2


@pytest.mark.long
def test_row_158_a_stranger_mislabels_only_branches_of_their_own(sweep, requester, handle, bus):
    group = group_in(sweep("run", "count", "-p", "n=1,2")[1])
    handle()
    seconds = new_nonce().partition("-")[0]
    names = [f"mac-bridge/count-{seconds}-{group}{index % 2:02x}02{index:014x}" for index in range(150)]
    for branch, value in zip(names[:2], (1, "\x1b[31m\n::error::x" * 9), strict=True):
        nonce = branch.removeprefix("mac-bridge/count-")
        requester.send(requester.manifest("count", nonce=nonce, params={"n": value}), branch=branch)
    copies = [f"create refs/heads/{branch} refs/heads/{names[0]}\n" for branch in names[2:]]
    git(bus, "update-ref", "--stdin", stdin="".join(copies))
    # The clone that sent the group knows its points.
    code, text = sweep("wait", group, "--json")
    assert code == 0
    assert [point["point"] for point in document(text)["points"]] == ["n=1", "n=2"]
    assert len(sweep("list", "--group", group, "--json")[1].splitlines()) <= 128
    for plan in Plans(requester.git).folder.glob("*"):
        plan.unlink()
    text = sweep("status", group)[1]
    assert "n=1" in text
    assert "\x1b" not in text
    assert "\n::" not in text


@pytest.mark.long
def test_without_a_name_a_command_means_the_whole_sweep_that_was_sent_last(sweep, handle, clone):
    """Until a single request is sent; a point is still named by its branch."""
    sweep("run", "count", "-p", "n=5")
    sent = document(sweep("run", "count", "-p", "n=1,2", "--json")[1])
    group = sent["group"]
    assert document(sweep("status", "--json")[1])["group"] == group
    handle()
    for command in ("wait", "verify", "fetch"):
        assert document(sweep(command, "--json")[1])["group"] == group
    shown = sweep("report")[1]
    assert "n=1 " in shown
    assert "n=2 " in shown
    assert sweep("logs")[1].count("mac-bridge/count-") == 2
    assert "2 had ended before" in sweep("cancel")[1]
    point = sent["points"][1]["branch"]
    assert document(sweep("status", point, "--json")[1])["branch"] == point
    single = sweep("run", "count", "-p", "n=7")[1].split()[0]
    assert document(sweep("status", "--json")[1])["branch"] == single


@pytest.mark.long
def test_all_points_are_followed_at_once_with_one_fetch(sweep, bus, clone, tmp_path):
    """A point that fails is told while an earlier one waits, and more points need no more connections."""
    log, program = tmp_path / "log", tmp_path / "upload-pack"
    program.write_text(f'#!/bin/sh\necho >>{log}\nexec git-upload-pack "$@"\n')
    program.chmod(0o755)
    git(clone, "config", "remote.origin.uploadpack", str(program))

    def connections(values: str) -> int:
        sent = document(sweep("run", "count", "-p", f"n={values}", "--json")[1])
        git(bus, "update-ref", "-d", f"refs/heads/{sent['points'][-1]['branch']}")
        log.unlink()
        code, text = sweep("wait", "--timeout", "2s")
        assert code == 3
        assert "it was there, and was deleted" in text
        count = len(sent["points"])
        assert f"only 1 of {count} points of {sent['group']} ended" in text
        return len(log.read_text().splitlines())

    few, many = connections("1,2"), connections("1,2,3,4,5,6,7,8,9,10,11,12")
    assert many <= few + 6


def test_old_records_of_sweeps_are_collected(sweep, clone):
    sweep("run", "count", "-p", "n=1,2")
    plans = Plans(Git.of_user(clone))
    assert len([*plans.folder.glob("*")]) == 1
    sweep("gc", "--older-than", "1d")
    assert len([*plans.folder.glob("*")]) == 1
    plans.remove_before(1e12)
    assert not [*plans.folder.glob("*")]


def test_a_point_whose_branch_is_gone_does_not_hide_the_others(sweep, bus):
    sent = document(sweep("run", "count", "-p", "n=1,2", "--json")[1])
    git(bus, "update-ref", "-d", f"refs/heads/{sent['points'][0]['branch']}")
    code, text = sweep("status", sent["branch"])
    assert code == 0
    assert "no_such_request" in text
    code, text = sweep("cancel", sent["branch"])
    assert code == 0
    assert "cancelled 1 of 2 points" in text


@pytest.mark.long
def test_a_snapshot_is_one_for_all_points(sweep, clone, bus):
    (clone / "readme.txt").write_text("changed\n")
    text = sweep("run", "count", "-p", "n=1,2", "--snapshot")[1]
    group = group_in(text)
    manifests = [json.loads(git(bus, "show", f"{name}:.mac-bridge/request.json")) for name in on_bus(bus)]
    assert len({manifest["workload"] for manifest in manifests}) == 1
    assert git(clone, "show", f"{manifests[0]['workload']}:readme.txt") == "changed"
    sweep("cancel", group)


@pytest.mark.long
def test_a_sweep_beyond_the_quota_says_how_long_it_waits(sweep, keyed, touching):
    quota = {"limits": {"per_requester": {"waiting": 2, "per_hour": 1}}}
    with keyed.context(preset_folder=str(touching), **quota) as context:
        context.announcer.begin()
        context.announcer.announce_if_due()
    code, text = sweep("run", "count", "-p", "n=1,2,3", "--expires", "1h")
    assert code == 0
    assert "start 1 requests of each requester in an hour, so the last of 3 waits 2 h" in text
    assert "use a longer --expires" in text


def test_a_nonce_of_twelve_digits_is_no_group(sweep, clone, bus):
    branch = sweep("run", "count", "-p", "n=1")[1].splitlines()[0]
    git(clone, "remote", "set-url", "origin", str(bus / "gone"))
    assert "group" not in sweep("wait", branch[-12:])[1]
    git(clone, "remote", "set-url", "origin", str(bus))
    assert sweep("status", branch[-12:])[0] == 0
