"""Decides from a model's configuration whether it can be split over a number of ranks, before anything is loaded.

mlx-lm builds the model's modules without their weights, and shards them for a group that is only a number. What
mlx-lm does not check is how heads are divided: it rounds the number down, and the model would answer nonsense.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.checkpoints import files
from engine.errors import BadInput

SPLITS = ("auto", "tensor", "pipeline")
_MOST_SUGGESTED = 16
_FIX_FILES = "convert the model with `mlx_lm.convert`, which writes it"


def choose(name: str, folder: Path, ranks: int, split: str = "auto") -> str:
    """Return how the model is split over ``ranks`` ranks: ``tensor`` or ``pipeline``.

    Raises:
        BadInput: it cannot be; the message says why, and which numbers of ranks would work.
    """
    config = files.read_config(folder)
    model = _Model(folder, config)
    ways = ("tensor", "pipeline") if split == "auto" else (split,)
    reasons = {way: model.reason_against(way, ranks) for way in ways}
    for way, reason in reasons.items():
        if reason is None:
            return way
    whys = "; ".join(f"{way}: {reason}" for way, reason in reasons.items())
    raise BadInput(
        f"{name} ({config['model_type']}) cannot be split over {ranks} ranks: {whys}", model.advice()
    )


@dataclass(frozen=True)
class _Number:
    """What mlx-lm asks of a group while it shards a model."""

    count: int

    def size(self) -> int:
        return self.count

    def rank(self) -> int:
        return 0


class _Model:
    def __init__(self, folder: Path, config: dict[str, Any]) -> None:
        self._folder, self._config = folder, config
        self._reasons: dict[tuple[str, int], str | None] = {}

    def reason_against(self, way: str, ranks: int) -> str | None:
        """Return why the model cannot be split so; None if it can."""
        if (way, ranks) not in self._reasons:
            check = self._tensor if way == "tensor" else self._pipeline
            self._reasons[way, ranks] = check(ranks)
        return self._reasons[way, ranks]

    def advice(self) -> str:
        """Return the numbers of ranks that would work."""
        parts = []
        for way in ("tensor", "pipeline"):
            numbers = [n for n in range(2, _MOST_SUGGESTED + 1) if self.reason_against(way, n) is None]
            if numbers:
                parts.append(f"{way}: {_ranges(numbers)}")
        if not parts:
            return "run it on one machine: no number of ranks up to 16 works"
        return f"numbers of ranks that work: {'; '.join(parts)}"

    def _tensor(self, ranks: int) -> str | None:
        model = self._built()
        if not hasattr(model, "shard"):
            return "mlx-lm does not shard this architecture"
        before = _heads(model)
        try:
            model.shard(_Number(ranks))
        except (ValueError, AssertionError, ZeroDivisionError) as error:
            undivided = {_last(name): count for name, count in before.items() if count % ranks}
            return _undivided(undivided, ranks) or _first_line(error) or f"a size is not divisible by {ranks}"
        after = _heads(model)
        wrong = {
            _last(name): count
            for name, count in before.items()
            if after.get(name) != count and not _fits(count, after.get(name), ranks)
        }
        return _undivided(wrong, ranks)

    def _pipeline(self, ranks: int) -> str | None:
        model = self._built()
        inner: Any = getattr(model, "model", None)
        if not hasattr(inner, "pipeline"):
            return "mlx-lm has no pipeline for this architecture"
        layers = len(inner.layers)
        if layers < ranks:
            return f"the model has {layers} layers"
        if not (self._folder / files.INDEX).is_file():
            return f"the file {files.INDEX} is missing ({_FIX_FILES})"
        try:
            inner.pipeline(_Number(ranks))
        except (ValueError, AssertionError) as error:
            return _first_line(error)
        return None

    def _built(self) -> Any:
        """Return the model without weights; MLX computes none of its arrays."""
        from engine.lm import utils
        from engine.mx import nn

        try:
            kind, arguments = utils._get_classes(self._config)  # noqa: SLF001 - what mlx-lm's own loading calls
            model = kind(arguments.from_dict(self._config))
        except Exception as error:
            text = f"mlx-lm cannot build {self._config['model_type']!r}: {_first_line(error)}"
            raise BadInput(text, "another mlx-lm version may, or a converted model") from error
        quantization = self._config.get("quantization")
        if isinstance(quantization, dict) and isinstance(size := quantization.get("group_size"), int):
            bits = quantization.get("bits", 4)

            def fits(_: str, module: Any) -> bool:
                return hasattr(module, "to_quantized") and module.weight.shape[-1] % size == 0

            nn.quantize(model, size, bits, class_predicate=fits)
        return model


def _heads(model: Any) -> dict[str, int]:
    return {
        f"{path}.{name}": value
        for path, module in model.named_modules()
        for name, value in vars(module).items()
        if "head" in name and "dim" not in name and isinstance(value, int) and not isinstance(value, bool)
    }


def _last(path: str) -> str:
    return path.rpartition(".")[2]


def _undivided(sizes: dict[str, int], ranks: int) -> str | None:
    return (
        " and ".join(f"{ranks} ranks do not divide {name} = {size}" for name, size in sizes.items()) or None
    )


def _fits(before: int, after: int | None, ranks: int) -> bool:
    """Return whether each rank gets the same whole heads, or one that some ranks share."""
    if after is None:
        return True
    return (before % ranks == 0 and after * ranks == before) or (after == 1 and ranks % before == 0)


def _first_line(error: Exception) -> str:
    return " ".join(str(error).split())[:200].rstrip(".")


def _ranges(numbers: list[int]) -> str:
    """Return ``2 to 7, 9``."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ", ".join(f"{run[0]} to {run[-1]}" if len(run) > 2 else ", ".join(map(str, run)) for run in runs)  # noqa: PLR2004
