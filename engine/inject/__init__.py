"""The ``dflash`` package as an engine over caches of ours."""
