"""The kinds of drafters: how each is recognised and loaded, and what its drafts cost. A new kind adds a row."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

DFLASH, EAGLE3, MTP = "dflash", "eagle3", "mtp"
SPLIT = "_mtp"
TURN = 0.375
QWEN = ("qwen3_next", "qwen3_5", "qwen3_5_moe", "qwen3_5_text", "qwen3_5_moe_text")


@dataclass(frozen=True)
class Kind:
    """A kind of drafters."""

    title: str
    loader: str  # module and function; see `engine.dflash.drafter.load`
    recognises: Callable[[dict[str, Any]], bool]  # whether a configuration is one of this kind
    # What each draft costs if drafts are computed one after another, as a part of what a whole block of DFlash costs;
    # None if the drafter computes a block at once.
    turn: float | None
    prior: float  # the share of first drafts that is accepted, before any is observed
    within: bool = False  # whether it may stand in its target's own files

    def cost(self, drafts: int) -> float:
        """Return what drafts cost, nominally, in parts of what a block of DFlash costs."""
        return 1.0 if self.turn is None else self.turn * drafts


def _is_eagle3(data: dict[str, Any]) -> bool:
    names = data.get("architectures")
    by_name = isinstance(names, list) and any("eagle3" in str(name).lower() for name in names)
    return (
        by_name or data.get("speculators_model_type") == EAGLE3 or isinstance(data.get("eagle_config"), dict)
    )


KINDS = {
    DFLASH: Kind(
        "DFlash",
        "engine.dflash.drafter.weights:load_dflash",
        lambda data: (
            isinstance(data.get("dflash_config"), dict)
            or any(
                name in ("Qwen3DSparkModel", "DSparkDraftModel") for name in data.get("architectures") or ()
            )
        ),
        turn=None,
        prior=0.55,
    ),
    EAGLE3: Kind("EAGLE-3", "engine.dflash.heads.weights:load_eagle3", _is_eagle3, turn=TURN, prior=0.55),
    MTP: Kind(
        "MTP",
        "engine.dflash.heads.mtp_weights:load_mtp",
        lambda data: str(data.get("model_type")) in QWEN or str(data.get("model_type")).endswith(SPLIT),
        turn=TURN,
        prior=0.55,
        within=True,
    ),
}


def kind_of(data: dict[str, Any]) -> str | None:
    """Return the kind of drafter that a configuration describes; None if it is none of them."""
    return next((name for name, kind in KINDS.items() if kind.recognises(data)), None)


def is_drafter_alone(data: dict[str, Any]) -> bool:
    """Return whether a configuration is a drafter's, and not a target's that may hold one."""
    name = kind_of(data)
    return name is not None and (not KINDS[name].within or str(data.get("model_type")).endswith(SPLIT))
