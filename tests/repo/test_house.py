"""Names say what a thing is."""

from tests.repo.house import empty_names

MOST = 100


def test_few_names_say_nothing():
    names = empty_names()
    assert len(names) <= MOST, "\n".join(names)
