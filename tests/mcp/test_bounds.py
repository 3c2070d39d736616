"""What keeps an answer small and a log harmless, taken by itself."""

from __future__ import annotations

import json
import subprocess
import sys

from hypothesis import example, given
from hypothesis import strategies as st

from bridge.errors import UsageError
from bridge.mcp import models
from bridge.mcp.bounds import MOST_BYTES, cut, error_fields, log_text, page, short, size, text_of
from bridge.mcp.tools import TOOLS

ODD = st.text(
    alphabet=st.sampled_from("a\n\r\t\x1b\x07[]m0;: /@\\\u241b\u202e\u2028é😀\x00\x85"), max_size=60
)


def rows(some, more):
    return models.Rows(requests=some, next_offset=more)


def test_the_schemas_take_less_than_2500_tokens():
    listed = [
        tool.to_mcp(name).model_dump(mode="json", by_alias=True, exclude_none=True)
        for name, tool in TOOLS.items()
    ]

    # test_node.py counts them with the tokenizer o200k_base, which needs npm: 2,138 where this says 2,133.
    assert len(json.dumps(listed, separators=(",", ":"))) / 4 < 2500


def test_the_server_starts_without_the_client():
    """Importing it takes most of the second in which the server is to answer."""
    code = (
        "import sys, bridge.mcp.server as s; print({'bridge.client', 'requests', 'yaml'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout == "set()\n"


@given(raw=ODD, at=st.integers(0, 60))
@example(raw="a\x1b[31", at=3)
@example(raw="a\r\r\nb", at=2)
@example(raw="https://u:p\n@x\n", at=12)
def test_a_log_that_grows_reads_the_same_from_its_beginning(raw, at):
    assert log_text(raw, whole=True).startswith(log_text(raw[:at], whole=False))


@given(raw=ODD)
def test_nothing_in_a_log_steers(raw):
    assert all(c.isprintable() or c in "\n\t" for c in log_text(raw, whole=True))
    assert short(raw).isprintable()


@given(text=st.text(max_size=400), limit=st.integers(0, 300), room=st.integers(0, 300))
def test_a_cut_fits_and_wastes_nothing(text, limit, room):
    text = text.encode("utf-8", "replace").decode()
    piece = cut(text, limit, room)

    def takes(part):
        return len(json.dumps(part, ensure_ascii=False).encode()) - 2

    assert text.startswith(piece)
    assert len(piece) <= limit
    assert takes(piece) <= room
    assert piece == text[:limit] or takes(text[: len(piece) + 1]) > room


@given(st.lists(st.text(alphabet='aé😀"\\', max_size=200), max_size=60))
def test_pages_hold_every_item_once_and_each_fits(texts):
    items = [models.Row(branch=short(text), state="failed") for text in texts]
    seen, offset = [], 0
    while offset is not None:
        answer = page(items, offset, rows)
        assert size(answer) <= MOST_BYTES
        seen, offset = seen + answer.requests, answer.next_offset
    assert seen == items


def test_beyond_the_end_there_is_an_empty_page():
    assert page([], 5, rows) == models.Rows(requests=[])


def test_the_largest_single_answers_fit():
    wide = "😀" * 2000
    standing = models.Standing(
        branch="b" * 250, state="gate_rejected", done=False, exit_code=124, elapsed_s=1e6, position=10**6,
        untrusted_detail=short(wide), outlook=short(wide), untrusted_last_line=short(wide), verified=short(wide),
        gate="INCOMPLETE",
    )  # fmt: skip
    job = models.Job(name="n" * 64, description=short(wide), params=[short(wide, 1400 // 16)] * 16)

    assert size(standing) <= MOST_BYTES
    assert size(models.Jobs(presets=[job])) <= MOST_BYTES
    assert (
        size(
            models.Doctor(ready=False, checks=[models.Check(name="n", message=short(wide), fix=short(wide))])
        )
        <= MOST_BYTES
    )


def test_an_error_fits_however_long_the_names_in_it_are():
    wide = UsageError("😀" * 5000, fix="\x00" * 5000, code="usage")
    small = UsageError("there is no such thing", fix="Name another.", code="usage")

    assert len(text_of(error_fields(wide)).encode()) <= MOST_BYTES
    assert error_fields(small) == small.as_dict()
