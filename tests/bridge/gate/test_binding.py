"""The binding of a report to its run, and whether its tests notice each condition that is left out."""

from __future__ import annotations

import ast
import hashlib
import importlib
import inspect
import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import ModuleType, SimpleNamespace

import pytest

from bridge.gate import (
    NO_RUN,
    RunBinding,
    binding,
    check_report,
    command_line,
    has_run_id,
    judge,
    run_id,
    verdict,
)
from bridge.gate.deadline import Deadline, TooLongError
from bridge.reports import digests
from tests.bridge.gate import reports
from tests.bridge.gate.reports import as_log, log_lines, older_log_lines

REPORT, RUN = reports.vouched(reports.verify_l())
COMPARED, COMPARING = reports.vouched(reports.compare())
OTHER = reports.in_run(reports.parity())
LINES = [*log_lines(REPORT)]
OLDER = [*older_log_lines(REPORT)]
CUT = "\n[... 70000 bytes left out ...] "


def changed(**fields):
    return REPORT | fields


def log(*lines, **fields):
    return replace(RUN, logs=(as_log(*lines),), **fields)


def with_row(place, **fields):
    rows = [*REPORT["rows"]]
    rows[place] = rows[place] | fields
    return changed(rows=rows)


def with_identity(report=REPORT, **fields):
    """Return a report and the run that measured it so."""
    report = report | {"identity": report["identity"] | fields}
    return report, replace(RUN, logs=(as_log(*log_lines(report)),))


def with_config(argv, **fields):
    """Return a report with options, and the run of its command line."""
    report = changed(config=REPORT["config"] | fields)
    argvs = (("python", *argv.split()),)
    return report, replace(RUN, logs=(as_log(*log_lines(report)),), argvs=argvs)


def at(**fields):
    """Return a report of another time, as its run's log has it."""
    report = changed(**fields)
    return report, replace(RUN, logs=(as_log(*log_lines(report)),))


