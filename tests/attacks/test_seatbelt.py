"""That macOS enforces the generated profile: what a job must not do fails there, and what it needs works.

The profile's text is tested everywhere, in test_sandbox.py. This needs a Mac, and says so by being skipped elsewhere.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from runner.job.command import job_environment
from runner.job.sandbox import seatbelt
from runner.job.sandbox.paths import needed_by
from runner.job.sandbox.probe import find_fault

pytestmark = [
    pytest.mark.darwin,
    pytest.mark.skipif(sys.platform != "darwin", reason="only macOS enforces a seatbelt profile"),
]


@dataclass(frozen=True)
class Box:
    """A job's folder with a secret beside it, and the profile around the job."""

    root: Path

    @property
    def canary(self) -> Path:
        return self.root / "state" / "runner.key"

    def run(self, script: str, *args: object, network: bool = False) -> subprocess.CompletedProcess[str]:
        """Run a script as a job."""
        python = Path(sys.executable)
        tree, home = self.root / "tree", self.root / "home"
        inside = seatbelt.prefix(
            seatbelt.PROGRAM, tree=tree, home=home, network=network, readable=needed_by(python).paths,
            hidden=[Path.home(), self.root / "state"],
        )  # fmt: skip
        env = job_environment(home, interpreter=python, extra={})
        argv = [*inside, str(python), "-I", "-c", script, *map(str, args)]
        return subprocess.run(
            argv, env=env, cwd=tree, capture_output=True, text=True, check=False, timeout=60
        )


@pytest.fixture
def box(tmp_path):
    for name in ("tree", "home/tmp", "state", "beside"):
        (tmp_path / name).mkdir(parents=True)
    made = Box(tmp_path)
    made.canary.write_text("canary-5d1c")
    return made


READ = "import sys; print(open(sys.argv[1]).read())"
LIST = "import os, sys; print(os.listdir(sys.argv[1]))"
WRITE = "import sys; open(sys.argv[1], 'w').write('x')"
LINK = "import os, sys; os.symlink(sys.argv[1], 'link'); print(open('link').read())"
CONNECT = "import socket, sys; socket.create_connection(('127.0.0.1', int(sys.argv[1])), 5); print('reached')"
SIGNAL = "import os, sys; os.kill(int(sys.argv[1]), 0)"


@pytest.mark.parametrize(
    ("script", "at"),
    [
        (READ, "state/runner.key"),
        (LINK, "state/runner.key"),
        (LIST, "state"),
        (LIST, "beside"),
        (WRITE, "beside/x"),
        (WRITE, "state/x"),
        (WRITE, "state/runner.key"),
    ],
    ids=["read a secret", "read it through a link", "list its folder", "list beside", "write beside", "write there",
         "write over it"],
)  # fmt: skip
def test_what_lies_outside_the_workspace_is_denied(box, script, at):
    done = box.run(script, box.root / at)

    assert done.returncode != 0
    assert "Operation not permitted" in done.stderr
    assert "canary" not in done.stdout + done.stderr
    assert box.canary.read_text() == "canary-5d1c"
    assert list((box.root / "beside").iterdir()) == []


@pytest.mark.parametrize("path", ["/etc/master.passwd", "/Users", "/Applications", "/private/var/log"])
def test_the_rest_of_the_host_cannot_be_listed_or_read(box, path):
    script = LIST if Path(path).is_dir() else READ
    assert box.run(script, path).returncode != 0


@pytest.mark.parametrize("network", [False, True])
def test_the_network_is_there_only_where_it_is_declared(box, network):
    with socket.create_server(("127.0.0.1", 0)) as server:
        done = box.run(CONNECT, server.getsockname()[1], network=network)

    assert (done.stdout == "reached\n") == network, done.stderr


def test_the_runner_cannot_be_signalled(box):
    assert box.run(SIGNAL, os.getpid()).returncode != 0


def test_the_job_has_its_workspace(box):
    script = (
        "import os, pathlib, subprocess, tempfile\n"
        "pathlib.Path('made').mkdir(); pathlib.Path('made/file').write_text('x')\n"
        "(pathlib.Path.home() / 'file').write_text('x')\n"
        "tempfile.NamedTemporaryFile().write(b'x')\n"
        "print(os.listdir('.'), subprocess.run(['/bin/echo', 'child'], capture_output=True, text=True).stdout)\n"
    )
    done = box.run(script)

    assert done.returncode == 0, done.stderr
    assert done.stdout == "['made'] child\n\n"
    assert (box.root / "home" / "file").read_text() == "x"


def test_the_self_probe_finds_no_fault(tmp_path):
    python = Path(sys.executable)

    def around(place):
        return seatbelt.prefix(
            seatbelt.PROGRAM, tree=place.tree, home=place.home, network=False, readable=needed_by(python).paths,
            hidden=[tmp_path / "state"],
        )  # fmt: skip

    (tmp_path / "state").mkdir()
    assert find_fault(around, state_folder=tmp_path / "state", interpreter=python) is None
