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
# The tests of the rows that have no file of their own, as FILE::TEST.
OTHERS = {
    int(row): [test.split("::") for test in tests]
    for row, tests in tomllib.loads((ROOT / "tests/attacks/rows.toml").read_text(encoding="utf-8")).items()
}


def rows_of_tests(file: Path) -> set[int]:
    names = re.findall(r"(?:def test_row_|class TestRow)(\d+)", file.read_text(encoding="utf-8"))
    return {int(number) for number in names}


def rows_of_page(section: str) -> set[int]:
    return {int(number) for number in re.findall(r"^\| (\d+) \|", section, re.MULTILINE)}


def test_each_table_has_the_rows_of_the_tests_that_it_names():
    tables = {}
    for section in PAGE.split("\n## ")[1:]:
        names = re.findall(r"test_\w+_rows\.py|rows\.toml", section)
        if rows := rows_of_page(section):
            (name,) = set(names)
            tables[name] = rows

    assert tables == {**{file.name: rows_of_tests(file) for file in FILES}, "rows.toml": set(OTHERS)}


def test_rows_outside_the_files_of_attacks_name_tests_that_exist():
    assert [row for row, tests in OTHERS.items() if not tests] == []
    assert [test for tests in OTHERS.values() for test in tests if not is_test(*test)] == []


def is_test(file: str, name: str) -> bool:
    path = ROOT / file
    return path.is_file() and f"\ndef {name}(" in path.read_text(encoding="utf-8")


def test_all_rows_have_a_test():
    rows = [*set().union(*map(rows_of_tests, FILES)), *OTHERS]

    assert sorted(rows) == [row for row in range(1, 135) if row not in RETIRED]


def test_the_files_that_the_page_names_are_there():
    named = set(re.findall(r"`((?:tests/[\w/]+/)?test_\w+\.py)`", PAGE))
    there = {path.name for path in (ROOT / "tests").rglob("test_*.py")}

    assert len(named) > 8
    assert [name for name in named if not ((ROOT / name).exists() if "/" in name else name in there)] == []
