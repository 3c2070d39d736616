"""What reports show of any data, strangers' included: no text leaves its place, and each kind has its plots."""

from __future__ import annotations

import json
import re
import subprocess
from html.parser import HTMLParser
from io import StringIO

import pytest
from markdown_it import MarkdownIt
from rich.console import Console

from bridge.bus.wire import parse_result
from bridge.checklist import Check
from bridge.common.drawing.axis import axis
from bridge.common.drawing.plot import Plot, Point, Series
from bridge.common.drawing.svg import figure, figures
from bridge.common.drawing.text import cell, number
from bridge.reports.kinds import LEGACY
from bridge.reports.views import codec, rows
from bridge.reports.views.model import Claim
from bridge.show.build import view_of
from bridge.show.forms.markdown import escape, markdown
from bridge.show.forms.templates import page
from bridge.show.forms.terminal import show
from bridge.show.report_view import report_view
from bridge.show.source import Source
from bridge.show.trends import sparkline
from tests.bridge.gate.reports import BUILDERS
from tests.system import program

PATH = "results/research/report.json"

PAYLOADS = {
    "a script": "<script>alert(1)</script>",
    "an end of an attribute": '"><img src=x onerror=alert(1)>',
    "a single quote": "' onmouseover='alert(1)",
    "an end of the style": "</style><script>alert(1)</script>",
    "an end of the title": "</title></svg><h1>accepted</h1>",
    "a comment": "<!-- x --><![CDATA[ x ]]>",
    "an entity": "&lt;b&gt;&#60;b&#62;",
    "a link": "[x](javascript:alert(1)) https://example.invalid www.example.invalid ![x](//example.invalid/p.png)",
    "a row of a table": "a | b | c",
    "a block of code": "```",
    "a backslash at the end": "a \\",
    "a title": "# accepted",
    "a list": "1. accepted",
    "emphasis": "**accepted** _x_ ~~x~~ `x` $x$ :+1:",
    "names": "@somebody #1 org/repo#2 GH-3",
    "names after any character": "a@somebody é@somebody e\u0301@somebody 日@somebody _@somebody @@somebody x#1",
    "what is not seen": "a\ufe01\u3164\u17b4\u180b\U000e0041b",
    "a terminal's colours": "\x1b[32mACCEPTED\x1b[0m\x07",
    "a turn of direction": "\u202egnorw\u202c",
    "markup of rich": "[bold green]ACCEPTED[/] [link=https://example.invalid]x[/link]",
    "a null": "a\x00b",
}


# The names of folders and files are made from these two, so no answer with another form is read.
NONCE = "1795311128-efd45232e449"


def source(text="X y", report=None, **changes):
    """An answer in which every text is this one."""
    digest = "0" * 40
    reported = {
        "kind": "kakeya.codec-rd",
        "created_at": text,
        "seconds": 1.5,
        "config": {"plain": text, text: 1},
        "identity": {"host": text, "versions": {text: text}},
        "arms": [{"name": text, "role": "r"}, {"name": "b", "role": text}],
        text: {text: [text]},
        "claims": [
            {"name": text, "value": 1.5, "definition": text, "arm": text, "against": text,
             "where": {"workload": text}, "interval": [1, 2]},
        ],
        "rows": [
            {"codec": text, "distribution": text, "stored_bits_per_value": 2 + i, "rel_mse": 0.1 / (1 + i),
             "group": text, text: i}
            for i in range(3)
        ],
    }  # fmt: skip
    data = json.dumps(reported if report is None else report).encode()
    log = f"{text}\nfine\n".encode()
    result = {
        "schema_version": 2, "state": "gate_rejected", "reason": {"code": text, "message": text}, "branch": text,
        "nonce": NONCE, "request": digest, "workload": digest, "requested_by": text, "trusted_by": text,
        "preset": "noop", "preset_digest": text, "code": "request", "params": {text: text},
        "commands": [{"argv": [text, text], "exit_code": 1, "seconds": 1.0, "log": text, "exceeded": text}],
        "exit_code": 5, "token": 1, "runner": {"id": text[:64], "instance": "i", "version": text[:32]},
        "host": {text: text, "inner": {text: text}}, "versions": {text: text}, "started_at": text,
        "finished_at": text, "seconds": 1.0,
        "logs": [{"path": ".mac-bridge/logs/a.log", "stream_sha256": text, "stream_bytes": 1, "kept_bytes": 1,
                  "truncated": True}],
        "files": [{"path": PATH, "sha256": text, "size": 1}, {"path": text, "sha256": text, "size": 1}],
        "gate": {"verdict": "REJECTED", "violations": [{"code": text, "message": text, "path": text}]},
    }  # fmt: skip
    checks = [Check("files", ok=False, message=text, fix=text), Check(text, ok=None, message=text)]
    files = {PATH: data, ".mac-bridge/logs/a.log": log}
    return Source(text, parse_result(json.dumps(result | changes).encode()), checks, files)