EDITED, NOT_THIS, UNNAMED, OTHER_TIME = ["EDITED"], ["NOT_THIS_RUN"], ["RUN_UNNAMED"], ["OTHER_TIME"]
AGAIN = [*log_lines(with_row(0, seconds=1.0))]  # the same measurement once more, with other times
STEP = "bench verify-l"
# Report, run, and the codes of what does not fit.
CASES = {
    "the report of the run": (REPORT, RUN, []),
    "a run without facts about its host": (REPORT, replace(RUN, host={}, versions={}, argvs=()), []),
    # Its name
    "no name": (reports.verify_l(), RUN, UNNAMED),
    "a name that is no text": (changed(run={"id": 7}), RUN, UNNAMED),
    "a name that is no object": (changed(run=reports.RUN), RUN, UNNAMED),
    "another id": (changed(run={"id": "0" * 64}), RUN, NOT_THIS),
    # Its times
    "written before the job": (*at(created_at="2026-01-31T11:49:50Z"), OTHER_TIME),
    "written after the job": (*at(created_at="2026-01-31T12:05:10Z"), OTHER_TIME),
    "written as it began, by a slow clock": (*at(created_at="2026-01-31T11:49:58Z"), []),
    "written as it ended, by a fast clock": (*at(created_at="2026-01-31T12:05:02Z"), []),
    "no time": (*at(created_at=None), OTHER_TIME),
    "a clock that was set back, or a machine that slept": (*at(created_at="2026-01-31T13:00:00Z"), OTHER_TIME),
    "longer than the job": (*at(seconds=904.0), NOT_THIS),
    "as long as the job": (*at(seconds=902.0), []),
    "no duration": (*at(seconds=None), []),
    # Its machine
    "no machine": (*at(identity=None), []),
    "another memory": (*with_identity(memory_bytes=8 << 30), NOT_THIS),
    "about the same memory": (*with_identity(memory_bytes=int(16.5 * 2**30)), []),
    "a memory that is no number": (*with_identity(memory_bytes="16 GB"), []),
    "a host that does not know its memory": (REPORT, replace(RUN, host={"memory_bytes": None}), []),
    "another mlx": (*with_identity(versions={"mlx": "0.1"}), NOT_THIS),
    "no mlx": (*with_identity(versions={"numpy": "2.0"}), []),
    "versions that are no object": (*with_identity(versions=["mlx"]), []),
    "a host without mlx": (REPORT, replace(RUN, versions={"mlx": None}), []),
    # Its digests
    "an edited header": (changed(models=[]), RUN, EDITED),
    "load and power are known later": (
        REPORT | {"identity": REPORT["identity"] | {"load": [9.0]}}, RUN, EDITED,
    ),
    "an edited first row": (with_row(0, seconds=1.0), RUN, [*EDITED]),
    "an edited last row": (with_row(-1, seconds=1.0), RUN, [*EDITED]),
    "a note on a row that was not written": (with_row(3, divergence={"index": 1}), RUN, EDITED),
    "edited claims": (changed(claims=[]), RUN, EDITED),
    "a row left out": (changed(rows=REPORT["rows"][:-1]), RUN, EDITED),
    "rows that the log does not know": (changed(rows=REPORT["rows"] + REPORT["rows"][:1]), RUN, EDITED * 2),
    "no list of rows": (changed(rows={}), RUN, EDITED),
    "no rows": (changed(rows=None), RUN, EDITED),
    "a row that is no object": (changed(rows=[*REPORT["rows"], 7]), RUN, EDITED),
    "an empty log": (REPORT, replace(RUN, logs=()), UNNAMED),
    "several logs": (REPORT, replace(RUN, logs=(b"x\n", *(as_log(line) for line in LINES))), []),
    "two reports in one log": (REPORT, log(*log_lines(OTHER), *LINES), []),
    "only the other report's log": (REPORT, log(*log_lines(OTHER)), EDITED),
    "a log without the header's digest": (REPORT, log(*log_lines(OTHER), *LINES[1:]), EDITED),
    "a log with the header's digest elsewhere": (
        REPORT, log(*log_lines(OTHER), f"{digests.END} {LINES[0][14:30]} {LINES[0][14:]}", *LINES[1:]), EDITED,
    ),
    "a log with another header of the same id": (
        REPORT, log(f"{digests.REPORT} {digests.header_digest(REPORT)[:16]}{'0' * 48}", *LINES[1:]), EDITED,
    ),
    "a log that was cut": (REPORT, log(LINES[0], CUT, *LINES[-2:]), []),
    "a log that was cut before the header's digest": (REPORT, log(*log_lines(OTHER), CUT, *LINES[-2:]), []),
    "a cut log of another report": (REPORT, log(*log_lines(OTHER), CUT), EDITED),
    "a log that ends early": (REPORT, log(*LINES[:-1]), EDITED),
    "a log that ends before the last row": (REPORT, log(*LINES[:-2]), EDITED * 2),
    "a log that lacks the last rows": (REPORT, log(*LINES[:-2], LINES[-1]), EDITED),
    "a log with another end": (REPORT, log(*LINES, f"{LINES[-1][:-64]}{'0' * 64}"), EDITED),
    "a log with a row too many": (REPORT, log(*LINES, LINES[-2].replace(" 20 ", " 21 ")), EDITED),
    "a log with a count of no rows": (REPORT, log(*LINES, LINES[-2].replace(" 20 ", " 0 ")), EDITED),
    "a log with another middle": (REPORT, log(*LINES, LINES[1].replace(" 7 ", " 6 ")), EDITED),
    "a log with a count where none belongs": (REPORT, log(*LINES, f"{LINES[-1][:-65]} 99 {LINES[-1][-64:]}"), []),
    "a measurement that was repeated before": (REPORT, log(*AGAIN, *LINES), []),
    "a measurement that was repeated afterwards": (REPORT, log(*LINES, *AGAIN), []),
    "two measurements, of which none is the report's": (
        with_row(1, seconds=1.0), log(*AGAIN, *LINES), EDITED,
    ),
    "the rows of one measurement and the end of another": (REPORT, log(*LINES[:-1], *AGAIN), EDITED),
    "a log that goes on": (REPORT, log(*LINES, LINES[-2]), []),
    "a report that was written twice": (REPORT, log(*LINES[:-1], f"{LINES[-1][:-64]}{'0' * 64}", LINES[-1]), []),
    # Older engines
    "an older engine, unsigned": (REPORT, log(*OLDER), UNNAMED),
    "an older engine, signed": (REPORT, log(*OLDER, is_signed=True), []),
    "an older engine of other rows": (with_row(0, seconds=1.0), log(*OLDER, is_signed=True), EDITED),
    "an older engine of fewer rows": (REPORT, log(*OLDER[:-1], is_signed=True), EDITED),
    "an older engine that printed another word": (
        REPORT, log(f"{digests.END} {OLDER[-1][-64:]}", is_signed=True), EDITED,
    ),
    "an empty log of an older engine": (changed(rows=[]), replace(RUN, logs=(), is_signed=True), EDITED),
    "an older engine that printed something else": (
        changed(rows=[]), log(f"{digests.END} {'0' * 16} {'0' * 64}", digests.ROWS, is_signed=True), EDITED,
    ),
    # A comparison by the runner
    "the comparison of the run": (COMPARED, COMPARING, []),
    "a comparison of another run": (COMPARED | {"run": {"id": "0" * 64}}, COMPARING, NOT_THIS),
    "a comparison in a run without one": (COMPARED, replace(COMPARING, comparison=None), NOT_THIS),
    "a comparison that was edited": (COMPARED | {"claims": []}, COMPARING, EDITED),
    "a comparison of another commit": (COMPARED, replace(COMPARING, workload="f" * 40), NOT_THIS),
    "a report of another kind in a comparison": (REPORT, replace(COMPARING, logs=(b"",)), UNNAMED),
    # Its options
    "the options of the job": (*with_config(f"{STEP} --repeats=5 --cache raw --out x.json", repeats=5), []),
    "another number": (*with_config(f"{STEP} --repeats 4", repeats=5), NOT_THIS),
    "another number in one word": (*with_config(f"{STEP} --repeats=4 --cache raw", repeats=5), NOT_THIS),
    "the same number written otherwise": (*with_config(f"{STEP} --temperature 0", temperature=0.0), []),
    "another text": (*with_config(f"{STEP} --cache raw", cache="e8v@4.25"), NOT_THIS),
    "a choice of the engine": (*with_config(f"{STEP} --cache auto"), []),
    "a place on the host": (*with_config(f"{STEP} --model /models/a", model="a"), []),
    "an option that the report does not name": (*with_config(f"{STEP} --verbose"), []),
    "a flag": (*with_config(f"{STEP} --no-chat --fused --repeats 5", chat=False, fused=True), []),
    "a flag before a flag": (*with_config(f"{STEP} --chat --fused", chat=True, fused=True), []),
    "a flag that was not set": (*with_config(f"{STEP} --chat", chat=False), NOT_THIS),
    "a flag that was unset": (*with_config(f"{STEP} --no-chat", chat=True), NOT_THIS),
    "a flag where there is a text": (*with_config(f"{STEP} --chat --repeats 5", chat="True"), NOT_THIS),
    "a text where there is a flag": (*with_config(f"{STEP} --chat True", chat=True), NOT_THIS),
    "a list in another order": (*with_config(f"{STEP} --lengths 8,4"), []),
    "a list of caches": (
        *with_config(f"{STEP} --caches raw,k=e8v@4.25,v=raw", caches=["raw", "k=e8v@4.25,v=raw"]), [],
    ),
    "a list of other caches": (
        *with_config(f"{STEP} --caches raw,k=e8v@4.25,v=raw", caches=["raw", "k=e8v@3.25,v=raw"]), NOT_THIS,
    ),
    "a longer list": (*with_config(f"{STEP} --lengths 8,16"), NOT_THIS),
    "a list with one left out": (*with_config(f"{STEP} --caches raw,x", caches=["raw"], left_out={"x": ""}), []),
    "a list that lacks one": (*with_config(f"{STEP} --caches raw,x", caches=["raw"], left_out=["x"]), NOT_THIS),
    "an option without a value": (*with_config(f"{STEP} --seed 1", seed=None), []),
    "an option that holds several": (*with_config(f"{STEP} --seed 1", seed={"a": 1}), []),
    "words before the options": (*with_config(f"{STEP} words --repeats 4", repeats=5), NOT_THIS),
    "a word that is no option": (*with_config(f"{STEP} a-repeats 4 --cache raw", repeats=5), []),
    "the options of another command": (*with_config("bench spec --repeats 4", repeats=5), []),
    "a word of the command": (*with_config("bench", repeats=5), []),
    "two steps, one of which fits": (
        with_config("", repeats=5)[0],
        replace(with_config("", repeats=5)[1], argvs=(("bench", "verify-l", "--repeats", "4"), ("bench", "verify-l"))),
        [],
    ),
    "two steps, none of which fits": (
        with_config("", repeats=5)[0],
        replace(
            with_config("", repeats=5)[1],
            argvs=(("bench", "verify-l", "--repeats", "4", "--cache", "x"), ("bench", "verify-l", "--repeats", "3")),
        ),
        NOT_THIS,
    ),
    "options that are no object": (*at(config=7), []),
    "a kind without a command": (*at(kind="something"), []),
}  # fmt: skip


