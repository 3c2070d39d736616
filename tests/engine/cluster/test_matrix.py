"""The wider matrix of faults, which `make cluster` runs: each phase, and a network of namespaces."""

import itertools
import os
import shutil
import signal
import subprocess
import sys
from contextlib import suppress

import pytest

from bridge.common.validation.hostfile import LOCAL, Host, Hostfile
from engine.cluster import state
from engine.cluster.hosts import Cluster
from engine.cluster.supervise import ClusterFailed
from tests.engine import folders

pytestmark = pytest.mark.sweep

COUNT = itertools.count()  # the interfaces of a namespace go some time after it
PHASES = ("import", "connect", "load", "prefill", "decode", "end")


@pytest.mark.parametrize("signum", [signal.SIGKILL, signal.SIGSTOP])
@pytest.mark.parametrize("phase", PHASES)
def test_a_fault_in_a_phase_has_one_answer_and_leaves_no_rank(ranks, phase, signum):
    clocks = state.Clocks(token=8, silence=4, start=20, load=20, end=5)
    count = 8 if phase == "end" else 4000
    failure, ends = "", []
    try:
        ends = ranks.run(3, clocks, hurt=(phase, signum), max_tokens=count).ranks
    except ClusterFailed as error:
        failure = error.message
    # A rank may have reported its result before it was hurt in its last phase.
    assert "rank" in failure or (phase == "end" and len(ends) == 3)
    assert ranks.left == []


def _ip(*words):
    subprocess.run(["ip", *words], check=True, capture_output=True)


@pytest.fixture
def network(tmp_path):
    """Three namespaces behind a bridge, and the cluster whose ranks run in them."""
    if os.geteuid() != 0 or shutil.which("ip") is None:
        pytest.skip("makes network namespaces, which needs root and iproute2")
    unique = f"{os.getpid()}{next(COUNT)}"
    names = [f"kakeya{unique}-{i}" for i in range(3)]
    bridge = f"kk{unique}"
    try:
        try:
            _ip("link", "add", bridge, "type", "bridge")
            _ip("link", "set", bridge, "up")
        except subprocess.CalledProcessError as error:
            pytest.skip(f"no bridge can be made here: {error.stderr.decode().strip()}")
        hosts = []
        for i, name in enumerate(names):
            _ip("netns", "add", name)
            _ip("link", "add", f"{bridge}v{i}", "type", "veth", "peer", "name", "eth0", "netns", name)
            _ip("link", "set", f"{bridge}v{i}", "master", bridge, "up")
            _ip("-n", name, "addr", "add", f"10.99.0.{i + 1}/24", "dev", "eth0")
            _ip("-n", name, "link", "set", "eth0", "up")
            program = tmp_path / f"python{i}"
            program.write_text(f'#!/bin/sh\nexec ip netns exec {name} {sys.executable} "$@"\n')
            program.chmod(0o755)
            hosts.append(Host(ssh=LOCAL, ips=(f"10.99.0.{i + 1}",), python=str(program)))
        described = Hostfile(hosts=tuple(hosts))
        path = tmp_path / "hosts.json"
        path.write_text(described.model_dump_json())
        yield Cluster(described, path), names
    finally:
        for name in names:
            with suppress(subprocess.CalledProcessError):
                _ip("netns", "del", name)
        with suppress(subprocess.CalledProcessError):
            _ip("link", "del", bridge)


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    """A model whose heads three ranks divide."""
    shape = {"num_hidden_layers": 2, "num_attention_heads": 3, "num_key_value_heads": 3}
    return folders.write_target(tmp_path_factory.mktemp("three"), shape, dtype="float32")


@pytest.mark.parametrize("weather", [[], ["delay", "20ms", "5ms"], ["delay", "10ms", "loss", "1%"]], ids=str)
def test_ranks_decode_over_a_network_with_delay_and_loss(ranks, network, weather):
    cluster, names = network
    for name in names if weather else []:
        words = ["ip", "netns", "exec", name, "tc", "qdisc", "add", "dev", "eth0", "root", "netem", *weather]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        if done.returncode:
            pytest.skip(f"tc netem: {done.stderr.strip()}")
    outcome = ranks.run(cluster, state.Clocks())
    assert len({end["digest"] for end in outcome.ranks}) == 1
    assert ranks.left == []


def test_a_pulled_cable_ends_the_job(ranks, network):
    cluster, names = network
    notice, cables = ranks._notice, [names[-1]]

    def pull(message):
        notice(message)
        if message["event"] == "text" and message["count"] > 3 and cables:
            _ip("-n", cables.pop(), "link", "set", "eth0", "down")

    ranks._notice = pull
    with pytest.raises(ClusterFailed, match=r"no token for 8 s: rank \d.* stands? still while decoding"):
        ranks.run(cluster, state.Clocks(token=8), max_tokens=4000)
    assert ranks.left == []


def test_a_host_that_never_answers_is_named(ranks, network):
    cluster, _ = network
    first, second, third = cluster.hosts.hosts
    hosts = Hostfile(hosts=(first, second, third.model_copy(update={"ips": ("10.99.0.77",)})))
    cluster.file.write_text(hosts.model_dump_json())
    with pytest.raises(ClusterFailed, match="rank"):
        ranks.run(Cluster(hosts, cluster.file), state.Clocks(start=25))
    assert ranks.left == []
