"""Heads on disk: the checks of names, shapes and types that all kinds share, and EAGLE-3's files."""

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from engine.checkpoints import files, tensors
from engine.dflash.heads import eagle3_config
from engine.dflash.heads.eagle3 import Eagle3
from engine.errors import BadInput
from engine.mx import DTYPES, integers, load, mx, nn, tree

MAPS = ("d2t", "t2d")
WHOLE = ("I64", "I32")


def load_eagle3(folder: Path, data: dict[str, Any], dtype: mx.Dtype | None, layers: int | None) -> Eagle3:
    """Load an EAGLE-3 head whose configuration is ``data``; see ``engine.dflash.drafter.load.load_draft``."""
    headers = headers_of(files.weight_files(folder))
    names = {renamed(name): name for name in headers}
    try:
        config = eagle3_config.read(data, set(names), layers)
    except BadInput as error:
        raise BadInput(f"{folder / tensors.CONFIG}: {error.message}", error.fix) from error
    head = Eagle3(config)
    if "lm_head.weight" not in names:
        raise BadInput(
            f"the weights in {folder} lack lm_head.weight: without it a head's drafts are random",
            "take a checkpoint with lm_head",
        )
    check(head, folder, {new: headers[old] for new, old in names.items()}, unused=MAPS)
    stored = _arrays(folder, {old: new for new, old in names.items()})
    head.use_ids(_ids(config, stored, headers))
    head.load_weights([(name, x.astype(dtype or x.dtype)) for name, x in stored.items() if name not in MAPS])
    mx.eval(head.parameters())
    head.eval()
    return head


def save_eagle3(head: Eagle3, folder: str | Path, dtype: str = "bfloat16") -> None:
    """Write ``config.json`` and ``model.safetensors``, in SpecForge's form; BadInput as of ``save_draft``."""
    if dtype not in DTYPES:
        raise BadInput(f"no dtype {dtype!r}", ", ".join(DTYPES))
    weights = {
        name.replace("layers.0.", "midlayer."): x.astype(DTYPES[dtype])
        for name, x in tree.tree_flatten(head.parameters())
    }
    if head.ids is not None:
        known = set(head.ids)
        weights["d2t"] = mx.array([target - own for own, target in enumerate(head.ids)], mx.int64)
        weights["t2d"] = mx.array([token in known for token in range(head.config.vocab_size)])
    tensors.save(Path(folder), {**head.config.to_json(), "dtype": dtype}, weights)


def renamed(name: str) -> str:
    """Return speculators' name of a tensor."""
    return f"layers.0.{name.removeprefix('midlayer.')}" if name.startswith("midlayer.") else name


def headers_of(paths: list[Path]) -> dict[str, dict[str, Any]]:
    """Return the tensors of some files, by name; BadInput if a name occurs twice."""
    entries: dict[str, dict[str, Any]] = {}
    for path in paths:
        for name, entry in files.read_header(path).items():
            if name in entries:
                raise BadInput(f"{name} is in {path.name} and in another file", tensors.MISFIT)
            entries[name] = entry
    return entries


def check(
    module: nn.Module, folder: Path, headers: Mapping[str, dict[str, Any]], unused: Collection[str] = ()
) -> None:
    """Check that a folder holds the tensors of a module, in the same shapes, and nothing else.

    Raises:
        BadInput: a tensor is missing, superfluous, of another shape or type.
    """
    expected = dict(tree.tree_flatten(module.parameters()))
    if missing := sorted(expected.keys() - headers.keys()):
        raise BadInput(f"the weights in {folder} lack {_some(missing)}", tensors.MISFIT)
    if extra := sorted(headers.keys() - expected.keys() - set(unused)):
        raise BadInput(
            f"the weights in {folder} hold {_some(extra)}, which is not known here", tensors.MISFIT
        )
    for name, x in expected.items():
        shape, kind = headers[name]["shape"], headers[name]["dtype"]
        if list(x.shape) != shape:
            raise BadInput(
                f"{folder}: {name} is {shape}, {tensors.CONFIG} says {list(x.shape)}", tensors.MISFIT
            )
        if (kind == "U32") != (x.dtype == mx.uint32) or kind not in (*tensors.KINDS, "U32"):
            raise BadInput(
                f"{folder}: {name} is {kind}, not one of {', '.join(tensors.KINDS)}", tensors.MISFIT
            )


def _arrays(folder: Path, names: Mapping[str, str]) -> dict[str, mx.array]:
    return {names[name]: x for path in files.weight_files(folder) for name, x in load(path).items()}


def _ids(
    config: eagle3_config.Eagle3Config, stored: dict[str, mx.array], headers: dict[str, dict[str, Any]]
) -> list[int] | None:
    """Return the target's ids of the head's tokens, from offsets; BadInput if they cannot be the target's ids."""
    if "d2t" not in stored:
        if config.draft_vocab_size == config.vocab_size:
            return None
        raise BadInput(
            f"the head has {config.draft_vocab_size} of {config.vocab_size} tokens, and no d2t says which",
            "take a checkpoint with d2t",
        )
    if headers["d2t"]["dtype"] not in WHOLE or headers["d2t"]["shape"] != [config.draft_vocab_size]:
        entry = headers["d2t"]
        raise BadInput(
            f"d2t is {entry['dtype']} {entry['shape']}, not [{config.draft_vocab_size}] whole numbers",
            tensors.MISFIT,
        )
    ids = [own + offset for own, offset in enumerate(integers(stored["d2t"]))]
    if len(set(ids)) < len(ids) or min(ids) < 0 or max(ids) >= config.vocab_size:
        raise BadInput(
            f"d2t does not lead to {len(ids)} different tokens of {config.vocab_size}: it holds differences of ids",
            "take the d2t that was written with these weights",
        )
    if "t2d" in stored:
        marked = stored["t2d"]
        if marked.shape != (config.vocab_size,) or _marked(marked) != sorted(ids):
            raise BadInput("t2d and d2t name different tokens", "take both from the same checkpoint")
    return ids


def _marked(flags: mx.array) -> list[int]:
    return [i for i, flag in enumerate(integers(flags.astype(mx.int32))) if flag]


def _some(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"
