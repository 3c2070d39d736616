"""Uses the ``dflash`` package with this engine's caches."""

NAME = "dflash-package"  # in options and reports
