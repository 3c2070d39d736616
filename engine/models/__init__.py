"""Models by name: the bundled pairs, published ones, folders and hub ids."""

from engine.models.names import pairs
from engine.models.pair import Pair, load

__all__ = ["Pair", "load", "pairs"]
