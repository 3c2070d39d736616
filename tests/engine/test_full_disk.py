"""A full disk is no bug: the file is named, what was there before stays, and a run goes on once there is room."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from engine.errors import BadInput
from engine.train.data.answers import cached_array
from engine.train.run import Trainer, TrainingPlan

BYTES = 4096
# A limit on the size of files fails in the same calls as a full disk. It holds for a whole process, and a test's
# own process writes files too (its captured output, its coverage): so it is set in a process of its own.
FULL = (
    "import resource, signal, sys\n"
    "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
    f"resource.setrlimit(resource.RLIMIT_FSIZE, ({BYTES}, {BYTES}))\n"
)
WRITE = """
import errno
from pathlib import Path
import numpy as np
from bridge.common.whole_files import atomic_write
from engine.mx import mx
path = Path(sys.argv[1])
path.write_text("before")
try:
    with atomic_write(path) as part:
        %s
except OSError as error:
    assert error.errno in (errno.EFBIG, errno.EIO), error
    assert error.filename == str(path), error
    assert {file.name: file.read_text() for file in path.parent.iterdir()} == {path.name: "before"}
    print("refused")
"""
SAVE = """
from pathlib import Path
from tests.engine.test_full_disk import BYTES, trainer
first = trainer(Path(sys.argv[1]), size=10 * BYTES)
first.step = 3
try:
    first.save()
except OSError as error:
    assert "checkpoint" in error.filename, error
    print("refused")
"""


def on_a_full_disk(source, *arguments):
    """What a program prints in a process that cannot write more than `BYTES` to a file."""
    done = subprocess.run(
        # -B: byte code that is cut off at the limit would stay for other tests.
        [sys.executable, "-B", "-c", FULL + source, *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(
    ("write", "name"),
    [
        (f"part.write_bytes(bytes({10 * BYTES}))", "a.json"),
        (f"np.save(part, np.zeros({10 * BYTES}))", "a.npy"),
        (f"mx.save_safetensors(str(part), {{'a': mx.zeros({10 * BYTES})}})", "a.safetensors"),
    ],
)
def test_what_cannot_be_written_whole_changes_nothing(tmp_path, write, name):
    assert on_a_full_disk(WRITE % write, tmp_path / name) == "refused\n"


class Learner:
    """What learns a number of bytes."""

    suffix = ".npy"

    def __init__(self, size):
        self.size, self.about = size, {}

    def learn(self, _batch, _step):
        return {"loss": 1.0}

    def measured(self):
        return {}

    def save(self, path):
        np.save(path, np.zeros(self.size))

    def load(self, path):
        np.load(path)

    def finish(self):
        pass


def trainer(folder, size=1):
    return Trainer(Learner(size), lambda step: step, folder, TrainingPlan(rows=1, steps=4))


def test_a_run_goes_on_from_the_checkpoint_before_the_disk_was_full(tmp_path):
    first = trainer(tmp_path)
    first.step = 2
    first.save()
    assert on_a_full_disk(SAVE, tmp_path) == "refused\n"
    assert trainer(tmp_path).step == 2


@pytest.mark.parametrize("name", ["state.json", "checkpoint.npy"])
@pytest.mark.parametrize("content", [b"", b"{", None])
def test_a_damaged_run_folder_is_named(tmp_path, name, content):
    first = trainer(tmp_path)
    first.step = 2
    first.save()
    if content is None and name == "state.json":
        content = b"[]"
    (tmp_path / name).unlink() if content is None else (tmp_path / name).write_bytes(content)
    with pytest.raises(BadInput, match=f"{name} is damaged"):
        trainer(tmp_path)


@pytest.mark.parametrize("content", [b"", b"\x93NUMPY\x01\x00"])
def test_an_array_that_was_cut_off_is_made_again(tmp_path, content):
    path = tmp_path / "a.npy"
    path.write_bytes(content)
    assert cached_array(path, lambda: np.ones(3)).tolist() == [1, 1, 1]
    assert np.load(path).tolist() == [1, 1, 1]


@pytest.mark.long
def test_a_command_names_the_file_and_ends_with_3(tmp_path):
    source = FULL + "from engine.cli import main\nmain(sys.argv[1:])\n"
    (tmp_path / "text.py").write_text("print('hello')\n" * 2000)
    argv = [
        "train",
        "drafter",
        "--target",
        "tiny",
        "--out",
        str(tmp_path / "run"),
        "--text",
        str(tmp_path / "text.py"),
    ]
    argv += ["--steps", "1", "--rows", "1", "--written", "1", "--length", "64", "--anchors", "4"]
    done = subprocess.run(
        [sys.executable, "-P", "-c", source, *argv], capture_output=True, text=True, check=False
    )
    assert done.returncode == 3, done.stderr
    assert f"error: {tmp_path / 'run'}" in done.stderr
    assert "this is a bug" not in done.stderr
    again = subprocess.run(
        [sys.executable, "-P", "-m", "engine", *argv], capture_output=True, text=True, check=False
    )
    assert again.returncode == 0, again.stderr
