"""Laws of plain writing: what a reader sees is what is written, and no two names look like one."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterator
from typing import Any

from bridge.evidence.laws.law import ALL, MODELLED, PROMPTED, law
from bridge.evidence.report_index import ReportIndex

# Control characters, halves of characters, line ends, marks that show nothing, and marks that turn the direction.
_ODD = re.compile("[\x00-\x1f\x7f-\x9f\u2028-\u202e\u200b\u2060-\u2069\ufeff\ud800-\udfff]")
# Letters of other scripts that look like Latin ones; a word that mixes both is read as another word.
_WORDS = re.compile(r"[^\W\d_]+")
_LIKE_LATIN = ("CYRILLIC", "GREEK", "ARMENIAN", "CHEROKEE")


def _texts(value: Any, place: str) -> Iterator[tuple[str, str]]:
    """Yield the texts within a value, with their places."""
    if isinstance(value, str):
        yield place, value
    elif isinstance(value, dict):
        for name, inner in value.items():
            yield from _texts(name, place)
            yield from _texts(inner, f"{place}.{name}")
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _texts(inner, place)


@law(
    "IDENTITY_DOUBTFUL", ALL, "identity config models workloads.source arms.options",
    "no text about machine, models, options or sources has an invisible character, a line end or a turned direction",
)  # fmt: skip
def visible_texts(index: ReportIndex) -> Iterator[str]:
    config = index.report.config
    told = [("identity", index.report.identity.model_dump())]
    told.append(("config", config if isinstance(config, dict) else config.model_dump()))
    told += [("models", model.model_dump()) for model in getattr(index.report, "models", [])]
    told += [("workloads.source", one.source) for one in index.workloads.values()]
    told += [("arms.options", arm.options) for arm in index.all_arms]
    for name, value in told:
        for place, text in _texts(value, name):
            if _ODD.search(text):
                yield f"{place[:80]} is {text[:60]!a}"


@law(
    "IDENTITY_DOUBTFUL", MODELLED, "models.id",
    "no word of a model's name mixes Latin letters with letters that look like them",
)  # fmt: skip
def letters_of_one_script(index: ReportIndex) -> Iterator[str]:
    for model in index.report.models:
        words = [word for word in _WORDS.findall(model.id) if not word.isascii()]
        if any(map(_is_mixed, words)) or any(map(_is_latin, "".join(words))):
            yield f"the model {model.id[:60]!a} is written with letters that look like others"


def _is_mixed(word: str) -> bool:
    scripts = {unicodedata.name(letter, "").partition(" ")[0] for letter in word}
    return "LATIN" in scripts and not scripts.isdisjoint(_LIKE_LATIN)


def _is_latin(letter: str) -> bool:
    """Return whether a letter is a wide, slanted or otherwise styled letter of the Latin alphabet."""
    return not letter.isascii() and unicodedata.normalize("NFKC", letter).isascii()


@law(
    "DANGLING_NAME", PROMPTED, "arms.name",
    "no two arms have names that differ in blanks or in the case of letters alone, and no blank of a name is invisible",
)  # fmt: skip
def names_look_unlike(index: ReportIndex) -> Iterator[str]:
    names = {arm.name for arm in index.all_arms}
    odd = next((name for name in sorted(names) if name != " ".join(name.split())), None)
    if odd is not None:
        yield f"the name {odd!r} has blanks that do not show"
    seen = Counter("".join(name.split()).casefold() for name in names)
    alike = next((name for name, times in seen.items() if times > 1), None)
    if alike is not None:
        yield f"several arms are called {alike}, but for blanks or the case of letters"
