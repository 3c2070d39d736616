"""A rank that a real SSH server starts: its tokens, and what is said and left if it or its connection fails."""

import os
import shutil
import sys
from pathlib import Path

import psutil
import pytest

from engine.cluster import hosts
from engine.cluster.supervise import ClusterFailed
from tests.conftest import wait_for
from tests.runner.bus.test_ssh import can_serve, free_port, listens, serve

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(not can_serve() or not shutil.which("ssh"), reason="needs an SSH server"),
]
PEER = {"ssh": "peer", "ips": ["127.0.0.1"], "python": sys.executable}


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """Start a server for one key, and return the folder of an `ssh` that knows it as `peer`."""
    folder, port = tmp_path_factory.mktemp("ssh"), free_port()
    process = serve(folder, port)
    wait_for(lambda: listens(port))
    with (folder / "config").open("a") as config:
        config.write(f"Host peer\nHostName 127.0.0.1\nPort {port}\n")
    (folder / "bin").mkdir()
    (folder / "bin/ssh").write_text(f'#!/bin/sh\nexec {shutil.which("ssh")} -F {folder}/config "$@"\n')
    (folder / "bin/ssh").chmod(0o755)
    yield folder / "bin"
    process.terminate()
    process.wait(60)


@pytest.fixture
def cluster(server, tmp_path, monkeypatch):
    """Return a function that makes a cluster of this machine and the peer with some settings."""
    monkeypatch.setenv("PATH", f"{server}:{os.environ['PATH']}")

    def make(**settings):
        written = hosts.hostfile.Hostfile.model_validate(
            {"hosts": [{"ssh": "127.0.0.1", "ips": ["127.0.0.1"]}, {**PEER, **settings}]}
        )
        (tmp_path / "hosts.json").write_text(written.model_dump_json())
        return hosts.read_hostfile(tmp_path / "hosts.json")

    return make


def test_a_rank_over_ssh_gives_the_tokens_of_ranks_on_one_machine(ranks, cluster):
    ranks.run()
    expected, ranks.messages = ranks.ids, []
    outcome = ranks.run(cluster(env={"SAID": "it's here"}))
    assert ranks.ids == expected
    assert len(outcome.ranks) == 2
    assert ranks.left == []


def test_a_lost_connection_ends_the_job_and_the_rank_behind_it(ranks, cluster):
    def cut(message, notice=ranks._notice):
        notice(message)
        if message["event"] == "text":
            for process in psutil.process_iter(["cmdline"]):
                if {"ssh", "peer"} <= {Path(word).name for word in process.info["cmdline"] or []}:
                    process.kill()

    ranks._notice = cut
    with pytest.raises(ClusterFailed, match=r"rank . (\(peer\) )?"):
        ranks.run(cluster(), max_tokens=4000)
    assert ranks.left == []


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"python": "/nowhere/python"}, r"rank 1 \(peer\) cannot run /nowhere/python"),
        ({"python": "/bin/false"}, r"rank 1 \(peer\) could not load the package"),
        ({"ssh": "nobody.invalid"}, r"rank 1 \(nobody\.invalid\) cannot be reached by ssh"),
    ],
)
def test_a_host_that_cannot_start_its_rank_is_named(ranks, cluster, settings, reason):
    with pytest.raises(ClusterFailed, match=reason):
        ranks.run(cluster(**settings))
