"""The documentation's Python is what it says it is: each block runs by itself, in a folder of its own."""

import re
from pathlib import Path

import pytest

from engine.models import registry

DOCS = Path(__file__).parents[2] / "docs"
LINES = 6  # a block is five lines that do something, and a blank one

pytestmark = pytest.mark.skipif(not registry.is_bundled_here("tiny"), reason="this checkout holds no weights")


def block(page):
    (found,) = re.findall(r"```python\n(.*?)```", (DOCS / page).read_text(), re.DOTALL)
    assert len(found.splitlines()) <= LINES + 1
    return found


@pytest.mark.long
def test_speculating_takes_five_lines(python):
    code = block("decoding.md")
    done = python("-c", code + "\nprint('\\n', step.drafter, step.finish_reason)")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[-1].endswith(("length", "stop"))
    assert len(done.stdout) > 64


@pytest.mark.long
def test_compressing_takes_five_lines(python):
    code = block("codec.md")
    packed, raw = (python("-c", code.replace('"e8v@4.25"', f'"{spec}"')) for spec in ("e8v@4.25", "raw"))
    assert (packed.returncode, packed.stderr) == (0, "")
    text = (DOCS / "codec.md").read_text()
    sizes = [done.stdout.split()[0] for done in (packed, raw)]
    assert f"prints {sizes[0]} bytes; with `raw` it is {sizes[1]}" in text