def codes(module, report, run):
    return [code for code, _ in module.mismatches(report, run)]


@pytest.mark.parametrize("name", CASES)
def test_what_does_not_fit_is_named(name):
    report, run, expected = CASES[name]

    assert codes(binding, report, run) == expected


def test_messages_name_what_differs():
    def messages(name):
        report, run, _ = CASES[name]
        return " ".join(message for _, message in binding.mismatches(report, run))

    assert f"of run 000000000000, and this is run {reports.RUN[:12]}" in messages("another id")
    assert "2026-01-31T11:49:50Z, and the job ran from 2026-01-31T11:50:00Z to" in messages(
        "written before the job"
    )
    assert "took 904 s of a job of 903 s" in messages("longer than the job")
    assert "mlx 0.1, and this machine has 0.32.4" in messages("another mlx")
    assert "tells of 14 rows, and the report has 20" in messages("a log that lacks the last rows")
    assert "--repeats was 4, and the report's configuration says 5" in messages("another number")
    # Of two steps, the one that differs least.
    assert "--repeats was 3" in messages("two steps, none of which fits")


class Mutator(ast.NodeTransformer):
    """Changes one condition, or leaves out one statement."""

    def __init__(self, wanted: int) -> None:
        self.wanted, self.number, self.label = wanted, 0, ""

    def is_next(self, node: ast.AST, how: str) -> bool:
        self.number += 1
        if self.number - 1 == self.wanted:
            self.label = f"line {getattr(node, 'lineno', '?')}: {how}: {ast.unparse(node)}"
            return True
        return False

    def constants(self, test: ast.expr) -> ast.expr:
        for value in (True, False):
            if self.is_next(test, f"always {value}"):
                return ast.copy_location(ast.Constant(value), test)
        return test

    def visit_If(self, node: ast.If) -> ast.AST:
        self.generic_visit(node)
        node.test = self.constants(node.test)
        return node

    def visit_IfExp(self, node: ast.IfExp) -> ast.AST:
        self.generic_visit(node)
        node.test = self.constants(node.test)
        return node

    def visit_comprehension(self, node: ast.comprehension) -> ast.AST:
        self.generic_visit(node)
        node.ifs = [self.constants(test) for test in node.ifs]
        return node

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.AST:
        self.generic_visit(node)
        for i in range(len(node.values)):
            if self.is_next(node.values[i], "left out"):
                node.values.pop(i)
                break
        return node if len(node.values) > 1 else node.values[0]

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        self.generic_visit(node)
        other = {
            ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.Lt: ast.GtE, ast.LtE: ast.Gt, ast.Gt: ast.LtE, ast.GtE: ast.Lt,
            ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
        }  # fmt: skip
        for i, operator in enumerate(node.ops):
            if self.is_next(node, "the other way"):
                node.ops[i] = other[type(operator)]()
                break
        return node

    def visit_Expr(self, node: ast.Expr) -> ast.AST:
        self.generic_visit(node)
        is_step = isinstance(node.value, ast.Yield | ast.YieldFrom)
        return ast.copy_location(ast.Pass(), node) if is_step and self.is_next(node, "left out") else node

    def visit_Return(self, node: ast.Return) -> ast.AST:
        self.generic_visit(node)
        return (
            ast.copy_location(ast.Pass(), node)
            if node.value is None and self.is_next(node, "left out")
            else node
        )


