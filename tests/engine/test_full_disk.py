"""A full disk is no bug: the file is named, what was there before stays, and a run goes on once there is room."""

from __future__ import annotations

import errno
import resource
import signal
import subprocess
import sys

import numpy as np
import pytest

from bridge.common.whole_files import written_whole
from engine.errors import BadInput
from engine.mx import mx
from engine.train.data.kept import made_once
from engine.train.run import Trainer, TrainingPlan

BYTES = 4096


@pytest.fixture
def full():
    """Let no file become larger than a few kilobytes, which fails in the same calls as a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (BYTES, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


def by_python(path):
    path.write_bytes(bytes(10 * BYTES))


def by_numpy(path):
    np.save(path, np.zeros(10 * BYTES))


def by_mlx(path):
    mx.save_safetensors(str(path), {"a": mx.zeros(10 * BYTES)})


@pytest.mark.usefixtures("full")
@pytest.mark.parametrize(
    ("write", "name"), [(by_python, "a.json"), (by_numpy, "a.npy"), (by_mlx, "a.safetensors")]
)
def test_what_cannot_be_written_whole_changes_nothing(tmp_path, write, name):
    path = tmp_path / name
    path.write_text("before")
    with pytest.raises(OSError, match=name) as failed, written_whole(path) as part:
        write(part)
    assert failed.value.errno in (errno.EFBIG, errno.EIO)
    assert failed.value.filename == str(path)
    assert {file.name: file.read_text() for file in tmp_path.iterdir()} == {name: "before"}


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


def test_a_run_goes_on_from_the_checkpoint_before_the_disk_was_full(tmp_path, full):
    first = trainer(tmp_path)
    first.step = 2
    first.save()
    second = trainer(tmp_path, size=10 * BYTES)
    second.step = 3
    with pytest.raises(OSError, match="checkpoint"):
        second.save()
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
    assert made_once(path, lambda: np.ones(3)).tolist() == [1, 1, 1]
    assert np.load(path).tolist() == [1, 1, 1]


@pytest.mark.long
def test_a_command_names_the_file_and_ends_with_3(tmp_path):
    source = (
        "import resource, signal, sys\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        f"resource.setrlimit(resource.RLIMIT_FSIZE, ({BYTES}, {BYTES}))\n"
        "from engine.cli import main\n"
        "main(sys.argv[1:])\n"
    )
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
