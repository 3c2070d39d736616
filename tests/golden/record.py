"""Records golden files: ``python -m tests.golden.record [NAME...]``.

NAME is one of the groups that ``GROUPS`` lists, by default all of them. The answers of a real runner are recorded
only by name (``answers``), because later versions have to verify those that an earlier version wrote.
"""

from __future__ import annotations

import argparse

from tests.golden import record_answers
from tests.golden.groups import GROUPS, write


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.golden.record", description="Record golden files.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join([*GROUPS, "answers"]))
    names = parser.parse_args().names or [*GROUPS]
    if unknown := set(names) - {*GROUPS, "answers"}:
        parser.error(f"there is no group {', '.join(sorted(unknown))}")
    for name in names:
        if name == "answers":
            record_answers.main()
        else:
            write(GROUPS[name]())
        print(f"recorded {name}")


if __name__ == "__main__":
    main()
