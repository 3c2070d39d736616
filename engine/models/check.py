"""Checks whether a target and its drafter can be used here, from their files or by running them. Downloads nothing.

Importing this module does not import MLX, and checking only files does not either.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from bridge.common import environment
from engine.checkpoints import files, hub
from engine.checkpoints.published import FOUR_BIT, four_bit_name
from engine.errors import BadInput, EngineError
from engine.models import registry
from engine.models.fit import check_fit, refuse_drafter

Answer = dict[str, Any]


@dataclass
class _CheckedModel:
    """A target or a drafter, and what is known about it so far."""

    id: str  # as requested
    reference: str | None = None  # a folder or a hub id
    folder: Path = Path()
    config: dict[str, Any] = field(default_factory=dict)
    about: Answer = field(default_factory=dict)  # facts from its files; empty if they cannot be read
    error: str | None = None
    fix: str | None = None

    @property
    def ok(self) -> bool:
        return self.error is None

    @contextmanager
    def tried(self, failing: str, fix: str) -> Iterator[None]:
        """Record any error in the block as this part's error."""
        try:
            yield
        except EngineError as error:
            self.error, self.fix = error.message, error.fix or None
        except Exception as error:  # noqa: BLE001 - any error that a damaged model causes in a library is the result
            reason = " ".join(str(error).split())
            self.error, self.fix = f"{self.id} {failing}: {type(error).__name__}: {reason}", fix

    def read(self) -> None:
        """Read the configuration, and check that the weights are complete."""
        self.folder = hub.folder_of(self.reference or self.id, download=False)
        self.config = files.read_config(self.folder)
        weights = files.weight_files(self.folder)
        self.about = {
            "folder": str(self.folder),
            "architecture": (self.config.get("architectures") or [self.config["model_type"]])[0],
            "layers": files.text_config(self.config).get("num_hidden_layers"),
            "weight_bytes": sum(path.stat().st_size for path in weights),
        }

    def answer(self) -> Answer:
        return {"id": self.id, "ok": self.ok, "error": self.error, "fix": self.fix, **self.about}


def check(name: str, draft: str | Literal[False] | None = None, *, only_files: bool = False) -> Answer:
    """Load a target, its tokenizer and its drafter, run one token through each model, and return the results.

    Nothing is downloaded: a hub id has to be in the hub's cache on this machine. Names are those that
    ``engine.models.load`` takes. With ``only_files``, only see that the files are there, whole and fit each
    other, without MLX.

    Returns:
        ``ok``; ``target`` and ``draft``; and ``error`` and ``fix`` of the first of these that is wrong. Both have
        ``id``, ``ok``, ``error`` and ``fix`` and, if the files can be read, ``folder``, ``architecture``, ``layers``
        and ``weight_bytes``. ``draft`` is None without a drafter, and errors are None if all is well. If the target
        is wrong, its drafter is still read and loaded, but not run.
    """
    environment.set_offline()
    target, drafter = _read(name, draft)
    if not only_files:
        _run(target, drafter)
    parts = [target, drafter] if drafter else [target]
    wrong = next((part for part in parts if not part.ok), None)
    return {
        "ok": wrong is None,
        "target": target.answer(),
        "draft": drafter.answer() if drafter else None,
        "error": wrong.error if wrong else None,
        "fix": wrong.fix if wrong else None,
    }


def _read(name: str, draft: str | Literal[False] | None) -> tuple[_CheckedModel, _CheckedModel | None]:
    """Find both models and look at their files."""
    target, drafter = _CheckedModel(name), None if draft is None or draft is False else _CheckedModel(draft)
    unreadable = ("cannot be read", files.AGAIN)
    with target.tried(*unreadable):
        source = registry.find(name, None if draft is None else False)
        target.reference = source.target
        for role, id_, reference in source.parts():
            if role == "draft":
                drafter = _CheckedModel(id_, reference)
        target.read()
        refuse_drafter(target.config)
        files.vocabulary_file(target.folder)
    if drafter:
        with drafter.tried(*unreadable):
            drafter.reference = drafter.reference or registry.drafter(drafter.id, target.reference or name)
            drafter.read()
            if target.ok:
                check_fit(drafter.config, target.config)
    return target, drafter


def _run(target: _CheckedModel, drafter: _CheckedModel | None) -> None:
    """Load both models, if their files are right, and run them."""
    fails, pair = ("does not run", "choose another model, or another version of mlx-lm"), None
    if target.ok:
        with target.tried(*fails):
            _check_memory([target])
            pair = _run_target(target)
    if drafter and drafter.ok:
        with drafter.tried(*fails):
            _check_memory([target, drafter] if target.ok else [drafter])
            _run_draft(drafter, pair)


def _check_memory(parts: list[_CheckedModel]) -> None:
    """Refuse weights that this machine's memory cannot hold: loading them would stall the machine."""
    from bridge.common import host
    from engine.models.target import chosen_dtype

    dtype = chosen_dtype(None)
    folders = {part.folder for part in parts}  # a head may stand in its target's files
    needed = sum(files.loaded_bytes(folder, dtype.size if dtype else None) for folder in folders)
    there = host.memory_bytes()
    if needed > there:
        smaller = four_bit_name(parts[0].id) if parts[0].id in FOUR_BIT else None
        whose = "target and drafter together" if len(parts) > 1 else parts[0].id
        raise BadInput(
            f"the weights of {whose} take {needed / 1e9:.1f} GB, and this machine has {there / 1e9:.1f} GB of memory",
            "choose a smaller or a quantized model" + (f", such as {smaller}" if smaller else ""),
        )


def _run_target(target: _CheckedModel) -> Any:
    """Load the target with its tokenizer, and run one token through it."""
    from engine.lm import cache as lm_cache
    from engine.models.pair import load
    from engine.mx import mx

    pair = load(target.id, False, download=False)
    logits = pair.target(mx.array([[1]]), cache=lm_cache.make_prompt_cache(pair.target))
    if not mx.isfinite(logits).all().item():
        raise BadInput(f"{target.id} computes numbers that are not finite", files.AGAIN)
    return pair


def _run_draft(drafter: _CheckedModel, pair: Any) -> None:
    """Load the drafter, and let it draft one token for its target, if that runs."""
    from engine.dflash import load_draft, stream_generate
    from engine.dflash.kinds import MTP
    from engine.models.target import chosen_dtype

    layers = len(pair.target.layers) if pair is not None else None
    within = pair is not None and drafter.folder == pair.parts["target"].folder
    draft = load_draft(drafter.folder, chosen_dtype(None), kind=MTP if within else None, layers=layers)
    if pair is not None:
        check_fit(drafter.config, pair.parts["target"].config, pair.tokenizer)
        options: dict[str, Any] = {"max_tokens": 2, "block_size": 2, "lookup": False, "adaptive": False}
        list(stream_generate(pair.target, draft, None, [1], stop_tokens=(), **options))