def mutants(module: ModuleType) -> Iterator[tuple[str, ModuleType]]:
    """Yield a module with each condition of its functions changed, one at a time, and what was changed."""
    source = inspect.getsource(module)
    for number in range(1_000):
        tree, mutator = ast.parse(source), Mutator(number)
        for node in tree.body:
            if isinstance(node, ast.FunctionDef):
                mutator.visit(node)
        if not mutator.label:
            return
        mutant = ModuleType(module.__name__)
        exec(compile(ast.fix_missing_locations(tree), module.__file__ or "", "exec"), vars(mutant))
        yield mutator.label, mutant


def is_killed(mutant: ModuleType | SimpleNamespace) -> bool:
    """Return whether a case of the table shows that a module was changed."""
    for report, run, expected in CASES.values():
        try:
            if codes(mutant, report, run) != expected:
                return True
        except Exception:  # noqa: BLE001 - whatever a changed module raises, the original raises nothing
            return True
    try:
        [*mutant.mismatches(REPORT, RUN, Deadline(-1.0))]
    except TooLongError:
        return False
    return True


def test_each_condition_of_the_binding_is_tested():
    survivors = [label for label, mutant in mutants(binding) if not is_killed(mutant)]

    assert survivors == []


def test_each_condition_of_the_options_is_tested(monkeypatch):
    survivors = []
    for label, mutant in mutants(command_line):
        monkeypatch.setattr(binding, "config_mismatches", mutant.config_mismatches)
        if not is_killed(binding):
            survivors.append(label)

    assert survivors == []


