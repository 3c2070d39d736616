"""Clients for Node.js against a real server: a chat, a stream, a tool, a structured answer, and leaving.

`make parity` installs them, in the versions of node/package-lock.json. What a client has to get is in its script there.
"""

import subprocess
from pathlib import Path

import pytest

from tests.engine.serve.world import cancelled, serving, until
from tests.system import program

pytestmark = pytest.mark.long
SCRIPTS = Path(__file__).with_name("node")
# How often a script leaves a stream, once for each API that it speaks.
LEAVES = {"openai": 2, "anthropic": 1, "ai": 4}


@pytest.fixture(scope="module")
def narrow(tmp_path_factory):
    """A server for one answer at a time: an answer that goes on for nobody would keep the next one waiting."""
    options = ("--model", "tiny-chat", "--model", "tiny", "--max-active", "1")
    with serving(tmp_path_factory.mktemp("node"), *options) as server:
        yield server


@pytest.fixture(scope="module")
def node():
    """The interpreter, if the clients are installed beside the scripts."""
    name = program("node")
    if name is None:
        pytest.skip("needs Node.js")
    if not (SCRIPTS / "node_modules" / ".package-lock.json").exists():
        pytest.skip("needs the clients that `make parity` installs with npm")
    return name


@pytest.mark.parametrize("client", LEAVES)
def test_client(narrow, node, client):
    before = cancelled(narrow)

    argv = [node, str(SCRIPTS / f"{client}.mjs"), narrow.url]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=240, check=False)

    assert done.returncode == 0, done.stderr
    until(lambda: narrow.stats()["active"] == 0)
    assert cancelled(narrow) == before + LEAVES[client]
    assert narrow.http.get("/health").status_code == 200
    assert narrow.chat(model="tiny-chat", text="Hello.").status_code == 200
