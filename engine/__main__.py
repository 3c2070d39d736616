"""``python -P -m engine``: the same as the console script ``kakeya-engine``."""

from engine.cli import main

if __name__ == "__main__":
    main()
