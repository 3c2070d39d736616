"""A target with its drafter and tokenizer, loaded and identified."""

import copy
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from engine.checkpoints import digests, files, hub
from engine.checkpoints.published import PAIRS
from engine.dflash import load_draft
from engine.dflash.kinds import DFLASH, MTP
from engine.dflash.target.embeddings import TargetEmbeddings, embed_scale_of, factor_of
from engine.errors import BadInput
from engine.lm import utils as lm_utils
from engine.models import registry
from engine.models.fit import check_fit
from engine.models.target import chosen_dtype, load_target, load_tokenizer, rebuild
from engine.mx import dtype_name, mx, nn, tree
from engine.restore import drafted, learned, weights
from engine.tokens import Tokenizer


@dataclass(frozen=True)
class ModelSource:
    """The source of one model of a pair."""

    id: str  # its name: a bundled pair, a folder or a hub id
    folder: Path
    config: dict[str, Any] = field(repr=False)


@dataclass(frozen=True)
class Pair:
    """The result of ``load``. Unpacks into target, draft and tokenizer."""

    target: nn.Module = field(repr=False)  # mlx-lm's model, evaluated
    draft: Any = field(repr=False)  # the drafter, or None
    tokenizer: Tokenizer = field(repr=False)  # mlx-lm's `TokenizerWrapper`
    name: str  # the requested name
    parts: dict[str, ModelSource]  # `target`; `draft` with a drafter, `reconstruction` with a restorer
    restorer: Any = field(default=None, repr=False)  # of evicted keys and values, if it was asked for

    def __iter__(self) -> Iterator[Any]:
        return iter((self.target, self.draft, self.tokenizer))

    @property
    def chats(self) -> bool:
        """Whether prompts are chat turns: the model has a chat template, and is not one of the tiny pairs.

        The tiny pairs were trained to continue text, and know turns only from questions for needles.
        """
        tiny = self.parts["target"].folder.parent.name in PAIRS
        return bool(self.tokenizer.has_chat_template) and not tiny

    def with_embed_scale(self, scale: float | str | None) -> "Pair":
        """Return the pair with this factor of the embeddings in its drafter's configuration.

        ``target`` is the target's own, None what the checkpoint says; ``both`` is None, see ``rescaled``.
        """
        if self.draft is not None and self.draft.kind == DFLASH:
            if isinstance(scale, str):
                scale = factor_of(self.target) if scale == "target" else None
            scale = self._embed_scale() if scale is None else scale
            self.draft.config = replace(self.draft.config, embed_scale=scale)
        return self

    def rescaled(self) -> "Pair | None":
        """Return the pair with the drafter's other factor: the target's if it reads plain rows, otherwise 1.

        Returns None if there is no DFlash drafter or both factors are the same. This pair does not change.
        """
        if self.draft is None or self.draft.kind != DFLASH:
            return None
        own = self._embed_scale()
        other = factor_of(self.target) if own == 1 else 1.0
        if other == own:
            return None
        draft = copy.copy(self.draft)
        draft.config = replace(draft.config, embed_scale=other)
        return replace(self, draft=draft)

    def _embed_scale(self) -> float:
        return embed_scale_of(self.draft.config, TargetEmbeddings.of(self.target))

    def another_target(self) -> nn.Module:
        """Return another model object over the target's arrays, for code that hooks or patches it."""
        return rebuild(self.parts["target"].folder, self.target)

    def describe(self) -> list[dict[str, Any]]:
        """Return the ``models`` section of a report: one entry for the target, the drafter and the restorer."""
        models = {"target": self.target, "draft": self.draft, "reconstruction": self.restorer}
        return [_entry(role, part, models[role]) for role, part in self.parts.items()]


