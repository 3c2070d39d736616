"""The host-local policy: what is wrong with it is said in full, and without one nothing runs."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import yaml

from bridge.errors import PolicyError
from bridge.system.git import Git
from runner.bus.bus import Bus
from runner.bus.store import open_store
from runner.cli import main
from runner.policy import Bus as BusSettings
from runner.policy import Policy, default_path, load_policy, write_template
from tests import programs

GOOD = {"schema_version": 1, "bus": {"url": "/somewhere/bus.git"}}


@pytest.fixture
def write(tmp_path):
    path = tmp_path / "runner.yaml"

    def write(content):
        path.write_text(content if isinstance(content, str) else yaml.safe_dump(content))
        path.chmod(0o600)
        return path

    return write


def command(*args):
    return programs.run(*args)


def test_a_policy_of_two_lines_is_enough_and_the_defaults_are_safe(write):
    policy = load_policy(write(GOOD))

    assert policy.trust.code_request == "deny"
    assert policy.on_stop == "hand_back"
    assert policy.interpreter.is_absolute()
    assert policy.state.is_absolute()
    assert policy.bus.patterns[0] == "mac-bridge/*"
    assert policy.bus.token_file is None
    assert policy.settings == {"KAKEYA_MAC_PYTHON": str(policy.interpreter)}


@pytest.mark.parametrize(
    ("url", "poll", "pushes"),
    [
        pytest.param("/srv/bus.git", (0.1, 0.2), 6, id="folder"),
        pytest.param("file:///srv/bus.git", (0.1, 0.2), 6, id="file-url"),
        pytest.param("https://host.invalid/bus.git", (2.0, 15.0), 6, id="https"),
        pytest.param("git@host.invalid:bus.git", (2.0, 15.0), 6, id="ssh"),
    ],
)
def test_a_remote_bus_is_polled_and_pushed_to_gently(write, url, poll, pushes):
    bus = load_policy(write({"schema_version": 1, "bus": {"url": url}})).bus

    assert bus.poll == poll
    assert bus.budget == pushes


def test_a_setting_longer_than_the_name_of_a_model_is_a_text(write):
    assert load_policy(write(GOOD | {"env": {"SEED": "0f" * 500}})).settings["SEED"] == "0f" * 500


def test_a_missing_policy_is_named_with_the_command_that_writes_one(tmp_path):
    path = tmp_path / "nowhere.yaml"

    with pytest.raises(PolicyError, match="nothing runs") as caught:
        load_policy(path)

    assert str(path) in caught.value.message
    assert f"kakeya-runner --policy {path} init --bus URL" in caught.value.fix


@pytest.mark.parametrize("mode", [0o620, 0o602, 0o1666], ids=["group", "everyone", "sticky"])
def test_a_policy_that_others_may_write_is_not_read(write, mode):
    path = write(GOOD)
    path.chmod(mode)

    with pytest.raises(PolicyError, match="others may write") as caught:
        load_policy(path)

    assert caught.value.fix == f"Run: chmod go-w {path}"


def test_a_policy_in_a_folder_that_others_may_write_is_not_read(write):
    path = write(GOOD)
    path.parent.chmod(0o777)

    with pytest.raises(PolicyError, match="others may write") as caught:
        load_policy(path)

    assert caught.value.fix == f"Run: chmod go-w {path.parent}"


@pytest.mark.parametrize(
    ("section", "noun"),
    [
        (lambda folder: {"state": str(folder / "state")}, "the state folder"),
        (lambda folder: {"trust": {"runners": [str(folder / "keys")]}}, "the list of runners' keys"),
        (lambda folder: {"preset_folder": str(folder)}, "the presets"),
    ],
)
def test_what_a_policy_names_lies_where_nobody_else_may_write(write, tmp_path, section, noun):
    folder = tmp_path / "open"
    folder.mkdir()
    path = write(GOOD | section(folder))
    load_policy(path)
    folder.chmod(0o777)

    with pytest.raises(PolicyError, match="others may write") as caught:
        load_policy(path)

    assert caught.value.message.endswith(f"which decides what {noun} is")
    assert caught.value.fix == f"Run: chmod go-w {folder}"


def _with(**changes):
    return {**GOOD, **changes}


def _bus(**changes):
    return {**GOOD, "bus": {**GOOD["bus"], **changes}}


WRONG = [
    pytest.param("bus: [", "not valid YAML", id="malformed"),
    pytest.param("", "one mapping", id="empty"),
    pytest.param("- a\n- b\n", "one mapping", id="a-list"),
    pytest.param("1: 2\n", "one mapping", id="keys-not-text"),
    pytest.param("schema_version: 1\nschema_version: 1\n", "stands twice", id="key-twice"),
    pytest.param("!!python/object/apply:os.system ['false']", "not valid YAML", id="python-tag"),
    pytest.param(f"# {'x' * 300_000}", "larger than", id="too-large"),
    pytest.param({"schema_version": 1}, "bus is missing", id="no-bus"),
    pytest.param(_with(schema_version=2), "schema_version", id="other-version"),
    pytest.param(_with(trusted=True), "trusted is not a known field", id="unknown-key"),
    pytest.param(_with(trust={"code_request": "maybe"}), "trust.code_request", id="unknown-trust"),
    pytest.param(_with(limits={"attempts": 0}), "limits.attempts", id="limit-too-low"),
    pytest.param(_with(state="relative/state"), "must be an absolute path", id="relative-state"),
    pytest.param(_with(interpreter="python3"), "must be an absolute path", id="relative-interpreter"),
    pytest.param(_with(preset_folder="presets"), "must be an absolute path", id="relative-presets"),
    pytest.param(_with(preset_folder="/presets\0"), "a path holds a NUL character", id="nul-in-a-path"),
    pytest.param(_bus(token_file="token\0"), "a path holds a NUL character", id="nul-in-the-token-file"),
    pytest.param(_with(id="../up"), "id", id="id-is-a-path"),
    pytest.param(_with(id="ok\n"), "id", id="id-ends-a-line"),
    pytest.param(_with(env={"lower": "x"}), "env", id="env-name"),
    pytest.param(_bus(url="https://me:secret@host/bus.git"), "put it into token_file", id="url-password"),
    pytest.param(_bus(url="https://token@host/bus.git"), "put it into token_file", id="url-token-as-user"),
    pytest.param(_bus(url="ext::sh -c evil"), "not the address of a repository", id="ext-transport"),
    pytest.param(_bus(url="fd::7"), "not the address of a repository", id="fd-transport"),
    pytest.param(_bus(url="--upload-pack=evil"), "not the address of a repository", id="leading-dash"),
    pytest.param(_bus(url="ssh://-oProxyCommand=evil/x"), "not the address of a repository", id="ssh-option"),
    pytest.param(_bus(url="https://host/bus.git\nx"), "not the address of a repository", id="newline"),
    pytest.param(_bus(url=""), "bus.url", id="empty-url"),
    pytest.param(_bus(patterns=[]), "bus.patterns", id="no-patterns"),
    pytest.param(_bus(patterns=["*"]), "must be a prefix", id="every-branch"),
    pytest.param(_bus(patterns=["mac-bridge"]), "must be a prefix", id="no-star"),
    pytest.param(_bus(patterns=["a*"]), "must be a prefix", id="half-a-name"),
    pytest.param(_bus(patterns=["mac-bridge/../*"]), "must be a prefix", id="up"),
    pytest.param(_bus(patterns=["mac-bridge/*:refs/heads/*"]), "must be a prefix", id="a-refspec"),
    pytest.param(_bus(patterns=["+mac-bridge/*"]), "must be a prefix", id="forced"),
    pytest.param(_bus(patterns=["mac-bridge/*\n"]), "must be a prefix", id="pattern-ends-a-line"),
    pytest.param(_bus(lease_s=0), "bus.lease_s", id="no-lease"),
    pytest.param(_bus(poll_s=True), "bus.poll_s: must be a number, not true", id="yes-for-a-number"),
    pytest.param(_with(retention={"keep": True}), "retention.keep: must be a whole number", id="keep-yes"),
    pytest.param(GOOD | {"labels": ["M4 Max"]}, "labels.0: must be letters, digits", id="label"),
    pytest.param(GOOD | {"labels": [f"l{i}" for i in range(33)]}, "labels: ", id="labels"),
]


@pytest.mark.parametrize(("content", "words"), WRONG)
def test_what_is_wrong_with_a_policy_is_said_and_the_file_is_named(write, content, words):
    path = write(content)

    with pytest.raises(PolicyError) as caught:
        load_policy(path)

    assert words in caught.value.message
    assert str(path) in caught.value.message
    assert caught.value.exit_code == 2


def test_a_token_is_not_repeated_in_the_message_about_it(write):
    with pytest.raises(PolicyError) as caught:
        load_policy(write(_bus(url="https://me:hunter2@host/bus.git")))

    assert "hunter2" not in caught.value.message


@pytest.mark.parametrize("mode", [0o640, 0o604], ids=["group", "others"])
def test_a_token_that_others_may_read_is_not_used(write, tmp_path, mode):
    token = tmp_path / "token"
    token.write_text("canary-token\n")
    token.chmod(mode)
    policy = load_policy(write(_bus(token_file=str(token), url="https://host.invalid/bus.git")))

    with pytest.raises(PolicyError, match="others may read") as caught:
        Bus(policy.bus, tmp_path / "state")

    assert caught.value.fix == f"Run: chmod 600 {token}"


def test_a_missing_token_file_is_named(write, tmp_path):
    policy = load_policy(write(_bus(token_file=str(tmp_path / "no-token"))))

    with pytest.raises(PolicyError, match="no-token"):
        Bus(policy.bus, tmp_path / "state")


def test_the_policy_is_looked_for_in_the_user_s_configuration(monkeypatch, tmp_path):
    assert default_path() == Path.home() / ".config" / "kakeya" / "runner.yaml"
    monkeypatch.setenv("KAKEYA_RUNNER_POLICY", str(tmp_path / "here.yaml"))
    assert default_path() == tmp_path / "here.yaml"


@pytest.mark.parametrize(
    ("patterns", "preset", "allowed"),
    [
        pytest.param(["*"], "noop", True, id="all"),
        pytest.param([], "noop", False, id="none"),
        pytest.param(["k3-*", "noop"], "noop", True, id="by-name"),
        pytest.param(["k3-*"], "k3-kv-quant-eval", True, id="by-prefix"),
        pytest.param(["k3-*"], "noop", False, id="others"),
    ],
)
def test_presets_are_allowed_by_name_or_pattern(write, patterns, preset, allowed):
    assert load_policy(write(_with(presets=patterns))).allows(preset) is allowed


def test_init_leaves_nothing_behind_where_the_url_is_not_served(tmp_path):
    path = tmp_path / "runner.yaml"

    with pytest.raises(PolicyError, match="not the address"):
        write_template(path, "ext::sh -c evil")

    assert not path.exists()


@pytest.mark.parametrize(
    "url",
    ["/srv/bus.git", "/srv/it's: #odd {x}.git", "git@host.invalid:a/b.git", "https://host.invalid/b.git"],
    ids=["folder", "odd-characters", "ssh", "https"],
)
def test_init_writes_a_policy_that_loads_and_says_the_same(tmp_path, url):
    path = tmp_path / "deep" / "runner.yaml"

    write_template(path, url, "mac mini, 4th floor")
    policy = load_policy(path)

    assert policy.bus.url == url
    assert policy.id == "mac-mini--4th-floor"
    assert policy.env == {"KAKEYA_MAC_VERIFIER_PATH": "tiny", "KAKEYA_MAC_DRAFTER_ID": "tiny"}
    assert path.stat().st_mode & 0o777 == 0o600


def test_init_writes_the_whole_path_of_a_bus_that_is_a_folder_beside(tmp_path, monkeypatch):
    """The service is started elsewhere."""
    (tmp_path / "bus.git").mkdir()
    monkeypatch.chdir(tmp_path)
    for i, url in enumerate(("bus.git", "./bus.git", f"../{tmp_path.name}/bus.git")):
        path = tmp_path / f"runner-{i}.yaml"
        write_template(path, url)
        assert Path(load_policy(path).bus.url).resolve() == tmp_path / "bus.git"
        assert Path(load_policy(path).bus.url).is_absolute()


def test_init_on_the_command_line_writes_where_it_is_told_and_never_over_a_policy(tmp_path):
    path = tmp_path / "runner.yaml"

    first = command("--policy", str(path), "init", "--bus", "/srv/bus.git")
    before = path.read_text()
    second = command("--policy", str(path), "init", "--bus", "/srv/other.git")

    assert (first.returncode, first.stdout.strip()) == (0, str(path))
    assert second.returncode == 2
    assert "exists already" in second.stderr
    assert path.read_text() == before


@pytest.mark.rows(1)
@pytest.mark.bus
@pytest.mark.parametrize("verb", [["serve"], ["once", "--branch", "mac-bridge/touch-1700000000-abcdef"]])
@pytest.mark.parametrize(("content", "words"), [(None, "no policy"), ("bus: [", "YAML"), ({}, "missing")])
def test_the_program_ends_with_2_and_runs_nothing_without_a_valid_policy(
    write, tmp_path, requester, ran, verb, content, words
):
    requester.send(requester.manifest())
    path = tmp_path / "missing.yaml" if content is None else write(content)

    done = command("--policy", str(path), *verb)

    assert done.returncode == 2
    assert words in done.stderr
    assert str(path) in done.stderr
    assert "Traceback" not in done.stderr
    assert not ran.exists()


def test_a_policy_is_frozen(write):
    policy = load_policy(write(GOOD))

    with pytest.raises(ValueError, match="frozen"):
        policy.presets = ["*"]
    assert isinstance(policy, Policy)


def test_the_bus_never_uses_the_user_s_git_configuration(write, tmp_path):
    (Path.home() / ".gitconfig").write_text("[alias]\n\tcanary = version\n[core]\n\thooksPath = /canary\n")
    bus = Bus(load_policy(write(GOOD)).bus, tmp_path / "state")

    assert isinstance(bus.git, Git)
    assert bus.git.maybe("config", "alias.canary") is None
    assert bus.git.text("config", "core.hooksPath") == "/dev/null"


def test_a_model_that_the_user_fetched_is_named_by_its_folder(write, tmp_path, monkeypatch):
    """A job has a HOME of its own, where the name would find nothing."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    folder = tmp_path / "kakeya" / "models" / "small-model"
    folder.mkdir(parents=True)

    values = {"FETCHED": "small-model", "BUNDLED": "tiny", "ABOVE": "..", "FOLDER": "/models/small-model"}
    settings = load_policy(write({**GOOD, "env": values})).settings

    assert {name: settings[name] for name in values} == {**values, "FETCHED": str(folder)}


