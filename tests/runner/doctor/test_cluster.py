"""`kakeya-runner check`: what keeps a cluster from running, host by host."""

from __future__ import annotations

import importlib.util
import json
import sys

import pytest

from runner.doctor.cluster import check_cluster
from runner.policy import Policy

HERE = {"ssh": "127.0.0.1", "ips": ["127.0.0.1"]}


@pytest.fixture
def check(tmp_path):
    """Return the checks of a policy with a cluster of these hosts, or with these settings."""

    def run(hosts=None, *, sandboxed=False, **cluster):
        if hosts is not None:
            path = tmp_path / "hosts.json"
            path.write_text(hosts if isinstance(hosts, str) else json.dumps(hosts))
            cluster["hostfile"] = str(path)
        policy = {"schema_version": 1, "bus": {"url": "/bus.git"}, "interpreter": sys.executable}
        return list(check_cluster(Policy.model_validate({**policy, "cluster": cluster}), sandboxed=sandboxed))

    return run


def test_without_a_cluster_there_is_nothing_to_check():
    policy = Policy.model_validate({"schema_version": 1, "bus": {"url": "/bus.git"}})
    assert list(check_cluster(policy, sandboxed=True)) == []


@pytest.mark.parametrize(
    ("hosts", "cluster", "reason"),
    [
        ("[", {}, "is not JSON"),
        ([HERE], {}, "hosts"),
        ([HERE, {**HERE, "colour": 1}], {}, "colour"),
        ([HERE, HERE], {"backend": "jaccl"}, "rdma"),
        (None, {"hostfile": "/nowhere/hosts.json"}, "cannot be read"),
    ],
)
def test_a_hostfile_that_cannot_be_used_is_named(check, hosts, cluster, reason):
    (line,) = check(hosts, **cluster)
    assert line.ok is False
    assert reason in line.message


def test_each_host_that_cannot_start_a_rank_is_named_with_its_remedy(check):
    absent = {"ssh": "mac-b.invalid", "ips": ["10.0.0.2"]}
    bare = {**HERE, "python": "/bin/false"}
    sandbox, local, remote = check([bare, absent], sandboxed=True)
    assert "by ssh" in sandbox.message
    assert "sandbox: off" in sandbox.fix
    assert local.message == "127.0.0.1: exit code 1"
    assert remote.ok is False
    assert remote.message.startswith("mac-b.invalid: ")
    assert "`ssh mac-b.invalid true`" in remote.fix


@pytest.mark.long
@pytest.mark.skipif(importlib.util.find_spec("mlx_lm") is None, reason="the engine is not installed")
def test_a_cluster_is_tried(check):
    lines = check(ranks=2)
    assert [line.ok for line in lines] == [True, True], lines
    assert lines[-1].message == "all ranks were started and summed an array"


@pytest.mark.parametrize(
    "cluster",
    [{}, {"ranks": 1}, {"ranks": 2, "hostfile": "/h"}, {"ranks": 2, "backend": "jaccl"}, {"ranks": 2, "preset": []}],
)  # fmt: skip
def test_a_cluster_is_described_in_one_way(cluster):
    with pytest.raises(ValueError, match="cluster"):
        Policy.model_validate({"schema_version": 1, "bus": {"url": "/bus.git"}, "cluster": cluster})
