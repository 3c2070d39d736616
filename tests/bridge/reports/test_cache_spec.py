"""Cache specs: what is read, what is refused, and how lists of them are split."""

import pytest

from bridge.common.errors import UsageError
from bridge.reports.cache_spec import canonical, parse, split_list


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


# Every text that names a cache, with the shortest text for the same cache.
ALIASES = {
    **{f"e8v@{bits}.25:normal": f"e8v@{bits}.25" for bits in range(2, 7)},
    **{f"k=e8v@{bits}.25,v=e8v@{bits}.25": f"e8v@{bits}.25" for bits in range(2, 7)},
    "k=e8v@4.25:normal,v=e8v@4.25": "e8v@4.25",
    "k=e8v@4.25:best,v=e8v@4.25:best": "e8v@4.25:best",
    "k=e8v@4.25:normal,v=raw": "k=e8v@4.25,v=raw",
    "k=raw,v=e8v@4.25:normal": "k=raw,v=e8v@4.25",
    "k=e8v@4.25:fast,v=e8v@4.25:normal": "k=e8v@4.25:fast,v=e8v@4.25",
    # Another cache than affine@4g64, which is mlx-lm's own.
    "k=affine@4g64,v=affine@4g64": "k=affine@4g64,v=affine@4g64",
}


@pytest.mark.parametrize(("text", "shortest"), ALIASES.items())
def test_an_alias_is_read_as_the_shortest_text(text, shortest):
    assert parse(text).text == canonical(text) == shortest
    assert canonical(shortest) == shortest
    assert parse(text) == parse(shortest)
    assert parse(text).sides == parse(shortest).sides


@pytest.mark.parametrize(
    "text", ["raw", "e8v@4.25", "e8v@2.25:fast", "e8@q38", "d4@q10", "affine@4g64", "zip", "", "auto"]
)
def test_the_shortest_text_and_what_is_no_spec_stay_as_they_are(text):
    assert canonical(text) == text
