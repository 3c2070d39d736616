"""The wider matrix of faults, which `make cluster` runs: each phase, and a network of namespaces."""

import itertools
import os
import shutil
import signal
import subprocess
import sys
from contextlib import ExitStack

import pytest

from bridge.common.validation.hostfile import LOCAL, Host, Hostfile
from engine.cluster import state
from engine.cluster.hosts import Cluster
from engine.cluster.supervise import ClusterFailed
from tests.engine import folders
from tests.engine.cluster.switch import Switch, ip

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


@pytest.fixture
def network(tmp_path):
    """Three namespaces behind a switch, and the cluster whose ranks run in them."""
    if os.geteuid() != 0 or shutil.which("ip") is None:
        pytest.skip("makes network namespaces, which needs root and iproute2")
    unique = f"{os.getpid()}{next(COUNT)}"
    switch = Switch([f"kakeya{unique}-{i}" for i in range(3)])
    hosts = []
    for i, name in enumerate(switch.names):
        program = tmp_path / f"python{i}"
        program.write_text(f'#!/bin/sh\nexec ip netns exec {name} {sys.executable} "$@"\n')
        program.chmod(0o755)
        hosts.append(Host(ssh=LOCAL, ips=(f"10.99.0.{i + 1}",), python=str(program)))
    described = Hostfile(hosts=tuple(hosts))
    path = tmp_path / "hosts.json"
    path.write_text(described.model_dump_json())
    with ExitStack() as stack:
        try:
            stack.enter_context(switch)
        except (OSError, subprocess.CalledProcessError) as error:
            pytest.skip(f"no network namespaces can be made here: {getattr(error, 'stderr', '') or error}")
        yield Cluster(described, path), switch


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    """A model whose heads three ranks divide."""
    shape = {"num_hidden_layers": 2, "num_attention_heads": 3, "num_key_value_heads": 3}
    return folders.write_target(tmp_path_factory.mktemp("three"), shape, dtype="float32")


@pytest.mark.parametrize(
    ("delay_s", "jitter_s", "loss"),
    [(0.0, 0.0, 0.0), (0.02, 0.005, 0.0), (0.01, 0.0, 0.01), (0.05, 0.02, 0.03)],
)
def test_ranks_decode_over_a_network_with_delay_and_loss(ranks, network, delay_s, jitter_s, loss):
    cluster, switch = network
    switch.delay_s, switch.jitter_s, switch.loss = delay_s, jitter_s, loss
    outcome = ranks.run(cluster, state.Clocks())
    assert len({end["digest"] for end in outcome.ranks}) == 1
    assert ranks.left == []


def test_a_pulled_cable_ends_the_job(ranks, network):
    cluster, switch = network
    notice, cables = ranks._notice, [switch.names[-1]]

    def pull(message):
        notice(message)
        if message["event"] == "text" and message["count"] > 3 and cables:
            ip("-n", cables.pop(), "link", "set", "eth0", "down")

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
