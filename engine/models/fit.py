"""Checks from their configurations whether a drafter belongs to a target, before anything is decoded."""

import hashlib
from typing import Any

from engine.checkpoints import files
from engine.dflash.kinds import is_drafter_alone
from engine.errors import BadInput
from engine.tokens import Tokenizer

FIX = "give the drafter that was trained for this target"


def check_fit(draft: dict[str, Any], target: dict[str, Any], tokenizer: Tokenizer | None = None) -> None:
    """Refuse a drafter made for another target, by their ``config.json`` and, if known, the target's tokenizer.

    A drafter taps the outputs of named target layers, embeds with the target's table and scores with its head. So
    the number of layers, the width and the vocabulary have to be the target's. A drafter that was trained by this
    engine also names the architecture and the tokenizer of its target; a published one does not. With another
    target of the same shape, its proposals are bad, but the target's answer does not change.

    Raises:
        BadInput: something does not fit; the message names it.
    """
    refuse_drafter(target)
    text = files.text_config(target)
    # A head may be narrower than its target; DFlash's drafters and MTP heads are not.
    known = {"target_hidden_size": draft.get("hidden_size"), **draft}
    for ours, theirs, noun in (
        ("num_target_layers", "num_hidden_layers", "layers"),
        ("target_hidden_size", "hidden_size", "values in a hidden state"),
        ("vocab_size", "vocab_size", "tokens"),
    ):
        made_for, has = known.get(ours), text.get(theirs)
        if None not in (made_for, has) and made_for != has:
            raise BadInput(
                f"the drafter was made for a target with {made_for} {noun}, and this one has {has}", FIX
            )
    record, kind = draft.get("made_for"), text["model_type"]
    if not isinstance(record, dict):  # None in published drafters; loading refuses anything else
        return
    if record.get("model_type", kind) != kind:
        recorded = record["model_type"]
        raise BadInput(
            f"the drafter was made for a target of architecture {recorded}, and this one is {kind}", FIX
        )
    if tokenizer is not None and record.get("vocabulary") not in (None, _vocabulary(tokenizer)):
        raise BadInput("the drafter was made for a target with another tokenizer", FIX)


def identity(config: dict[str, Any], tokenizer: Tokenizer) -> dict[str, str]:
    """Return a drafter's record of its target: the architecture, and a digest of the vocabulary."""
    return {"model_type": files.text_config(config)["model_type"], "vocabulary": _vocabulary(tokenizer)}


def _vocabulary(tokenizer: Tokenizer) -> str:
    """Return ``sha256:...`` of a tokenizer's tokens and their ids, however its files are written."""
    lines = sorted(f"{number} {token}\n" for token, number in tokenizer.get_vocab().items())
    return "sha256:" + hashlib.sha256("".join(lines).encode("utf-8", "surrogatepass")).hexdigest()


def refuse_drafter(config: dict[str, Any]) -> None:
    """Raise BadInput if a target's configuration is in fact a drafter's."""
    if "dflash_config" in config or is_drafter_alone(config):
        raise BadInput(
            "the target's folder holds a drafter", "give the target's folder, and this one as its draft"
        )
