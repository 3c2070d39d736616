"""Push what chance brings at a real runner and at real client commands: `python -m tests.fuzz.push [SECONDS] [SEED]`.

All the while somebody honest asks for a job now and then. It fails if a command or the runner ends with a bug, shows a
traceback or a character that steers a terminal, takes too much memory or time, writes outside its places, or leaves an
honest request without its answer.
"""

from __future__ import annotations

import os
import random
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import yaml

from bridge.errors import ExitCode
from tests.fuzz.hostile import Pusher

ROOT = Path(__file__).parents[2]
STEERS = re.compile(rb"[\x00-\x08\x0b-\x1f\x7f]|\xc2[\x80-\x9f]|\xe2\x80[\xa8-\xae]|\xe2\x81[\xa6-\xa9]")
RUNNER_MB, CLIENT_MB = 150, 200
HONEST_S, COMMAND_S = 60, 60
# Between two honest requests.
PAUSE_S = 4.0


class Failed(AssertionError):  # noqa: N818 - what was found
    """Something does not hold."""


@dataclass
class World:
    """A bus, a runner, somebody honest, and places that nobody may touch."""

    folder: Path
    seed: int
    signed: bool = False
    # The server has lost objects: then it may refuse honest pushes too.
    broken: bool = False
    waits: list[float] = field(default_factory=list)
    commands: Counter[str] = field(default_factory=Counter)
    codes: Counter[int] = field(default_factory=Counter)
    most_client_mb: float = 0.0
    most_runner_mb: float = 0.0

    def __post_init__(self) -> None:
        self.bus, self.clone, self.home = (self.folder / name for name in ("bus.git", "clone", "home"))
        self.home.mkdir()
        config = (
            "[user]\n\tname = A Tester\n\temail = tester@example.invalid\n[init]\n\tdefaultBranch = main\n"
        )
        (self.home / ".gitconfig").write_text(config)
        self.env = {"HOME": str(self.home), "PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8", "PYTHONPATH": str(ROOT),
                    "PYTHONPYCACHEPREFIX": str(self.folder / "compiled"), "PYTHONHASHSEED": "0"}  # fmt: skip
        self._git(self.folder, "init", "--quiet", "--bare", str(self.bus))
        self._git(self.bus, "config", "gc.auto", "0")
        self._git(self.folder, "init", "--quiet", str(self.clone))
        (self.clone / "readme.txt").write_text("a workload\n")
        self._git(self.clone, "add", "--all")
        self._git(self.clone, "commit", "--quiet", "-m", "A workload")
        self._git(self.clone, "remote", "add", "origin", str(self.bus))
        self._git(self.clone, "push", "--quiet", "origin", "main")
        presets = self.folder / "presets"
        presets.mkdir()
        for name, more in {
            "look": {"code": "request"},
            "data": {"code": "installed", "inputs": {"under": "results/research", "ending": ".json"}},
        }.items():
            body = {
                "name": name,
                "description": "x",
                "timeout_s": 20,
                "steps": [{"argv": ["/bin/true"]}],
                **more,
            }
            (presets / f"{name}.yaml").write_text(yaml.safe_dump(body))
        policy = {
            "schema_version": 1, "id": "fuzzed", "state": str(self.folder / "state"), "interpreter": sys.executable,
            "preset_folder": str(presets), "bus": {"url": str(self.bus)}, "trust": {"code_request": "allow"},
        }  # fmt: skip
        self.policy = self.folder / "runner.yaml"
        self.policy.write_text(yaml.safe_dump(policy))
        if self.signed:
            made = subprocess.run(self._runner("keygen"), env=self.env, capture_output=True, check=True)
            key = self.folder / "runner.pub"
            key.write_bytes(made.stdout)
            self._git(self.clone, "config", "kakeya.publicKey", str(key))
            policy["trust"] = {"code_request": "allow", "runners": [str(key)]}
            self.policy.write_text(yaml.safe_dump(policy))
        self.log = self.folder / "runner.log"
        with self.log.open("wb") as log:
            self.runner = subprocess.Popen(self._runner("serve"), env=self.env, stderr=log, cwd=self.folder)

    def _runner(self, *args: str) -> list[str]:
        return [sys.executable, "-P", "-m", "runner", "--policy", str(self.policy), *args]

    def _git(self, where: Path, *args: str) -> str:
        done = subprocess.run(
            ["git", *args], cwd=where, env=self.env, capture_output=True, text=True, check=True
        )
        return done.stdout

    def kakeya(self, *args: str) -> tuple[int, bytes]:
        """Run a command of the client's, look at how it ends, and return its code and all that it printed."""
        argv = [sys.executable, "-P", "-m", "bridge", "-C", str(self.clone), *args]
        began = time.monotonic()
        with tempfile.TemporaryFile() as out:
            child = subprocess.Popen(
                argv, env=self.env, stdin=subprocess.DEVNULL, stdout=out, stderr=out, cwd=self.clone
            )
            while (ended := os.wait4(child.pid, os.WNOHANG))[0] == 0:
                if time.monotonic() - began > COMMAND_S + HONEST_S:
                    child.kill()
                    child.wait()
                    raise Failed(f"kakeya {args} takes longer than {COMMAND_S + HONEST_S} s")
                time.sleep(0.02)
            child.returncode = code = os.waitstatus_to_exitcode(ended[1])
            out.seek(0)
            said = out.read()
        self.most_client_mb = max(self.most_client_mb, ended[2].ru_maxrss / 1024)
        self.commands[args[0]] += 1
        self.codes[code] += 1
        if code == 70 or code < 0 or b"Traceback" in said:
            raise Failed(f"kakeya {args} ended with {code}: {said[-3000:].decode(errors='replace')}")
        if steers := STEERS.search(said):
            raise Failed(f"kakeya {args} printed {steers[0]!r}: {said[-1000:]!r}")
        # `doctor` also asks the engine, which counts as its child and loads MLX.
        if args[0] != "doctor" and ended[2].ru_maxrss > CLIENT_MB * 1024:
            raise Failed(f"kakeya {args} took {ended[2].ru_maxrss // 1024} MB")
        return code, said

    def ask_honestly(self) -> None:
        """Ask for a job and wait for its answer."""
        began = time.monotonic()
        code, said = self.kakeya(
            "run", "noop", "--wait", f"{HONEST_S}s", "--requested-by", f"honest-{len(self.waits)}"
        )
        # Such a server also holds branches whose names no two of a sound one could have, and the client says so.
        if self.broken and (code == ExitCode.INFRASTRUCTURE or b"stands in the way" in said):
            return
        if code != 0:
            told = self.log.read_text(errors="replace")[-3000:]
            raise Failed(
                f"an honest request ended with {code}: {said.decode(errors='replace')[-2000:]}; runner: {told}"
            )
        self.waits.append(time.monotonic() - began)

    def look(self) -> None:
        """See that the runner lives, is small, and said nothing bad, and that nothing lies where nothing should."""
        said = self.log.read_bytes()
        if self.runner.poll() is not None:
            raise Failed(
                f"the runner ended with {self.runner.returncode}: {said[-3000:].decode(errors='replace')}"
            )
        if b"Traceback" in said or STEERS.search(said):
            raise Failed(f"the runner said {said[-3000:]!r}")
        status = Path(f"/proc/{self.runner.pid}/status")
        peak = re.search(r"VmHWM:\s*(\d+)", status.read_text())[1] if status.exists() else "0"  # type: ignore[index]
        here = max(int(peak) / 1024, psutil.Process(self.runner.pid).memory_info().rss / (1 << 20))
        self.most_runner_mb = max(self.most_runner_mb, here)
        if here > RUNNER_MB:
            raise Failed(f"the runner took {here:.0f} MB")
        expected = {
            "bus.git",
            "clone",
            "home",
            "presets",
            "state",
            "runner.yaml",
            "runner.log",
            "compiled",
            "runner.pub",
        }
        if odd := {path.name for path in self.folder.iterdir()} - expected:
            raise Failed(f"there is {odd} in the folder")
        if odd := {path.name for path in self.home.iterdir()} - {".gitconfig", ".config", ".cache", ".local"}:
            raise Failed(f"there is {odd} in the home")
        if odd := {path.name for path in self.clone.iterdir()} - {".git", "readme.txt", "kakeya-results"}:
            raise Failed(f"there is {odd} in the clone")
        if changed := self._git(self.clone, "status", "--porcelain"):
            raise Failed(f"the clone changed: {changed}")

    def material(self) -> dict[str, bytes]:
        """Return the files of the newest honest answer."""
        tips = self._git(
            self.bus,
            "for-each-ref",
            "--format=%(refname)",
            "--sort=-creatordate",
            "refs/heads/mac-bridge/noop-*",
        )
        files = {}
        for path in ("request.json", "state.json", "result.json"):
            done = subprocess.run(["git", "show", f"{tips.split()[0]}:.mac-bridge/{path}"], cwd=self.bus, env=self.env,
                                  capture_output=True, check=False)  # fmt: skip
            if done.returncode == 0:
                files[path] = done.stdout
        return files

    def close(self) -> None:
        """End the runner, which must still be able to end well."""
        self.runner.terminate()
        code = self.runner.wait(60)
        if code not in (0, 130, -15, 143):
            raise Failed(f"the runner ended with {code}: {self.log.read_text(errors='replace')[-3000:]}")


