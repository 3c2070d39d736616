"""The models that are loaded, in the engine's thread; looked at from others."""

import threading
import time
from dataclasses import dataclass, field
from typing import Any

from engine.checkpoints import files
from engine.dflash.joint import Joint
from engine.errors import BadInput
from engine.models import Pair, load
from engine.mx import tree
from engine.serve.grammar import Grammars

CONTEXT = 1 << 17  # tokens that a model is believed to read if its configuration does not say


@dataclass(eq=False)
class Resident:
    """A model that is loaded.

    Attributes:
        name: what requests call it.
        pair: target, drafter and tokenizer.
        loaded: when, in seconds since 1970.
        context: the most tokens of prompt and answer together.
        used: when a request last needed it, by ``time.monotonic``.
        lock: held while the tokenizer is in use, which is not made for several threads.
        grammars: of the tokenizer.
        joint: runs the rounds of several answers at once.
    """

    name: str
    pair: Pair
    loaded: int
    context: int
    nbytes: int
    used: float = field(default_factory=time.monotonic)
    lock: threading.Lock = field(default_factory=threading.Lock)
    grammars: Grammars = field(init=False, repr=False)
    joint: Joint = field(init=False, repr=False)

    @property
    def vocabulary(self) -> int:
        """Rows of the target's logits."""
        return int(files.text_config(self.pair.parts["target"].config)["vocab_size"])

    @property
    def width(self) -> int:
        """Values of a hidden state."""
        return int(files.text_config(self.pair.parts["target"].config)["hidden_size"])

    def encode(self, text: str) -> list[int]:
        """Return the tokens of text in which special tokens are written out."""
        with self.lock:
            return [int(token) for token in self.pair.tokenizer.encode(text, add_special_tokens=False)]

    def decode(self, tokens: list[int]) -> str:
        """Return the text of tokens."""
        with self.lock:
            return self.pair.tokenizer.decode(tokens, clean_up_tokenization_spaces=False)


def load_resident(name: str, draft: str, dtype: str | None) -> Resident:
    """Load a model with its drafter.

    Raises:
        BadInput: it is not there, or not whole.
    """
    drafter: Any = {"auto": None, "dflash": None, "none": False, "lookup": False}.get(draft, draft)
    pair = load(name, drafter, dtype=dtype)
    if draft == "dflash" and pair.draft is None:
        raise BadInput(f"no drafter belongs to {name}", "give one with --draft, or leave the option out")
    most = files.text_config(pair.parts["target"].config).get("max_position_embeddings")
    context = most if isinstance(most, int) and most > 0 else CONTEXT
    made = Resident(name, pair, int(time.time()), context, weight_bytes(pair))
    made.grammars = Grammars(pair.tokenizer, made.vocabulary)
    made.joint = Joint(pair.target, pair.draft.config.target_layer_ids if pair.draft else ())
    return made


def weight_bytes(pair: Pair) -> int:
    """Return the bytes of the weights in memory."""
    models = [model for model in (pair.target, pair.draft) if model is not None]
    return sum(leaf.nbytes for model in models for _, leaf in tree.tree_flatten(model.parameters()))
