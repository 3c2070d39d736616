"""Docstrings of the product have one form: Google's sections, and code in double backticks."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FILES = [path for top in ("bridge", "engine", "runner") for path in sorted((ROOT / top).rglob("*.py"))]
# Help texts and descriptions of tools are docstrings too, but people read them as they are.
SHOWN = re.compile(r"\b(command|group|tool)\b")
SINGLE = re.compile(r"(?<!`)`(?!`)[^`]+`(?!`)")
SENTENCE = re.compile(r"\bRaises [A-Z]\w+(?<!s)\b")


def docstrings(source: str):
    """Yield the line and the text of each docstring that only readers of the source see."""
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            continue
        if any(SHOWN.search(ast.unparse(by)) for by in getattr(node, "decorator_list", [])):
            continue
        text = ast.get_docstring(node)
        if text:
            yield getattr(node, "lineno", 1), text


@pytest.mark.parametrize(
    ("form", "wanted"),
    [(SINGLE, "double backticks"), (SENTENCE, "a section `Raises:`")],
    ids=["code", "errors"],
)
def test_docstrings_have_one_form(form, wanted):
    odd = [
        f"{path.relative_to(ROOT)}:{line}: {found[0]}: {wanted}"
        for path in FILES
        for line, text in docstrings(path.read_text())
        if (found := form.search(text))
    ]
    assert odd == []
