"""Names say what a thing is, and folders are small enough to be read as a list."""

from collections import Counter

from tests.repo.house import ROOT, empty_names, sources

MOST = 100
FILES_PER_FOLDER = 14


def test_few_names_say_nothing():
    names = empty_names()
    assert len(names) <= MOST, "\n".join(names)


def test_no_folder_has_many_files_side_by_side():
    counts = Counter(str(file.parent.relative_to(ROOT)) for file in sources())
    large = {folder: n for folder, n in counts.items() if n > FILES_PER_FOLDER}
    assert large == {}
