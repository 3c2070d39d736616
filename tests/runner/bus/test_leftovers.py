"""A pack that does not arrive whole leaves nothing in the runner's store."""

from __future__ import annotations

import struct

import pytest

from bridge.errors import InfrastructureError
from runner.bus.stale_files import temporary_packs
from tests.attacks import servers

pytestmark = pytest.mark.bus

BRANCH = "mac-bridge/noop-1790000000-abc123"
# Git writes a pack of so many objects to a file, and a smaller one into single files.
OBJECTS = 1_000


def cut_short(handler):
    """Send the beginning of a pack and hang up."""
    if handler.command == "GET":
        kind = "application/x-git-upload-pack-advertisement"
        return servers.say(handler, 200, servers.advertisement(f"refs/heads/{BRANCH}"), Content_Type=kind)
    # First git asks where the history is cut off, which is nowhere, and then for the objects.
    body = b"0000"
    if b"done" in handler.rfile.read(int(handler.headers["Content-Length"])):
        body += (
            servers.packet(b"NAK\n") + servers.packet(b"\1PACK" + struct.pack(">LL", 2, OBJECTS)) + b"0000"
        )
    return servers.say(handler, 200, body, Content_Type="application/x-git-upload-pack-result")


@pytest.mark.parametrize("ask", [lambda bus: bus.fetch(), lambda bus: bus.tip(BRANCH)], ids=["all", "one"])
def test_row_94_a_pack_that_is_cut_short_leaves_no_file(keyed, ask):
    server = servers.Http(cut_short)
    try:
        with keyed.context(bus={"url": f"{server.url}/bus.git"}) as context:
            try:
                ask(context.bus)
                failed = list(context.bus.commits.reasons)
            except InfrastructureError:
                failed = [BRANCH]
            assert any(method == "POST" for method, _, _ in server.asked)
            assert failed == [BRANCH]
            assert [*temporary_packs(context.bus.git.directory)] == []
    finally:
        server.close()


def test_row_106_a_pack_without_end_fills_no_disk(keyed, small_disk):
    server = servers.Http(servers.endless_pack(BRANCH))
    try:
        with keyed.context(bus={"url": f"{server.url}/bus.git"}) as context:
            packs = context.bus.git.directory / "objects" / "pack"
            small_disk(packs)
            with pytest.raises(InfrastructureError, match="leaves less than 32 MiB of the disk free"):
                context.bus.tip(BRANCH)
            assert list(packs.glob("tmp_*")) == []

            context.bus.fetch()
            (why,) = context.bus.commits.reasons.values()
            assert "leaves less than 32 MiB of the disk free; trying again" in why
            assert list(packs.glob("tmp_*")) == []
    finally:
        server.close()
