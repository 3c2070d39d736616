"""Loaded models. They belong to the engine's thread; other threads may read them."""

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field, replace
from functools import lru_cache

from engine.cache import make_caches
from engine.checkpoints import files, hub, settings
from engine.dflash.batched_forward import BatchedForward
from engine.dflash.kinds import DFLASH, KINDS
from engine.dflash.propose.adaptive import Adaptive
from engine.dflash.propose.answers import Answers
from engine.dflash.rollback import rollback_for
from engine.dflash.step import AcceptanceWatch
from engine.dflash.target.context import context_of, logits_of, tokens_of
from engine.dflash.target.small_gemm import bytes_of_copies, forbid_copies
from engine.errors import BadInput, EngineError
from engine.inject import NAME as PACKAGE
from engine.inject.package import Package
from engine.models import Pair, catalogue, load, registry
from engine.models.agreement import Agreement, measure_agreement
from engine.models.target import chosen_dtype
from engine.mx import nn, parameter_bytes
from engine.serve.settings import drafter_of
from engine.serve.turns.kit import LoadedModel

CONTEXT = 1 << 17  # assumed context length if neither a model nor its configuration names one
WIDTHS = ("hidden_size", "n_embd", "d_model", "model_dim")

POLICIES = 16  # the most kinds of answers (caches, drafter) whose policies are kept


@dataclass(eq=False, kw_only=True)
class Resident(LoadedModel):
    """A loaded model of this engine."""

    pair: Pair
    joint: BatchedForward = field(repr=False)  # computes the rounds of several answers together
    block_size: int | None = None  # the most rows of a DFlash block; None for the drafter's own
    agreement: Agreement | None = None  # whether blocks give single rows' results; None if it verifies none
    answers: Answers = field(default_factory=lambda: Answers(0), repr=False)  # for drafts of later ones
    # Counts the drafter's drafts of all answers.
    watch: AcceptanceWatch = field(default_factory=AcceptanceWatch, init=False, repr=False)
    package: Package | None = field(default=None, init=False, repr=False)
    # For each kind of answer, two policies with estimates about drafts: one for an answer alone, one for answers beside
    # others. Only the engine's thread uses them.
    policies: Callable[[Hashable], tuple[Adaptive, Adaptive]] = field(
        default_factory=lambda: lru_cache(POLICIES)(lambda _: (Adaptive(), Adaptive())),
        init=False,
        repr=False,
    )

    def limit(self, context: int | None, block_size: int | None) -> None:
        """Limit the context and the blocks of a model that was just loaded.

        Raises:
            BadInput: the drafter was trained with smaller blocks.
        """
        super().limit(context, block_size)
        draft = self.pair.draft
        if block_size is None or draft is None:
            return
        if block_size > draft.config.verified_rows:
            raise BadInput(
                f"a block of {block_size} rows is larger than the {draft.config.verified_rows} of the drafter",
                "give a smaller block size, or leave it out",
            )
        self.block_size = block_size
        self.agreement = measure_agreement(self.pair.target, draft, block_size=block_size)

    def load_package(self) -> Package:
        """Return the ``dflash`` package's form of this model, loaded once; NotInjectedError if it cannot be used."""
        if self.package is None:
            self.package = Package(self.pair)
            self.nbytes += self.package.nbytes
        return self.package

    def release(self) -> None:
        """Drop the weights. The tokenizer stays, because running requests may need it."""
        self.pair = replace(self.pair, target=nn.Module(), draft=None)
        self.package = None
        del self.joint

    @property
    def width(self) -> int:
        """Size of a hidden state, by its usual names; otherwise a guess that is too large."""
        config = files.text_config(self.pair.parts["target"].config)
        return int(next((config[name] for name in WIDTHS if name in config), self.vocabulary))


def load_resident(name: str, draft: str, dtype: str | None, *, once: bool = False) -> Resident:
    """Load a model by name, folder or hub id, with its drafter; BadInput if it is missing or incomplete.

    ``draft`` is ``auto``, ``lookup``, ``none``, a kind of drafter, or a drafter's folder or hub id. With ``once``,
    weights are not copied for speed.
    """
    pair = load(name, drafter_of(draft), dtype=dtype)
    wanted = DFLASH if draft == PACKAGE else draft
    if wanted in KINDS and pair.draft is None:
        raise BadInput(f"no drafter belongs to {name}", "give one with --draft, or leave the option out")
    if wanted in KINDS and pair.draft.kind != wanted:
        has, title = KINDS[pair.draft.kind].title, KINDS[wanted].title
        raise BadInput(
            f"the drafter of {name} is of the kind {has}, not {title}", "leave --draft out, or give one"
        )
    if once:
        for model in filter(None, (pair.target, pair.draft)):
            forbid_copies(model)
    return resident_of(name, pair)


def resident_of(name: str, pair: Pair) -> Resident:
    """Return a loaded pair as a model of the server."""
    target = pair.target
    parts = [target, pair.draft] if pair.draft else [target]
    return Resident(
        name,
        pair.tokenizer,
        context=context_of(target) or CONTEXT,
        tokens=tokens_of(target),
        vocabulary=logits_of(target),
        nbytes=sum(parameter_bytes(model) + bytes_of_copies(model) for model in parts),
        layers=len(target.layers),
        caches=tuple(spec for spec in catalogue.offered(name) if _takes(target, name, spec)),
        drafted=pair.draft is not None,
        sampling=settings.sampling(pair.parts["target"].folder),
        pair=pair,
        joint=BatchedForward(target, pair.draft.layer_ids(target) if pair.draft else ()),
        agreement=measure_agreement(target, pair.draft),
    )


def _takes(target: nn.Module, name: str, spec: str) -> bool:
    """Return whether answers can be decoded on a cache. Nothing is evaluated."""
    boundary = catalogue.least_boundary(name, spec)
    try:
        rollback_for(make_caches(target, spec, boundary), "auto", target)
    except EngineError:
        return False
    return 2 * boundary < len(target.layers)


def expected_weights(name: str, draft: str, dtype: str | None) -> int:
    """Return the bytes of a model's weights in memory, without copies, from its files; see ``load_resident``."""
    chosen = chosen_dtype(dtype)
    folders = {hub.folder_of(reference) for _, _, reference in registry.find(name, drafter_of(draft)).parts()}
    return sum(files.loaded_bytes(folder, chosen.size if chosen else None) for folder in folders)
