"""``python -P -m runner`` is ``kakeya-runner``."""

from runner.cli import main

main()