def load(
    name: str | Path,
    draft: str | Path | Literal[False] | None = None,
    *,
    dtype: str | None = None,
    restore: str | Path | Literal[False] | None = False,
    download: bool = True,
) -> Pair:
    """Load a target with its tokenizer and, if it has one, its drafter.

    Args:
        name: ``tiny`` or ``tiny-hybrid`` (bundled), a published pair's short name such as ``qwen3-8b``, a
            folder that holds ``target/`` and ``draft/``, a folder with a model, or a hub id.
        draft: the drafter's folder or hub id; ``mtp``: the head in the target's own files. None: the one that comes
            with the name, if any; False: none.
        dtype: ``float32``, ``float16``, ``bfloat16`` or ``stored``. None: float32 on the CPU, where half
            types are slow, and the stored type elsewhere.
        restore: the restorer's folder. None: the one that comes with the name, if any; False: none. If the restorer
            reads the drafter, the drafter is loaded for it even if ``draft`` is False.
        download: fetch files from the hub that its cache on this machine lacks.

    Raises:
        BadInput: a part is missing or damaged, or parts do not fit each other; the message says which.
    """
    source = registry.find(name, draft, restore)
    if source.restore and not source.draft and drafted.is_drafted(source.restore):
        source = replace(source, draft=registry.find(name).draft)
    chosen = chosen_dtype(dtype)
    folders = {
        role: (id_, hub.folder_of(reference, download=download)) for role, id_, reference in source.parts()
    }
    parts = {role: ModelSource(id_, at, files.read_config(at)) for role, (id_, at) in folders.items()}
    if "draft" in parts:
        check_fit(parts["draft"].config, parts["target"].config)
    at = parts["target"].folder
    target, config = load_target(at, chosen)
    parts["target"] = replace(parts["target"], config=config)
    tokenizer, drafter = load_tokenizer(at, config), None
    if "draft" in parts:
        check_fit(parts["draft"].config, config, tokenizer)
        within = folders["draft"][1] == at  # a target's own files hold a head of one kind only
        layers = len(target.layers)
        drafter = load_draft(parts["draft"].folder, chosen, kind=MTP if within else None, layers=layers)
    restorer = _load_restorer(parts, target, drafter, chosen) if "reconstruction" in parts else None
    return Pair(target, drafter, tokenizer, source.name, parts, restorer)


def _load_restorer(
    parts: dict[str, ModelSource], target: nn.Module, drafter: Any, dtype: mx.Dtype | None
) -> Any:
    folder = parts["reconstruction"].folder
    if drafted.is_drafted(folder):
        if drafter is None or drafter.kind != DFLASH:
            raise BadInput(
                f"the restorer in {folder} reads a DFlash drafter, and the target has none", drafted.AGAIN
            )
        known = weights.target_digest(parts["target"].folder), weights.target_digest(parts["draft"].folder)
        return drafted.load_drafted(folder, drafter.bind(target), target, known, dtype)
    restorer = weights.load_restorer(folder, parts["target"].folder, dtype)
    learned.check(restorer, target)
    return restorer


def _entry(role: str, part: ModelSource, model: nn.Module) -> dict[str, Any]:
    config, quantized = part.config, part.config.get("quantization")
    if quantized:
        quantized = f"{quantized.get('mode', 'affine')}@{quantized.get('bits')}g{quantized.get('group_size')}"
    return {
        **digests.model(role, part.id, part.folder, _dtype(model), quantized or None),
        "architecture": (config.get("architectures") or [config["model_type"]])[0],
        "layers": files.text_config(config).get("num_hidden_layers"),
        "parameters": int(lm_utils.get_total_parameters(model)),
        "stored_dtypes": files.stored_dtypes(files.weight_files(part.folder)),
    }


def _dtype(model: nn.Module) -> str:
    """Return the floating-point type that most of a model's values have."""
    sizes: dict[str, int] = {}
    for _, leaf in tree.tree_flatten(model.parameters()):
        if mx.issubdtype(leaf.dtype, mx.floating):
            name = dtype_name(leaf.dtype)
            sizes[name] = sizes.get(name, 0) + leaf.size
    return max(sizes, key=sizes.__getitem__, default="none")
