"""The tables of attacks in docs/security.md and the tests that make the attacks name the same rows."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
FILES = sorted((ROOT / "tests" / "attacks").glob("test_*_rows.py"))

# Numbers of attacks on code that is gone. They are not given again.
RETIRED = {43}
# Numbers that are not given yet.
FREE: set[int] = set()
# The tests outside the files of attacks, as FILE::TEST.
OTHERS = {
    int(row): [test.split("::") for test in tests]
    for row, tests in tomllib.loads((ROOT / "tests/attacks/rows.toml").read_text(encoding="utf-8")).items()
}


def rows_of_tests(file: Path) -> set[int]:
    names = re.findall(r"(?:def test_row_|class TestRow)(\d+)", file.read_text(encoding="utf-8"))
    return {int(number) for number in names}


def test_each_row_of_the_tables_has_a_test_and_each_test_a_row():
    rows = [
        int(row) for rows in re.findall(r"^\| ([\d, ]+) \|", PAGE, re.MULTILINE) for row in rows.split(",")
    ]
    tested = {*OTHERS}.union(*map(rows_of_tests, FILES))

    assert sorted(rows) == sorted(tested)
    assert sorted(rows) == [row for row in range(1, 162) if row not in RETIRED | FREE]


def test_rows_outside_the_files_of_attacks_name_tests_that_exist():
    assert [row for row, tests in OTHERS.items() if not tests] == []
    assert [test for tests in OTHERS.values() for test in tests if not is_test(*test)] == []


def is_test(file: str, name: str) -> bool:
    path = ROOT / file
    return path.is_file() and bool(
        re.search(rf"^ *def {name}\(", path.read_text(encoding="utf-8"), re.MULTILINE)
    )


def test_the_files_that_the_page_names_are_there():
    named = set(re.findall(r"`((?:tests/[\w/]+/)?test_\w+\.py)`", PAGE))
    there = {path.name for path in (ROOT / "tests").rglob("test_*.py")}

    assert len(named) > 8
    assert [name for name in named if not ((ROOT / name).exists() if "/" in name else name in there)] == []
