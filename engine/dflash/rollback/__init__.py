"""Removes rejected tokens from any cache, by late commit, trimming, recomputation or carrying."""

from engine.dflash.rollback.choose import KINDS, rollback_for
from engine.dflash.rollback.rollback import Rollback

__all__ = ["KINDS", "Rollback", "rollback_for"]
