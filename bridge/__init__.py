"""The client of a git-bus bridge: wire format, presets, evidence and the ``kakeya`` command."""
