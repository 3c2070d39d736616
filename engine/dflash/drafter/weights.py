"""Drafters on disk, as ``config.json`` and safetensors: reads them strictly, and writes files that others can read."""

from pathlib import Path
from typing import Any

from engine.checkpoints import tensors
from engine.dflash.config import NATIVE, DraftConfig
from engine.dflash.drafter.model import DFlashDrafter
from engine.errors import BadInput
from engine.mx import DTYPES, mx, tree

# Copies of the target's tensors in DeepSpec's checkpoints. This engine uses the target's own tensors instead.
COPIES = ("embed_tokens.weight", "lm_head.weight")


def load_dflash(
    folder: Path,
    data: dict[str, Any],
    dtype: mx.Dtype | None,
    layers: int | None = None,  # noqa: ARG001 - the file says it
) -> DFlashDrafter:
    """Load a DFlash drafter whose configuration is ``data``; see ``engine.dflash.drafter.load.load_draft``."""
    drafter = DFlashDrafter(DraftConfig.from_json(data, str(folder / tensors.CONFIG)))
    tensors.load_into(drafter, folder, dtype, unused=COPIES if data.get("architectures") == [NATIVE] else ())
    drafter.fused()
    drafter.eval()
    return drafter


def save_draft(drafter: DFlashDrafter, folder: str | Path, dtype: str = "bfloat16") -> None:
    """Write ``config.json`` and ``model.safetensors``; each is replaced whole or not at all.

    Raises:
        BadInput: there is no such dtype, weights are not plain matrices, or the folder cannot be written to.
    """
    if dtype not in DTYPES:
        raise BadInput(f"no dtype {dtype!r}", ", ".join(DTYPES))
    weights = dict(tree.tree_flatten(drafter.parameters()))
    expected = {name: x.shape for name, x in tree.tree_flatten(DFlashDrafter(drafter.config).parameters())}
    if {name: x.shape for name, x in weights.items()} != expected:
        raise BadInput("the drafter's weights are not those of its configuration", "save it unquantized")
    weights = {name: x.astype(DTYPES[dtype]) for name, x in weights.items()}
    tensors.save(Path(folder), {**drafter.config.to_json(), "dtype": dtype}, weights)