def attack(world: World, seconds: float, chance: random.Random) -> Pusher:
    """Push for so long, ask in between, and look at what became of it."""
    world.ask_honestly()
    pusher = Pusher(world.bus, chance, broken=world.broken)
    pusher.material.append(world.material())
    until, asked_at = time.monotonic() + seconds, time.monotonic()
    while time.monotonic() < until:
        for _ in range(chance.choice((3, 10, 30))):
            pusher.act()
        pusher.tidy()
        verb = chance.choice(
            ("status", "logs", "verify", "fetch", "wait", "cancel", "list", "list", "report", "gc", "doctor")
        )
        branch = chance.choice(pusher.branches)
        more = {
            "wait": ["--timeout", "1s"],
            "gc": ["--dry-run", "--remote-branches", "--older-than", "1s"],
        }.get(verb, [])
        target = [] if verb in ("list", "gc", "doctor") else [branch]
        as_json = (
            ["--json"] if verb not in ("fetch", "gc", "cancel", "report") and chance.random() < 0.3 else []
        )
        world.kakeya(verb, *target, *more, *as_json)
        world.look()
        if time.monotonic() - asked_at > PAUSE_S:
            world.ask_honestly()
            asked_at = time.monotonic()
    world.ask_honestly()
    world.look()
    return pusher


