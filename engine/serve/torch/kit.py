"""The engine over torch, with the thread's interface; and the backend."""

from collections.abc import Callable
from typing import Any, cast

import torch

from engine.dflash.propose.lookup import BLOCK
from engine.errors import BadInput, EngineError
from engine.serve.backend import DRAFTS, Job, Memory, Options
from engine.serve.metrics import Metrics
from engine.serve.settings import Settings
from engine.serve.torch.answer import TorchAnswer
from engine.serve.torch.device import blas_name, device_of, dtype_of, name_of
from engine.serve.torch.model import TorchModel, expected_bytes, load_model
from engine.serve.turns.kit import Answer, LoadedModel
from engine.serve.turns.thread import TurnsThread
from engine.torch.codecs import rows_of, sides_of

WIDTHS = 24  # about how many hidden states a row of a forward pass keeps alive: a bound, not a measurement
# The features of the backend over MLX that this backend lacks.
LACKS = ("DFlash drafts", "drafts from earlier answers", "shared forward passes", "prefix cache")


class TorchKit:
    """Models of transformers, which answer token by token."""

    name = "torch"

    def __init__(self, settings: Settings, metrics: Metrics) -> None:
        self._settings, self._metrics = settings, metrics
        _refuse(settings)
        self.device = device_of(settings.device)
        self.dtype = dtype_of(settings.dtype, self.device)

    def prepare(self) -> None:
        """Do nothing: torch needs no preparation."""

    def load(self, name: str) -> LoadedModel:
        """Load a model."""
        return load_model(name, self.device, self.dtype)

    def expected(self, name: str) -> int:
        """Return the bytes that a model's weights will take."""
        return expected_bytes(name, self.dtype)

    def runs(self, model: LoadedModel) -> bool:
        """Return whether a model can still run a token."""
        return bool(cast("TorchModel", model).forward([0]).isfinite().all())

    def unloaded(self, name: str) -> None:  # noqa: ARG002 - nothing is kept by name
        """Free the device's unused memory."""
        if self.device.type == "cuda":
            torch.cuda.empty_cache()
        elif self.device.type == "mps":
            torch.mps.empty_cache()

    def predicted(self, model: LoadedModel, options: Options, prompt: int) -> int:
        """Return the maximum memory in bytes of an answer: its cache, one decoded layer, and a chunk's states."""
        loaded, tokens = cast("TorchModel", model), prompt + options.max_tokens
        text = loaded.net.config.get_text_config(decoder=True)
        decoded = loaded.token_bytes("raw", 0) // max(1, loaded.layers)
        chunk = self._settings.prefill_chunk if loaded.chunked else prompt
        states = chunk * 4 * WIDTHS * int(text.hidden_size) + 4 * BLOCK * loaded.vocabulary
        return tokens * (loaded.token_bytes(options.cache, options.boundary) + decoded) + states

    def begin(self, job: Job, model: LoadedModel) -> Answer:
        """Begin an answer."""
        return TorchAnswer(job, cast("TorchModel", model), self._settings.prefill_chunk)

    def room(self, nbytes: int) -> None:
        """Do nothing: nothing is kept beside weights and answers."""

    def count(self, answer: Answer) -> None:
        """Record a complete answer in the metrics."""
        self._metrics.count(answer)

    def memory(self) -> Memory:
        """Return the memory that torch holds on a GPU."""
        if self.device.type != "cuda":
            return Memory()
        active, peak = torch.cuda.memory_allocated(), torch.cuda.max_memory_allocated()
        return Memory(device={"torch_active_bytes": active, "torch_peak_bytes": peak})

    def stats(self) -> dict[str, Any]:
        """Return where and in which type torch computes, and with which BLAS."""
        dtype = "stored" if self.dtype is None else name_of(self.dtype)
        blas = {"blas": blas_name()} if self.device.type == "cpu" else {}
        return {"device": self.device.type, "dtype": dtype, "torch": torch.__version__, **blas}

    def end(self) -> None:
        """Do nothing: nothing is left to be written."""


def _refuse(settings: Settings) -> None:
    """Raise BadInput for what was asked for once and could never be had; a request's wish leads to a fallback."""
    fix = "leave the option out, or take --backend mlx"
    if settings.draft not in DRAFTS:
        raise BadInput(f"--draft {settings.draft}: the backend torch loads no drafters", fix)
    if settings.prefix_store is not None:
        raise BadInput("--prefix-store: the backend torch keeps no prefixes", fix)


class TorchThread(TurnsThread):
    """The ``engine.serve.backend.Backend`` over torch. Any thread may call the public methods."""

    lacks = LACKS

    def takes(self, spec: str) -> bool:
        """Return whether torch has the codes of a spec."""
        try:
            sides_of(spec)
        except EngineError:
            return False
        return True

    def code_bytes(self, spec: str, dim: int) -> int | None:
        """Return the bytes of the code of a vector of ``dim`` values."""
        rows = rows_of(sides_of(spec)[0], dim)
        return rows.row_bytes if rows is not None else None

    def __init__(self, settings: Settings, metrics: Metrics, wake: Callable[[], None] = lambda: None) -> None:
        super().__init__(TorchKit(settings, metrics), settings, metrics, wake)
