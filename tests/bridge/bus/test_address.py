"""Addresses of repositories: how they are divided, which ones a policy takes, and what git makes of the same text."""

from __future__ import annotations

import os
import subprocess

import pytest
from pydantic import ValidationError

from bridge.bus.hosts.address import parse
from bridge.bus.remote import Remote
from bridge.requests.binding import repository_name
from bridge.system.git import Git
from runner.lfs.http import endpoint_of
from runner.policy import Bus

# Scheme, user, host and port.
SOUND = {
    "https://host.example/team/bus.git": ("https", "", "host.example", ""),
    "https://HOST.example:8443/team/bus.git": ("https", "", "host.example", "8443"),
    "http://[::1]:8080/bus.git": ("http", "", "::1", "8080"),
    "https://[2001:db8::5]/team/bus.git": ("https", "", "2001:db8::5", ""),
    "https://[2001:DB8:0:0::5]:443/team/bus.git": ("https", "", "2001:db8:0:0::5", "443"),
    "https://[::ffff:192.0.2.1]/bus.git": ("https", "", "::ffff:192.0.2.1", ""),
    "http://[fe80::1%25eth0]/bus.git": ("http", "", "fe80::1%25eth0", ""),
    "https://bücher.example/bus.git": ("https", "", "bücher.example", ""),
    "https://xn--bcher-kva.example/bus.git": ("https", "", "xn--bcher-kva.example", ""),
    "https://host.example/a%20b/bus.git": ("https", "", "host.example", ""),
    "https://host.example/a::b.git": ("https", "", "host.example", ""),
    "ssh://git@host/team/bus.git": ("ssh", "git", "host", ""),
    "ssh://git@host:2222/team/bus.git": ("ssh", "git", "host", "2222"),
    "ssh://git@[2001:db8::5]:2222/team/bus.git": ("ssh", "git", "2001:db8::5", "2222"),
    "ssh://[fe80::1%25eth0]/bus.git": ("ssh", "", "fe80::1%eth0", ""),
    "git+ssh://git@host/bus.git": ("ssh", "git", "host", ""),
    "git://host/bus.git": ("git", "", "host", ""),
    "git@host.example:team/bus.git": ("ssh", "git", "host.example", ""),
    "host_1:bus.git": ("ssh", "", "host_1", ""),
    "git@host:/srv/bus.git": ("ssh", "git", "host", ""),
    "[::1]:bus.git": ("ssh", "", "::1", ""),
    "git@[2001:db8::5]:team/bus.git": ("ssh", "git", "2001:db8::5", ""),
    "[host:2222]:bus.git": ("ssh", "", "host", "2222"),
    "/srv/bus.git": ("file", "", "", ""),
    "/srv/a::b.git": ("file", "", "", ""),
    "/srv/a:b.git": ("file", "", "", ""),
    "./bus.git": ("file", "", "", ""),
    "../a:b/bus.git": ("file", "", "", ""),
    "file:///srv/bus.git": ("file", "", "", ""),
    "file:///srv/a%20b.git": ("file", "", "", ""),
}


@pytest.mark.parametrize("text", SOUND)
def test_an_address_is_divided_and_taken(text):
    address = parse(text)

    assert (address.scheme, address.user, address.host, address.port) == SOUND[text]
    assert address.fault is None
    bus = Bus(url=text)
    assert bus.is_local is (address.scheme == "file")
    assert repository_name(text)


