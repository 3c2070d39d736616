"""Each place that shows a verdict names who vouches for it: texts beside the word, objects in a field of their own."""

from __future__ import annotations

import html
import json
import re
from pathlib import Path

import pytest

pytest.importorskip("starlette", reason="needs the extra [web]")
pytest.importorskip("mcp", reason="needs the extra [mcp]")

from click.testing import CliRunner

from bridge.bus.wire import Gate
from bridge.buses import Buses
from bridge.cli import cli
from bridge.client import Client
from bridge.mcp import calls, models
from bridge.show.build import view_of
from bridge.show.forms.templates import page
from bridge.show.source import from_branch
from bridge.verify.verdict import MEANINGS
from bridge.web.export import export
from tests.bridge.web.conftest import Web

pytestmark = pytest.mark.bus

_WORD = re.compile(rf"\b({'|'.join(sorted(MEANINGS, key=len, reverse=True))})\b")
_VOUCH = """import hashlib, json, os, pathlib, sys
path = pathlib.Path("results/research/mine.json")
path.parent.mkdir(parents=True, exist_ok=True)
path.write_text(json.dumps(dict(kind="mine", wall_s=2.0, samples=[1.0, 2.0, float(sys.argv[1])])))
print("kakeya-file", os.environ["KAKEYA_RUN_ID"], hashlib.sha256(path.read_bytes()).hexdigest())
"""
CLAIM = {"name": "wall_s", "pointer": "/wall_s", "unit": "s", "better": "lower", "samples": "/samples"}
# Each trust, as whether the answer is signed and a key is pinned, and its words.
TRUSTS = {
    "signed": (True, True, "signed by one's key"),
    "unpinned": (True, False, "signed by a key that is not pinned here"),
    "unsigned": (False, False, "unsigned"),
}


def bare(text, voucher):
    """Return the verdicts in a text that no voucher follows, but what the reader's own rules say."""
    plain = re.sub(r"\\|[│┃\n ]+", " ", text).replace("\\", "").replace("  ", " ")
    return [
        plain[each.start() - 30 : each.end() + 40] for each in _WORD.finditer(plain)
        if not plain[each.end() :].startswith(f", {voucher}")
        and not plain[: each.start()].endswith("the rules installed here say ")
        and not plain[each.end() :].startswith(" by the rules installed here:")
    ]  # fmt: skip


def unvouched(value, voucher, *, above=False):
    """Return the objects that hold a verdict's word, if neither they nor one around them names the voucher."""
    if isinstance(value, list):
        return [each for item in value for each in unvouched(item, voucher, above=above)]
    if isinstance(value, dict):
        above = above or voucher in (value.get("voucher"), (value.get("conclusion") or {}).get("voucher"))
        return [each for item in value.values() for each in unvouched(item, voucher, above=above)]
    return [value] if isinstance(value, str) and not above and bare(value, voucher) else []


class Places:
    """Everything that shows an answer's verdict, by name."""

    def __init__(self, clone: Path, branch: str, folder: Path) -> None:
        self.clone, self.branch, self.folder = clone, branch, folder
        self.bus = calls.BusClient(str(clone), "origin")

    def kakeya(self, *args: str) -> str:
        done = CliRunner().invoke(cli, ["-C", str(self.clone), *args], standalone_mode=False)
        assert done.exception is None or isinstance(done.exception, SystemExit), (args, done.exception)
        return done.stdout if "--json" in args else done.output

    def texts(self) -> dict[str, str]:
        branch, out = self.branch, self.folder / "fetched"
        source = from_branch(Client(self.clone), branch)
        web = Web(Client(self.clone))
        web.page()
        while web.figures.step():
            pass
        export(Buses.of(self.clone), self.folder / "site", 10)
        exported = "".join(path.read_text() for path in (self.folder / "site").rglob("*.html"))
        return {
            **{name: self.kakeya(name, branch) for name in ("verify", "wait", "status", "report")},
            "list": self.kakeya("list"),
            "fetch": self.kakeya("fetch", branch, "--out", str(out)),
            "gate": self.kakeya("gate", str(out)),
            "markdown": self.kakeya("report", branch, "--markdown"),
            "comparison": self.kakeya("report", branch, branch, "--markdown"),
            "page": self.strip(page(view_of([source, source]))),
            "web": self.strip(web.page(f"/run/{branch}")),
            "web list": self.strip(web.page()),
            "web trends": self.strip(web.page("/trends")),
            "exported pages": self.strip(exported),
            "mcp list": str(calls.recent(self.bus, models.Recent()).requests[0].verified),
        }

    @staticmethod
    def strip(text: str) -> str:
        return html.unescape(
            re.sub(r"<style.*?</style>|<script.*?</script>|<[^>]+>", " ", text, flags=re.DOTALL)
        )

    def objects(self) -> dict[str, list[object]]:
        branch, out = self.branch, self.folder / "fetched as an object"
        commands = {name: (name, branch) for name in ("verify", "wait", "status", "report")} | {
            "list": ("list",), "trends": ("list", "--claims", "*"), "fetch": ("fetch", branch, "--out", str(out)),
            "gate": ("gate", str(out)),
        }  # fmt: skip
        shown = {name: self.lines(self.kakeya(*args, "--json")) for name, args in commands.items()}
        run = self.bus.find(branch)
        fetched = calls.fetch(self.bus, models.Fetch(request=branch, out="results/mcp"))
        return shown | {
            "mcp wait": [calls.standing(run).model_dump(mode="json")],
            "mcp fetch": [fetched.model_dump(mode="json")],
        }

    @staticmethod
    def lines(text: str) -> list[object]:
        try:
            return [json.loads(text)]
        except ValueError:
            return [json.loads(line) for line in text.splitlines()]


