"""Does a drafter belong to a target? Told from the two configurations, before anything is decoded."""

from typing import Any

from engine.errors import BadInput
from engine.models import files

REMEDY = "give the drafter that was trained for this target"


def check_fit(draft: dict[str, Any], target: dict[str, Any]) -> None:
    """Refuse a drafter that was made for another target.

    It taps the outputs of named target layers, embeds with the target's table and scores with its head: the
    number of layers, the width and the vocabulary have to be the target's. A drafter for another target of
    equal shape cannot be told here; it proposes badly, and what the target then writes is still its own.

    Args:
        draft: the drafter's ``config.json``.
        target: the target's.

    Raises:
        BadInput: naming what does not fit.
    """
    refuse_drafter(target)
    text = files.text_config(target)
    for ours, theirs, what in (
        ("num_target_layers", "num_hidden_layers", "layers"),
        ("hidden_size", "hidden_size", "values in a hidden state"),
        ("vocab_size", "vocab_size", "tokens"),
    ):
        made_for, has = draft.get(ours), text.get(theirs)
        if None not in (made_for, has) and made_for != has:
            raise BadInput(
                f"the drafter was made for a target with {made_for} {what}, and this one has {has}", REMEDY
            )


def refuse_drafter(config: dict[str, Any]) -> None:
    """Refuse a drafter's configuration where a target's belongs (BadInput)."""
    if "dflash_config" in config:
        raise BadInput("the target's folder holds a drafter", "give it as the draft of its target")
