"""Several buses in one clone: which one gets a request, what is shown of all, and where a request is looked for."""

from __future__ import annotations

import json
import shutil
import socket
import threading
import time
from contextlib import contextmanager

import pytest

from bridge.buses import Buses, asking, read_values
from bridge.client import Client
from bridge.doctor import examine
from bridge.errors import PresetError, UsageError
from tests.conftest import git
from tests.runner.conftest import run_kakeya

pytestmark = [pytest.mark.bus, pytest.mark.usefixtures("jobs")]


@pytest.fixture
def lab(bus, clone):
    """A second bus of the clone, which lists both."""
    path = bus.with_name("lab.git")
    shutil.copytree(bus, path)
    git(clone, "remote", "add", "lab", str(path))
    listed(clone, "origin", "lab")
    return path


def listed(clone, *buses):
    """List these buses in the clone's settings."""
    git(clone, "config", "--replace-all", "kakeya.bus", buses[0])
    for bus in buses[1:]:
        git(clone, "config", "--add", "kakeya.bus", bus)


@pytest.fixture
def announce(keyed, jobs):
    """Let a runner announce itself on a bus."""

    def run(name, bus, **policy):
        with keyed.context(name, bus={"url": str(bus)}, preset_folder=str(jobs), **policy) as context:
            context.announcer.begin()
            context.announcer.announce_if_due()

    return run


@pytest.fixture
def jobs(presets, monkeypatch):
    """Presets that each bus has."""
    folder = presets(
        touch={"steps": [{"argv": ["/bin/echo", "touched"]}]}, other={"steps": [{"argv": ["/bin/true"]}]}
    )
    monkeypatch.setenv("KAKEYA_PRESETS", str(folder))
    return folder


class Said(str):  # noqa: SLOT000 - one test's own
    """What a command printed on standard output, and on standard error."""

    err = ""


@pytest.fixture
def kakeya(clone, monkeypatch, capsys):
    """Run the command line in this process; return its exit code and what it printed."""

    def run(*args):
        code, out, err = run_kakeya(clone, monkeypatch, capsys, *args)
        said = Said(out)
        said.err = err
        return code, said

    return run