def rd(bits, error):
    return {"codec": "voronoi", "distribution": "gaussian", "stored_bits_per_value": bits, "rel_mse": error}


class Structure(HTMLParser):
    """The elements of a page and the names of their attributes, and all that is to be read in it."""

    def __init__(self, text):
        super().__init__()
        self.seen, self.read = [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.seen.append((tag, [name for name, _ in attrs]))

    handle_startendtag = handle_starttag

    def handle_endtag(self, tag):
        self.seen.append(tag)

    def handle_comment(self, data):
        self.seen.append(data)

    def handle_data(self, data):
        self.read.append(data)


@pytest.mark.parametrize("payload", PAYLOADS.values(), ids=PAYLOADS)
def test_no_text_leaves_its_place_in_a_page(payload):
    fine = Structure(page(view_of([source()] * 2)))
    bad = Structure(page(view_of([source(payload)] * 2)))

    assert bad.seen == fine.seen
    shown = cell(payload)
    assert "".join(bad.read).count(shown) >= 40
    assert re.search("[\x00-\x09\x0b-\x1f\u202a-\u202e\u17b4\u3164\ufe01]", "".join(bad.read)) is None


@pytest.mark.parametrize("payload", PAYLOADS.values(), ids=PAYLOADS)
def test_no_text_leaves_its_place_in_markdown(payload):
    def structure(text):
        parser = MarkdownIt("commonmark").enable("table").enable("strikethrough")
        found = []
        for token in parser.parse(text):
            inner = [
                child.type for child in token.children or () if child.type not in ("text", "text_special")
            ]
            found.append((token.type, inner, token.content if token.type == "html_block" else ""))
        return found

    fine = structure(markdown(view_of([source()])))
    text = markdown(view_of([source(payload)]))

    assert structure(text) == fine
    # What GitHub does beyond that: it notifies who is named, and links what looks like an address.
    outside = re.sub(r"(?ms)^(`{3,})text\n.*?^\1$", "", text)
    assert re.search(r"@\w|#\d|GH-\d|[^\\]://|www\.", outside) is None


@pytest.mark.parametrize("payload", PAYLOADS.values(), ids=PAYLOADS)
def test_no_text_steers_a_terminal(payload):
    out = Console(file=StringIO(), width=4000, force_terminal=False)

    show(view_of([source(payload)]), out)

    text = out.file.getvalue()
    assert cell(payload) in text
    assert re.search("[\x00-\x09\x0b-\x1f\u202a-\u202e]", text) is None


@pytest.mark.parametrize(
    "report",
    [
        [], "text", {}, {"rows": 1}, {"kind": 7, "rows": [1, None]}, {"kind": "kakeya.codec-rd", "rows": [{}]},
        {"kind": "kakeya.codec-rd", "rows": [rd(1e300, 0), rd(4, 0), rd(0, 1e-300), rd(True, None), rd(-1, 1)]},
        {"kind": "kakeya.spec-bench", "rows": [{"arm": [], "prompt": {}, "decode_tokens": -1, "decode_s": 0}]},
        {"kind": "kakeya.spec-bench", "rows": [{"commits": ["x", True], "drafted": [-5], "accepted": 3}]},
        {"kind": "kakeya.recall", "prompts": [{"id": "p", "expected": "", "length": 0}], "rows": [{"prompt": "p"}]},
        {"kind": "kakeya.recall", "prompts": [{"id": "p", "expected": "a", "length": -1}], "rows": [{"prompt": "p"}]},
        {"kind": "kakeya.verify-l", "rows": [{"length": 1, "context": 0, "seconds": -1e14}, {"length": True}]},
        {"kind": "kakeya.kv-quant", "rows": [{"arm": "a", "n_values": 0}, {"arm": "b", "sum_nll": 1e14}]},
        {"kind": "kakeya.parity", "rows": [{"reference": [1], "candidate": 1}]},
        {"claims": [{"name": None, "value": "1", "where": [], "interval": [None]}, 4]},
    ],
    ids=str,
)  # fmt: skip
def test_a_report_that_is_wrong_in_any_way_is_still_shown(report):
    view = view_of([source(report=report), source()])

    assert Structure(page(view)).seen[-1] == "html"
    assert markdown(view)
    show(view, Console(file=StringIO()))
    json.dumps(view.as_dict(), allow_nan=False)


@pytest.mark.parametrize("kind", BUILDERS)
def test_every_kind_that_the_gate_knows_is_shown_with_its_claims(kind):
    report = BUILDERS[kind]()

    shown = report_view(PATH, json.dumps(report).encode())

    assert shown.problem == ""
    assert len(shown.claims) == len(report.get("claims", ())) or kind == LEGACY
    assert all(claim.value is not None for claim in shown.claims)
    assert shown.claims or kind in {
        "kakeya.codec-rd", "kakeya.serve-conformance", "kakeya.all-reduce", "kakeya.distributed"
    }  # fmt: skip
    assert [table for table in shown.tables if not table.folded] or kind == LEGACY
    assert all(figures(shown.plots))
    without = "kakeya.parity", "kakeya.serve-conformance", "kakeya.pass-at-1", "kakeya.distributed"
    assert shown.plots or kind in (LEGACY, *without)


@pytest.mark.parametrize(("kind", "ties"), [("tie", 1), ("fault", 0)])
def test_answers_of_the_server_are_counted_by_drafts_and_cache(kind, ties):
    report = BUILDERS["kakeya.serve-conformance"]()
    before = report_view(PATH, json.dumps(report).encode()).tables[0]
    changed = next(row for row in report["rows"] if row["draft"] == "lookup")
    changed["tokens"] = "sha256:" + "0" * 64
    changed["divergence"] = {"index": 3, "kind": kind}

    after = report_view(PATH, json.dumps(report).encode()).tables[0]

    assert all(answers == equal and not parted for _, _, answers, equal, parted, _ in before.rows)
    changes = [(a[3] - b[3], b[4]) for a, b in zip(before.rows, after.rows, strict=True) if a != b]
    assert changes == [(1, ties)]


def decode(arm, prompt, seconds, *, repeat=0, text="the answer is 42", **more):
    return {
        "arm": arm,
        "prompt": prompt,
        "repeat": repeat,
        "decode_tokens": 40,
        "decode_s": seconds,
        "text": text,
        **more,
    }


def named(found, title):
    (one,) = [one for one in found if one.title == title]
    return one


def test_speed_is_shown_by_arm_and_prompt_and_warm_ups_count_nowhere():
    rows = [
        decode("plain", "p", 9.0, warmup=True),
        decode("plain", "p", 2.0), decode("spec", "p", 1.0, commits=[4, 2], drafted=[4, 4], accepted=[3, 1]),
        decode("plain", "p", 4.0), decode("spec", "p", 1.0, commits=[3], drafted=[4], accepted=[2]),
    ]  # fmt: skip
    arms = [{"name": "plain"}, {"name": "spec", "role": "candidate"}]
    report = {"kind": "kakeya.spec-bench", "arms": arms, "rows": rows}

    shown = report_view(PATH, json.dumps(report).encode())

    arms = named(shown.tables, "By arm")
    by_arm = {row[0]: dict(zip(arms.columns, row, strict=True)) for row in arms.rows}
    assert (by_arm["plain"]["rows"], by_arm["plain"]["median tok/s"]) == (2, 15.0)
    rounds = named(shown.tables, "Rounds")
    assert rounds.rows == (("spec", 3, 3.0, 0.5),)
    plain, spec = named(shown.plots, "Decoding speed").series
    assert plain.points[0] == Point(0, 15.0, 10.0, 20.0, plain.points[0].label)
    assert spec.points[0].value == 40.0
    assert [one.name for one in named(shown.plots, "Tokens a round (tau)").series] == ["spec"]
    assert [p.at for p in named(shown.plots, "In the order of the run").series[0].points] == [1, 2, 4]


def test_the_table_of_arms_shows_the_claimed_speed_over_plain_loops_or_else_over_mlx_lm():
    rows = [
        {"arm": arm, "prompt": "p", "decode_tokens": 10, "decode_s": 1.0, "warmup": False}
        for arm in ("plain", "spec")
    ]
    older = {"name": "decode_speedup", "arm": "spec", "against": "plain", "value": 3.0}
    newer = {"name": "plain_speedup", "arm": "spec", "value": 2.0}
    of_some = newer | {"value": 9.0, "where": {"workload": "code"}}
    for claims, column, shown in (
        ([older, newer, of_some], "over plain loops", "2.00x"),
        ([older], "over mlx-lm", "3.00x"),
    ):
        report = {"kind": "kakeya.spec-bench", "rows": rows, "claims": claims}
        arms = named(report_view(PATH, json.dumps(report).encode()).tables, "By arm")
        assert [row[arms.columns.index(column)] for row in arms.rows] == [None, shown]


def test_arms_stand_in_the_order_in_which_the_report_describes_them():
    """Not in that of their first rows, which is different in every run."""
    arms = [
        {"name": "raw", "cache": "raw"},
        {"name": "a", "cache": "affine@4g64", "options": {"raw_layers": [0, 1]}},
    ]
    rows = [
        decode(name, "p", 1.0, memory={"cache_bytes": 9, "layers": [{}, {"count": 2}]})
        for name in ("b", "a", "raw")
    ]

    shown = report_view(PATH, json.dumps({"kind": "kakeya.native", "arms": arms, "rows": rows}).encode())

    table = named(shown.tables, "By arm")
    assert [row[0] for row in table.rows] == ["raw", "a", "b"]
    caches = [row[table.columns.index("cache")] for row in table.rows]
    assert caches == ["raw", "affine@4g64, 2 of 3 layers raw", ""]


def test_claims_of_one_name_stand_together_and_are_defined_once():
    claims = [
        Claim(name, value, f"what {name} is", arm=arm)
        for arm, value in (("a", 1.0), ("b", 2.0)) for name in ("bytes", "recall")
    ]  # fmt: skip
    table, meant = rows.claims_tables(claims)
    assert table.columns == ("claim", "of", "value")
    assert [row[:2] for row in table.rows] == [
        ("bytes", "a"),
        ("bytes", "b"),
        ("recall", "a"),
        ("recall", "b"),
    ]
    assert meant.rows == (("bytes", "what bytes is"), ("recall", "what recall is"))


def test_a_comparison_says_that_other_weights_were_measured():
    def measured_with(weights, tokens):
        model = {"role": "target", "id": "tiny", "weights": weights, "dtype": "float32"}
        return source(
            report={"kind": "kakeya.native", "models": [model], "config": {"max_tokens": tokens, "seed": 0}}
        )

    view = view_of([measured_with("sha256:a", 32), measured_with("sha256:b", 64)])
    assert named(view.tables, "What else differs").rows == (
        ("native: max_tokens", 32, 64),
        ("native: target weights", "sha256:a", "sha256:b"),
    )


def test_a_comparison_of_many_figures_is_folded_in_markdown_not_left_out():
    def measured_with(error):
        claims = [{"name": "error", "value": error, "arm": f"arm{i}"} for i in range(60)]
        return source(report={"kind": "mine", "claims": claims})

    text = markdown(view_of([measured_with(0.1), measured_with(0.2)]))
    assert "<details><summary>Figures side by side</summary>" in text
    assert "2x |" in text


def test_equal_shares_do_not_hide_each_other():
    points = (Point(1, 0.5, 0.2, 0.8), Point(2, 0.5, 0.2, 0.8))
    drawn = str(
        figure(Plot("t", "x", "y", (Series("a", points, "line"), Series("b", points, "line"))), {"b": 1})
    )
    spans = re.findall(r'<line x1="([\d.]+)" x2="\1" y1="[\d.]+" y2="[\d.]+" class="span"', drawn)
    assert len(spans) == len(set(spans)) == 4


def test_of_many_prompts_the_workloads_are_shown():
    prompts = [{"id": f"p{i}", "workload": "code" if i % 2 else "maths"} for i in range(30)]
    rows = [decode("plain", one["id"], 2.0) for one in prompts]

    shown = report_view(
        PATH, json.dumps({"kind": "kakeya.native", "prompts": prompts, "rows": rows}).encode()
    )

    assert named(shown.plots, "Decoding speed").categories == ("maths", "code")


def test_recall_is_shown_by_length_and_one_miss_in_a_repeat_is_a_miss():
    prompts = [{"id": f"{n}-{i}", "length": n, "expected": "42"} for n in (512, 1024) for i in range(2)]
    rows = [decode("raw", one["id"], 1.0) for one in prompts]
    rows.append(decode("raw", "1024-0", 1.0, repeat=1, text="I do not know"))

    shown = report_view(
        PATH, json.dumps({"kind": "kakeya.recall", "prompts": prompts, "rows": rows}).encode()
    )

    assert shown.tables[0].columns == ("arm", "512 tokens", "1024 tokens")
    assert shown.tables[0].rows == (("raw", "2 of 2", "1 of 2"),)
    assert [(p.at, p.value) for p in shown.plots[0].series[0].points] == [(512, 1.0), (1024, 0.5)]


def test_sweeps_and_caches_are_shown():
    verify = [
        {"length": n, "context": 64, "seconds": s} for n, s in ((1, 0.01), (1, 0.03), (1, 0.02), (8, 0.04))
    ]
    shown = report_view(PATH, json.dumps({"kind": "kakeya.verify-l", "rows": verify}).encode())
    assert shown.tables[0].rows == ((1.0, 20.0, 1.0), (8.0, 40.0, 2.0))

    sums = {
        "sum_squared_error": 1,
        "sum_squares": 100,
        "n_positions": 4,
        "sum_kl": 2,
        "same_top": 3,
        "sum_nll": 0,
    }
    rows = [{"arm": "e8v", "memory": {"cache_bytes": 17}, "n_values": 32, **sums}] * 2
    shown = report_view(PATH, json.dumps({"kind": "kakeya.kv-quant", "rows": rows}).encode())
    assert shown.tables[0].rows == (("e8v", 4.25, 0.01, 0.5, 0.75, 1.0),)

    rows = [{"prompt": "p", "reference": [1, 2], "candidate": [1, 3]}]
    shown = report_view(PATH, json.dumps({"kind": "kakeya.parity", "rows": rows}).encode())
    assert shown.tables[0].rows[0][:3] == ("p", 2, 0.5)


def test_a_table_of_many_rows_is_cut_and_what_is_the_same_stands_beside_it():
    rows = [{"i": i, "same": "x", "list": list(range(100))} for i in range(1000)]

    table = report_view(PATH, json.dumps({"kind": "mine", "rows": rows}).encode()).tables[-1]

    assert (table.title, table.columns, len(table.rows)) == ("Rows (1000)", ("i",), 300)
    assert "The first 300 of 1000 rows. The same in all: same x, list [0, 1," in table.note


def test_two_runs_stand_side_by_side():
    def one(value, host):
        claims = [{"name": "decode_speedup", "value": value, "arm": "spec", "against": "plain"}]
        claims.append({"name": "only_here", "value": 1.0} if value == 2 else {"name": "both", "value": 0})
        return source(report={"kind": "mine", "claims": claims}, host={"chip": host})

    view = view_of([one(2, "M4"), one(3.0, "M5")])

    figures = named(view.tables, "Figures side by side")
    assert figures.rows[0] == ("decode_speedup", "spec against plain", 2.0, 3.0, "1.5x")
    assert ("only_here", "", 1.0, None, None) in figures.rows
    assert named(view.tables, "What else differs").rows == (("host: chip", "M4", "M5"),)
    (plot,) = view.plots
    assert plot.categories == ("decode_speedup: spec against plain",)
    assert plot.series[0].points[0].value == 1.5


def test_the_error_of_codes_is_drawn_over_stored_bits_with_the_limit():
    rows = [
        {"codec": "voronoi", "distribution": "gaussian", "stored_bits_per_value": b, "rel_mse": 2 * 4.0**-b}
        for b in (2, 4)
    ]
    plain, gap = codec.plots({"rows": rows})

    assert [(p.at, p.value) for p in plain.series[-1].points] == [(2.0, 0.0625), (4.0, 0.00390625)]
    assert plain.series[-1].style == "limit"
    assert {round(p.value, 3) for p in gap.series[0].points} == {3.01}


@pytest.mark.parametrize(
    ("low", "high", "log", "ticks"),
    [
        (0, 10, False, [0, 2, 4, 6, 8, 10]),
        (-0.2, 0.3, False, [-0.2, -0.1, 0, 0.1, 0.2, 0.3]),
        (1, 1, False, [0.96, 0.98, 1, 1.02, 1.04]),
        (1e-6, 1e-2, True, [1e-6, 1e-5, 1e-4, 1e-3, 1e-2]),
        (0.9, 1.1, True, [0.9, 0.95, 1, 1.05, 1.1]),
    ],
)
def test_ticks_are_round_and_few(low, high, log, ticks):
    made = axis([low, high], 0, 100, log=log)

    assert [t for t in made.ticks() if low <= t <= high or low == high] == pytest.approx(
        [t for t in ticks if low <= t <= high or low == high]
    )
    assert made.position(made.low) == 0
    assert made.position(made.high) == 100


def test_a_plot_without_a_point_that_can_be_drawn_is_left_out():
    empty = Plot("t", "x", "y", (Series("s", (Point(0, float("inf")), Point(1, 0.0))),), log=True)

    assert figures([empty]) == [""]


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (0.0, "0"), (123456, "123456"), (0.00474401, "0.004744"), (1234.5678, "1235"), (2.5e-7, "2.50e-07"),
     (1e9, "1.00e+09"), (-1.5, "-1.5"), (99.99999, "100")],
)  # fmt: skip
def test_numbers_have_four_digits_that_count(value, text):
    assert number(value) == text


