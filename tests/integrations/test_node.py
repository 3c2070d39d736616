"""The client for Node.js: its own tests, its package in an empty folder, and a page in a browser.

`make node` installs what they need. Everything runs in a copy of the folder, so that tests may run side by side.
"""

import re
import shutil
import subprocess
import sys
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.browser import CHROMIUM, Browser
from tests.engine.serve.world import cancelled, serving, until
from tests.system import program

pytestmark = pytest.mark.long
ROOT = Path(__file__).parents[2]
CLIENT = ROOT / "integrations" / "node"
ENGINE = Path(sys.executable).with_name("kakeya-engine")


@pytest.fixture(scope="module")
def copy(tmp_path_factory):
    """A copy of the client's folder, with its development packages."""
    if program("node") is None or program("npm") is None:
        pytest.skip("needs Node.js and npm")
    if not (CLIENT / "node_modules" / ".package-lock.json").exists():
        pytest.skip("needs the packages that `make node` installs with npm")
    if not ENGINE.exists():
        pytest.skip("the package is not installed with its scripts")
    root = tmp_path_factory.mktemp("copy")
    shutil.copy(ROOT / "LICENSE", root)
    folder = root / "integrations" / "node"
    shutil.copytree(CLIENT, folder, ignore=shutil.ignore_patterns("node_modules", "build", "dist"))
    (folder / "node_modules").symlink_to(CLIENT / "node_modules")
    return folder


@pytest.fixture(scope="module")
def installed(copy, tmp_path_factory):
    """An empty folder in which the package was installed, without a network."""
    packed = tmp_path_factory.mktemp("packed")
    ran("npm", "pack", "--pack-destination", str(packed), cwd=copy)
    (package,) = packed.iterdir()
    folder = tmp_path_factory.mktemp("installed")
    (folder / "package.json").write_text('{"type": "module"}')
    ran("npm", "install", "--offline", "--no-audit", "--no-fund", str(package), cwd=folder)
    return folder


def ran(*argv, cwd, env=None):
    done = subprocess.run(
        argv,
        cwd=cwd,
        env=env,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_lint_and_types(copy):
    ran("npm", "run", "lint", cwd=copy)


def test_its_own_tests(copy, monkeypatch):
    monkeypatch.setenv("KAKEYA_ENGINE", str(ENGINE))
    ran("npm", "test", cwd=copy)


def test_the_readme_runs_in_an_empty_folder(installed, monkeypatch):
    monkeypatch.setenv("KAKEYA_ENGINE", str(ENGINE))
    (example, tauri) = re.findall(r"```js\n(.*?)```", (CLIENT / "README.md").read_text(), re.DOTALL)
    (installed / "example.js").write_text(example)
    assert ran("node", "example.js", cwd=installed) == "1, 2, 3, 4, 5\n"
    (installed / "names.js").write_text("\n".join(re.findall("import .* 'kakeya-client/.*'", tauri)))
    ran("node", "names.js", cwd=installed)
    package = installed / "node_modules" / "kakeya-client"
    assert {each.name for each in package.iterdir()} == {"LICENSE", "README.md", "dist", "package.json"}
    names = {each.name.removesuffix(".js") for each in (package / "dist").glob("*.js")}
    assert names == {each.name.removesuffix(".d.ts") for each in (package / "dist").glob("*.d.ts")}
    assert names == {each.stem for each in (CLIENT / "src").iterdir()}


def test_no_private_registry_is_named():
    assert "resolved" not in (CLIENT / "package-lock.json").read_text()
    assert not (CLIENT / ".npmrc").exists()


PAGE = """<!doctype html><meta charset="utf-8"><title>Chat</title><link rel="icon" href="data:,">
<script type="importmap">{"imports": {"@tauri-apps/api/": "/tauri/"}}</script>
<p id="text"></p>
<script type="module">
import { mockIPC } from '@tauri-apps/api/mocks.js'
import { invoke } from '@tauri-apps/api/core.js'
import { emit, listen } from '@tauri-apps/api/event.js'
import { KakeyaClient } from '/dist/client.js'
import { KakeyaBackend, register } from '/dist/extension.js'
import { TauriSource, kakeyaCommands } from '/dist/tauri.js'

const client = new KakeyaClient({ baseUrl: 'URL' })
const shown = document.getElementById('text')
const long = { model: 'tiny', max_tokens: 4000, logit_bias: { 0: -100, 2: -100 }, x_kakeya: { draft: 'none' } }
window.chat = async (way, content, more = {}) => {
  if (way === 'tauri') mockIPC(kakeyaCommands(client, emit), { shouldMockEvents: true })
  const source = way === 'tauri' ? new TauriSource({ invoke, listen }) : client
  window.abort = new AbortController()
  const request = { model: 'tiny-chat', temperature: 0, messages: [{ role: 'user', content }], ...more }
  shown.textContent = ''
  window.pieces = 0
  await new KakeyaBackend(source).chatCompletionStream(request, (text) => {
    window.pieces += 1
    shown.textContent += text
  }, window.abort.signal)
}
window.endless = (way) => {
  window.ended = ''
  chat(way, 'import os', long).catch((error) => { window.ended = error.name })
}
window.AtomicChatCore = { registerBackend: (backend) => { window.registered = backend.id } }
register(client)
</script>
"""


class Files(SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


@pytest.fixture(scope="module")
def page(installed, tmp_path_factory):
    """The address of a page that imports the installed package."""
    root = tmp_path_factory.mktemp("page")
    (root / "dist").symlink_to(installed / "node_modules" / "kakeya-client" / "dist")
    (root / "tauri").symlink_to(CLIENT / "node_modules" / "@tauri-apps" / "api")
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Files, directory=root)) as files:
        threading.Thread(target=files.serve_forever, daemon=True).start()
        origin = f"http://127.0.0.1:{files.server_port}"
        options = ("--model", "tiny-chat", "--model", "tiny", "--allow-origin", origin)
        with serving(tmp_path_factory.mktemp("server"), *options) as server:
            (root / "index.html").write_text(PAGE.replace("URL", server.url))
            yield f"{origin}/index.html", server
        files.shutdown()


@pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium here")
def test_a_page_streams_a_chat(page, tmp_path):
    address, server = page
    with Browser(tmp_path) as tab:
        tab.open(address)
        tab.wait("window.registered === 'kakeyalattice'")
        for way in ("http", "tauri"):
            tab.run(f"chat('{way}', 'Count from 1 to 5.')")
            assert tab.run("document.getElementById('text').textContent") == "1, 2, 3, 4, 5"
            assert tab.run("window.pieces") > 0  # an answer that was given before may come in one piece
            before = cancelled(server)
            tab.run(f"endless('{way}')")
            tab.wait("window.pieces > 2")
            tab.run("window.abort.abort()")
            tab.wait("window.ended === 'AbortError'")
            until(lambda: server.stats()["active"] == 0)
            assert cancelled(server) == before + 1
        assert tab.errors() == []