def main(seconds: float = 30.0, seed: int | None = None) -> int:
    """Fuzz for so long and say what was done."""
    seed = random.SystemRandom().getrandbits(32) if seed is None else seed
    chance = random.Random(seed)
    with tempfile.TemporaryDirectory(prefix="kakeya-push-", ignore_cleanup_errors=True) as folder:
        world = World(Path(folder), seed, signed=bool(seed % 2), broken=seed % 5 == 0)
        try:
            pusher = attack(world, seconds, chance)
            world.close()
        except Failed as failed:
            print(f"push: FAILED with seed {seed}: {failed}")
            return 1
        finally:
            world.runner.kill()
            world.runner.wait()
    waits = sorted(world.waits)
    print(f"push: held, seed {seed}: {sum(pusher.counts.values())} pushes {pusher.counts}, "
          f"{pusher.refused} not taken by the server, {sum(world.commands.values())} commands "
          f"(exit codes {dict(sorted(world.codes.items()))}), {len(waits)} honest requests answered"
          f"{', though the server is broken' if world.broken else ' of as many'}, in {waits[len(waits) // 2]:.1f} s "
          f"(at most {waits[-1]:.1f}), runner {world.most_runner_mb:.0f} MB, client {world.most_client_mb:.0f} MB",
          flush=True)  # fmt: skip
    return 0


if __name__ == "__main__":
    sys.exit(
        main(
            float(sys.argv[1]) if len(sys.argv) > 1 else 30.0, int(sys.argv[2]) if len(sys.argv) > 2 else None
        )
    )
