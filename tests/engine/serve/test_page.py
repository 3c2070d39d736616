"""The page at ``/``, used in a real browser as a person would."""

import pytest

from tests.browser import CHROMIUM, Browser

pytestmark = [
    pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium here"),
    pytest.mark.long,
]


@pytest.fixture(scope="module")
def tab(server, tmp_path_factory):
    with Browser(tmp_path_factory.mktemp("browser")) as tab:
        yield tab


@pytest.fixture
def page(server, tab):
    """The page as it opens, with its models listed."""
    tab.look(width=900, height=700)
    tab.open(f"{server.url}/")
    tab.wait("document.querySelectorAll('#model option').length > 2")
    yield tab
    assert tab.errors() == []


def asked(page, text="def main(argv):"):
    page.write(text)
    page.press("Enter")


ENDED = "document.getElementById('send').textContent === 'Send'"
ANSWER = "document.querySelector('.assistant:last-of-type .text').textContent"


def figure(page, name):
    return page.run(f"document.getElementById({name!r}).textContent")


def test_a_chat_by_keyboard_shows_what_it_cost(page):
    asked(page)
    page.wait(f"document.querySelector('.assistant') && {ENDED}")
    assert page.run(ANSWER)
    assert page.run("document.querySelector('.user').textContent") == "def main(argv):"
    assert float(figure(page, "rate")) > 0
    assert int(figure(page, "count")) > 1
    assert "%" in figure(page, "accepted") or figure(page, "accepted") == "no drafts"
    assert "(raw)" in figure(page, "cache")
    assert page.run("document.activeElement.id") == "text"


def test_figures_are_live_and_escape_stops_the_answer(page):
    page.run("document.getElementById('tokens').value = 3000")
    asked(page, "import os")
    page.wait("Number(document.getElementById('count').textContent) > 4")
    assert not page.run(ENDED)
    assert float(figure(page, "rate")) > 0
    assert "B" in figure(page, "cache")
    page.press("Escape")
    page.wait(ENDED)
    assert int(figure(page, "count")) < 3000


def test_the_channel_that_is_picked_is_the_one_used(page):
    page.run("document.getElementById('model').value = 'tiny@e8v-4.25'")
    page.run("document.getElementById('draft').value = 'lookup'")
    asked(page)
    page.wait(f"document.querySelector('.assistant') && {ENDED}")
    assert "(e8v@4.25)" in figure(page, "cache")


def test_shift_enter_adds_a_line_and_a_new_chat_empties_the_page(page):
    page.write("one")
    page.press("Enter", modifiers=8)
    page.write("two")
    assert page.run("document.getElementById('text').value") == "one\ntwo"
    page.press("Enter")
    page.wait(f"document.querySelector('.assistant') && {ENDED}")
    page.run("document.getElementById('clear').click()")
    assert page.run("document.querySelectorAll('.turn').length") == 0


def test_text_is_never_markup_and_stays_in_its_place(page):
    """Markup, characters that reverse the line, words without end, and accents that pile up."""
    hostile = f"<img src=x onerror=alert(1)><script>1</script> \u202eevil {'W' * 300} e{chr(0x301) * 60}"
    asked(page, hostile)
    page.wait(f"document.querySelector('.assistant') && {ENDED}")
    assert page.run("document.querySelector('.user').textContent") == hostile
    assert page.run("document.querySelectorAll('main img, main script').length") == 0
    assert page.run("getComputedStyle(document.querySelector('.turn')).overflow") == "clip"
    assert page.run("document.documentElement.scrollWidth") <= 900


def test_chat_can_be_scrolled_by_keyboard(page):
    page.run("document.getElementById('tokens').value = 300")
    asked(page, "import os\n" * 8)
    page.wait(f"document.querySelector('.assistant') && {ENDED}")
    page.run("document.querySelector('#more summary').focus()")
    page.press("Tab")
    assert page.run("document.activeElement.id") == "log"
    assert page.run("getComputedStyle(document.activeElement).outlineStyle") == "solid"


def test_rate_is_that_of_the_decoding_however_short_the_answer(page):
    """A short answer arrives at once; the time between its events says nothing."""
    page.run("document.getElementById('tokens').value = 6")
    page.run(
        "window.told = []; const take = JSON.parse; JSON.parse = (x) => (window.told.push(take(x)), take(x))"
    )
    asked(page)
    page.wait(f"document.querySelector('.assistant') && {ENDED}")
    last = "window.told.filter((x) => x.choices && x.choices.length && x.choices[0].x_kakeya).pop()"
    seconds = page.run(f"{last}.choices[0].x_kakeya.decode_seconds")
    assert float(figure(page, "rate")) == pytest.approx(6 / seconds, rel=0.01)
    assert page.run("document.querySelector('.cut').textContent") == "Cut off at the token limit."


def test_a_refusal_is_shown(page):
    page.run("document.getElementById('temperature').value = 9")
    asked(page)
    page.wait("document.querySelector('.error') !== null")
    assert "temperature" in page.run("document.querySelector('.error').textContent")
    (error,) = page.errors()
    assert error.startswith("Failed to load resource")
    page.events.clear()


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [480, 900])
def test_everything_fits_and_can_be_read(page, width, dark):
    """No part is wider than the window, and text differs from its background by 4.5 to 1."""
    page.look(width=width, height=700, dark=dark)
    asked(page)
    page.wait(f"document.querySelector('.assistant') && {ENDED}")
    assert page.run("document.documentElement.scrollWidth") <= width
    assert page.run("document.documentElement.scrollHeight") <= 700
    assert page.run(CONTRAST) == []


CONTRAST = """(() => {
  const parts = (colour) => colour.match(/[\\d.]+/g).map(Number);
  const light = (colour) => {
    const [r, g, b] = parts(colour).map((v) => (v /= 255) <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const behind = (element) => {
    for (let at = element; at; at = at.parentElement) {
      const colour = getComputedStyle(at).backgroundColor;
      if (parts(colour)[3] !== 0) return colour;
    }
    return "rgb(255, 255, 255)";
  };
  const shown = [...document.querySelectorAll("h1, label, select, summary, dt, dd, .turn, button, #keys, textarea")];
  return shown.filter((each) => each.offsetParent).map((each) => {
    const pair = [light(getComputedStyle(each).color), light(behind(each))].sort((a, b) => b - a);
    return [each.id || each.className || each.tagName, (pair[0] + 0.05) / (pair[1] + 0.05)];
  }).filter(([, ratio]) => ratio < 4.5);
})()"""
