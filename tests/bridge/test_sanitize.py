"""The one sanitiser: nothing steers, nothing secret stays, and plain text is left as it is."""

from __future__ import annotations

import json

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from rich.text import Text

from bridge.common import sanitize
from bridge.common.cli import output, screen

PRINTABLE = "".join(map(chr, range(0x21, 0x7F)))
SECRET = st.text(PRINTABLE + "é", min_size=4, max_size=40)
HOST = st.sampled_from(["example.invalid", "127.0.0.1:8080", "[::1]", "[::1]:80"])
PATH = st.sampled_from(["", "/", "/owner/name.git", "/a@b", "/~user/x"])
AROUND = st.sampled_from(
    ["{}", "fatal: unable to access '{}': no", "see {}.", "({})", "https://x.invalid/,{}"]
)


@st.composite
def addresses(draw: st.DrawFn) -> tuple[str, str]:
    """Return an address with a secret in it, and the secret."""
    secret, host, path = draw(SECRET), draw(HOST), draw(PATH)
    scheme = draw(st.sampled_from(["https", "http", "ssh", "git+ssh", "ftps", "ext::https"]))
    form = draw(st.sampled_from(["password", "token", "query", "fragment"]))
    if form == "password":
        return f"{scheme}://user:{secret}@{host}{path}", secret
    if form == "token":
        # A name without a password is a token for HTTP alone. What ends a host cannot stand in it.
        assume(not set(secret) & set("/?#"))
        return f"https://{secret}@{host}{path}", secret
    mark = "?token=" if form == "query" else "#"
    return f"{scheme}://{host}{path}{mark}{secret}", secret


