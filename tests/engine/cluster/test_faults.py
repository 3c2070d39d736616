import os
import signal
import subprocess
import sys
import time

import psutil
import pytest

from bridge.common.errors import ExitCode
from engine.cluster import hosts, state
from engine.cluster.supervise import ClusterFailed
from tests.engine.cluster.conftest import left_of

LONG = {"max_tokens": 4000}

pytestmark = pytest.mark.long


@pytest.mark.parametrize("phase", ["load", "decode"])
def test_a_killed_rank_ends_the_job_with_its_name(ranks, phase):
    with pytest.raises(ClusterFailed, match=r"rank 1 was ended by SIGKILL while") as failure:
        ranks.run(hurt=(phase, signal.SIGKILL), **LONG)
    assert failure.value.exit_code == ExitCode.INFRASTRUCTURE
    assert ranks.left == []


@pytest.mark.parametrize("phase", ["import", "decode"])
def test_a_stopped_rank_ends_the_job_with_its_name(ranks, phase):
    # A rank that is stopped a moment later connects already; the other one may connect too, or be further.
    reasons = r"rank 1 gave no sign of life for 3 s while|rank 1 stands? still while connecting"
    with pytest.raises(ClusterFailed, match=reasons):
        ranks.run(hurt=(phase, signal.SIGSTOP), clocks=state.Clocks(token=6, silence=3), **LONG)
    assert ranks.left == []


def test_a_rank_that_never_starts_is_named(ranks):
    cluster = hosts.local(2)
    silent = cluster.hosts.hosts[1].model_copy(update={"python": "/bin/cat"})
    cluster = hosts.Cluster(cluster.hosts.model_copy(update={"hosts": (cluster.hosts.hosts[0], silent)}))
    with pytest.raises(ClusterFailed, match="rank 1 could not load the package while starting"):
        ranks.run(cluster)


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGKILL])
def test_no_rank_outlives_the_command(folder, signum):
    argv = [sys.executable, "-P", "-m", "engine", "generate", "--cluster", "2", "--model", str(folder)]
    argv += ["--raw", "--prompt", "abc", "--max-tokens", "4000", "--json"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as command:
        command.stdout.readline()
        ranks = [pid for pid in psutil.pids() if _parameter(pid) == str(command.pid)]
        os.kill(command.pid, signum)
        errors = command.communicate(timeout=60)[1].decode()
    assert len(ranks) >= 2
    assert left_of(ranks) == []
    assert command.returncode == (-signum if signum == signal.SIGKILL else ExitCode.INTERRUPTED)
    assert "Traceback" not in errors


def _parameter(pid):
    """Return the last argument of a rank: the number of its supervisor."""
    try:
        argv = psutil.Process(pid).cmdline()
    except psutil.Error:
        return None
    return argv[-1] if "engine.cluster.rank" in argv else None


def test_two_jobs_at_once_do_not_meet(ranks, folder):
    argv = [sys.executable, "-P", "-m", "engine", "generate", "--cluster", "2", "--model", str(folder)]
    argv += ["--raw", "--prompt", "abc", "--max-tokens", "12", "--json"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE) as other:
        outcome = ranks.run()
        text = other.communicate(timeout=120)[0].decode()
    assert f'"digest": "{outcome.ranks[0]["digest"]}"' in text


def test_ranks_that_stand_still_together_are_found(ranks):
    begin = time.monotonic()
    with pytest.raises(ClusterFailed, match=r"no token for 0.05 s: rank \d.* stands? still while decoding"):
        ranks.run(
            clocks=state.Clocks(token=0.05),
            task="all-reduce",
            sizes=[1 << 27],
            repeats=50,
        )
    assert time.monotonic() - begin < 60
    assert ranks.left == []
