"""Cache specs: what is read, what is refused, and how lists of them are split."""

import pytest

from bridge.common.errors import UsageError
from bridge.reports.cache_spec import parse, split_list


def test_sides_of_a_split_spec():
    spec = parse("k=e8v@4.25:best,v=raw")
    keys, values = spec.sides
    assert (spec.family, keys.family, keys.fields["effort"], values.family) == ("split", "e8v", "best", "raw")


def test_a_whole_spec_is_both_sides():
    spec = parse("affine@4g64")
    assert spec.sides == (spec, spec)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("e8@q38", "e8"),
        ("e8v@4.25", "e8v"),
        ("k=e8v@4.25,v=e8v@3.25", "e8v"),
        ("k=e8v@4.25,v=affine@4g64", "k=e8v,v=affine"),
    ],
)
def test_kinds_that_reports_compare(text, kind):
    assert parse(text).kind == kind


@pytest.mark.parametrize(
    "text",
    [
        *(
            "k=e8v@4.25",
            "v=raw",
            "v=raw,k=raw",
            "k=raw,v=",
            "k=raw,v=zip",
            "k=raw,v=raw",
            "k=raw,v=raw,v=raw",
        ),
        *("k=k=raw,v=raw,v=raw", "k=raw, v=raw", "K=raw,v=raw"),
    ],
)
def test_no_such_split(text):
    with pytest.raises(UsageError, match="no cache spec"):
        parse(text)


def test_the_round_trip_codec_stores_no_side():
    with pytest.raises(UsageError, match="e8@q38 stores keys and values as they come back") as refused:
        parse("k=e8@q38,v=raw")
    assert refused.value.fix == "take raw, e8v@... or affine@... for each"


def test_a_list_keeps_split_specs_together():
    text = "raw,k=e8v@4.25,v=e8v@3.25, affine@4g64,,k=raw,v=e8v@2.25"
    assert split_list(text) == ["raw", "k=e8v@4.25,v=e8v@3.25", "affine@4g64", "k=raw,v=e8v@2.25"]