@given(addresses(), AROUND)
def test_no_credential_of_an_address_is_left_wherever_the_address_stands(address, around):
    url, secret = address
    rest = url.replace(secret, "") + around + sanitize.HIDDEN
    # What could stand in the text anyway shows nothing: a whole secret, and either half of a long one.
    parts = [secret, secret[: len(secret) // 2], secret[len(secret) // 2 :]]
    shown = sanitize.hide_credentials(around.format(url))
    for part in parts:
        core = part.rstrip("'\"`.,;:)]>")
        assert len(core) < 4 or core in rest or core not in shown, (shown, core)


@given(st.text())
def test_a_line_is_one_printable_line(text):
    assert sanitize.line(text).isprintable()


@given(st.text())
def test_a_block_holds_lines_and_tabs_and_nothing_else_that_steers(text):
    shown = sanitize.block(text)
    assert shown.replace("\n", "").replace("\t", "").isprintable()
    assert shown.count("\n") == text.count("\n")


@pytest.mark.long
@given(
    st.recursive(
        st.none() | st.integers() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    )
)
def test_json_is_one_printable_line_that_reads_back_as_the_same(value):
    assume("://" not in json.dumps(value))
    shown = sanitize.data(value)
    assert shown.isprintable()
    assert json.loads(shown) == value


STEERING = {
    "a terminal sequence": ("\x1b[2Jx", r"\x1b[2Jx"),
    "the clipboard": ("\x1b]52;c;aGk=\x07", r"\x1b]52;c;aGk=\x07"),
    "one byte of C1": ("\x9b31m", r"\x9b31m"),
    "a forged line": ("one\nok    signature", r"one\nok    signature"),
    "other ends of a line": ("a\u2028b\u2029c\x85d\x0be\x0cf\rg", r"a\u2028b\u2029c\x85d\x0be\x0cf\rg"),
    "marks of direction": ("a\u202eb\u2066c\u200fd", r"a\u202eb\u2066c\u200fd"),
    "what is not seen": ("a\u200bb\ufeffc\x00", r"a\u200bb\ufeffc\x00"),
    "half a pair": ("a\udcff", r"a\udcff"),
}


@pytest.mark.parametrize(("text", "shown"), STEERING.values(), ids=STEERING)
def test_what_steers_is_spelled_out(text, shown):
    assert sanitize.line(text) == shown


UNSEEN = {
    "a variation selector": "\ufe01",
    "a supplementary one": "\U000e0101",
    "a filler of Hangul": "\u3164",
    "a narrow filler": "\uffa0",
    "an inherent vowel of Khmer": "\u17b4",
    "a selector of Mongolian": "\u180b",
    "a joiner": "\u200d",
    "a joiner of marks": "\u034f",
    "a tag": "\U000e0041",
    "a mark of direction": "\u2067",
    "an invisible operator": "\u2063",
    "a soft hyphen": "\u00ad",
    "a note without a head": "\U0001d159",
    "an unassigned one": "\U000e0fff",
}


@pytest.mark.parametrize("character", UNSEEN.values(), ids=UNSEEN)
def test_no_character_passes_that_is_not_seen(character):
    for text in (f"a{character}b", f"日{character}", character * 3, f"a\n{character}"):
        assert character not in sanitize.line(text)
        assert character not in sanitize.block(text)
        assert character not in sanitize.log(text)
        assert character not in sanitize.data(text)
    assert json.loads(sanitize.data(f"a{character}b")) == f"a{character}b"


STACKS = {
    "an accent": ("e\u0301te\u0301", "e\u0301te\u0301"),
    "vowels of Hebrew and Thai": (
        "\u05d1\u05bc\u05b0 \u0e01\u0e34\u0e48",
        "\u05d1\u05bc\u05b0 \u0e01\u0e34\u0e48",
    ),
    "more than a few": ("e" + "\u0301" * 6, "e" + "\u0301" * sanitize.MARKS + r"\u0301\u0301"),
    "without a base": ("\u0301e", r"\u0301e"),
    "upon a space": ("a \u0301", r"a \u0301"),
    "upon what is not seen": ("\u200b\u0301", r"\u200b\u0301"),
    "a blank cell of Braille": ("\u28ff\u2800\u28ff", "\u28ff \u28ff"),
}


@pytest.mark.parametrize(("text", "shown"), STACKS.values(), ids=STACKS)
def test_marks_stand_on_a_base_and_are_few(text, shown):
    assert sanitize.line(text) == shown


COMMANDS = {
    "at a line's start": ("::error::x", ": :error::x"),
    "behind spaces": ("  ::add-mask::x", "  : :add-mask::x"),
    "inside a line": ("so ::stop-commands::x", "so : :stop-commands::x"),
    "of another form": ("by a ##[error]x", "by a ## [error]x"),
    "of other systems": ("##vso[task.x]y ##teamcity[z]", "## vso[task.x]y ## teamcity[z]"),
    "after more signs": (":::error::x ###[group]", ": : :error::x ### [group]"),
    "no command": (
        "std::vector tests/a.py::b [::1]:80 ::1 ## [x]",
        "std::vector tests/a.py::b [::1]:80 ::1 ## [x]",
    ),
}


@pytest.mark.parametrize(("text", "shown"), COMMANDS.values(), ids=COMMANDS)
def test_no_command_of_a_workflow_is_printed(text, shown):
    assert sanitize.strip_commands(text) == shown
    assert sanitize.strip_commands(shown) == shown


def test_every_way_to_print_breaks_up_commands_of_workflows(capsys):
    hostile = "by ##[error]x ::add-mask::y"
    output.put(hostile)
    output.say(output.Colored(hostile, "red"))
    output.put_block(f"a\n{hostile}\n")
    screen.console().print(Text(hostile))
    grid = screen.Grid()
    grid.add_row(hostile)
    screen.console().print(grid)

    printed = "".join(capsys.readouterr())
    assert printed.count("by ## [error]x : :add-mask::y") == 5


def test_a_command_that_comes_in_pieces_is_begun_by_the_first():
    for command in ("::error::x", " ::add-mask::x", "##[error]x", "##vso[y]"):
        for cut in range(1, len(command)):
            begin, rest = command[:cut], command[cut:]
            held = sanitize.unfinished_command(begin)
            shown = sanitize.strip_commands(begin.removesuffix(held)) + sanitize.strip_commands(held + rest)
            assert sanitize.strip_commands(shown) == shown, (begin, rest)
    assert [sanitize.unfinished_command(text) for text in ("", "a:", "a #b", "x\n", "###")] == [
        "",
        "",
        "",
        "",
        "##",
    ]


def test_json_holds_no_command_of_a_workflow_and_reads_back():
    value = {"by": "##[error]x", "##vso[y]": "a"}
    shown = sanitize.data(value)
    assert "##" not in shown
    assert json.loads(shown) == value


PLAIN = [
    "https://github.com/owner/name",
    "Is it https://example.invalid/x? No.",
    "git@github.com:owner/name.git",
    "ssh://git@example.invalid:22/x",
    "https://example.invalid/@scope/name",
    "mail a@b.invalid: ÄÖÜ, 日本",
    "https://127.0.0.1:8080/x",
]


@pytest.mark.parametrize("text", PLAIN)
def test_what_is_neither_secret_nor_steering_stays(text):
    assert sanitize.line(text) == text


def test_data_keeps_keys_and_hides_credentials_at_any_depth():
    assert sanitize.data({"a": [{"b": "https://u:p@h/x"}], "t": ("http://t0k3n@h",)}) == (
        '{"a": [{"b": "https://***@h/x"}], "t": ["http://***@h"]}'
    )


@pytest.mark.rows(1)
@pytest.mark.parametrize("text", ["://a:b" * 200_000, "a" * 2_000_000, "://@?" * 300_000, "\x1b" * 1_000_000])
def test_long_texts_take_no_time(text):
    assert sanitize.line(text)
