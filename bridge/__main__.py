"""``python -P -m bridge`` is ``kakeya``."""

from bridge.cli import main

main()
