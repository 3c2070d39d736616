"""docs/python.md: the names that other people's code relies on, and examples that run."""

from __future__ import annotations

import re
from importlib import import_module
from importlib.util import find_spec

import pytest

from tests.repo import console

PAGE = (console.ROOT / "docs" / "python.md").read_text(encoding="utf-8")
EXAMPLES = dict(re.findall(r"^## (.+?)\n.*?```python\n(.*?)```", PAGE, re.MULTILINE | re.DOTALL))
HAS_ENGINE = find_spec("mlx_lm") is not None

# What was promised to other people's code: this list grows, and loses nothing.
PROMISED = [
    "bridge.client.Client", "bridge.client.Run",
    "bridge.evidence.Violation", "bridge.evidence.check_report",
    "bridge.manifest.parse_manifest",
    "bridge.presets.Preset", "bridge.presets.Preset.build_commands", "bridge.presets.load_presets",
    "engine.cache.make_caches",
    "engine.codec.ClassicCodec", "engine.codec.VoronoiCodec",
    "engine.dflash.Step", "engine.dflash.stream_generate",
    "engine.models.Pair", "engine.models.load",
]  # fmt: skip
MEMBERS = {
    "engine.codec.ClassicCodec": {"roundtrip", "bits_per_vector", "lattice", "dim", "q_range"},
    "engine.codec.VoronoiCodec": {"encode", "decode", "bits_per_vector", "dim", "bits"},
    "engine.dflash.Step": {"tokens", "accepted", "text"},
    "engine.models.Pair": {"target", "draft", "tokenizer"},
    "bridge.evidence.Violation": {"code", "message"},
    "bridge.client.Client": {"run"},
}


def named() -> set[str]:
    """The names of the page's table. A second name in a row stands beside the first."""
    found = set()
    for row in re.findall(r"^\| (`[\w.]+`(?:, `\w+`)*) \|", PAGE, re.MULTILINE):
        first, *others = re.findall(r"`([\w.]+)`", row)
        found |= {first, *(f"{first.rpartition('.')[0]}.{other}" for other in others)}
    return found


def find(name: str) -> object:
    """Import a name as other code does: the module, then its attributes."""
    words = name.split(".")
    depth = next(i for i, word in enumerate(words) if word[0].isupper() or i == 2)
    found: object = import_module(".".join(words[:depth]))
    for word in words[depth:]:
        found = getattr(found, word)
    return found


def test_the_page_names_what_was_promised():
    assert sorted(named() | {"bridge.presets.Preset"}) == PROMISED


@pytest.mark.parametrize("name", PROMISED)
def test_a_name_can_be_imported_and_says_what_it_does(name):
    if name.startswith("engine.") and not HAS_ENGINE:
        pytest.skip("the engine is not installed")

    found = find(name)

    assert callable(found)
    assert found.__doc__
    fields = {*dir(found), *getattr(found, "__dataclass_fields__", ()), *getattr(found, "model_fields", ())}
    assert MEMBERS.get(name, set()) <= fields


def test_there_is_an_example_for_each_package():
    assert len(EXAMPLES) == 4


@pytest.mark.parametrize("heading", list(EXAMPLES)[1:])
def test_an_example_runs(heading, monkeypatch, capsys):
    if "from engine" in EXAMPLES[heading] and not HAS_ENGINE:
        pytest.skip("the engine is not installed")
    monkeypatch.chdir(console.ROOT)

    exec(EXAMPLES[heading], {})

    assert capsys.readouterr().out.strip()


@pytest.mark.bus
def test_the_example_that_asks_for_a_job_runs(clone, runners, monkeypatch, capsys):
    runners.start()
    monkeypatch.chdir(clone)

    exec(EXAMPLES["Ask for a job"], {})

    assert capsys.readouterr().out.split() == ["succeeded", "True"]
