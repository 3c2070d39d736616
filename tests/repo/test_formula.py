"""The Homebrew formula: its parts come from the lock file, and it keeps rules of `brew style`.

Homebrew itself runs nowhere in these tests. The rules are those of its FormulaAudit and Layout cops that a generated
file could break.
"""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise
from pathlib import Path

import pytest

from tests.system import program

ROOT = Path(__file__).parents[2]
LOCK = (ROOT / "release" / "requirements" / "base.txt").read_text()
LOCKED = re.findall(r"^([a-z0-9-]+)==(\S+)", LOCK, re.MULTILINE)
# The order of Homebrew's ComponentsOrder, as far as a formula of ours has them.
ORDER = ("include", "desc", "homepage", "url", "sha256", "license", "depends_on", "resource", "def install",
         "def caveats", "service", "test")  # fmt: skip


class Index(BaseHTTPRequestHandler):
    """A package index that knows, of each locked package, a wheel and a source distribution."""

    def do_GET(self):
        name = self.path.strip("/").rpartition("/")[2]
        (block,) = re.findall(rf"^{name}==(.*?)(?=^\S|\Z)", LOCK, re.MULTILINE | re.DOTALL)
        wheel, *_, source = re.findall(r"sha256:([0-9a-f]{64})", block)
        version = block.split()[0]
        host = f"http://{self.headers['Host']}/files"
        names = {f"{name}-{version}-py3-none-any.whl": wheel, f"{name}-0.0.1.tar.gz": "0" * 64,
                 f"{name}-{version}.tar.gz": source}  # fmt: skip
        files = [
            {"filename": file, "url": f"{host}/{file}", "hashes": {"sha256": digest}}
            for file, digest in names.items()
        ]
        body = json.dumps({"files": files}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args):
        """Say nothing."""


@pytest.fixture(scope="module")
def host():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Index)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    yield f"127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()
    thread.join(5)


@pytest.fixture(scope="module")
def write(host, tmp_path_factory):
    place = tmp_path_factory.mktemp("formula")
    (place / "sdist.tar.gz").write_bytes(b"a source distribution")

    def call(files: str = host) -> subprocess.CompletedProcess[str]:
        argv = [sys.executable, ROOT / "release" / "formula.py", place / "sdist.tar.gz", "--out", place / "made.rb",
                "--url", "https://github.com/owner/kakeya-bridge/releases/download/v1/kakeya_bridge-1.tar.gz",
                "--index", f"http://{host}/simple", "--files", files]  # fmt: skip
        return subprocess.run(list(map(str, argv)), capture_output=True, text=True, check=False)

    call.made = place / "made.rb"
    return call


@pytest.fixture(scope="module")
def formula(write):
    done = write()
    assert done.returncode == 0, done.stderr
    return write.made.read_text()


def test_every_locked_package_is_a_resource_with_a_digest_of_the_lock(formula):
    found = re.findall(r'  resource "(.+)" do\n    url "(.+)"\n    sha256 "([0-9a-f]{64})"\n  end\n', formula)
    assert [name for name, _, _ in found] == sorted(name for name, _ in LOCKED)
    versions = dict(LOCKED)
    for name, url, digest in found:
        assert f"sha256:{digest}" in LOCK
        assert url.endswith(f"{name}-{versions[name]}.tar.gz")
    assert formula.count("resource ") == len(found)


def test_it_names_the_release_and_what_the_project_says_of_itself(formula):
    assert f'sha256 "{hashlib.sha256(b"a source distribution").hexdigest()}"' in formula
    assert '  homepage "https://github.com/owner/kakeya-bridge"\n' in formula
    assert '  license "Apache-2.0"\n' in formula


def test_the_service_runs_the_runner(formula):
    (block,) = re.findall(r"  service do\n(.*?)  end\n", formula, re.DOTALL)
    assert '    run [opt_bin/"kakeya-runner", "serve", "--awake"]\n    keep_alive true\n' in block
    done = subprocess.run(
        [sys.executable, "-P", "-m", "runner", "serve", "--help"], capture_output=True, text=True, check=True
    )
    assert "--awake" in done.stdout


def test_components_stand_in_homebrews_order(formula):
    at = [re.search(rf"^  {re.escape(part)}\b", formula, re.MULTILINE) for part in ORDER]
    assert all(at)
    starts = [found.start() for found in at]
    assert starts == sorted(starts)
    depends = re.findall(r'^  depends_on "(\S+)"(.*)$', formula, re.MULTILINE)
    assert depends == sorted(depends, key=lambda each: ("build" not in each[1], each[0]))


def test_the_description_keeps_the_rules(formula):
    (text,) = re.findall(r'^  desc "(.*)"$', formula, re.MULTILINE)
    assert len(f"kakeya-bridge: {text}") <= 80
    assert text[0].isupper()
    assert not text.endswith(".")
    assert not re.match(r"(?i)an? |the |kakeya", text)


def test_the_layout_keeps_the_rules(formula):
    lines = formula.split("\n")
    assert formula.startswith("class KakeyaBridge < Formula\n")
    assert formula.endswith("\nend\n")
    assert [line for line in lines if line != line.rstrip() or "\t" in line or "'" in line] == []
    assert [line for line in lines if len(line) > 118 and not line.strip().startswith("url ")] == []
    assert [pair for pair in pairwise(lines) if pair == ("", "")] == []
    assert "\n\n  end\n" not in formula
    assert not re.search(r"( do|def \w+)\n\n", formula)


@pytest.mark.skipif(not program("ruby"), reason="ruby is not on the PATH")
def test_it_is_ruby(formula, write):
    done = subprocess.run(["ruby", "-cw", write.made], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, "Syntax OK", "")


def test_files_on_another_host_are_refused(write):
    done = write("files.example.invalid")
    assert done.returncode == 1
    assert "is not on files.example.invalid" in done.stderr
