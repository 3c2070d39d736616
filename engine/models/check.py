"""Does a model load and run on this machine? Answered by loading it and running one token, never by downloading."""

from math import prod
from pathlib import Path
from typing import Any, Literal

from engine.errors import BadInput, EngineError
from engine.models import files, hub, registry

Answer = dict[str, Any]


def check(name: str, draft: str | Literal[False] | None = None) -> Answer:
    """Load a target, its tokenizer and its drafter, run one token through each, and say how that went.

    Nothing is downloaded: a hub id has to be in the hub's cache on this machine.

    Args:
        name: as :func:`engine.models.load` takes it.
        draft: likewise; None takes the drafter that belongs to the name, if any, False takes none.

    Returns:
        ``ok``; ``target`` and ``draft``, which describe what was loaded (``draft`` is None without a drafter,
        and each has only its ``id`` if the check failed); ``error`` and ``fix``, None if all is well.
    """
    asked = {"id": draft} if draft else None
    failed = {"ok": False, "target": {"id": name}, "draft": asked}
    try:
        target, drafter = _loaded(name, draft)
    except EngineError as error:
        return {**failed, "error": error.message, "fix": error.remedy or None}
    except Exception as error:  # noqa: BLE001 - whatever stops this model from running is the answer
        reason = " ".join(str(error).split())
        return {
            **failed,
            "error": f"{name} loads but does not run: {type(error).__name__}: {reason}",
            "fix": "choose another model, or another version of mlx-lm",
        }
    return {"ok": True, "target": target, "draft": drafter, "error": None, "fix": None}


def _loaded(name: str, draft: str | Literal[False] | None) -> tuple[Answer, Answer | None]:
    from engine.models.pair import load

    source = registry.find(name, draft)
    folders = [hub.folder_of(reference, download=False) for _, _, reference in source.parts()]
    _check_memory(folders)
    pair = load(name, draft, download=False)
    _run(pair)
    about = [
        {
            "id": part.id,
            "folder": str(part.folder),
            "architecture": (part.config.get("architectures") or [part.config["model_type"]])[0],
            "layers": files.text_config(part.config).get("num_hidden_layers"),
            "weight_bytes": sum(path.stat().st_size for path in files.weight_files(part.folder)),
        }
        for part in pair.parts.values()
    ]
    return about[0], about[1] if len(about) > 1 else None


def _check_memory(folders: list[Path]) -> None:
    """Refuse weights that this machine's memory cannot hold: loading them would stall the machine."""
    from engine import host
    from engine.models.target import chosen_dtype

    dtype = chosen_dtype(None)
    needed = sum(
        prod(entry["shape"]) * dtype.size
        if dtype is not None and entry["dtype"] in files.FLOATS
        else entry["data_offsets"][1] - entry["data_offsets"][0]
        for folder in folders
        for path in files.weight_files(folder)
        for entry in files.read_header(path).values()
    )
    there = host.memory_bytes()
    if needed > there:
        raise BadInput(
            f"the weights take {needed / 1e9:.1f} GB, and this machine has {there / 1e9:.1f} GB of memory",
            "choose a smaller or a quantized model",
        )


def _run(pair: Any) -> None:
    """Run one token through the target, and a draft of one token through the drafter."""
    from engine.dflash import stream_generate
    from engine.lm import cache as lm_cache
    from engine.mx import mx

    token = 1
    logits = pair.target(mx.array([[token]]), cache=lm_cache.make_prompt_cache(pair.target))
    if not mx.isfinite(logits).all().item():
        raise BadInput(f"{pair.name} computes numbers that are not finite", files.AGAIN)
    if pair.draft is not None:
        options = {"max_tokens": 2, "block_size": 2, "lookup": False, "adaptive": False}
        list(stream_generate(pair.target, pair.draft, None, [token], stop_tokens=(), **options))