@pytest.fixture
def places(clone, keyed, presets, monkeypatch, git, tmp_path):
    """Return the places that show one answer, which is signed or not, with a key pinned or none."""

    def make(gate, *, is_signed, is_pinned):
        (tmp_path / "job.py").write_text(_VOUCH)
        min_samples = 3 if gate == "ACCEPTED" else 4
        schema = {"type": "object", "required": ["absent"] if gate == "REJECTED" else ["kind"]}
        job = {
            "steps": [{"argv": ["${ENV:KAKEYA_MAC_PYTHON}", str(tmp_path / "job.py"), "3"]}], "gate": "mine",
            "collect": ["results/research/mine.json"],
            "reports": {"mine": {"schema": schema, "claims": [CLAIM | {"min_samples": min_samples}]}},
        }  # fmt: skip
        monkeypatch.setenv("KAKEYA_PRESETS", str(presets(job=job)))
        # An agent's server runs in its repository.
        monkeypatch.chdir(clone)
        run = Client(clone).run("job")
        keyed.handle(preset_folder=str(tmp_path / "presets"), signed=is_signed)
        if is_pinned:
            git(clone, "config", "kakeya.publicKey", str(keyed.key()))
        return Places(clone, run.branch, tmp_path)

    return make


# Each verdict and each trust once: no place knows of the other when it shows one.
@pytest.mark.parametrize(
    ("gate", "trust"), [("ACCEPTED", "signed"), ("INCOMPLETE", "unsigned"), ("REJECTED", "unpinned")]
)
@pytest.mark.long
def test_each_place_names_the_voucher(places, trust, gate):
    is_signed, is_pinned, voucher = TRUSTS[trust]
    shown = places(gate, is_signed=is_signed, is_pinned=is_pinned)

    texts, objects = shown.texts(), shown.objects()

    assert {name: bare(text, voucher) for name, text in texts.items() if bare(text, voucher)} == {}
    assert {
        name: unvouched(each, voucher) for name, each in objects.items() if unvouched(each, voucher)
    } == {}
    assert [name for name, text in texts.items() if not re.search(rf"{gate}\W+{voucher}", text)] == []
    assert [name for name, each in objects.items() if gate not in str(each) or voucher not in str(each)] == []


def test_the_words_of_the_table_are_those_of_the_wire():
    assert {*MEANINGS} == {*Gate.model_fields["verdict"].annotation.__args__}


# Each file that reads a verdict's word, and who is named beside it.
READERS = {
    "bridge/bus/wire.py": "nobody: it prints nothing",
    "bridge/cli/gate.py": "the answer's voucher, or the rules installed here",
    "bridge/demo/tables.py": "nobody: it chooses what to show",
    "bridge/mcp/calls.py": "the field `voucher`",
    "bridge/show/build.py": "the conclusion of the same run",
    "bridge/show/forms/templates/run.html": "the answer's voucher",
    "bridge/show/trends.py": "the conclusion of the same value",
    "bridge/verify/answer_checks.py": "the rules installed here, or a check that failed",
    "bridge/verify/attestation.py": "the signature of the statement that it is part of",
    "bridge/verify/verdict.py": "the answer's voucher",
    "runner/serve/execute.py": "nobody: it writes the answer",
    ".github/actions/run/action.yml": "the output `voucher`",
}


def test_each_reader_of_a_verdict_is_known():
    root = Path(__file__).parents[3]
    sources = [
        path for top in ("bridge", "runner", "engine", ".github") for path in (root / top).rglob("*")
        if path.suffix in (".py", ".html", ".yml", ".js") and path.is_file()
    ]  # fmt: skip
    reads = re.compile(r"(?<!bridge\.verify)\.verdict\b(?!\()")

    assert {
        str(path.relative_to(root)) for path in sources if reads.search(path.read_text(encoding="utf-8"))
    } == READERS.keys()
