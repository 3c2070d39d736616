"""The variables by which programs reach the outside: what a check used is what the service will have."""

from __future__ import annotations

import os
import plistlib
import pwd
import re
import sys

import pytest
from click.testing import CliRunner

from bridge.bus.hosts.advice import Surroundings, network
from bridge.common import environment
from bridge.system.git import Git
from runner.cli import cli
from runner.doctor.readiness import examine
from runner.policy import load_policy
from runner.service import launchd, systemd
from runner.service.settings import settings_for
from tests import programs

PROXY = "http://proxy.example:3128"
PROXIES = ["HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"]
FILES = [
    "SSL_CERT_FILE", "SSL_CERT_DIR", "GIT_SSL_CAINFO", "GIT_SSL_CAPATH", "GIT_SSL_CERT", "GIT_SSL_KEY",
    "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "GIT_PROXY_SSL_CAINFO", "GIT_PROXY_SSL_CERT", "GIT_PROXY_SSL_KEY",
]  # fmt: skip
OTHERS = ["NO_PROXY", "no_proxy"]
PLACES = ["XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME"]
ME = pwd.getpwuid(os.getuid())


@pytest.fixture(autouse=True)
def _nothing_else(monkeypatch):
    for name in (*PROXIES, *FILES, *OTHERS, *PLACES, "SSH_AUTH_SOCK", "KAKEYA_BUS_TOKEN"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def services(runners):
    """The variables of the services that are installed from this shell, and what the operator is told."""

    def made(who: pwd.struct_passwd = ME) -> tuple[list[dict[str, str]], list[str]]:
        file = runners.policy("host")
        settings = settings_for({file: load_policy(file)}, who, system=False)
        unit = systemd.unit(settings).decode()
        lines = dict(re.findall(r'^Environment="(\w+)=(.*)"$', unit, re.MULTILINE))
        plists = [launchd.plist(settings), launchd.watchdog_plist(settings)]
        return [lines, *(plistlib.loads(plist)["EnvironmentVariables"] for plist in plists)], settings.notes

    return made


@pytest.mark.parametrize("name", [*PROXIES, *FILES, *OTHERS])
def test_the_runners_git_and_its_service_get_a_variable_of_the_shell(monkeypatch, services, name):
    value = "/etc/authority.pem" if name in FILES else PROXY
    monkeypatch.setenv(name, value)
    assert environment.for_isolated_git()[name] == value
    assert environment.for_user_git()[name] == value
    installed, notes = services()
    assert [each[name] for each in installed] == [value] * 3
    assert notes == []


@pytest.mark.parametrize("name", PLACES)
def test_only_a_service_of_this_user_uses_the_folders_of_this_user(monkeypatch, services, name):
    monkeypatch.setenv(name, "/data/mine")
    assert [each[name] for each in services()[0]] == ["/data/mine"] * 3
    other = next(user for user in pwd.getpwall() if user.pw_uid != os.getuid())
    assert not any(name in each for each in services(other)[0])


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *((name, "http://me:secret@proxy.example") for name in PROXIES),
        ("https_proxy", "secret@proxy.example:1"),
        ("SSH_AUTH_SOCK", "/tmp/secret/agent"),
        ("KAKEYA_BUS_TOKEN", "secret"),
    ],
)
def test_what_a_service_does_not_get_is_said_and_no_secret_is_written(monkeypatch, services, name, value):
    monkeypatch.setenv(name, value)
    installed, notes = services()
    assert not any(name in each for each in installed)
    assert "secret" not in str(installed)
    assert len(notes) == 1
    assert f"does not get this shell's {name}" in notes[0]
    assert "secret" not in notes[0]


def test_a_relative_file_is_written_in_full(monkeypatch, services, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GIT_SSL_CAINFO", "ca.pem")
    assert {each["GIT_SSL_CAINFO"] for each in services()[0]} == {str(tmp_path / "ca.pem")}


@pytest.mark.parametrize("value", ["a$b", "a%b", 'a"b', "a\\b", "a\nExecStart=/bin/false"])
def test_a_value_stays_one_setting_of_the_unit(monkeypatch, services, value):
    monkeypatch.setenv("NO_PROXY", value)
    written = services()[0][0]["NO_PROXY"]
    plain = re.sub(r'\\(["\\])', r"\1", written.replace("\\n", "\n").replace("%%", "%"))
    assert plain == value


def test_a_variable_that_turns_checks_off_is_not_passed_on(monkeypatch, services):
    monkeypatch.setenv("GIT_SSL_NO_VERIFY", "1")
    assert "GIT_SSL_NO_VERIFY" not in environment.for_isolated_git()
    assert not any("GIT_SSL_NO_VERIFY" in each for each in services()[0])


@pytest.mark.skipif(sys.platform not in ("linux", "darwin"), reason="no service manager is known elsewhere")
@pytest.mark.parametrize("yes", [False, True])
def test_install_shows_what_the_service_gets_and_lacks(monkeypatch, runners, tmp_path, yes):
    monkeypatch.setenv("all_proxy", PROXY)
    monkeypatch.setenv("HTTPS_PROXY", "http://me:secret@proxy.example")
    argv = [
        "--policy",
        str(runners.policy("host")),
        "install",
        "--root",
        str(tmp_path / "root"),
        *(["--yes"] * yes),
    ]
    said = CliRunner().invoke(cli, argv).output

    assert "does not get this shell's HTTPS_PROXY" in said
    assert "secret" not in said
    written = [file.read_text() for file in (tmp_path / "root").rglob("*") if file.is_file()]
    assert all(PROXY in text and "secret" not in text for text in written)
    assert bool(written) == yes
    assert yes or PROXY in said


def test_check_lists_them_without_credentials(monkeypatch, runners):
    monkeypatch.setenv("ALL_PROXY", "http://me:secret@proxy.example")
    found = next(check for check in examine(runners.policy("host")) if check.name == "outside")
    assert found.ok
    assert found.message.startswith("git and Git LFS reach servers by ALL_PROXY=")


@pytest.mark.parametrize("name", PROXIES)
def test_advice_about_the_network_names_the_proxy(monkeypatch, tmp_path, name):
    monkeypatch.setenv(name, PROXY)
    git = Git(tmp_path, environment.for_isolated_git())
    assert f"the proxy that {name} names" in network(Surroundings(git, "origin", is_runner=True))


@pytest.mark.parametrize("name", ["SSL_CERT_FILE", "GIT_SSL_CAINFO", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"])
def test_git_lfs_trusts_the_authorities_that_git_is_given(monkeypatch, name):
    assert environment.authorities() is None
    monkeypatch.setenv(name, "/etc/authority.pem")
    assert environment.authorities() == "/etc/authority.pem"


@pytest.mark.long
def test_the_printed_check_hides_the_password_of_a_proxy(runners):
    env = {**os.environ, "ALL_PROXY": "http://me:secret@proxy.example"}
    file = runners.policy("host", presets=["noop"], sandbox="off")
    for form in ([], ["--json"]):
        done = programs.run("--policy", file, "check", *form, env=env)
        assert "ALL_PROXY=http://***@proxy.example" in done.stdout
        assert "secret" not in done.stdout + done.stderr
