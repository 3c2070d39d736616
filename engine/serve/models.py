"""Loaded models. They belong to the engine's thread; other threads may read them."""

import threading
import time
from collections.abc import Hashable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from engine.checkpoints import files
from engine.dflash import loop
from engine.dflash.joint import Joint
from engine.dflash.propose.adaptive import Adaptive
from engine.dflash.target.products import bytes_of_copies, keep_once
from engine.errors import BadInput
from engine.inject.package import NAME as PACKAGE
from engine.inject.package import Package
from engine.models import Pair, load
from engine.mx import nn, tree
from engine.serve.errors import ApiError
from engine.serve.grammar import Grammars
from engine.serve.template import Template

SHRINKS = 3  # how many characters Unicode normalization can turn into one, by and large
CONTEXT = 1 << 17  # assumed context length if a model's configuration does not name one

POLICIES = 16  # kinds of answers (caches, drafter) whose policies are kept


@dataclass(eq=False)
class Resident:
    """A loaded model.

    Attributes:
        name: its name in requests.
        pair: target, drafter and tokenizer.
        loaded: when it was loaded, as Unix time in seconds.
        context: maximum tokens of prompt and answer together.
        used: when a request last needed it, by ``time.monotonic``.
        drafted: whether it has a drafter.
        lock: protects the tokenizer, which is not thread-safe.
        grammars: the grammars for its tokenizer.
        joint: computes the rounds of several answers together.
    """

    name: str
    pair: Pair
    loaded: int
    context: int
    nbytes: int
    drafted: bool = False
    used: float = field(default_factory=time.monotonic)
    lock: threading.Lock = field(default_factory=threading.Lock)
    grammars: Grammars = field(init=False, repr=False)
    joint: Joint = field(init=False, repr=False)
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
        """Return what earlier answers of a kind have learnt about drafts: alone, and beside others.

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

    @cached_property
    def template(self) -> Template:
        """The chat template, for whoever holds the lock."""
        return Template(self.pair.tokenizer)

    @property
    def vocabulary(self) -> int:
        """Number of logits per row."""
        return int(files.text_config(self.pair.parts["target"].config)["vocab_size"])

    @property
    def layers(self) -> int:
        """Number of the target's layers."""
        return int(files.text_config(self.pair.parts["target"].config).get("num_hidden_layers", 0))

    @property
    def width(self) -> int:
        """Size of a hidden state."""
        return int(files.text_config(self.pair.parts["target"].config)["hidden_size"])

    @cached_property
    def longest(self) -> int:
        """The most characters that a text can have and still fit the context."""
        return SHRINKS * self.context * max(map(len, self.pair.tokenizer.get_vocab()))

    def encode(self, text: str, *, begins: bool = False) -> list[int]:
        """Return the tokens of a text that may contain special tokens.

        Args:
            text: the text.
            begins: whether the tokenizer's opening token goes before it, as in ``kakeya-engine generate``. A chat
                template writes that token itself.

        Raises:
            ApiError: 400, the text cannot fit the context. Encoding it would occupy the tokenizer for seconds.
            BadInput: it begins a prompt and is empty.
        """
        if len(text) > self.longest:
            said = f"A text of {len(text)} characters does not fit the {self.context} tokens that {self.name} reads."
            raise ApiError(400, said, param="messages", code="context_length_exceeded")
        with self.lock:
            if begins:
                return loop.encode(self.pair.tokenizer, text)
            return [int(token) for token in self.pair.tokenizer.encode(text, add_special_tokens=False)]

    def decode(self, tokens: list[int]) -> str:
        """Return the text of tokens."""
        with self.lock:
            return self.pair.tokenizer.decode(tokens, clean_up_tokenization_spaces=False)


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
    most = files.text_config(pair.parts["target"].config).get("max_position_embeddings")
    context = most if isinstance(most, int) and most > 0 else CONTEXT
    if once:
        for model in filter(None, (pair.target, pair.draft)):
            keep_once(model)
    made = Resident(name, pair, int(time.time()), context, weight_bytes(pair), pair.draft is not None)
    made.grammars = Grammars(pair.tokenizer, made.vocabulary)
    made.joint = Joint(pair.target, pair.draft.config.target_layer_ids if pair.draft else ())
    return made


def drafter_of(draft: str) -> Any:
    """Return the drafter argument for :func:``engine.models.load``."""
    return {"auto": None, "dflash": None, PACKAGE: None, "none": False, "lookup": False}.get(draft, draft)


def weight_bytes(pair: Pair) -> int:
    """Return the bytes of the weights in memory, of those kept twice too."""
    models = [model for model in (pair.target, pair.draft) if model is not None]
    return sum(tree_bytes(model) + bytes_of_copies(model) for model in models)


def tree_bytes(model: nn.Module) -> int:
    """Return the bytes of a model's arrays."""
    return sum(leaf.nbytes for _, leaf in tree.tree_flatten(model.parameters()))
