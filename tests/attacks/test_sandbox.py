"""The sandbox: what it is made of, that it holds, and what happens on a host that has none."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest

from bridge.errors import PolicyError
from runner.context import open_runner
from runner.job.sandbox import bubblewrap, choose, seatbelt
from runner.job.sandbox.paths import Layer, layers, model_path_with_blobs, needed_by
from runner.job.sandbox.probe import find_fault
from runner.policy import load_policy

linux = pytest.mark.skipif(sys.platform != "linux", reason="bubblewrap is for Linux")


class TestLayers:
    def test_each_lies_upon_what_contains_it(self, tmp_path):
        for name in ("home/models/tiny", "home/.ssh"):
            (tmp_path / name).mkdir(parents=True)
        home = tmp_path / "home"

        found = layers([home / "models" / "tiny", tmp_path], [home, home / ".ssh"], ())

        assert found == [Layer(tmp_path, True), Layer(home, False), Layer(home / "models" / "tiny", True)]

    def test_what_is_named_both_ways_is_hidden(self, tmp_path):
        assert layers([tmp_path], [tmp_path], ()) == []

    def test_what_is_not_there_and_what_is_shown_already_are_left_out(self, tmp_path):
        (tmp_path / "inner").mkdir()

        assert layers([tmp_path, tmp_path / "inner", tmp_path / "gone"], [], ()) == [Layer(tmp_path, True)]

    def test_a_link_is_shown_together_with_what_it_leads_to(self, tmp_path):
        real, link = tmp_path / "real", tmp_path / "link"
        real.mkdir()
        link.symlink_to(real)

        assert {layer.path for layer in layers([link], [], ())} == {real, link}

    def test_the_root_is_never_shown(self):
        assert layers([Path("/")], [], ()) == []


class TestNeeded:
    def test_an_interpreter_needs_its_prefixes_and_the_sources_of_what_is_installed_in_place(self):
        found = needed_by(Path(sys.executable)).paths

        assert {Path(sys.prefix), Path(sys.base_prefix)} <= set(found)
        package = Path(bubblewrap.__file__).parents[2]
        assert any(package.is_relative_to(path) for path in found)

    def test_of_a_folder_of_sources_hidden_files_are_not_needed(self):
        repo = Path(__file__).parents[2]

        assert repo not in needed_by(Path(sys.executable)).paths
        assert not [path for path in needed_by(Path(sys.executable)).paths if path.name == ".git"]

    def test_an_interpreter_that_cannot_be_asked_needs_nothing(self, tmp_path):
        assert needed_by(tmp_path / "gone").paths == []

    def test_a_snapshot_of_a_hub_needs_the_blobs_beside_it(self):
        model = Path("/cache/hub/models--a--b")

        assert model_path_with_blobs(model / "snapshots" / "0123") == model
        assert model_path_with_blobs(Path("/models/plain")) == Path("/models/plain")


@pytest.fixture
def place(tmp_path):
    for name in ("tree", "home/tmp", "readable", "secret"):
        (tmp_path / name).mkdir(parents=True)
    return tmp_path


def profile(place, *, network=False, **more):
    return seatbelt.build_profile(tree=place / "tree", home=place / "home", network=network, **more)


class TestSeatbeltProfile:
    def test_it_denies_by_default_and_names_what_it_allows(self, place):
        text, params = profile(place, readable=[place, place / "readable"], hidden=[place / "secret"])

        lines = text.splitlines()
        assert lines[:2] == ["(version 1)", "(deny default)"]
        assert "allow default" not in text
        assert [line for line in lines if "param" in line and "ABOVE" not in line] == [
            '(allow file-read* (subpath (param "READ_0")))',
            '(deny file-read* file-write* (subpath (param "HIDE_1")))',
            '(allow file-read* file-write* (subpath (param "WRITE_2")))',
            '(allow file-read* file-write* (subpath (param "WRITE_3")))',
        ]
        given = {k: v for k, v in params.items() if not k.startswith("ABOVE")}
        assert given == {
            "READ_0": str(place),
            "HIDE_1": str(place / "secret"),
            "WRITE_2": str(place / "tree"),
            "WRITE_3": str(place / "home"),
        }

    def test_it_names_each_parameter_and_each_has_a_value(self, place):
        text, params = profile(place, readable=[place / "readable"])

        assert set(re.findall(r'\(param "(\w+)"\)', text)) == set(params)

    def test_no_path_becomes_part_of_it(self, place):
        hostile = place / '") (allow default) (deny file-read* (literal "'
        hostile.mkdir()

        text, params = profile(place, readable=[hostile])

        assert "allow default" not in text
        assert str(place) not in text
        assert str(hostile) in params.values()

    def test_the_text_does_not_depend_on_where_things_lie(self, tmp_path):
        texts = set()
        for name in ("one", "two"):
            for part in ("tree", "home"):
                (tmp_path / name / part).mkdir(parents=True)
            texts.add(profile(tmp_path / name)[0])

        assert len(texts) == 1

    def test_paths_are_those_that_links_lead_to(self, place):
        link = place / "link"
        link.symlink_to(place / "readable")

        _, params = profile(place, readable=[link])

        assert str(link) not in params.values()
        assert str(place / "readable") in params.values()

    def test_the_network_is_there_only_where_it_is_declared(self, place):
        without, with_it = profile(place)[0], profile(place, network=True)[0]

        assert "network" not in without
        assert "(allow network-outbound)" in with_it

    def test_metal_is_allowed_and_brackets_are_in_balance(self, place):
        text, _ = profile(place, network=True, readable=[place / "readable"], hidden=[place / "secret"])

        assert "AGXDeviceUserClient" in text
        assert "MTLCompilerService" in text
        plain = re.sub(r'"[^"]*"', "", text)
        assert plain.count("(") == plain.count(")")

    def test_the_command_line_hands_over_the_profile_and_the_parameters(self, place):
        argv = seatbelt.prefix("sandbox-exec", tree=place / "tree", home=place / "home", network=False)

        assert argv[:2] == ["sandbox-exec", "-p"]
        assert argv[3:5] == ["-D", f"WRITE_0={place / 'tree'}"]
        assert argv[-1] == "--"


class TestBubblewrapArguments:
    def test_nothing_is_shared_but_what_is_declared(self, place):
        def build(*, network):
            return bubblewrap.prefix("bwrap", tree=place / "tree", home=place / "home", network=network)

        for flag in ("--unshare-all", "--die-with-parent", "--new-session", "--disable-userns"):
            assert flag in build(network=False)
        assert "--share-net" not in build(network=False)
        assert "--share-net" in build(network=True)
        assert "/etc/resolv.conf" not in build(network=False)

    def test_only_the_workspace_can_be_written_to(self, place):
        argv = bubblewrap.prefix(
            "bwrap", tree=place / "tree", home=place / "home", network=False, readable=[place / "readable"]
        )

        writable = [argv[i + 1] for i, word in enumerate(argv) if word == "--bind"]
        assert writable == [
            str(place / "home" / "tmp"), str(place / "home" / "tmp"), str(place / "tree"), str(place / "home"),
        ]  # fmt: skip
        remounted = [argv[i + 1] for i, word in enumerate(argv) if word == "--remount-ro"]
        assert remounted[-3:] == ["/proc", "/dev", "/"]
        assert all(path.startswith("/proc/") for path in remounted[:-3])


@pytest.fixture
def policy(runners):
    def write(**keys):
        made = load_policy(runners.policy("boxed", **keys))
        made.state.mkdir(exist_ok=True)
        return made

    return write


class TestPolicy:
    @pytest.mark.parametrize("word", ["auto", "require", "off"])
    def test_three_words_are_known(self, policy, word):
        assert policy(sandbox=word).sandbox == word

    def test_off_needs_no_quotes(self, runners):
        path = runners.policy()
        path.write_text(re.sub(r"sandbox: .*", "sandbox: off", path.read_text()))

        assert load_policy(path).sandbox == "off"

    @pytest.mark.parametrize("value", ["maybe", True, None, 0])
    def test_anything_else_is_an_error(self, policy, value):
        with pytest.raises(PolicyError, match="sandbox"):
            policy(sandbox=value)

    def test_the_default_is_auto(self, runners):
        path = runners.policy()
        path.write_text(re.sub(r"sandbox: .*\n", "", path.read_text()))

        assert load_policy(path).sandbox == "auto"


def fake(path: Path, script: str) -> str:
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return str(path)


SHOWS_ALL = 'while [ "$1" != -- ]; do shift; done; shift; exec "$@"'


@linux
class TestChoice:
    def test_require_does_not_start_where_there_is_none(self, policy, monkeypatch):
        monkeypatch.setattr(bubblewrap, "PROGRAMS", ())

        with pytest.raises(PolicyError, match="requires a sandbox") as refused:
            choose(policy(sandbox="require"), print)
        assert "bubblewrap" in refused.value.fix

    @pytest.mark.parametrize(
        ("script", "words"),
        [
            (SHOWS_ALL, "could read a file of the runner's.*reach a port.*signal the runner"),
            (
                "echo 'bwrap: No permissions to create a new namespace' >&2; exit 1",
                "No permissions to create",
            ),
            ("exit 0", "said what it should not"),
            (
                'echo \'{"could": [], "could_not": ["write into its folder"]}\'',
                "could not write into its folder",
            ),
            ("kill -9 $$", "does not start"),
        ],
        ids=["confines nothing", "no namespaces", "does nothing", "confines too much", "dies"],
    )
    def test_a_sandbox_that_does_not_hold_is_not_used(self, policy, monkeypatch, tmp_path, script, words):
        monkeypatch.setattr(bubblewrap, "PROGRAMS", (fake(tmp_path / "bwrap", script),))
        told = []

        with pytest.raises(PolicyError, match=words):
            choose(policy(sandbox="require", state=str(tmp_path / "state")), told.append)
        box = choose(policy(sandbox="auto", state=str(tmp_path / "state")), told.append)

        assert box.kind == "off"
        assert re.search(words, box.why)
        assert len(told) == 1
        assert told[0].startswith("WARNING: jobs run WITHOUT a sandbox")
        assert not list((tmp_path / "state").glob("canary*"))

    def test_off_tries_nothing_and_says_so(self, policy, monkeypatch, tmp_path):
        monkeypatch.setattr(bubblewrap, "PROGRAMS", (fake(tmp_path / "bwrap", f"touch {tmp_path}/tried"),))
        told = []

        box = choose(policy(sandbox="off"), told.append)

        assert (box.kind, box.why) == ("off", "the policy says so")
        assert not (tmp_path / "tried").exists()

    def test_the_probe_sees_that_nothing_is_around_it(self, tmp_path):
        fault = find_fault(lambda _: [], state_folder=tmp_path, interpreter=Path(sys.executable))

        assert fault is not None
        assert "could" in fault
        assert list(tmp_path.iterdir()) == [tmp_path / "work"]

    @pytest.mark.usefixtures("confined")
    def test_what_this_host_has_holds(self, policy):
        assert choose(policy(sandbox="require"), print).kind == "bubblewrap"

    @pytest.mark.usefixtures("confined")
    def test_where_the_interpreter_does_not_exist_another_one_tries_it(self, policy, tmp_path):
        assert (
            choose(policy(sandbox="require", interpreter=str(tmp_path / "gone")), print).kind == "bubblewrap"
        )

    def test_a_session_that_requires_one_does_not_open_without(self, policy, monkeypatch, tmp_path):
        monkeypatch.setattr(bubblewrap, "PROGRAMS", (fake(tmp_path / "bwrap", SHOWS_ALL),))

        with pytest.raises(PolicyError), open_runner(policy(sandbox="require"), print):
            pytest.fail("it opened")


LOOK = """
    import json, os, sys
    from pathlib import Path
    def can(path):
        try:
            return bool(os.listdir(path) if os.path.isdir(path) else open(path, "rb").read(1))
        except OSError:
            return False
    print(json.dumps({path: can(path) for path in sys.argv[1:]}))
