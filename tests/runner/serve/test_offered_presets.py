"""A runner announces the presets of its own folder, so that requesters without the files can ask for them."""

import json
from pathlib import Path

import pytest

from bridge.bus import objects, presence
from bridge.bus.wire import State
from bridge.client import Client
from bridge.system.git import Git
from tests.conftest import Keyed

pytestmark = pytest.mark.bus

STEP = {"argv": ["/bin/echo", "{n}"]}
PARAMS = {"n": {"type": "int", "min": 1, "max": 3, "help": "how many"}}


def announced(bus: Path) -> list[str] | None:
    git = Git.isolated(bus)
    (ref,) = git.refs(presence.REFS)
    data = objects.read_blob(git, git.refs(presence.REFS)[ref], presence.PRESETS, max_bytes=1 << 20)
    return [each["name"] for each in json.loads(data)["presets"]] if data else None


def test_a_requester_without_the_file_asks_and_gets_a_signed_answer(
    client: Client, clone: Path, bus: Path, keyed: Keyed, presets, git
) -> None:  # type: ignore[no-untyped-def]
    folder = presets(mine={"steps": [STEP], "params": PARAMS}, refused={"steps": [STEP], "params": PARAMS})
    git(clone, "config", "kakeya.publicKey", str(keyed.key()))
    policy = {"preset_folder": str(folder), "presets": ["mine", "noop"]}
    with keyed.context(**policy) as context:
        context.announcer.begin()
        context.announcer.announce_if_due()
        # The built-in ones are installed everywhere, and the policy refuses the other one.
        assert announced(bus) == ["mine"]
        assert client.all_presets().sources["mine"] == "announced by one, signed by a pinned key"
        run = client.run("mine", {"n": 2})
    keyed.handle(**policy)
    assert run.status().state is State.SUCCEEDED
    assert run.logs().strip().endswith("2")
    assert run.verify().holds


def test_the_runner_reads_no_preset_from_the_bus(client: Client, clone: Path, keyed: Keyed, git) -> None:  # type: ignore[no-untyped-def]
    folder = clone / ".kakeya" / "presets"
    folder.mkdir(parents=True)
    text = json.dumps({
        "name": "mine", "description": "x", "code": "installed", "timeout_s": 9, "steps": [{"argv": ["/bin/true"]}],
    })  # fmt: skip
    (folder / "mine.yaml").write_text(text)
    (folder / "noop.yaml").write_text(text.replace("mine", "noop").replace("/bin/true", "/bin/false"))
    git(clone, "add", ".kakeya")
    git(clone, "commit", "--quiet", "-m", "Share presets")
    git(clone, "push", "--quiet", "origin", "HEAD:main")
    only_here, builtin = client.run("mine"), client.run("noop")
    keyed.handle(presets=["*"])
    assert only_here.status().state is State.REFUSED
    assert builtin.status().state is State.SUCCEEDED
