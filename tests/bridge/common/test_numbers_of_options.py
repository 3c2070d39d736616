"""Options that take a number."""

import math

import click
import pytest

from bridge.common.cli.commands import Number


@pytest.mark.parametrize("text", ["nan", "-nan", "inf", "-inf", "1e400", "x", "", "-1", "11"])
def test_what_is_no_number_of_the_range_is_refused(text):
    with pytest.raises(click.BadParameter):
        Number(0, 10).convert(text, None, None)
    with pytest.raises(click.BadParameter):
        Number().convert("nan", None, None)


def test_the_numbers_of_the_range_are_taken():
    assert [Number(0, 10).convert(text, None, None) for text in ("0", "1e1", " 2.5")] == [0, 10, 2.5]
    assert math.isclose(Number(0, 1, min_open=True).convert("1e-300", None, None), 0, abs_tol=1e-299)