def test_a_sparkline_has_a_bar_a_value():
    assert sparkline([1, 2, 3]) == "▁▅█"
    assert sparkline([2, 2]) == "▅▅"
    assert sparkline([]) == ""


BROWSER = program("chromium", "google-chrome", "chromium-browser")


@pytest.mark.skipif(BROWSER is None, reason="there is no Chromium here")
def test_a_browser_applies_the_page_s_style_and_stops_a_script(tmp_path):
    """What it stops it logs: the script that was put there to try the policy, and nothing of the page itself."""
    path = tmp_path / "page.html"
    made = page(view_of([source(PAYLOADS["an end of the style"])]))
    path.write_text(
        made.replace("</body>", "<script>document.title = 'ran'</script></body>"), encoding="utf-8"
    )
    argv = [BROWSER, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
    argv += [
        f"--user-data-dir={tmp_path / 'profile'}",
        "--enable-logging=stderr",
        "--dump-dom",
        path.as_uri(),
    ]

    done = subprocess.run(argv, capture_output=True, text=True, timeout=120, check=True)

    stopped = [line for line in done.stderr.splitlines() if "Content Security Policy" in line]
    assert len(stopped) == 1
    assert "script" in stopped[0]
    assert "<title>ran" not in done.stdout


def test_a_name_that_is_cut_has_no_character_that_a_terminal_escapes():
    assert escape("someone@example.invalid") == "someone@&ZeroWidthSpace;example.invalid"
