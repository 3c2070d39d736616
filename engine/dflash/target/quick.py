"""The copy of a target that the loop runs: it computes the same, but for rounding, in less time on a CPU."""

from engine.dflash.target.products import with_products
from engine.dflash.target.rotary import with_tables
from engine.mx import nn


def quick_copy(target: nn.Module) -> nn.Module:
    """Return a copy with rotary tables and this machine's products over few rows; on a GPU the target itself.

    It is for one generation, see :func:``engine.dflash.target.rotary.with_tables``.
    """
    return with_products(with_tables(target))
