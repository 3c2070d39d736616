"""The ``dflash`` package as an engine over caches of ours."""

NAME = "dflash-package"  # in options and reports
