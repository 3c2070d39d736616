"""The GitHub Action with presets that no file of its checkout has: on the bus's default branch, or announced alone."""

from __future__ import annotations

import json
import os
import shutil
import sys

import pytest

from bridge.bus import presence
from tests.repo import test_action
from tests.repo.composite import Job

pytestmark = [pytest.mark.long, *test_action.pytestmark]

ACTION, key = test_action.ACTION, test_action.key

BODY = {
    "steps": [{"argv": ["/bin/echo", "{n}"]}],
    "params": {"n": {"type": "int", "min": 1, "max": 3}},
}


@pytest.fixture
def checkout(bus, tmp_path, git):
    """What a workflow checks out: one commit, without a branch and without `origin/HEAD`."""
    folder = tmp_path / "checkout"
    folder.mkdir()
    commit = git(bus, "rev-parse", "main")
    git(folder, "init", "--quiet")
    git(folder, "remote", "add", "origin", f"file://{bus}")
    git(folder, "fetch", "--quiet", "--depth=1", "origin", commit)
    git(folder, "checkout", "--quiet", "--detach", commit)
    return folder


@pytest.fixture
def use(checkout, tmp_path):
    """Make a use of the action in the checkout."""
    program = tmp_path / "kakeya"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -P -m bridge "$@"\n')
    program.chmod(0o755)
    env = {name: value for name, value in os.environ.items() if name != "KAKEYA_PRESETS"}

    def make(**inputs):
        temp = tmp_path / f"temp-{len(list(tmp_path.glob('temp-*')))}"
        return Job(ACTION, {"kakeya": str(program), "wait": "60s"} | inputs, env, checkout, temp)

    return make


@pytest.fixture
def serve(runners, presets, git, bus, wait_for):
    """Start a runner with a preset of its own; it announces it or not."""

    def start(*, announces):
        settings = {"poll_s": 0.1, "pushes_per_minute": 600, "presence_s": 60 if announces else None}
        runners.start(preset_folder=str(presets(mine=BODY)), presets=["mine"], bus=settings)
        if announces:
            wait_for(lambda: git(bus, "for-each-ref", presence.REFS.rstrip("/")))

    return start


@pytest.mark.parametrize("place", ["the bus's default branch", "an announcement"])
def test_it_asks_for_a_preset_of_another_place(use, serve, key, clone, git, place):
    if place == "the bus's default branch":
        folder = clone / ".kakeya/presets"
        folder.mkdir(parents=True)
        body = {"name": "mine", "description": "x", "code": "installed", "timeout_s": 60, **BODY}
        (folder / "mine.yaml").write_text(json.dumps(body))
        git(clone, "add", ".kakeya")
        git(clone, "commit", "--quiet", "--message", "Share a preset")
        git(clone, "push", "--quiet", "origin", "HEAD:main")
        shutil.rmtree(clone)
    serve(announces=place == "an announcement")
    job = use(preset="mine", params="n=2", **{"public-key": key})

    job.run()

    assert not job.failed, job.log
    assert (job.outputs["state"], job.outputs["signed"], job.outputs["exit-code"]) == (
        "succeeded",
        "true",
        "0",
    )
    assert "\n2\n" in job.log

    for inputs, words in (
        ({"preset": "mien", "params": "n=2"}, "Did you mean mine?"),
        ({"preset": "mine", "params": "n=4"}, "n must be a whole number from 1 to 3"),
    ):
        wrong = use(**inputs, **{"public-key": key})
        wrong.run()
        assert wrong.failed
        assert wrong.ran[-1] == "Ask for the job", inputs
        assert words.lower() in wrong.log.lower(), (inputs, wrong.log)
