import json
import statistics

import pytest

from bridge.common.drawing.text import number
from bridge.reports.claims.verify import passes_of, verify_claims
from engine import models
from engine.cli.reporting import show_tables
from engine.evals.verify_cost import FilledCache, Sweep, job
from engine.harness.job import run_all
from engine.mx import mx
from tests.engine import evals_world, folders

SWEEP = Sweep(lengths=(1, 3), contexts=(5, 40), caches=("raw", "affine@4g64"), repeats=5)
PASSES = 2 * 2 * 2 * (5 + 1)


@pytest.fixture(scope="session")
def pair(tmp_path_factory):
    """A target with a window of 16 tokens in every other layer."""
    folder = tmp_path_factory.mktemp("sliding")
    return models.load(folders.write_target(folder, {**folders.GEMMA3, "num_hidden_layers": 2}))


@pytest.fixture(scope="session")
def reports(pair):
    return json.loads(json.dumps(run_all(job(pair, SWEEP))[0], allow_nan=False))


def test_lengths_and_caches_take_turns(reports):
    rows = sorted((row for r in reports.values() for row in r["rows"]), key=lambda row: row["sequence"])
    assert [row["sequence"] for row in rows] == [*range(PASSES)]
    turns = [(row["cache"], row["length"]) for row in rows if row["context"] == 40]
    firsts = turns[:: len(SWEEP.lengths) * len(SWEEP.caches)]
    assert len(set(firsts)) == 4
    for i in range(0, len(turns), 4):
        assert len(set(turns[i : i + 4])) == 4
    assert all(row["warmup"] == (row["repeat"] == 0) for row in rows)


def test_claims_are_medians_of_counted_passes(reports):
    for report in reports.values():
        counted = {
            (n, c): [
                row["seconds"]
                for row in report["rows"]
                if (row["length"], row["context"]) == (n, c) and not row["warmup"]
            ]
            for n in SWEEP.lengths
            for c in SWEEP.contexts
        }
        assert all(len(seconds) == 5 for seconds in counted.values())
        assert len(report["claims"]) == 8
        for claim in report["claims"]:
            where = claim["where"]
            middle = statistics.median(counted[where["length"], where["context"]])
            one = statistics.median(counted[1, where["context"]])
            value = 1000 * middle if claim["name"] == "verify_ms" else middle / one
            assert claim["value"] == pytest.approx(value)


@pytest.mark.long
def test_an_interrupted_sweep_goes_on_where_it_stopped(pair, tmp_path):
    out, done = tmp_path / "verify.json", []

    def stopping():
        done.append(1)
        if len(done) == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_all(job(pair, SWEEP), out, on_step=stopping)
    found, journal = run_all(job(pair, SWEEP), out)
    assert journal.resumed == 5
    sequence = [row["sequence"] for report in found.values() for row in report["rows"]]
    assert sorted(sequence) == [*range(PASSES)]
    assert {report["config"]["resumed_rows"] for report in found.values()} == {5}
    for report in found.values():
        assert evals_world.violations(report) == []


def test_few_repeats_claim_nothing(reports):
    rows = [row for row in next(iter(reports.values()))["rows"] if row["repeat"] <= 4]
    assert verify_claims({"rows": rows}) == []


def test_a_pass_leaves_the_context_as_it_was(pair):
    """Past the window too: the ring has wrapped, and nothing of a pass may stay in it."""
    held = FilledCache(pair, "raw", [*range(1, 41)])
    before = [[cache.offset, *cache.state] for cache in held.caches]
    for length in (1, 3, 20, 2):
        assert held.measure([7] * length)[1] > 0
    after = [[cache.offset, *cache.state] for cache in held.caches]
    assert [cache[0] for cache in after] == [40, 40]
    for one, other in zip(before, after, strict=True):
        for x, y in zip(one[1:], other[1:], strict=True):
            assert x.tolist() == y.tolist() if hasattr(x, "tolist") else x == y


def test_a_longer_context_continues_a_shorter_one_between_passes(pair):
    whole = FilledCache(pair, "raw", [*range(1, 41)])
    parts = FilledCache(pair, "raw", [*range(1, 6)])
    parts.measure([7, 8, 9])
    parts.extend([*range(6, 41)])
    assert (whole.length, parts.length) == (40, 40)
    assert [cache.offset for cache in parts.caches] == [cache.offset for cache in whole.caches]
    one, other = (
        next(cache.keys for cache in each.caches if type(cache).__name__ == "KVCache")[..., :40, :]
        for each in (whole, parts)
    )
    assert mx.abs(one - other).max() < 1e-4


@pytest.mark.parametrize("contexts", [(40, 5, 20), (5, 20, 40)], ids=str)
def test_contexts_come_in_any_order(pair, contexts):
    sweep = Sweep(lengths=(1,), contexts=contexts, caches=("raw",), repeats=1)
    rows = run_all(job(pair, sweep))[0]["raw"]["rows"]
    assert [row["context"] for row in rows] == [n for n in contexts for _ in range(2)]


def test_the_gate_believes_the_reports(reports):
    for report in reports.values():
        assert evals_world.violations(report) == []


def test_a_table_holds_a_length_a_line_and_cuts_nothing_off(reports, capsys):
    for cache, report in reports.items():
        show_tables(report)
        said = capsys.readouterr().out
        assert f"cache {cache}" in said
        found = {line.split()[0]: line.split()[1:] for line in said.splitlines() if line.strip()}
        middle = {key: statistics.median(seconds) for key, seconds in passes_of(report["rows"]).items()}
        for n in SWEEP.lengths:
            assert found[str(n)] == [
                number(value)
                for context in SWEEP.contexts
                for value in (1000 * middle[context, n], middle[context, n] / middle[context, 1])
            ]
