"""The checks behind ``kakeya-runner check``, ``init`` and ``status``."""
