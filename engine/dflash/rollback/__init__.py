"""Taking rejected tokens back out of any cache: late commit, trimming, recomputation and carrying."""

from engine.dflash.rollback.choose import KINDS, rollback_for
from engine.dflash.rollback.rollback import Rollback

__all__ = ["KINDS", "Rollback", "rollback_for"]
