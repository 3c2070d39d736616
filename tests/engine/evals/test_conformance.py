"""The server's matrix on a model without a drafter: what cannot run is left out by name, and not found missing."""

from bridge.gate import check_report
from engine.evals.serve_conformance import Matrix, measured
from tests.engine import folders


def test_a_model_without_a_drafter_has_no_cells_of_it(tmp_path):
    folder = folders.write_target(tmp_path / "model")
    matrix, cells = Matrix(caches=("raw",), clients=(1,), forms=("free",), max_tokens=24), []
    report = measured(str(folder), None, "float32", matrix, "raw", cells.append, lambda: None)

    assert (report["config"]["drafts"], cells) == (["none", "lookup"], [4])
    assert report["config"]["left_out"] == {"dflash": "the model has no drafter"}
    assert {row["draft"] for row in report["rows"]} == {"none", "lookup"}
    assert {fault.code for fault in check_report(report)} == {"NO_RUN"}
