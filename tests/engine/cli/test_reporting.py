"""What a measurement prints: the tables of the report's page, and some of its claims."""

from engine.cli.reporting import plots, show_tables

CLAIMS = [
    {"name": "recall", "arm": "raw", "value": 1.0, "interval": [0.7, 1.0], "definition": "", "where": {}},
    {"name": "recall", "arm": "raw", "value": 0.5, "definition": "", "where": {"length": 256}},
    {"name": "decode_tok_s", "arm": "raw", "value": 123.0, "definition": "", "where": {}},
]
REPORT = {
    "kind": "kakeya.recall",
    "prompts": [
        {"id": f"{length}/0.5/0", "length": length, "expected": "PINE-1234"} for length in (256, 512)
    ],
    "arms": [{"name": "raw", "role": "baseline", "cache": "raw"}],
    "rows": [
        {"arm": "raw", "prompt": "256/0.5/0", "text": "PINE-1234"},
        {"arm": "raw", "prompt": "512/0.5/0", "text": "nothing"},
    ],
    "claims": CLAIMS,
}


def test_a_report_is_printed_with_the_named_claims_over_all_prompts(capsys):
    show_tables(REPORT, claims=("recall",))
    words = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["raw", "1", "of", "1", "0", "of", "1"] in words
    assert ["recall", "raw", "1", "0.7", "to", "1"] in words
    assert not any("123" in line or "0.5" in line for line in words)


def test_its_plots_are_one_drawing():
    assert plots(REPORT).startswith("<svg")
    assert ">Recall</text>" in plots(REPORT)
