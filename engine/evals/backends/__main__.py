"""The process in which torch computes: ``python -P -m engine.evals.backends [--preload]``."""

import sys
from importlib import import_module

from engine import blas

PRELOAD = "--preload"


def main() -> None:
    """Load the OpenBLAS that MLX uses, if that is asked for, before torch is imported; then answer."""
    if PRELOAD in sys.argv:
        blas.preload()
    import_module("engine.evals.backends.torch_side").main()


if __name__ == "__main__":
    main()
