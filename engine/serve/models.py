"""Loaded models. They belong to the engine's thread; other threads may read them."""

from collections.abc import Hashable
from dataclasses import dataclass, field, replace

from engine.cache import make_caches
from engine.checkpoints import files
from engine.dflash.batched_forward import BatchedForward
from engine.dflash.propose.adaptive import Adaptive
from engine.dflash.rollback import rollback_for
from engine.dflash.step import AcceptanceWatch
from engine.dflash.target.context import context_of, logits_of, tokens_of
from engine.dflash.target.small_gemm import bytes_of_copies, keep_once
from engine.errors import BadInput, EngineError
from engine.inject import NAME as PACKAGE
from engine.inject.package import Package
from engine.models import Pair, catalogue, load
from engine.models.agreement import Agreement, measure_agreement
from engine.mx import nn, tree
from engine.serve.backend import Model
from engine.serve.settings import drafter_of

CONTEXT = 1 << 17  # assumed context length if neither a model nor its configuration names one
WIDTHS = ("hidden_size", "n_embd", "d_model", "model_dim")

POLICIES = 16  # kinds of answers (caches, drafter) whose policies are kept


@dataclass(eq=False, kw_only=True)
class Resident(Model):
    """A loaded model of this engine.

    Attributes:
        pair: target, drafter and tokenizer.
        joint: computes the rounds of several answers together.
        agreement: whether blocks compute what single rows do; None if it verifies none.
        watch: counts the drafter's drafts of all answers.
    """

    pair: Pair
    joint: BatchedForward = field(repr=False)
    agreement: Agreement | None = None
    watch: AcceptanceWatch = field(default_factory=AcceptanceWatch, init=False, repr=False)
    _package: Package | None = field(default=None, init=False, repr=False)
    _policies: dict[Hashable, tuple[Adaptive, Adaptive]] = field(default_factory=dict, init=False, repr=False)

    def package(self) -> Package:
        """Return the ``dflash`` package's form of this model. It is loaded once, in the engine's thread.

        Raises:
            NotInjectedError: it cannot be used.
        """
        if self._package is None:
            self._package = Package(self.pair)
            self.nbytes += self._package.nbytes
        return self._package

    def policies(self, key: Hashable) -> tuple[Adaptive, Adaptive]:
        """Return the estimates about drafts from earlier answers of a kind: alone, and beside others.

        Only the engine's thread uses them. The oldest kind is forgotten when there are too many.
        """
        if key not in self._policies:
            if len(self._policies) == POLICIES:
                del self._policies[next(iter(self._policies))]
            self._policies[key] = Adaptive(), Adaptive()
        return self._policies[key]

    @property
    def has_package(self) -> bool:
        """Whether the package is loaded, with its own copy of the drafter."""
        return self._package is not None

    def release(self) -> None:
        """Drop the weights. The tokenizer stays, because running requests may need it."""
        self.pair = replace(self.pair, target=nn.Module(), draft=None)
        self._package = None
        del self.joint

    @property
    def width(self) -> int:
        """Size of a hidden state; by its usual names, else a guess that is too large."""
        config = files.text_config(self.pair.parts["target"].config)
        return int(next((config[name] for name in WIDTHS if name in config), self.vocabulary))


def load_resident(name: str, draft: str, dtype: str | None, *, once: bool = False) -> Resident:
    """Load a model with its drafter.

    Args:
        name: a name, a folder or a hub id.
        draft: ``auto``, ``dflash``, ``lookup``, ``none``, or a drafter's folder or hub id.
        dtype: the type to load it in, or None.
        once: whether no weight may be kept twice, for speed.

    Raises:
        BadInput: it is not there, or not whole.
    """
    pair = load(name, drafter_of(draft), dtype=dtype)
    if draft in ("dflash", PACKAGE) and pair.draft is None:
        raise BadInput(f"no drafter belongs to {name}", "give one with --draft, or leave the option out")
    if once:
        for model in filter(None, (pair.target, pair.draft)):
            keep_once(model)
    return resident_of(name, pair)


def resident_of(name: str, pair: Pair) -> Resident:
    """Return a loaded pair as a model of the server."""
    target = pair.target
    return Resident(
        name,
        pair.tokenizer,
        context=context_of(target) or CONTEXT,
        tokens=tokens_of(target),
        vocabulary=logits_of(target),
        nbytes=weight_bytes(pair),
        layers=len(target.layers),
        caches=tuple(spec for spec in catalogue.offered(name) if _takes(target, name, spec)),
        drafted=pair.draft is not None,
        pair=pair,
        joint=BatchedForward(target, pair.draft.config.target_layer_ids if pair.draft else ()),
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


def weight_bytes(pair: Pair) -> int:
    """Return the bytes of the weights in memory, of those kept twice too."""
    models = [model for model in (pair.target, pair.draft) if model is not None]
    return sum(tree_bytes(model) + bytes_of_copies(model) for model in models)


def tree_bytes(model: nn.Module) -> int:
    """Return the bytes of a model's arrays."""
    return sum(leaf.nbytes for _, leaf in tree.tree_flatten(model.parameters()))