@contextmanager
def silence():
    """Yield the address of a server that accepts connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}/bus.git"


def branches(bus):
    return git(bus, "for-each-ref", "--format=%(refname:lstrip=2)", "refs/heads/mac-bridge").splitlines()


def forged(clone, bus, name):
    """Push a branch with another commit of that name, as anybody may."""
    commit = git(clone, "commit-tree", "-m", "Not yours", "HEAD^{tree}")
    git(clone, "push", "--quiet", str(bus), f"{commit}:refs/heads/{name}")


class TestOneBus:
    @pytest.mark.parametrize("setting", [[], ["origin"], ["here=origin"]])
    def test_nothing_changes(self, clone, kakeya, setting):
        if setting:
            listed(clone, *setting)
        code, said = kakeya("run", "touch", "--json")
        assert (code, "bus" in json.loads(said)) == (0, False)
        code, said = kakeya("list", "--json")
        assert (code, "bus" in json.loads(said)) == (0, False)
        assert "bus" not in kakeya("list")[1].splitlines()[0].split()
        assert git(clone, "for-each-ref", "refs/kakeya-sent-to", "refs/kakeya-bus") == ""

    def test_a_single_other_one_is_the_default(self, clone, lab, bus, kakeya):
        listed(clone, "lab")
        assert kakeya("run", "touch")[0] == 0
        assert (len(branches(lab)), branches(bus)) == (1, [])


@pytest.mark.usefixtures("lab")
class TestTheSetting:
    def test_labels(self, clone, lab):
        listed(clone, "origin", f"far={lab}", f"{lab}/../lab.git")
        buses = Buses.of(clone).buses
        assert [bus.label for bus in buses] == ["origin", "far", "lab"]
        assert [bus.remote for bus in buses] == ["origin", str(lab), f"{lab}/../lab.git"]
        assert Buses.of(clone, "far").first.client.remote.url == str(lab)
        assert not Buses.of(clone, "far").several
        # What this clone knows of a bus is in one place, whether the bus is chosen or one of several.
        assert Buses.of(clone, "far").first.client.remote.private == buses[1].client.remote.private

    def test_the_same_bus_twice_is_one(self, clone):
        listed(clone, "origin", "again=origin")
        assert not Buses.of(clone).several

    @pytest.mark.parametrize(
        ("buses", "says"),
        [(["a=origin", "a=lab"], "the label a"), ([f"b{i}" for i in range(17)], "16 are the most")],
    )
    def test_what_cannot_be_used(self, clone, buses, says):
        listed(clone, *buses)
        with pytest.raises(UsageError, match=says):
            Buses.of(clone)

    def test_the_advice_about_two_of_one_label_helps(self, clone, lab):
        values = ["origin", f"{lab}/x/bus.git", f"{lab}/y/bus.git"]
        listed(clone, *values)
        with pytest.raises(UsageError, match="the label bus") as refused:
            Buses.of(clone)
        assert f"LABEL={values[2]}" in str(refused.value.fix)
        git(clone, "config", "--add", "kakeya.bus", f"other={values[2]}")
        assert [(bus.label, bus.remote) for bus in Buses.of(clone).buses] == [
            ("origin", "origin"), ("bus", values[1]), ("other", values[2]),
        ]  # fmt: skip

    @pytest.mark.long
    def test_hostile_values_print_no_control_characters(self, clone, kakeya):
        listed(clone, "origin", "\x1b[31m../../x y.git", "--upload-pack=touch", "a/b=c")
        code, said = kakeya("list")
        assert code == 0
        assert "\x1b" not in said + said.err
        assert said.err.count("is left out") == 3


@pytest.mark.usefixtures("lab")
class TestRun:
    def test_goes_where_a_live_runner_offers_it(self, bus, lab, announce, kakeya):
        announce("near", bus, presets=["other"])
        announce("far", lab, presets=["touch"])
        code, said = kakeya("run", "touch", "--json")
        assert (code, json.loads(said)["bus"], len(branches(lab)), branches(bus)) == (0, "lab", 1, [])
        assert "the bus is origin" in kakeya("run", "other")[1].err

    @pytest.mark.long
    def test_both_offer_it_the_first_listed_wins(self, bus, lab, clone, announce):
        for name, where in (("near", bus), ("far", lab)):
            announce(name, where)
        assert Buses.of(clone).choose("touch").label == "origin"
        listed(clone, "lab", "origin")
        assert Buses.of(clone).choose("touch").label == "lab"
        assert Buses.of(clone, "origin").choose("touch").label == "origin"

    @pytest.mark.long
    def test_labels_count(self, bus, lab, clone, announce):
        announce("near", bus)
        announce("far", lab, labels=["gpu"])
        assert Buses.of(clone).choose("touch", ["gpu"]).label == "lab"

    @pytest.mark.long
    def test_a_runner_in_maintenance_comes_after_one_that_serves(self, lab, clone, jobs, announce, keyed):
        with keyed.context("near", preset_folder=str(jobs)) as context:
            context.operator.orders.maintain("cleaning")
            context.update_operator_mode()
            context.announcer.begin()
            context.announcer.announce_if_due()
        announce("far", lab)
        assert Buses.of(clone).choose("touch").label == "lab"

    def test_without_a_live_runner_the_first_one_gets_it(self, clone):
        assert Buses.of(clone).choose("touch").label == "origin"

    def test_one_is_down(self, bus, kakeya):
        bus.rename(bus.with_name("gone.git"))
        code, said = kakeya("run", "touch", "--json")
        assert (code, json.loads(said)["bus"]) == (0, "lab")

    @pytest.mark.long
    def test_nobody_waits_for_a_silent_one_that_would_not_be_better(self, clone, bus, announce, kakeya):
        announce("near", bus)
        with silence() as url:
            listed(clone, "origin", f"slow={url}")
            began = time.monotonic()
            code, said = kakeya("run", "touch", "--json")
            assert time.monotonic() - began < asking.ANSWER_S / 2
        assert (code, json.loads(said)["bus"]) == (0, "origin")

    @pytest.mark.long
    def test_all_are_down(self, bus, lab, kakeya):
        for path in (bus, lab):
            path.rename(path.with_name(f"gone-{path.name}"))
        code, said = kakeya("run", "touch")
        assert code == 3
        assert "origin:" in said.err
        assert "lab:" in said.err

    def test_an_unknown_preset_is_unknown(self, clone, kakeya):
        code, said = kakeya("run", "nothing")
        assert (code, "no preset 'nothing'" in said.err) == (2, True)
        with pytest.raises(PresetError):
            read_values(Buses.of(clone).first.client, "nothing", [])

    @pytest.mark.long
    def test_a_key_finds_the_bus_of_the_first_call(self, bus, lab, clone, announce, kakeya):
        announce("far", lab)
        first = json.loads(kakeya("run", "touch", "--idempotency-key", "k", "--json")[1])
        announce("near", bus)
        assert Buses.of(clone).choose("touch").label == "origin"
        again = json.loads(kakeya("run", "touch", "--idempotency-key", "k", "--json")[1])
        assert (first["bus"], again["bus"], again["branch"]) == ("lab", "lab", first["branch"])
        assert again["existing"]

    @pytest.mark.long
    def test_the_session_s_branch_is_that_of_the_bus(self, lab, clone, announce):
        announce("far", lab)
        git(clone, "checkout", "--quiet", "-b", "claude/x")
        git(clone, "push", "--quiet", "lab", "claude/x")
        chosen = Buses.of(clone).choose("touch")
        run = chosen.client.run("touch", on_branch="")
        assert (chosen.label, run.session) == ("lab", "claude/x")
        found = Buses.of(clone).find()
        assert (found.bus, found.status().reason.code) == ("lab", "forward")

    @pytest.mark.long
    def test_reuse_looks_on_all(self, bus, lab, clone, jobs, keyed, announce, kakeya):
        git(clone, "config", "remote.lab.kakeyaPublicKey", str(keyed.key("far")))
        rules = {"bus": {"url": str(lab)}, "preset_folder": str(jobs)}
        announce("far", lab)
        sent = json.loads(kakeya("run", "touch", "--json")[1])
        keyed.handle("far", **rules)
        announce("near", bus)
        announce("far", lab)
        again = json.loads(kakeya("run", "touch", "--reuse", "--json")[1])
        assert (sent["bus"], again["bus"], again["branch"]) == ("lab", "lab", sent["branch"])


@pytest.mark.usefixtures("lab")
class TestLooking:
    def test_a_list_has_all(self, lab, jobs, keyed, kakeya):
        for remote in ("origin", "lab"):
            assert kakeya("run", "touch", "-R", remote)[0] == 0
        keyed.handle("far", bus={"url": str(lab)}, preset_folder=str(jobs))
        code, said = kakeya("list", "--json")
        rows = [json.loads(line) for line in said.splitlines()]
        assert (code, {row["bus"]: row["state"] for row in rows}) == (
            0,
            {"origin": "requested", "lab": "succeeded"},
        )
        assert "bus" in kakeya("list")[1].splitlines()[0].split()
        assert len(kakeya("list", "-n", "1", "--json")[1].splitlines()) == 1
        assert "bus" not in json.loads(kakeya("list", "-R", "lab", "--json")[1])

    @pytest.mark.long
    def test_each_command_finds_the_bus(self, lab, clone, jobs, keyed, kakeya, tmp_path):
        sent = json.loads(kakeya("run", "touch", "-R", "lab", "--json")[1])["branch"]
        # Somebody else's clone does not know where it was sent.
        git(clone, "update-ref", "-d", f"refs/kakeya-sent/{sent}")
        keyed.handle("far", bus={"url": str(lab)}, preset_folder=str(jobs))
        nonce = sent.removeprefix("mac-bridge/touch-")
        for command in ("status", "wait", "logs", "verify", "report"):
            assert kakeya(command, sent)[0] == 0, command
            assert kakeya(command, nonce)[0] == 0, command
        assert kakeya("fetch", nonce, "--out", tmp_path / "out")[0] == 0
        assert json.loads(kakeya("status", sent, "--json")[1])["bus"] == "lab"
        assert json.loads(kakeya("cancel", sent, "--json")[1])["bus"] == "lab"

    @pytest.mark.parametrize("setting", [["origin"], ["origin", "mirror=BUS"]])
    def test_a_request_of_a_bus_that_is_not_listed_any_more(self, bus, clone, kakeya, setting):
        sent = json.loads(kakeya("run", "touch", "-R", "lab", "--json")[1])["branch"]
        listed(clone, *(value.replace("BUS", str(bus)) for value in setting))
        for words in ([], [sent]):
            code, said = kakeya("status", *words)
            assert code == 2
            assert "It was sent to lab: choose that bus with --remote." in said.err
        assert kakeya("status", "-R", "lab")[0] == 0
        git(clone, "config", "--unset-all", "kakeya.bus")
        git(clone, "remote", "rename", "lab", "laboratory")
        assert "It was sent to another bus" in kakeya("status")[1].err

    @pytest.mark.parametrize("remote", [["origin", "LAB"], ["origin"], ["elsewhere"]])
    def test_a_sweep_is_continued_on_its_own_bus(self, bus, lab, clone, presets, kakeya, remote):
        value = {"type": "int", "min": 0, "max": 9, "default": 0}
        presets(sweep={"params": {"n": value}, "steps": [{"argv": ["/bin/echo", "{n}"]}]})
        sent = json.loads(kakeya("run", "sweep", "-p", "n=1,2", "-R", "lab", "--json")[1])
        assert sent["bus"] == "lab"
        git(clone, "remote", "add", "elsewhere", str(bus))
        # The same bus under another name is that bus.
        listed(clone, *(value.replace("LAB", f"x={lab}") for value in remote))
        code, said = kakeya("status", sent["group"], "--json")
        if len(remote) == 2:
            assert (code, len(json.loads(said)["points"])) == (0, 2)
        else:
            assert code == 2
            assert f"the group {sent['group']} was sent to another bus: lab" in said.err
        assert kakeya("status", sent["group"], "-R", "lab")[0] == 0
        git(clone, "remote", "remove", "lab")
        listed(clone, f"{lab}")
        assert kakeya("status", sent["group"])[0] == 0

    def test_a_collection_that_one_bus_fails_is_no_success(self, lab, kakeya):
        assert kakeya("gc")[0] == 0
        shutil.rmtree(lab)
        code, said = kakeya("gc")
        assert (code, "0 removed of origin" in said.err, "lab is left out" in said.err) == (3, True, True)

    @pytest.mark.long
    def test_a_branch_of_that_name_on_both(self, lab, clone, kakeya):
        """What was sent from here is on its bus, whoever copies its name; otherwise one has to choose."""
        sent = json.loads(kakeya("run", "touch", "--json")[1])
        forged(clone, lab, sent["branch"])
        assert Buses.of(clone).find(sent["branch"]).bus == sent["bus"] == "origin"
        assert [row["bus"] for row in map(json.loads, kakeya("list", "--json")[1].splitlines())] != []
        tips = {
            row["bus"]: row["request"] for row in map(json.loads, kakeya("list", "--json")[1].splitlines())
        }
        assert tips["origin"] == sent["request"] != tips["lab"]
        git(clone, "update-ref", "-d", f"refs/kakeya-sent/{sent['branch']}")
        code, said = kakeya("status", sent["branch"])
        assert (code, "several buses have" in said.err, "--remote" in said.err) == (2, True, True)
        assert kakeya("status", sent["branch"], "-R", "origin")[0] == 0

    def test_one_that_is_down_is_named(self, bus, lab, kakeya):
        assert kakeya("run", "touch", "-R", "lab")[0] == 0
        bus.rename(bus.with_name("gone.git"))
        code, said = kakeya("list", "--json")
        assert (code, len(said.splitlines()), said.err.count("the bus origin is left out: ")) == (0, 1, 1)
        assert kakeya("status")[0] == 0
        code, said = kakeya("status", "mac-bridge/touch-1795000000-abcdef123456")
        assert (code, "origin:" in said.err) == (3, True)
        lab.rename(lab.with_name("gone-too.git"))
        assert kakeya("list")[0] == 3

    @pytest.mark.long
    def test_one_that_says_nothing_costs_its_time_alone(self, clone, kakeya, monkeypatch):
        monkeypatch.setattr(asking, "ANSWER_S", 1.0)
        with silence() as url:
            listed(clone, "origin", f"slow={url}", "lab")
            began = time.monotonic()
            code, said = kakeya("list")
            assert time.monotonic() - began < 20
        assert code == 0
        assert "the bus slow is left out: " in said.err

    def test_nothing_is_mixed_between_them(self, clone):
        """Listing one bus forgets nothing of the other, also if both are asked at once."""
        runs = [Buses.of(clone, name).first.client.run("touch") for name in ("origin", "lab")]
        for _ in range(2):
            assert len(Buses.of(clone).newest()[0]) == 2
        for name, run in zip(("origin", "lab"), runs, strict=True):
            known = Buses.of(clone, name).first.client.remote.fetched_branches("mac-bridge/*")
            assert list(known) == [run.branch]

    @pytest.mark.long
    def test_doctor_names_each(self, bus, lab, clone):
        lab.rename(lab.with_name("gone.git"))
        checks = {check.name: check.ok for check in examine(clone)}
        assert (checks["remote origin"], checks["remote lab"]) == (True, None)
        bus.rename(bus.with_name("gone-too.git"))
        assert {check.name: check.ok for check in examine(clone)}["remote lab"] is False

    @pytest.mark.long
    def test_presets_name_the_bus_of_each_runner(self, bus, lab, announce, kakeya):
        announce("near", bus, presets=["other"])
        announce("far", lab, presets=["touch", "own"])
        shown = {each["name"]: each["runners"] for each in json.loads(kakeya("presets", "--json")[1])}
        assert [(each["id"], each["bus"]) for each in shown["touch"]] == [("far", "lab")]
        assert [(each["id"], each["bus"]) for each in shown["other"]] == [("near", "origin")]


@pytest.mark.usefixtures("lab")
class TestPins:
    @pytest.mark.long
    def test_a_key_of_one_bus_is_no_key_of_the_other(self, lab, clone, jobs, keyed, kakeya):
        for remote, name in (("origin", "near"), ("lab", "far")):
            git(clone, "config", f"remote.{remote}.kakeyaPublicKey", str(keyed.key(name)))
            assert kakeya("run", "touch", "-R", remote)[0] == 0
        # The runner of one bus answers on the other one.
        keyed.handle("far", preset_folder=str(jobs))
        keyed.handle("far-too", bus={"url": str(lab)}, preset_folder=str(jobs))
        rows = [json.loads(line) for line in kakeya("list", "--json")[1].splitlines()]
        assert [
            row["conclusion"]["holds"] if "holds" in row["conclusion"] else row["exit_code"] for row in rows
        ] == [1, 1]
        near, far = (Client(clone, name).pin for name in ("origin", "lab"))
        assert (near.keys, far.keys) != (far.keys, near.keys)
        assert set(Buses.of(clone).pin().keys) == {*near.keys, *far.keys}

    def test_a_broken_pin_of_one_counts_as_no_missing_one(self, clone):
        git(clone, "config", "remote.lab.kakeyaPublicKey", "/nowhere.pub")
        with pytest.raises(UsageError, match="cannot read the key"):
            Buses.of(clone).pin()


@pytest.mark.usefixtures("lab")
class TestGc:
    @pytest.mark.long
    def test_each_bus_has_its_own(self, clone, kakeya):
        sent = [
            json.loads(kakeya("run", "touch", "-R", name, "--json")[1])["branch"]
            for name in ("origin", "lab")
        ]
        old = [name.replace(name.split("-")[-2], "1700000000") for name in sent]
        for name, now in zip(old, sent, strict=True):
            git(clone, "update-ref", f"refs/kakeya-sent/{name}", f"refs/kakeya-sent/{now}")
        code, said = kakeya("gc", "--dry-run", "--json")
        rows = [json.loads(line) for line in said.splitlines()]
        assert (code, [row["bus"] for row in rows]) == (0, ["origin", "lab"])
        assert sorted(name for row in rows for name in row["branches"]) == sorted(old)


@pytest.mark.usefixtures("lab")
class TestWeb:
    @pytest.fixture(autouse=True)
    def _web(self):
        pytest.importorskip("starlette", reason="needs the extra [web]")

    @pytest.mark.long
    def test_exported_pages_are_those_of_all(self, clone, tmp_path):
        from bridge.web.export import export  # noqa: PLC0415 - needs the extra [web]

        run = Client(clone).run("touch")
        git(clone, "push", "--quiet", "lab", f"{run.commit}:refs/heads/{run.branch}")
        listed(clone, "origin", "lab", "gone=/nowhere.git")
        site = tmp_path / "site"
        export(Buses.of(clone), site, 10)
        top = (site / "index.html").read_text()
        for label in ("origin", "lab"):
            assert f'href="bus/{label}/run/{run.branch}/index.html"' in top
            assert 'href="../../index.html">All buses' in (site / "bus" / label / "index.html").read_text()
            assert (site / "bus" / label / "run" / run.branch / "log.txt").is_file()
        assert "gone" in top
        assert "could not be read" in top

    @pytest.mark.long
    def test_served_pages_have_their_bus_in_their_address(self, clone, wait_for):
        import anyio  # noqa: PLC0415
        import httpx  # noqa: PLC0415

        from bridge.web.app import several_app  # noqa: PLC0415 - needs the extra [web]

        run = Client(clone, "lab").run("touch")
        listed(clone, "origin", "lab", "gone=/nowhere.git")
        stop = threading.Event()
        app = several_app(Buses.of(clone), stop, 0.2, frozenset({"127.0.0.1:1340"}))

        def ask(path):
            async def whole():
                transport = httpx.ASGITransport(app)
                async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:1340") as client:
                    return await client.get(path)

            return anyio.run(whole)

        try:
            wait_for(lambda: run.branch in ask("/").text)
            assert ask(f"/bus/lab/run/{run.branch}").status_code == 200
            assert ask(f"/bus/origin/run/{run.branch}").status_code == 404
            assert ask("/bus/lab/presets").status_code == ask("/bus/lab/style.css").status_code == 200
            assert ask("/trends").status_code == ask("/bus/nothing/").status_code == 404
            wait_for(lambda: "could not be read" in ask("/").text)
            tag = ask("/").headers["etag"]
            assert tag == ask("/").headers["etag"]
        finally:
            stop.set()


@pytest.mark.usefixtures("lab")
class TestMcp:
    @pytest.mark.long
    def test_the_tools_use_all(self, lab, clone, announce):
        pytest.importorskip("mcp", reason="needs the extra [mcp]")
        from bridge.mcp import calls, models  # noqa: PLC0415

        announce("far", lab)
        door = calls.BusClient(str(clone))
        sent = calls.run(door, models.Ask(preset="touch"))
        assert (sent.bus, len(branches(lab))) == ("lab", 1)
        Client(clone, "origin").run("touch")
        rows = calls.recent(door, models.Recent())
        assert {row.bus for row in rows.requests} == {"origin", "lab"}
        assert calls.status(door, models.About(request=sent.branch)).state == "requested"
        assert calls.cancel(door, models.Cancel(request=sent.branch)).branch == sent.branch
        lab.rename(lab.with_name("gone.git"))
        assert calls.recent(door, models.Recent()).untrusted_left_out.startswith("lab: ")
        assert [
            row.bus for row in calls.recent(calls.BusClient(str(clone), "origin"), models.Recent()).requests
        ] == [None]
