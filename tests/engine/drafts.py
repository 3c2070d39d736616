"""Small random drafters for the models of models.py, and what the reference package makes of them."""

import itertools
import json

import numpy as np
import pytest

from engine.dflash.config import DraftConfig
from engine.dflash.drafter.model import DFlashDrafter
from engine.dflash.drafter.weights import save_draft
from engine.dflash.propose.lookup import Lookup
from engine.mx import mx, tree

BASE = {
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "intermediate_size": 96,
    "vocab_size": 128,
    "rms_norm_eps": 1e-6,
    "max_position_embeddings": 4096,
    "num_target_layers": 4,
    "target_layer_ids": (0, 2),
    "mask_token_id": 3,
    "block_size": 8,
}
SLIDING = {"layer_types": ("sliding_attention",) * 2, "sliding_window": 16}
MIXED = {"layer_types": ("sliding_attention", "full_attention"), "sliding_window": 16}
DFLASH2 = {
    "architecture": "DFlash2DraftModel",
    "conv_kernel_size": 3,
    "conv_group_size": 16,
    "selector_rank": 8,
    "selector_top_k": 5,
}

DSPARK = {
    "architecture": "DSparkDraftModel",
    "markov_rank": 16,
    "enable_confidence_head": True,
    "confidence_head_with_markov": True,
    "sample_from_anchor": True,
}


def config(**changes):
    return DraftConfig(**{**BASE, **changes})


def drafter(seed=0, **changes):
    """Random weights of a size that makes every part matter; norms differ from one."""
    made = DFlashDrafter(config(**changes))
    rng = np.random.default_rng(seed)

    def fill(path, leaf):
        values = rng.standard_normal(leaf.shape).astype(np.float32)
        if "codebook" in path or "markov_w1" in path:
            return mx.array(values)
        return mx.array(1 + values / 4 if leaf.ndim == 1 else values / np.sqrt(leaf.shape[-1]))

    made.update(tree.tree_map_with_path(fill, made.parameters()))
    return made.eval()


def taps(n, seed=0, made_for=BASE):
    width = len(made_for["target_layer_ids"]) * made_for["hidden_size"]
    return mx.array(np.random.default_rng(seed).standard_normal((1, n, width)).astype(np.float32))


def package():
    """The reference package's MLX module, or the test is skipped."""
    return pytest.importorskip("dflash.model_mlx", exc_type=ImportError)


def in_package(made, folder, monkeypatch):
    """Load a drafter of ours with the package, through a folder that we write."""
    reference = package()
    save_draft(made, folder, "float32")
    monkeypatch.setattr(reference, "snapshot_download", lambda name, **_: name)
    return reference.load_draft(str(folder))


def write(folder, changes=None, without=(), **kinds):
    """Write a drafter's folder and change its configuration; return the folder."""
    save_draft(drafter(**kinds), folder, "float32")
    file = folder / "config.json"
    data = {**json.loads(file.read_text()), **(changes or {})}
    file.write_text(json.dumps({key: value for key, value in data.items() if key not in without}))
    return folder


class Foretelling(Lookup):
    """A drafter that is told the answer: its drafts are right up to a place that changes."""

    def __init__(self, answer, prompt):
        super().__init__()
        self.answer, self.prompt, self.turn = answer, len(prompt), itertools.count()
        self.length = 3

    def feed(self, tokens):
        self.tokens += tokens
        return []

    def propose(self, n):
        at = len(self.tokens) - self.prompt
        right = next(self.turn) % (n + 1)
        drafts = [*self.answer[at : at + n], *[0] * n][:n]
        return [x if i < right else (x + 1) % BASE["vocab_size"] for i, x in enumerate(drafts)]
