"""Starts the process in which torch computes, and asks it."""

import json
import sys
from typing import Any

from bridge.common import install
from bridge.common.process import Companion
from engine.errors import BadInput, EngineError, MissingPackage

MODULE = "engine.evals.backends"
LIMIT_S = 3600.0  # for one answer


class TorchProcess:
    """The process, with a loaded model.

    Args:
        preload: whether torch multiplies with the OpenBLAS that MLX uses, instead of its own.
        settings: the arguments of ``engine.evals.backends.torch_side.TorchSide``.

    Raises:
        MissingPackage: torch or transformers cannot be imported.
        BadInput: torch cannot load the model.
    """

    def __init__(self, *, preload: bool, **settings: Any) -> None:
        argv = (sys.executable, "-P", "-m", MODULE, *(["--preload"] if preload else []))
        self._program = Companion(*argv)
        facts = self._line("load", settings)
        if facts is None:
            self.close()
            raise MissingPackage("torch did not start: its reason stands above", install.torch())
        self.about: dict[str, Any] = facts["about"]
        self.left_out: dict[str, str] = facts["left_out"]

    def ask(self, name: str, **arguments: Any) -> dict[str, Any]:
        """Return the answer of a method of ``TorchSide``."""
        answer = self._line(name, arguments)
        if answer is None:
            raise EngineError("the process of torch ended, or gave no answer within an hour", "measure less")
        return answer

    def close(self) -> None:
        """End the process."""
        self._program.close()

    def _line(self, name: str, arguments: dict[str, Any]) -> dict[str, Any] | None:
        line = self._program.ask(json.dumps([name, arguments]), LIMIT_S)
        answer: dict[str, Any] | None = json.loads(line) if line else None
        if answer and "error" in answer:
            self.close()
            raise BadInput(answer["error"], answer["fix"])
        return answer
