"""What a program may take of its disk: it is ended before the disk is full, also where it is nearly full already."""

from __future__ import annotations

import os

import pytest

from bridge.errors import ProcessError
from bridge.system.process import Child, run
from bridge.system.spawn import ResourceLimits

MIB = 1 << 20
ENV = {"PATH": os.environ["PATH"]}
# (what is free at first, in MiB), (what is free then), (what is to stay free), (what the program is ended below)
DISKS = [(100, 9, 10, 10), (100, 10, 10, None), (8, 3, 10, 4), (8, 4, 10, None), (0, 0, 10, None)]


@pytest.fixture
def disk(monkeypatch, tmp_path):
    def has(*free):
        left = list(free)
        monkeypatch.setattr(
            "bridge.system.spawn.free_bytes",
            lambda folder: folder and (left.pop(0) if len(left) > 1 else left[0]) * MIB,
        )
        return tmp_path

    return has


@pytest.mark.parametrize(("before", "after", "keep", "floor"), DISKS)
def test_a_program_is_ended_before_the_disk_is_full(disk, before, after, keep, floor):
    resource_limits = ResourceLimits(disk=disk(before, before, after), keep_free=keep * MIB)
    if floor is None:
        run("sleep", "0.3", env=ENV, resource_limits=resource_limits)
        return
    with pytest.raises(ProcessError, match=f"sleep leaves less than {floor} MiB of the disk free"):
        run("sleep", "60", env=ENV, resource_limits=resource_limits)


def test_a_child_that_is_asked_is_ended_likewise(disk):
    child = Child(
        ["cat"], env=ENV, resource_limits=ResourceLimits(disk=disk(100, 100, 9), keep_free=10 * MIB)
    )
    try:
        with pytest.raises(ProcessError, match="cat leaves less than 10 MiB of the disk free"):
            child.line()
        assert not child.is_running
    finally:
        child.close()


def test_a_disk_of_which_nothing_is_known_bounds_nothing(tmp_path):
    run("true", env=ENV, resource_limits=ResourceLimits(disk=tmp_path / "missing", keep_free=MIB))
