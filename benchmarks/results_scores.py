"""The part of the page of results with the scores that benchmarks/conformance.py keeps."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from bridge.reports.views.model import Table
from bridge.show.forms.markdown import markdown_table

FILE = Path(__file__).with_name("conformance.json")
TITLE = "## Conformance of the HTTP server\n"
ABOUT = """\
How many tests of the public suite `llm-comply` pass, by server and API. Both servers had the model `{model}`. This
section does not come from a report of the gate, but from `benchmarks/conformance.json`.
[The server](server.md#conformance) says what the failing tests ask for.

```sh
python benchmarks/conformance.py --keep
```

{measured}; {versions}.
"""


def scores(path: Path = FILE) -> str:
    """Return the section."""
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    formats = list(dict.fromkeys(each["format"] for each in found["scores"]))
    rows = []
    for server in dict.fromkeys(each["server"] for each in found["scores"]):
        own = {each["format"]: each for each in found["scores"] if each["server"] == server}
        rows.append((f"`{server}`", *(f"{own[name]['passed']} of {own[name]['of']}" for name in formats)))
    versions = ", ".join(f"{name} {version}" for name, version in found["versions"].items())
    about = ABOUT.format(model=found["model"], measured=found["measured"], versions=versions)
    return "\n".join(
        [TITLE, about, markdown_table(Table("", ("server", *formats), tuple(rows)), own=True), ""]
    )