def test_the_digests_are_those_that_the_documentation_describes():
    """By a second implementation, with nothing of the first."""

    def canonical(value):
        return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()

    header = {
        name: value
        for name, value in REPORT.items()
        if name not in ("rows", "claims", "seconds", "created_at")
    }
    header["identity"] = {n: v for n, v in header["identity"].items() if n not in ("load", "power")}
    chain = hashlib.sha256(canonical(header)).hexdigest()
    lines = [f"kakeya-report {chain}"]
    identifier = chain[:16]
    for i, row in enumerate(REPORT["rows"], 1):
        chain = hashlib.sha256(chain.encode() + b"\n" + canonical(row)).hexdigest()
        if i % 7 == 0 or i == len(REPORT["rows"]):
            lines.append(f"kakeya-rows {identifier} {i} {chain}")
    lines.append(f"kakeya-end {identifier} {hashlib.sha256(canonical(REPORT)).hexdigest()}")

    assert lines == LINES


@pytest.mark.parametrize(
    "start", ["0123456789abcdef", "1234567890123456", "12345678f", "a1", "9", "000000000"]
)
def test_digests_that_begin_with_digits_are_read(start):
    digest = start + "e" * (64 - len(start))
    text = f"kakeya-report {digest}\nkakeya-rows {digest[:16]} 7 {digest}\nkakeya-rows 7 {digest}\n"
    text += f"kakeya-end {digest[:16]} {digest}\n"

    assert [*digests.lines_in([text.encode()])] == [
        digests.Line("kakeya-report", digest, digest[:16]),
        digests.Line("kakeya-rows", digest, digest[:16], 7),
        digests.Line("kakeya-rows", digest, rows=7),
        digests.Line("kakeya-end", digest, digest[:16]),
    ]


def test_the_id_of_a_run_is_that_of_branch_request_and_claim():
    text = b"kakeya-run\nmac-bridge/job-1\n" + b"c" * 40 + b"\n1\n"
    assert run_id("mac-bridge/job-1", "c" * 40, 1) == hashlib.sha256(text).hexdigest()
    assert has_run_id(REPORT)


def test_a_comparison_that_takes_too_long_is_incomplete():
    with pytest.raises(TooLongError):
        [*binding.mismatches(REPORT, RUN, Deadline(-1.0))]
    found = check_report(REPORT, RUN, Deadline(-1.0))
    assert verdict(found) == "INCOMPLETE"
    assert {fault.code for fault in found} == {"JUDGED_TOO_LONG"}


def test_a_report_without_a_run_is_incomplete():
    data = {"a.json": json.dumps(REPORT).encode()}

    assert judge(data).verdict == judge(data, run=NO_RUN).verdict == "INCOMPLETE"
    assert judge(data, run=("RUN_UNNAMED", "because")).violations[0].message == "because"
    assert judge(data, run=RUN).verdict == "ACCEPTED"
    assert judge(data, run=replace(RUN, requester_measured=True)).verdict == "ACCEPTED_BY_REQUESTER"


def test_the_engine_prints_the_lines_that_the_gate_reads(monkeypatch, capsys):
    pytest.importorskip("mlx")
    engine_report = importlib.import_module("engine.harness.report")
    monkeypatch.setenv(digests.VARIABLE, reports.RUN)
    monkeypatch.setattr(engine_report, "EVERY_S", 0.0)
    sections = {name: REPORT[name] for name in ("models",)}
    began = datetime.now(UTC)

    open_report = engine_report.OpenReport(REPORT["kind"], REPORT["config"], **sections)
    for row in REPORT["rows"]:
        open_report.add(row | {"cache": row["cache"]})
    report = json.loads(engine_report.dumps(open_report.close(REPORT["rows"], 1.0)))
    printed = capsys.readouterr().err

    assert printed.splitlines() == [*log_lines(report, every=1)]
    run = RunBinding(reports.RUN, began, datetime.now(UTC) + timedelta(seconds=1), logs=(printed.encode(),))
    assert codes(binding, report, run) == []
    assert report["claims"] == REPORT["claims"]


@pytest.mark.parametrize("value", ["", "x" * 64, "a" * 63])
def test_without_a_run_the_engine_prints_no_digest(monkeypatch, capsys, value):
    pytest.importorskip("mlx")
    engine_report = importlib.import_module("engine.harness.report")
    monkeypatch.setenv(digests.VARIABLE, value)

    open_report = engine_report.OpenReport(REPORT["kind"], REPORT["config"])
    for row in REPORT["rows"]:
        open_report.add(row)
    report = open_report.close(REPORT["rows"], 1.0)

    assert capsys.readouterr().err == ""
    assert engine_report.run_id() is None
    assert "run" not in report
