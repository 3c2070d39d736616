"""Reads an MTP head's tensors: from the target's files, where mlx-lm drops them, or from a folder of its own."""

from pathlib import Path
from typing import Any

from engine.checkpoints import files, tensors
from engine.dflash.heads.mtp import FIX, SPLIT, Mtp, MtpConfig
from engine.dflash.heads.weights import check, headers_of
from engine.errors import BadInput
from engine.mx import load, mx, nn

# Beginnings of the tensors' names in a target's checkpoint; in a folder of the head's own there may be none.
PREFIXES = (
    "mtp.",
    "model.mtp.",
    "language_model.mtp.",
    "model.language_model.mtp.",
    "language_model.model.mtp.",
)
SIDECAR = "mtp.safetensors"
EXPERTS = "layers.0.mlp.experts."
PROJECTIONS = ("gate_proj", "up_proj", "down_proj")


def load_mtp(folder: Path, data: dict[str, Any], dtype: mx.Dtype | None, layers: int | None) -> Mtp:  # noqa: ARG001
    """Load the MTP head of a target, or one that was split off; see ``engine.dflash.drafter.load.load_draft``."""
    try:
        config = MtpConfig.from_json(data)
    except BadInput as error:
        raise BadInput(f"{folder / tensors.CONFIG}: {error.message}", error.fix) from error
    own = str(data["model_type"]).endswith(SPLIT)
    paths = files.weight_files(folder)
    paths += [path for path in [folder / SIDECAR] if path.is_file()]
    all_headers = headers_of(paths)
    names = _names(all_headers, own=own)
    if not names:
        raise BadInput(
            f"{folder} holds no MTP head: conversions leave out its tensors, even if config.json declares them",
            FIX,
        )
    raw = _is_raw(paths, set(names), all_headers, own=own and not any(map(_prefix, names)))
    stored = {names[name]: x for path in paths for name, x in load(path).items() if name in names}
    weights = _joined(stored)
    head = Mtp(config)
    _quantize(head, data, set(weights))
    shapes = {name: {"shape": list(x.shape), "dtype": _kind(x)} for name, x in weights.items()}
    check(head, folder, shapes)
    norms = {name for name, x in weights.items() if x.ndim == 1 and name.endswith("norm.weight")}
    norms |= {name for name in weights if name.startswith("pre_fc_norm_")}
    head.load_weights(
        [
            (name, _cast((x.astype(mx.float32) + 1).astype(x.dtype) if raw and name in norms else x, dtype))
            for name, x in weights.items()
        ]
    )
    mx.eval(head.parameters())
    head.eval()
    return head


def _prefix(name: str) -> str:
    return next((prefix for prefix in PREFIXES if name.startswith(prefix)), "")


def _names(headers: dict[str, dict[str, Any]], *, own: bool) -> dict[str, str]:
    """Return the head's name of each of its tensors, by the name in the files."""
    names = {name: name.removeprefix(prefix) for name in headers if (prefix := _prefix(name))}
    return names or ({name: name for name in headers} if own else {})


def _is_raw(paths: list[Path], names: set[str], headers: dict[str, dict[str, Any]], *, own: bool) -> bool:
    """Return whether norms are stored less one, as Qwen publishes them. Conversions for MLX have added the one.

    Raises:
        BadInput: the files contradict each other.
    """
    if own:  # only a conversion drops the names' beginning
        return False
    kinds = {files.format_of(path) == "mlx" for path in paths if names & files.read_header(path).keys()}
    convolutions = {
        entry["shape"][-1] != 1 for name, entry in headers.items() if name.endswith("conv1d.weight")
    }
    answers = {not kind for kind in kinds} | convolutions
    if len(answers) != 1:
        raise BadInput(
            "whether the MTP head's norms are stored less one cannot be told: some of the checkpoint's files were "
            "converted for MLX and others were not",
            FIX,
        )
    return answers.pop()


def _joined(stored: dict[str, mx.array]) -> dict[str, mx.array]:
    """Return the weights with experts in mlx-lm's layout: one array for all."""
    weights = {name: x for name, x in stored.items() if not name.startswith(EXPERTS)}
    experts = {name.removeprefix(EXPERTS): x for name, x in stored.items() if name.startswith(EXPERTS)}
    inside = "layers.0.mlp.switch_mlp."
    if "gate_up_proj" in experts:
        gate_up = experts.pop("gate_up_proj")
        half = gate_up.shape[-2] // 2
        weights[f"{inside}gate_proj.weight"] = gate_up[..., :half, :]
        weights[f"{inside}up_proj.weight"] = gate_up[..., half:, :]
        if "down_proj" in experts:
            weights[f"{inside}down_proj.weight"] = experts.pop("down_proj")
    for part in PROJECTIONS:
        experts_of_part: list[mx.array] = []
        while (name := f"{len(experts_of_part)}.{part}.weight") in experts:
            experts_of_part.append(experts.pop(name))
        if experts_of_part:
            weights[f"{inside}{part}.weight"] = mx.stack(experts_of_part)
    return {**weights, **{EXPERTS + name: x for name, x in experts.items()}}


def _quantize(head: Mtp, data: dict[str, Any], names: set[str]) -> None:
    """Quantize the modules that the files have quantized, as the configuration says."""
    if not any(name.endswith(".scales") for name in names):
        return
    how_quantized = data.get("mtplx_mtp_quantization") or data.get("quantization")
    if not isinstance(how_quantized, dict) or not all(
        type(how_quantized.get(key)) is int for key in ("group_size", "bits")
    ):
        raise BadInput("the MTP head is quantized, and config.json does not say how", FIX)
    default = {key: how_quantized[key] for key in ("group_size", "bits", "mode") if key in how_quantized}

    def how(path: str, module: nn.Module) -> bool | dict[str, Any]:
        if not hasattr(module, "to_quantized") or f"{path}.scales" not in names:
            return False
        special: dict[str, Any] = next(
            (
                how_quantized[each + path]
                for each in (*PREFIXES, "")
                if isinstance(how_quantized.get(each + path), dict)
            ),
            {},
        )
        return {**default, **special}

    nn.quantize(head, class_predicate=how)


def _kind(x: mx.array) -> str:
    kinds = {mx.float32: "F32", mx.float16: "F16", mx.bfloat16: "BF16", mx.uint32: "U32"}
    return next((name for dtype, name in kinds.items() if x.dtype == dtype), str(x.dtype))


def _cast(x: mx.array, dtype: mx.Dtype | None) -> mx.array:
    return x.astype(dtype) if dtype is not None and mx.issubdtype(x.dtype, mx.floating) else x