"""


@pytest.mark.bus
@pytest.mark.usefixtures("confined")
class TestEnforcement:
    def test_an_answer_says_what_was_around_the_job(self, attacked):
        answer = attacked.by("print('hello')")

        assert answer.log == "hello\n"
        assert answer.result.sandbox == ("bubblewrap" if sys.platform == "linux" else "seatbelt")
        assert answer.run.verify().holds

    def test_an_answer_says_that_nothing_was_around_the_job(self, attacked):
        assert attacked.by("", policy={"sandbox": "off"}).result.sandbox == "off"

    def test_a_job_sees_the_interpreter_and_not_the_rest(self, attacked, tmp_path):
        repo = Path(__file__).parents[2]
        shown = [sys.prefix, sys.base_prefix, str(repo / "runner"), "/usr/bin"]
        hidden = [
            str(repo / "pyproject.toml"), str(repo / ".git"), str(tmp_path / "bus.git"), str(tmp_path / "clone"),
            str(Path.home() / ".gitconfig"), "/root/.bashrc",
            "/home", "/var", "/etc/shadow", "/etc/ssl/private", "/run", "/sys/class", "/boot",
        ]  # fmt: skip
        seen = json.loads(attacked.by(LOOK, *shown, *hidden).log)

        assert [path for path in shown if not seen[path]] == []
        assert [path for path in hidden if seen[path]] == []

    def test_what_the_policy_names_for_a_preset_can_be_read_and_nothing_beside_it(self, attacked, tmp_path):
        for name in ("models/tiny", "models/other"):
            (tmp_path / name).mkdir(parents=True)
            (tmp_path / name / "weights").write_text("1")
        named, other = tmp_path / "models" / "tiny", tmp_path / "models" / "other"

        answer = attacked.by(
            LOOK, str(named), str(other), policy={"env": {"MODEL": str(named)}}, pass_env=["MODEL"]
        )

        assert json.loads(answer.log) == {str(named): True, str(other): False}

    @pytest.mark.parametrize("network", [False, True])
    def test_the_network_is_there_only_where_the_preset_declares_it(self, attacked, network):
        import socket  # noqa: PLC0415

        with socket.create_server(("127.0.0.1", 0)) as server:
            answer = attacked.by(
                """
                import socket, sys
                try:
                    socket.create_connection(("127.0.0.1", int(sys.argv[1])), 5)
                    print("reached")
                except OSError as error:
                    print("not reached")
                """,
                str(server.getsockname()[1]),
                network=network,
            )

        assert answer.log == ("reached\n" if network else "not reached\n")

    def test_a_signal_that_ends_a_job_is_named(self, attacked):
        result = attacked.by("import os; os.kill(os.getpid(), 11)").result

        assert (result.reason.code, result.commands[0].signal) == ("killed", 11)

    def test_an_exit_code_is_the_job_s_own(self, attacked):
        assert attacked.by("raise SystemExit(7)").result.commands[0].exit_code == 7

    def test_a_program_that_is_missing_is_said_as_it_is_without_a_sandbox(self, attacked):
        result = attacked.by("", steps=[{"argv": ["/nowhere/program"]}]).result

        assert result.reason.code == "not_started"
        assert result.reason.message == "cannot run /nowhere/program: No such file or directory"

    def test_a_job_that_is_told_to_stop_is_given_time(self, attacked):
        script = """
            import signal, sys, time
            def late(*_):
                print("putting things away", flush=True)
                sys.exit(0)
            signal.signal(signal.SIGTERM, late)
            print("working", flush=True)
            time.sleep(600)
            """
        for timeout_s in (1, 10, 50):  # more if this machine is too busy to begin the job
            answer = attacked.by(script, timeout_s=timeout_s)
            if answer.log:
                break

        assert answer.log == "working\nputting things away\n"
        assert answer.result.reason.code == "timeout"