@pytest.mark.parametrize(
    ("host", "fix"),
    [
        ("b\u00fccher.example", "xn--bcher-kva.example"),
        ("[fe80::1%25eth0]", "percent"),
        ("h%6Fst", "percent"),
    ],
)
def test_a_token_for_a_host_that_git_cannot_match_is_refused(tmp_path, host, fix):
    with pytest.raises(PolicyError) as refused:
        open_store(BusSettings(url=f"https://{host}/bus.git"), tmp_path / "store.git", "secret")

    assert fix in refused.value.fix
    assert not (tmp_path / "store.git").exists()


@pytest.mark.parametrize(
    "server",
    [
        "https://host",
        "https://HOST:8443",
        "https://[2001:DB8::5]",
        "http://[::1]:8080",
        "https://h_1.example:443",
    ],
)
def test_git_sends_a_token_to_the_bus_alone(tmp_path, server):
    git = open_store(BusSettings(url=f"{server}/team/bus.git"), tmp_path / "store.git", "secret")

    def header(url):
        return git.maybe("config", "--get-urlmatch", "http.extraHeader", url)

    assert header(f"{server}/team/bus.git").startswith("Authorization: Basic ")
    assert header("https://other.example/team/bus.git") is None


def test_the_template_forwards_from_the_named_branches(tmp_path):
    path = tmp_path / "runner.yaml"
    with pytest.raises(PolicyError, match=r"nothing was written.*forward"):
        write_template(path, "git@host:a/b.git", forward=["*"])
    write_template(path, "git@host:a/b.git", forward=["claude/*", "copilot/*"])
    assert load_policy(path).bus.forward == ["claude/*", "copilot/*"]


def test_init_says_what_it_forwards(tmp_path, monkeypatch, capsys):
    for number, args in enumerate([[], ["--forward", "claude/*"]]):
        path = tmp_path / f"{number}.yaml"
        argv = ["kakeya-runner", "--policy", str(path), "init", "--bus", str(tmp_path), *args]
        monkeypatch.setattr(sys, "argv", argv)
        with pytest.raises(SystemExit) as ended:
            main()
        assert ended.value.code in (0, None)
        said = " ".join(capsys.readouterr().err.split())
        assert ("requests are forwarded from claude/*" in said) is bool(args)
        assert ("bus.forward" in said) is not bool(args)
