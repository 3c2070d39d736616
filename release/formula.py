"""Writes the Homebrew formula of a release: `python release/formula.py SDIST --url URL --out kakeya-bridge.rb`.

Every dependency is a resource with the address and the digest of its source distribution. Versions and digests come
from release/requirements/base.txt; the index says at which address a file with such a digest lies.
"""

from __future__ import annotations

import argparse
import hashlib
import re
import sys
import tomllib
from pathlib import Path
from urllib.parse import urlsplit

import requests
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[1]
INDEX = "https://pypi.org/simple"
FILES = "files.pythonhosted.org"
PYTHON = "3.13"
# Of what Homebrew installs beside it. The extensions of cryptography and pydantic-core are written in Rust.
DEPENDS = (
    '"pkgconf" => :build',
    '"rust" => :build',
    '"libyaml"',
    '"openssl@3"',
    f'"python@{PYTHON}"',
)
MARKERS = {
    "implementation_name": "cpython",
    "os_name": "posix",
    "platform_python_implementation": "CPython",
    "platform_system": "Darwin",
    "python_full_version": f"{PYTHON}.0",
    "python_version": PYTHON,
    "sys_platform": "darwin",
}


def locked(text: str) -> dict[str, tuple[str, set[str]]]:
    """Return version and digests of each requirement of a lock file that counts on a Mac."""
    found = {}
    for block in re.split(r"\n(?=\S)", text.strip()):
        stated, *hashes = re.split(r"\s*\\\n\s*--hash=", block)
        need = Requirement(stated)
        if need.marker is None or need.marker.evaluate(MARKERS):
            (pin,) = need.specifier
            found[canonicalize_name(need.name)] = (
                pin.version,
                {one.removeprefix("sha256:") for one in hashes},
            )
    return found


def source(name: str, version: str, digests: set[str], index: str, host: str) -> tuple[str, str]:
    """Return address and digest of a package's source distribution, which the lock must know."""
    headers = {"Accept": "application/vnd.pypi.simple.v1+json"}
    answer = requests.get(f"{index}/{name}/", headers=headers, timeout=30)
    answer.raise_for_status()
    for file in answer.json()["files"]:
        known = file["hashes"].get("sha256") in digests
        if known and file["filename"].endswith((".tar.gz", ".zip")):
            if urlsplit(file["url"]).netloc != host:
                sys.exit(f"error: {file['url']} is not on {host}; ask the index that others will use")
            return file["url"], file["hashes"]["sha256"]
    sys.exit(
        f"error: {index} has no source distribution of {name} {version} in the lock; lock a version that has one"
    )


def formula(url: str, digest: str, about: dict, resources: dict[str, tuple[str, str]]) -> str:
    """Return the formula's text."""
    homepage = (
        re.sub(r"/(releases|archive)/.*", "", url)
        if "github.com" in url
        else f"https://pypi.org/project/{about['name']}/"
    )
    depends = "\n".join(f"  depends_on {each}" for each in DEPENDS)
    blocks = "\n".join(
        f'  resource "{name}" do\n    url "{place}"\n    sha256 "{sha256}"\n  end\n'
        for name, (place, sha256) in sorted(resources.items())
    )
    return f"""class KakeyaBridge < Formula
  include Language::Python::Virtualenv

  desc "Run named, bounded jobs on a Mac that only git reaches"
  homepage "{homepage}"
  url "{url}"
  sha256 "{digest}"
  license "{about["license"]}"

{depends}

{blocks}
  def install
    virtualenv_install_with_resources
  end

  def caveats
    <<~EOS
      This installs the client and the runner, without the engine: MLX publishes no source distribution.
      Jobs run under the interpreter that the policy names. To name one that has the engine:
        kakeya-runner init --bus URL --python PATH
      The service runs without the watchdog that `kakeya-runner setup` installs.
    EOS
  end

  service do
    run [opt_bin/"kakeya-runner", "serve", "--awake"]
    keep_alive true
    log_path var/"log/kakeya-runner.log"
    error_log_path var/"log/kakeya-runner.log"
  end

  test do
    assert_match version.to_s, shell_output("#{{bin}}/kakeya --version")
    system "git", "init", "--quiet", testpath/"clone"
    assert_match "HEAD points to no commit", shell_output("#{{bin}}/kakeya -C #{{testpath}}/clone doctor", 1)
  end
end
"""


def main() -> None:
    """Run the command line."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("sdist", type=Path, help="the source distribution of the release")
    options.add_argument("--url", required=True, help="where it can be downloaded")
    options.add_argument("--out", type=Path, required=True)
    options.add_argument("--index", default=INDEX, help="the package index to ask  [%(default)s]")
    options.add_argument("--files", default=FILES, help="the host on which it keeps files  [%(default)s]")
    given = options.parse_args()
    about = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    needs = locked((ROOT / "release" / "requirements" / "base.txt").read_text(encoding="utf-8"))
    resources = {name: source(name, *need, given.index, given.files) for name, need in needs.items()}
    digest = hashlib.sha256(given.sdist.read_bytes()).hexdigest()
    given.out.write_text(formula(given.url, digest, about, resources), encoding="utf-8")


if __name__ == "__main__":
    main()
