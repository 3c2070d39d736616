"""The one sanitiser: nothing steers, nothing secret stays, and plain text is left as it is."""

from __future__ import annotations

import json

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from bridge.common import sanitize

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
