"""Models by name: the bundled pairs, published ones, folders and hub ids."""

from typing import TYPE_CHECKING, Any

from engine.models.names import pairs

if TYPE_CHECKING:
    from engine.models.pair import Pair, load

__all__ = ["Pair", "load", "pairs"]


def __getattr__(name: str) -> Any:
    """Import what loads models, and MLX with it, when it is asked for: names and files are looked at without."""
    if name in __all__:
        from engine.models import pair

        return getattr(pair, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