REFUSED = (
    "ext::sh -c id", "EXT::sh -c id", "fd::7", "http::http://host/x", "file::/srv/bus.git", "host::bus.git",
    "-oProxyCommand=id", "--upload-pack=id", "-oProxyCommand=id:x", "ssh://-oProxyCommand=id/x",
    "ssh://%2DoProxyCommand=id/x", "ssh://-l@host/x", "ssh://%2Dl@host/x", "git@-host:x", "host:-x",
    "[-oProxyCommand=id]:x",    "ssh://[-oProxyCommand=id]/x", "http://-host/x", "http://%2dhost/x",
    "HTTPS://host/x", "Ssh://host/x", "ftp://host/x", "nosuch://host/x",
    "https:///x", "https://:443/x", "https://host::x/y", "https://host:0/x", "https://host:65536/x",
    "https://host:1:2/x", "https://[::1/x", "https://::1/x", "https://[::g]/x", "https://[::1]x/y", "https://[fe80::1%]/x",
    "https://[fe80::1%a b]/x", "https://[host]:x/y", "https://ho st/x", "https://host\\@evil/x", "https://a,b/x",
    " ext::x",    "https://host/\nx", "https://host/\x1b", "git@:x", ":x", "[]:x", "C:\\bus.git",
    "https://user@host/x", "https://user:pw@host/x", "https://:pw@host/x", "https://user:p%40w@[::1]/x",
    "ssh://u:pw@host/x", "ssh://u%3Apw@host/x", "HTTPS://user:pw@host/x", "https://u:p/w@host/x",
)  # fmt: skip


@pytest.mark.parametrize("text", REFUSED)
def test_what_is_no_sound_address_or_holds_a_secret_is_refused(text):
    with pytest.raises(ValidationError):
        Bus(url=text)
    repository_name(text)


# Addresses of one repository stand in one row.
SAME = (
    ("https://host/a/b.git", "https://HOST:443/a/b", "git@host:a/b.git", "ssh://git@host:22/a/b", "host:/a/b.git"),
    ("https://[2001:db8::5]/a", "https://[2001:DB8:0::5]:443/a.git", "git@[2001:db8::5]:a", "ssh://[2001:db8::5]/a"),
    ("https://[::1]:99/a", "ssh://x@[0:0::1]:99/a"),
    ("https://host/%7Euser/a", "https://host/~user/a", "ssh://host/~user/a", "ssh://host/%7Euser/a"),
    ("ssh://host/a%20b", "host:a b"),
    ("file:///srv/a%20b", "/srv/a b", "file:///srv/./a b"),
    ("[host:99]:a", "ssh://host:99/a"),
)  # fmt: skip


@pytest.mark.parametrize("row", SAME, ids=[row[0] for row in SAME])
def test_addresses_of_one_repository_share_their_name_with_no_other(row):
    names = {repository_name(text) for text in row}
    others = {repository_name(text) for other in SAME if other is not row for text in other}

    assert len(names) == 1
    assert not names & others


@pytest.mark.parametrize("text", [t for t in SOUND if SOUND[t][0] == "ssh"])
def test_ssh_is_given_the_host_that_was_judged(text, tmp_path):
    """Git itself, with a program in the place of ssh that writes down how it is called."""
    program, called = tmp_path / "ssh", tmp_path / "called"
    program.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" > {called}\nexit 255\n')
    program.chmod(0o755)
    env = {
        "PATH": os.environ["PATH"],
        "GIT_SSH": str(program),
        "GIT_SSH_VARIANT": "ssh",
        "HOME": str(tmp_path),
    }
    subprocess.run(["git", "ls-remote", text], env=env, capture_output=True, check=False, cwd=tmp_path)
    words = called.read_text().splitlines()
    address = parse(text)

    server = words[-2].rpartition("@")[2].strip("[]").lower()
    assert server == address.host
    assert (words[words.index("-p") + 1] if "-p" in words else "") == address.port


@pytest.mark.parametrize("url", ["https://[2001:db8::5]:8443/team/bus.git", "https://host/bus"])
def test_large_files_have_the_same_server(url):
    assert endpoint_of(Bus(url=url)) == f"{url.removesuffix('.git')}.git/info/lfs"
    assert parse(endpoint_of(Bus(url=url))).origin == parse(url).origin


def test_an_address_in_place_of_a_remote_is_rewritten_as_git_does(client, clone, git):
    git(clone, "config", "url.https://host.example/.insteadOf", "short:")
    remote = Remote.of(Git.of_user(clone), "short:team/bus.git")
    assert repository_name(remote.url) == "host.example/team/bus"
